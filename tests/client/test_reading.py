"""Descriptions, lists, histories."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import pytest

from aioflow import Workflow, activity, timer
from aioflow.client import Client
from aioflow.core import events as ev
from aioflow.errors import ArgumentError, InstanceNotFound
from tests.client.flows import Double, Failing, Mailbox, Order, Orders, Patient, Receipt, Sleeping
from tests.support_runs import Runs


@activity.defn
async def slow(n: int) -> int:
    return n


class Wide(Workflow):
    async def handle(self) -> None:
        async with asyncio.TaskGroup() as group:
            for n in range(5):
                group.create_task(activity(slow, n))
            group.create_task(timer(3600))


async def test_it_says_what_a_run_waits_for(client: Client, store: Any, sql: asyncpg.Connection) -> None:
    runs = await Runs(store, Wide, Orders, Mailbox, Patient).register()
    wide, orders = await client.start(Wide), await client.start(Orders, Order("o"))
    before = await orders.describe()
    assert (before.waiting_for, before.unconsumed) == ("a worker of queue 'default'", 1)
    await runs.settle()
    found = await wide.describe()
    assert (found.activities, found.timers, len(found.pending)) == (5, 1, 5)
    assert found.waiting_for is not None
    assert found.waiting_for.startswith("activity slow (waiting), activity slow (waiting), activity slow (waiting), ")
    assert "2 more activities, a timer until 20" in found.waiting_for
    assert {one.name for one in found.pending} == {"slow"}
    assert not any(one.running for one in found.pending)
    assert (await orders.describe()).waiting_for == "a signal or a condition"
    await sql.execute("update aioflow.instance_hot set blocked_reason = 'it changed' where instance_id = $1", orders.id)
    blocked = await orders.describe()
    assert (blocked.blocked_reason, blocked.waiting_for) == ("it changed", "code that fits: it changed")
    await sql.execute("update aioflow.instance_hot set owner = $1 where instance_id = $2", runs.worker_id, orders.id)
    held = await orders.describe()
    assert (held.worker, held.waiting_for) == ("test-worker", "nothing: worker test-worker runs its code")


async def test_a_closed_run_waits_for_nothing(client: Client, serving: Runs) -> None:
    instance = await client.start(Double.options(id="d"), 1)
    await instance.result()
    found = await client.describe("d")
    assert (found.status, found.open, found.waiting_for, found.served) == ("completed", False, None, True)
    assert found.closed_at is not None
    assert (found.history_length, found.run_count, found.number) == (2, 1, 1)
    for call in (client.describe, client.history):
        with pytest.raises(InstanceNotFound):
            await call("nobody")


async def test_lists_are_filtered_and_complete(client: Client, serving: Runs) -> None:
    for n in range(5):
        await client.start(Orders.options(id=f"order-{n}"), Order("o"))
    await client.start(Sleeping.options(id="s"))
    await client.reserve(Double.options(id="later"))
    await (await client.start(Double.options(id="done"), 1)).result()
    failed = await client.start(Failing.options(id="bad"), "x")
    with pytest.raises(Exception, match="did not work"):
        await failed.result()

    async def ids(**filters: Any) -> list[str]:
        return [one.instance_id async for one in client.list(**filters)]

    assert await ids() == ["bad", "done", "later", "s", *(f"order-{n}" for n in range(4, -1, -1))]
    assert await ids(status="running", workflow=Orders) == [f"order-{n}" for n in range(4, -1, -1)]
    assert await ids(workflow="Double") == ["done", "later"]
    assert await ids(queue="nobody") == ["s"]
    assert await ids(prefix="order-", limit=2) == ["order-4", "order-3"]
    assert await ids(limit=0) == []
    assert [await ids(status=one) for one in ("reserved", "failed", "cancelled")] == [["later"], ["bad"], []]
    with pytest.raises(ArgumentError, match="status"):
        client.list(status="runing")


async def test_a_long_list_comes_in_pages(client: Client) -> None:
    made = await asyncio.gather(*(client.start(Double, n) for n in range(450)))
    listed = [one async for one in client.list()]
    assert {one.instance_id for one in listed} == {one.id for one in made}
    assert len(listed) == 450
    assert listed == sorted(listed, key=lambda one: (one.started_at, one.instance_id), reverse=True)
    assert len([one async for one in client.list(limit=333)]) == 333


async def test_a_history_holds_typed_events(client: Client, serving: Runs) -> None:
    instance = await client.start(Orders, Order("o", 4))
    await instance.signal(Orders.approve, "ann")
    await instance.result()
    history = await instance.history()
    assert [one.seq for one in history] == list(range(1, len(history) + 1))
    scheduled = next(one for one in history if isinstance(one.event, ev.ActivityScheduled))
    assert (scheduled.kind, scheduled.value()) == ("ActivityScheduled", [{"id": "o", "amount": 4}])
    assert history[-1].value(Receipt) == Receipt("o", 4)
    assert history[0].failure is None
    assert len({one.commit for one in history}) < len(history)
    failed = await client.start(Failing, "x")
    with pytest.raises(Exception, match="did not work"):
        await failed.result()
    failure = (await failed.history())[-1].failure
    assert failure is not None
    assert (failure.type, failure.cause and failure.cause.type) == ("ValueError", "KeyError")


async def test_what_has_not_started_has_no_history(client: Client) -> None:
    reserved = await client.reserve(Double)
    assert await reserved.instance.history() == []
    assert await (await client.start(Double, 1)).history() == []


async def test_a_long_history_comes_in_pages(client: Client, runs: Runs) -> None:
    instance = await client.start(Orders, Order("o"))
    await asyncio.gather(*(instance.signal(Orders.note, f"{n}") for n in range(1200)))
    await runs.settle()
    assert len(await instance.history()) == 1201
    assert await instance.query(Orders.last, 2) == ["1198", "1199"]
