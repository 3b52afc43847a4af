"""Interleavings of two connections that lose wake-ups, inputs or outcomes when a statement is written loosely."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from aioflow.store import rows
from aioflow.store.instances import _base, _keys
from aioflow.store.queries import sql
from tests.store.bench import NOW, Bench, activity, completed, inputs, key, later, signalled


async def send(connection: asyncpg.Connection, instance_id: str = "i", ref: str = "s") -> Any:
    """A signal by hand, inside the caller's transaction."""
    item = rows.SignalRequest(namespace="default", instance_id=instance_id, record=signalled(ref=ref))
    r = item.record
    return await connection.fetchrow(
        sql("signal"), *_base([item]), [r.version], [r.ref], [r.attrs], [r.payload], *_keys([item])
    )


async def test_signal_between_load_and_commit_re_arms(bench: Bench) -> None:
    await bench.start()
    loaded = await bench.load(await bench.claim_one())
    assert not (await bench.signal(record=signalled(ref="late"))).ready
    assert await bench.claim() == []
    (outcome,) = await bench.store.commit([bench.decide(loaded)])
    assert (outcome.status, outcome.rearmed, outcome.wake_gen) == ("ok", True, 2)
    await bench.healthy()
    again = await bench.load(await bench.claim_one())
    assert [r.ref for r in inputs(again)] == ["late"]


async def test_signal_in_flight_during_the_load_re_arms(bench: Bench, other: asyncpg.Connection) -> None:
    """It bumped before the load's snapshot and commits after it: neither row nor generation is seen."""
    await bench.start()
    run = await bench.claim_one()
    transaction = other.transaction()
    await transaction.start()
    assert (await send(other))["outcome"] == "accepted"
    loaded = await bench.load(run)
    assert (loaded.gen, len(inputs(loaded))) == (1, 1)
    commit = asyncio.create_task(bench.store.commit([bench.decide(loaded)]))
    await bench.waiting(commit)
    assert not commit.done()
    await transaction.commit()
    assert (await commit)[0].rearmed
    assert [r.ref for r in inputs(await bench.load(await bench.claim_one()))] == ["s"]


async def test_signal_waiting_behind_a_commit_arms_the_idle_run(bench: Bench, other: asyncpg.Connection) -> None:
    await bench.start()
    commit = bench.decide(await bench.load(await bench.claim_one()))
    transaction = other.transaction()
    await transaction.start()
    await other.fetchrow("select 1 from aioflow.instance_hot for no key update")
    writing = asyncio.create_task(bench.store.commit([commit]))
    await bench.waiting()
    sending = asyncio.create_task(bench.signal())
    await bench.waiting(count=2)
    await transaction.commit()
    (outcome,), sent = await asyncio.gather(writing, sending)
    assert outcome.status == "ok"
    assert sent.outcome == "accepted"
    assert len(await bench.claim()) == 1


async def test_close_is_refused_by_a_signal_in_flight(bench: Bench, other: asyncpg.Connection) -> None:
    run_id = (await bench.start()).run_id
    loaded = await bench.load(await bench.claim_one())
    transaction = other.transaction()
    await transaction.start()
    await send(other)
    closing = bench.decide(loaded, close="completed")
    task = asyncio.create_task(bench.store.commit([closing]))
    await bench.waiting(task)
    await transaction.commit()
    (outcome,) = await task
    assert (outcome.status, outcome.held, outcome.wake_gen) == ("refused", True, 2)
    assert await bench.kinds(run_id) == []
    again = await bench.load(loaded.run)
    assert [r.kind for r in inputs(again)] == ["RunStarted", "SignalReceived"]
    (outcome,) = await bench.store.commit([bench.decide(again, close="completed")])
    assert outcome.status == "ok"
    await bench.healthy()


async def test_the_third_refusal_seals_and_a_commit_lifts_it(bench: Bench) -> None:
    await bench.start()
    run = await bench.claim_one()
    for n in range(3):
        loaded = await bench.load(run)
        assert (loaded.refused, loaded.sealed) == (n, False)
        assert (await bench.signal()).outcome == "accepted"
        (outcome,) = await bench.store.commit([bench.decide(loaded, close="completed")])
        assert outcome.status == "refused"
    assert (await bench.signal(key="k")).outcome == "closing"
    assert (await bench.cancel()).outcome == "closing"
    loaded = await bench.load(run)
    assert (loaded.sealed, loaded.gen, len(loaded.inbox)) == (True, 4, 4)
    (outcome,) = await bench.store.commit([bench.decide(loaded)])
    assert outcome.status == "ok"
    assert (await bench.signal(key="k")).outcome == "accepted"
    await bench.healthy()


async def test_a_result_still_refuses_the_close_of_a_sealed_run(bench: Bench) -> None:
    await bench.start()
    await bench.step(activities=[activity()])
    (attempt,) = await bench.claim_activities()
    await bench.signal()
    run = await bench.claim_one()
    for _ in range(3):
        loaded = await bench.load(run)
        await bench.signal()
        await bench.store.commit([bench.decide(loaded, close="completed")])
    loaded = await bench.load(run)
    assert (await bench.complete(attempt)).recorded
    (outcome,) = await bench.store.commit([bench.decide(loaded, close="completed")])
    assert outcome.status == "refused"
    (outcome,) = await bench.store.commit([bench.decide(await bench.load(run), close="completed")])
    assert outcome.status == "ok"
    await bench.healthy()


@pytest.mark.parametrize("how", ["blocked", "drained", "lost", "dead"])
async def test_a_sealed_run_that_nobody_holds_takes_signals(bench: Bench, how: str) -> None:
    await bench.start()
    run = await bench.claim_one()
    for _ in range(3):
        loaded = await bench.load(run)
        await bench.signal()
        await bench.store.commit([bench.decide(loaded, close="completed")])
    assert (await bench.signal()).outcome == "closing"
    if how == "lost":
        await bench.store.bump_epoch(bench.worker)
        await bench.store.release_unknown(bench.worker, [], [])
    elif how == "dead":
        await later(bench.conn, 3600)
        await bench.store.reap(0.0)
    else:
        reason = "no code fits" if how == "blocked" else None
        await bench.store.release_runs(
            [rows.ReleaseRun(key=key(), owner=bench.worker, token=run.token, blocked_reason=reason)]
        )
    assert (await bench.signal()).outcome == "accepted"
    assert (await bench.hot())["refused"] == 0
    await bench.healthy()


async def test_a_stale_token_is_fenced_and_touches_nothing(bench: Bench) -> None:
    run_id = (await bench.start()).run_id
    loaded = await bench.load(await bench.claim_one())
    release = rows.ReleaseRun(key=key(), owner=bench.worker, token=loaded.run.token)
    await bench.store.release_runs([release])
    taken = await bench.load(await bench.claim_one())
    stale = bench.decide(loaded, activities=[activity("x")], timers=[("t", NOW)])
    assert (await bench.store.commit([stale]))[0] == rows.CommitOutcome("fenced", None, None, False, False)
    (outcome,) = await bench.store.commit([bench.decide(taken, activities=[activity("y")])])
    assert outcome.status == "ok"
    assert (await bench.store.commit([stale]))[0].status == "fenced"
    assert await bench.kinds(run_id) == ["RunStarted", "ActivityScheduled"]
    assert [a.ref for a in await bench.claim_activities()] == ["y"]
    await bench.healthy()


async def test_forced_close_records_a_signal_it_had_to_wait_for(bench: Bench, other: asyncpg.Connection) -> None:
    run_id = (await bench.start()).run_id
    transaction = other.transaction()
    await transaction.start()
    await send(other)
    closing = asyncio.create_task(bench.terminate())
    await bench.waiting(closing)
    await transaction.commit()
    assert (await closing).outcome == "closed"
    assert await bench.kinds(run_id) == ["RunStarted", "SignalReceived", "RunTerminated"]
    await bench.healthy()


async def test_forced_close_behind_a_commit_takes_what_it_scheduled(bench: Bench, other: asyncpg.Connection) -> None:
    run_id = (await bench.start()).run_id
    commit = bench.decide(await bench.load(await bench.claim_one()), activities=[activity()], timers=[("t", NOW)])
    transaction = other.transaction()
    await transaction.start()
    await other.fetchrow("select 1 from aioflow.instance_hot for no key update")
    writing = asyncio.create_task(bench.store.commit([commit]))
    await bench.waiting()
    closing = asyncio.create_task(bench.terminate())
    await bench.waiting(count=2)
    await transaction.commit()
    assert (await writing)[0].status == "ok"
    assert (await closing).outcome == "closed"
    expected = ["RunStarted", "ActivityScheduled", "TimerStarted", "RunTerminated"]
    assert await bench.kinds(run_id) == expected
    assert await bench.leftovers() == 0
    await bench.healthy()


async def test_a_commit_behind_a_forced_close_is_fenced(bench: Bench, other: asyncpg.Connection) -> None:
    run_id = (await bench.start()).run_id
    loaded = await bench.load(await bench.claim_one())
    assert (await bench.terminate()).outcome == "closed"
    for close in (None, "completed"):
        (outcome,) = await bench.store.commit([bench.decide(loaded, close=close)])
        assert outcome.status == "fenced"
    assert await bench.kinds(run_id) == ["RunStarted", "RunTerminated"]
    assert (await bench.result()).status == "terminated"
    assert (await bench.terminate()).outcome == "already"
    await bench.healthy()


async def test_two_forced_closes_write_one_end(bench: Bench) -> None:
    run_id = (await bench.start()).run_id
    outcomes = await asyncio.gather(*(bench.terminate() for _ in range(4)))
    assert sorted(o.outcome for o in outcomes) == ["already", "already", "already", "closed"]
    assert {o.run_id for o in outcomes} == {run_id}
    await bench.healthy()


async def test_terminate_existing_tells_a_waiting_sender_that_it_is_open(
    bench: Bench, other: asyncpg.Connection
) -> None:
    old = (await bench.start()).run_id
    loaded = await bench.load(await bench.claim_one())
    transaction = other.transaction()
    await transaction.start()
    await other.fetchrow("select 1 from aioflow.instance_hot for no key update")
    starting = asyncio.create_task(bench.start(conflict="terminate_existing"))
    await bench.waiting()
    sending = asyncio.create_task(bench.signal(record=signalled(ref="s")))
    await bench.waiting(count=2)
    await transaction.commit()
    new, sent = await asyncio.gather(starting, sending)
    assert (new.outcome, sent.outcome, sent.run_id) == ("started", "accepted", new.run_id)
    assert (await bench.store.commit([bench.decide(loaded)]))[0].status == "fenced"
    assert await bench.kinds(old) == ["RunStarted", "RunTerminated"]
    again = await bench.load(await bench.claim_one())
    assert [r.kind for r in inputs(again)] == ["RunStarted", "SignalReceived"]
    await bench.healthy()


async def test_a_result_of_an_earlier_run_is_left_out(bench: Bench) -> None:
    old = (await bench.start()).run_id
    await bench.step()
    await bench.start(conflict="terminate_existing")
    await bench.conn.execute(
        "update aioflow.instance_hot set wake_gen = wake_gen + 1",
    )
    stray = completed(None)
    await bench.conn.execute(
        "insert into aioflow.inbox (shard, namespace, instance_id, gen, idx, kind, version, ref, run_id, accepted_at, "
        "attrs) select shard, namespace, instance_id, wake_gen, 1, $1, 1, 'a', $2, now(), $3 from aioflow.instance_hot",
        stray.kind, old, stray.attrs,
    )  # fmt: skip
    loaded = await bench.load(await bench.claim_one())
    assert [r.kind for r in inputs(loaded)] == ["RunStarted"]
    await bench.store.commit([bench.decide(loaded)])
    assert await bench.conn.fetchval("select count(*) from aioflow.inbox") == 0


async def test_a_timer_in_a_loaded_batch_is_judged_by_the_claims_clock(bench: Bench) -> None:
    """Due between claim and load: not fired by this load, and the run is not lost."""
    await bench.start()
    due = await bench.store.clock() + timedelta(seconds=30)
    await bench.step(timers=[("t", due)], next_due=due)
    await bench.signal()
    run = await bench.claim_one()
    await later(bench.conn, 3600)
    loaded = await bench.load(run)
    assert [r.kind for r in inputs(loaded)] == ["SignalReceived"]
    await bench.store.commit([bench.decide(loaded, next_due=due)])
    assert [r.kind for r in inputs(await bench.load(await bench.claim_one()))] == ["TimerFired"]


async def test_batches_over_shared_instances_do_not_deadlock(bench: Bench) -> None:
    for n in range(6):
        await bench.start(f"i{n}")

    async def sender(offset: int) -> list[rows.DeliveryOutcome]:
        requests = [
            rows.SignalRequest(namespace="default", instance_id=f"i{(n * offset) % 6}", record=signalled(), alone=False)
            for n in range(24)
        ]
        return [o for _ in range(10) for o in await bench.store.signal(requests)]

    found = await asyncio.gather(*(sender(n) for n in (1, 5, 7, 11)))
    assert {o.outcome for part in found for o in part} == {"accepted"}
    loads = [await bench.load(run) for run in await bench.claim()]
    assert sum(len(inputs(loaded)) for loaded in loads) == 6 + 4 * 10 * 24
    await bench.store.commit([bench.decide(loaded) for loaded in loads])
    await bench.healthy()


async def test_positions_are_commit_order(bench: Bench, other: asyncpg.Connection) -> None:
    """A batch that waited for the lock gets the generation after the one it waited for."""
    await bench.start()
    transaction = other.transaction()
    await transaction.start()
    await send(other, ref="first")
    sending = asyncio.create_task(bench.signal(record=signalled(ref="second")))
    await bench.waiting(sending)
    await transaction.commit()
    await sending
    loaded = await bench.load(await bench.claim_one())
    assert [r.ref for r in inputs(loaded)] == [None, "first", "second"]
