"""What callers are told is true of some moment of their call, whatever happens between its statements."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from aioflow.core import events as ev
from aioflow.store import rows
from tests.store.bench import NOW, Bench, ids, key, later, record, signalled, started

BLOCKED = "blocked"
FIRST = next(f"new{n}" for n in range(1000) if key(f"new{n}").shard < key(BLOCKED).shard)


@asynccontextmanager
async def held_up(bench: Bench, other: asyncpg.Connection) -> AsyncIterator[None]:
    """Calls that also concern ``BLOCKED`` wait in the middle until the block ends."""
    await bench.start(BLOCKED)
    async with other.transaction():
        await other.execute("select 1 from aioflow.instance_hot where instance_id = $1 for no key update", BLOCKED)
        yield


def signals(bench: Bench, **first: Any) -> Awaitable[list[rows.DeliveryOutcome]]:
    """One to the instance in question and one to the blocked one, in a call."""
    return bench.store.signal(
        [
            rows.SignalRequest(namespace="default", instance_id=FIRST, alone=False, **{"record": signalled(), **first}),
            rows.SignalRequest(namespace="default", instance_id=BLOCKED, alone=False, record=signalled()),
        ]
    )


def cancels(bench: Bench) -> Awaitable[list[rows.DeliveryOutcome]]:
    asked = record(ev.CancelRequested(at=NOW, reason="enough"))
    return bench.store.request_cancel(
        [
            rows.CancelRequest(namespace="default", instance_id=one, alone=False, record=asked)
            for one in (FIRST, BLOCKED)
        ]
    )


@pytest.mark.parametrize("call", [signals, cancels])
@pytest.mark.parametrize("reserved", [False, True])
async def test_nobody_is_told_closed_of_an_instance_that_is_just_being_started(
    bench: Bench, other: asyncpg.Connection, call: Callable[[Bench], Awaitable[list[Any]]], reserved: bool
) -> None:
    async with held_up(bench, other):
        calling = asyncio.ensure_future(call(bench))
        await bench.waiting()
        if reserved:
            reserve = rows.ReserveRequest(namespace="default", instance_id=FIRST, workflow="W", queue="q")
            assert (await bench.store.reserve([reserve]))[0].outcome == "reserved"
        else:
            assert (await bench.start(FIRST)).outcome == "started"
    first, second = await calling
    assert (first.outcome, second.outcome) == ("unknown", "accepted")
    await bench.healthy()


@pytest.mark.parametrize("call", [signals, cancels])
async def test_an_instance_that_is_started_again_was_closed_before(
    bench: Bench, other: asyncpg.Connection, call: Callable[[Bench], Awaitable[list[Any]]]
) -> None:
    await bench.start(FIRST)
    assert (await bench.terminate(FIRST)).outcome == "closed"
    async with held_up(bench, other):
        calling = asyncio.ensure_future(call(bench))
        await bench.waiting()
        assert (await bench.start(FIRST, reuse="allow")).outcome == "started"
    assert [one.outcome for one in await calling] == ["closed", "accepted"]


async def test_ending_another_run_of_an_open_instance_finds_none(bench: Bench) -> None:
    await bench.start()
    told = await bench.terminate(run_id=ids())
    assert (told.outcome, told.run_id) == ("unknown", None)
    assert (await bench.hot()) is not None


async def test_a_key_does_not_expire_while_a_call_by_it_is_answered(bench: Bench, other: asyncpg.Connection) -> None:
    await bench.start(FIRST)
    same = {"key": "k", "digest": b"same", "keep": 60.0, "record": signalled(ref="one")}
    assert (await bench.signal(FIRST, **same)).outcome == "accepted"
    async with held_up(bench, other):
        calling = asyncio.ensure_future(signals(bench, **same))
        await bench.waiting()
        await later(bench.conn, 61)
        assert await bench.store.expire_requests() == 0
    assert [one.outcome for one in await calling] == ["duplicate", "accepted"]
    assert await bench.store.expire_requests() == 1
    assert (await bench.signal(FIRST, **same)).outcome == "accepted"


async def test_a_start_by_an_expiring_key_is_answered(bench: Bench, other: asyncpg.Connection) -> None:
    """Held up by the insert of another start of the call, whose id is just being taken."""
    run_id = ids()
    same = {"run_id": run_id, "key": "k", "digest": b"same", "keep": 60.0, "alone": False}
    assert (await bench.start(FIRST, **same)).outcome == "started"
    made = {"namespace": "default", "workflow": "W", "queue": "q", "record": started()}
    async with other.transaction():
        await other.execute(
            "insert into aioflow.instance (shard, namespace, instance_id, workflow, created_at, started_at)"
            " values (aioflow.shard_of('default', $1), 'default', $1, 'W', now(), now())",
            BLOCKED,
        )
        calling = asyncio.ensure_future(
            bench.store.start(
                [
                    rows.StartRequest(instance_id=FIRST, **made, **{**same, "run_id": ids()}),
                    rows.StartRequest(instance_id=BLOCKED, **made, run_id=ids(), alone=False),
                ]
            )
        )
        await bench.waiting()
        await later(bench.conn, 61)
        assert await bench.store.expire_requests() == 0
    first, _ = await calling
    assert (first.outcome, first.run_id, first.again) == ("started", run_id, True)


async def test_a_key_named_twice_in_a_call_that_is_refused_had_no_effect(bench: Bench) -> None:
    """The second is not told that its like was accepted: it may come back."""
    same = {"namespace": "default", "instance_id": "nowhere", "key": "k", "digest": b"d", "alone": False}
    twice = [rows.SignalRequest(record=signalled(ref="one"), **same) for _ in range(2)]
    assert [one.outcome for one in await bench.store.signal(twice)] == ["unknown", "closing"]
