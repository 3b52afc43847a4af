"""Heartbeats that are on their way while their attempt ends."""

from __future__ import annotations

import asyncio

from aioflow import RetryPolicy, Workflow, activity
from aioflow.client import Client
from aioflow.core.fault import set_fault_hook
from tests.worker.conftest import worker

IN_FLIGHT, RETRIED = asyncio.Event(), asyncio.Event()


@activity.defn(retry=RetryPolicy(initial_interval=0.01))
async def remembering() -> list[int]:
    info = activity.info()
    if info.attempt == 1:
        activity.heartbeat(7)
        await IN_FLIGHT.wait()
        raise ConnectionError("broken")
    return list(info.heartbeat_details)


class Remembering(Workflow):
    async def handle(self) -> list[int]:
        return await remembering()


async def test_what_an_attempt_said_last_outlasts_a_batch_on_its_way(client: Client) -> None:
    """The attempt fails while its heartbeat is being written: the next one must find it all the same."""
    first = [True]

    async def hook(point: str) -> None:
        if point == "heartbeat.before_batch" and first:
            first.clear()
            IN_FLIGHT.set()
            await asyncio.wait({asyncio.ensure_future(RETRIED.wait())}, timeout=0.5)
        if point == "retry_activities.after_send":
            RETRIED.set()

    set_fault_hook(hook)
    try:
        async with worker(client, Remembering, remembering):
            assert await (await client.start(Remembering)).result() == [7]
    finally:
        set_fault_hook(None)
