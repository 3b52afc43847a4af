"""A worker as a block of the caller: what is raised, in which order it is left, what ends it."""

from __future__ import annotations

import asyncio
from typing import Any

import anyio
import asyncpg
import pytest

from aioflow.client import Client
from aioflow.worker import Worker
from aioflow.worker.engine import Engine
from tests.worker.conftest import worker
from tests.worker.flows import Doubling, double


async def test_the_body_of_a_worker_raises_what_it_raises(client: Client) -> None:
    with pytest.raises(ExceptionGroup) as caught:
        async with worker(client, Doubling):
            raise ExceptionGroup("mine", [KeyError("one")])
    assert caught.value.message == "mine"
    with pytest.raises(KeyError):
        async with worker(client, Doubling):
            raise KeyError("one")


async def test_workers_of_one_task_are_left_in_any_order(client: Client, sql: asyncpg.Connection[Any]) -> None:
    first, second, third = worker(client, Doubling), worker(client, double), worker(client, Doubling)
    for one in (first, second, third):
        await one.__aenter__()
    assert await (await client.start(Doubling, 4)).result(timeout=20) == 8
    with anyio.CancelScope():  # a scope of the caller between them does no harm either
        await first.__aexit__(None, None, None)
        await third.__aexit__(None, None, None)
    await asyncio.create_task(second.__aexit__(None, None, None))  # nor does another task
    assert await sql.fetchval("select bool_and(dead) from aioflow.worker")


async def _within(one: Worker, block: str, broken: asyncio.Event) -> None:
    async with one:
        broken.set()
        if block == "waits":
            await anyio.sleep_forever()
        await one._stopped.wait()
        if block == "fails":
            raise KeyError("of the block")


@pytest.mark.parametrize("block", ["waits", "ends", "fails"])
async def test_a_worker_that_fails_ends_its_block(client: Client, monkeypatch: pytest.MonkeyPatch, block: str) -> None:
    """The block is cancelled, and the error is raised where it is left, also when it has just ended or fails itself."""
    broken = asyncio.Event()

    async def run(*_: Any) -> None:
        await broken.wait()
        raise RuntimeError("the engine broke")

    monkeypatch.setattr(Engine, "run", run)
    with pytest.raises(RuntimeError, match="the engine broke"):
        await _within(worker(client, Doubling), block, broken)
    here = asyncio.current_task()
    assert here is not None
    assert here.cancelling() == 0
    await asyncio.sleep(0)  # no cancellation is left over
    assert not [one for one in asyncio.all_tasks() if "worker" in one.get_name()]
