"""Guards of the protocol that hold without any race: what statements may not contain, what a load and a lease go by."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from importlib.resources import files

import asyncpg
import pytest

from aioflow.core.fault import set_fault_hook
from aioflow.store import rows
from aioflow.store.batching import Batcher
from aioflow.store.notify import DONE, WAKE
from tests.store.bench import Bench, activity, ids, key, later, signalled

# The clock itself, the record of migrations (kept once, by nobody's protocol), and the age of the server.
OTHER_CLOCKS = {"0001_tables", "migration_table", "reap_declare"}


def texts() -> dict[str, str]:
    """Every statement and migration by name, without comments."""
    folder = files("aioflow.store") / "sql"
    found = [entry for part in (folder, folder / "migrations") for entry in part.iterdir() if entry.is_file()]
    return {entry.name.removesuffix(".sql"): re.sub(r"--.*", "", entry.read_text("utf-8")) for entry in found}


def test_no_statement_that_writes_sends_a_hint() -> None:
    """Transactions with a notification commit one at a time, all over the server."""
    assert [name for name, text in texts().items() if re.search(r"notify", text)] == ["notify"]


def test_time_is_read_through_one_function() -> None:
    other = re.compile(r"\b(now\(\)|(clock|statement|transaction)_timestamp\b|current_timestamp|timeofday)")
    assert {name for name, text in texts().items() if other.search(text)} == OTHER_CLOCKS
    clock = re.search(r"function aioflow\.clock\(\).*?;\s*end'", texts()["0001_tables"], re.DOTALL)
    assert clock is not None
    assert other.findall(texts()["0001_tables"]) == other.findall(clock[0]) != []
    assert "clock_timestamp()" in clock[0]  # now() is stale after a wait for a lock


async def test_writes_send_no_hint(bench: Bench, other: asyncpg.Connection) -> None:
    heard: list[str] = []
    for channel in (WAKE, DONE):
        await other.add_listener(channel, lambda *told: heard.append(str(told[2:])))
    await bench.start()
    await bench.signal()
    await bench.step(activities=[activity()])
    (attempt,) = await bench.claim_activities()
    assert (await bench.complete(attempt)).recorded
    await bench.cancel()
    await bench.terminate()
    await other.execute("select 1")  # hints arrive with the answer
    assert heard == []


async def test_the_clock_goes_on_within_a_transaction(conn: asyncpg.Connection) -> None:
    async with conn.transaction():
        before = await conn.fetchval("select aioflow.clock()")
        assert await conn.fetchval("select aioflow.clock()") > before


async def test_a_lease_ends_by_the_clock_it_was_renewed_by(bench: Bench) -> None:
    await later(bench.conn, 3600)
    assert await bench.store.renew_lease(bench.worker, 60.0)
    assert (await bench.store.reap(0.0)).workers == []
    await later(bench.conn, -3600)
    assert await bench.store.renew_lease(bench.worker, 60.0)
    await later(bench.conn, -3500)
    assert (await bench.store.reap(0.0)).workers == [bench.worker]


async def test_a_load_judges_timers_by_the_clock_it_is_given(bench: Bench) -> None:
    """One that is due only by the clock of the load would be placed before what the load does not see yet."""
    await bench.start()
    now = await bench.store.clock()
    await bench.step(timers=[("t", now + timedelta(hours=1))])
    await bench.signal()
    run = await bench.claim_one()
    await later(bench.conn, 7200)
    loaded = await bench.load(run)
    assert (len(loaded.inbox), loaded.timers) == (1, [])
    late = await bench.load(replace(run, clock=now + timedelta(hours=2)))
    assert [timer.ref for timer in late.timers] == ["t"]


async def test_a_result_of_another_run_is_not_loaded(bench: Bench) -> None:
    run_id = (await bench.start()).run_id
    await bench.step(activities=[activity("a"), activity("b")])
    for attempt in await bench.claim_activities():
        assert (await bench.complete(attempt)).recorded
    await bench.conn.execute("update aioflow.inbox set run_id = $1 where ref = 'a'", ids())
    loaded = await bench.load(await bench.claim_one())
    assert [one.ref for one in loaded.inbox] == ["b"]
    (outcome,) = await bench.store.commit([bench.decide(loaded)])
    assert outcome.status == "ok"
    assert await bench.conn.fetchval("select count(*) from aioflow.inbox") == 0
    assert (await bench.kinds(run_id))[-1] == "ActivityCompleted"


async def test_messages_keep_their_order_when_the_clock_is_set_back(bench: Bench) -> None:
    await bench.start()
    sent = [ids().hex for _ in range(3)]
    for n, ref in enumerate(sent):
        await later(bench.conn, -60.0 * n)
        await bench.signal(record=signalled(ref=ref))
    await later(bench.conn, 0)
    loaded = await bench.load(await bench.claim_one())
    assert [one.ref for one in loaded.inbox[1:]] == sent


async def test_a_run_is_given_back_by_the_token_it_is_held_by(bench: Bench) -> None:
    await bench.start()
    former = await bench.claim_one()
    assert await bench.store.release_runs([rows.ReleaseRun(key=key(), owner=bench.worker, token=former.token)]) == ["q"]
    present = await bench.claim_one()
    assert await bench.store.release_runs([rows.ReleaseRun(key=key(), owner=bench.worker, token=former.token)]) == [
        None
    ]
    assert (await bench.hot())["token"] == present.token
    await bench.healthy()


async def test_a_close_leaves_nothing_behind(bench: Bench) -> None:
    await bench.start()
    now = await bench.store.clock()
    await bench.step(activities=[activity("a"), activity("b")], timers=[("t", now + timedelta(hours=1))])
    assert len(await bench.claim_activities(1)) == 1
    await bench.signal()
    assert (await bench.step(close="completed")).status == "ok"
    assert await bench.leftovers() == 0
    await bench.healthy()


async def test_a_cancelled_completion_is_finished_first(bench: Bench, other: asyncpg.Connection) -> None:
    await bench.start()
    await bench.step(activities=[activity()])
    (attempt,) = await bench.claim_activities()
    transaction = other.transaction()
    await transaction.start()
    await other.fetchrow("select 1 from aioflow.instance_hot for no key update")
    task = asyncio.create_task(bench.complete(attempt))
    await bench.waiting()
    task.cancel()
    await asyncio.wait({task}, timeout=0.2)
    assert not task.done()
    await transaction.commit()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await bench.conn.fetchval("select count(*) from aioflow.inbox where kind = 'ActivityCompleted'") == 1


async def test_a_load_is_one_look(bench: Bench) -> None:
    """A generation newer than the inbox that comes with it would acknowledge what was never loaded."""
    await bench.start()
    run = await bench.claim_one()
    points: list[str] = []

    async def hook(point: str) -> None:
        if point.startswith("load"):
            points.append(point)
            await bench.signal()

    set_fault_hook(hook)
    try:
        loaded = await bench.load(run)
    finally:
        set_fault_hook(None)
    assert len(points) >= 2
    assert loaded.gens == list(range(1, loaded.gen + 1))
    assert (await bench.store.commit([bench.decide(loaded)]))[0].rearmed
    assert len((await bench.load(await bench.claim_one())).inbox) == len(points) - len(loaded.gens) + 1


@pytest.mark.parametrize("point", ["reap_pending", "reap_blame", "reap_release", "reap_settle"])
async def test_what_a_reaper_left_undone_the_next_one_does(bench: Bench, point: str) -> None:
    await bench.start()
    await bench.claim_one()
    await later(bench.conn, 3600)

    async def hook(at: str) -> None:
        if at == f"{point}.before_send":
            raise RuntimeError("the reaper is gone")

    set_fault_hook(hook)
    try:
        with pytest.raises(RuntimeError):
            await bench.store.reap(0.0)
    finally:
        set_fault_hook(None)
    await bench.store.reap(0.0)
    assert (await bench.hot())["owner"] is None
    assert not await bench.conn.fetchval("select exists (select from aioflow.worker where dead and not released)")
    await bench.add_worker()
    assert len(await bench.claim()) == 1


@pytest.mark.parametrize("delay", [0.0, 60.0])
async def test_a_run_given_back_is_armed_though_nothing_came(bench: Bench, delay: float) -> None:
    """Its timer was due, and is not any more for whoever looks at the row."""
    await bench.start()
    now = await bench.store.clock()
    await bench.step(timers=[("t", now)], next_due=now)
    run = await bench.claim_one()
    hot = await bench.hot()
    assert hot["wake_gen"] == hot["ack_gen"]
    release = rows.ReleaseRun(key=key(), owner=bench.worker, token=run.token, delay=delay)
    assert await bench.store.release_runs([release]) == ["q"]
    await later(bench.conn, delay)
    assert len((await bench.load(await bench.claim_one())).timers) == 1


async def test_a_heartbeat_of_a_former_attempt_changes_nothing(bench: Bench) -> None:
    await bench.start()
    await bench.step(activities=[activity(heartbeat=5.0)])
    (former,) = await bench.claim_activities()
    held = rows.HeldActivity(former.key.shard, former.run_id, former.ref, former.token)
    assert await bench.store.release_activities([held]) == ["q"]
    (present,) = await bench.claim_activities()
    before = dict(await bench.conn.fetchrow("select * from aioflow.activity"))
    await later(bench.conn, 3.0)
    beats = [
        rows.Heartbeat(shard=one.key.shard, run_id=one.run_id, ref=one.ref, token=one.token, details=b"\x01[1]")
        for one in (former, present)
    ]
    assert await bench.store.heartbeat(beats[:1]) == [False]
    assert dict(await bench.conn.fetchrow("select * from aioflow.activity")) == before
    assert await bench.store.heartbeat(beats) == [False, True]
    assert (await bench.conn.fetchval("select deadline from aioflow.activity")) > before["deadline"]


async def test_a_flush_in_flight_outlasts_a_caller_that_gives_up() -> None:
    begun, gate = asyncio.Event(), asyncio.Event()
    written: list[int] = []

    async def flush(items: Sequence[int]) -> list[int]:
        begun.set()
        await gate.wait()
        written.extend(items)
        return [item * 2 for item in items]

    batcher: Batcher[int, int] = Batcher(flush)
    first, second = batcher.submit([1, 2])
    await begun.wait()
    first.cancel()
    gate.set()
    assert await second == 4
    await batcher.close()
    assert written == [1, 2]
