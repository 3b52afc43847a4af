"""Activities: one outcome, retries, timeouts, heartbeats, and the order of locks."""

from __future__ import annotations

import asyncio

import asyncpg

from aioflow.core import events as ev
from aioflow.store import rows
from aioflow.store.queries import sql
from tests.store.bench import NOW, Bench, activity, completed, ids, inputs, key, later, record


async def scheduled(bench: Bench, **options: object) -> None:
    await bench.start()
    await bench.step(activities=[activity(**options)])


def retry(attempt: rows.ClaimedActivity, **options: object) -> rows.ActivityRetry:
    values = {"token": attempt.token, "delay": 0.0, "failure": b"\x01{}", **options}
    return rows.ActivityRetry(key=attempt.key, run_id=attempt.run_id, ref=attempt.ref, **values)  # type: ignore[arg-type]


def beat(attempt: rows.ClaimedActivity, **options: object) -> rows.Heartbeat:
    values = {"shard": attempt.key.shard, "run_id": attempt.run_id, "ref": attempt.ref, "token": attempt.token}
    return rows.Heartbeat(**{**values, **options})  # type: ignore[arg-type]


async def test_a_retry_is_the_same_row(bench: Bench) -> None:
    await scheduled(bench)
    (first,) = await bench.claim_activities()
    await bench.store.heartbeat([beat(first, details=b"half")])
    assert await bench.store.retry_activities([retry(first, delay=60.0)]) == [("retried", "q")]
    assert await bench.claim_activities() == []
    assert 50 < ((await bench.store.next_due("default", ["q"], ["W"], ["act"])).activities or 0) <= 60
    await later(bench.conn, 120)
    (second,) = await bench.claim_activities()
    assert second.execution_id == first.execution_id
    assert second.token != first.token
    assert (second.attempt, second.deliveries) == (2, 2)
    assert (second.heartbeat, second.last_failure) == (b"half", b"\x01{}")
    assert await bench.store.retry_activities([retry(first)]) == [("late", None)]
    assert not (await bench.complete(first)).recorded
    assert (await bench.complete(second)).recorded
    await bench.healthy()


async def test_no_retry_beyond_schedule_to_close(bench: Bench) -> None:
    await scheduled(bench, schedule_to_close=30.0)
    (attempt,) = await bench.claim_activities()
    assert await bench.store.retry_activities([retry(attempt, delay=60.0)]) == [("expired", "q")]
    assert await bench.store.heartbeat([beat(attempt)]) == [True]
    assert (await bench.complete(attempt)).recorded


async def test_an_outcome_goes_to_the_run_once(bench: Bench) -> None:
    await scheduled(bench)
    (attempt,) = await bench.claim_activities()
    many = await asyncio.gather(*(bench.complete(attempt) for _ in range(5)))
    assert sorted(m.recorded for m in many) == [False] * 4 + [True]
    loaded = await bench.load(await bench.claim_one())
    assert [r.kind for r in inputs(loaded)] == ["ActivityCompleted"]
    await bench.healthy()


async def test_many_outcomes_of_many_runs_in_one_call(bench: Bench) -> None:
    for n in range(4):
        await bench.start(f"i{n}")
        await bench.step(activities=[activity(f"a{k}") for k in range(5)])
    attempts = await bench.claim_activities(20)
    assert len({a.token for a in attempts}) == 20
    outcomes = [
        rows.ActivityOutcome(key=a.key, run_id=a.run_id, ref=a.ref, token=a.token, record=completed(a.token, ref=a.ref))
        for a in attempts
    ]
    found = await asyncio.gather(
        *(bench.store.complete_activities(part) for part in (outcomes[::2], outcomes[1::2][::-1]))
    )
    assert all(r.recorded for part in found for r in part)
    for run in await bench.claim():
        assert len(inputs(await bench.load(run))) == 5
    await bench.healthy()


async def test_a_result_for_an_owned_run_wakes_nobody(bench: Bench) -> None:
    await scheduled(bench)
    (attempt,) = await bench.claim_activities()
    await bench.signal()
    run = await bench.claim_one()
    assert await bench.complete(attempt) == (True, None)
    assert len(inputs(await bench.load(run))) == 2


async def test_a_cancelled_activity_is_late(bench: Bench) -> None:
    await scheduled(bench)
    (attempt,) = await bench.claim_activities()
    await bench.signal()
    loaded = await bench.load(await bench.claim_one())
    asked = record(ev.ActivityCancelRequested(at=NOW, ref="a"))
    await bench.store.commit([bench.decide(loaded, records=[asked], cancelled_activities=["a"])])
    assert await bench.store.heartbeat([beat(attempt), beat(attempt, ask=True)]) == [False, False]
    assert not (await bench.complete(attempt)).recorded
    await bench.healthy()


async def test_timeouts_in_the_order_they_run(bench: Bench) -> None:
    await bench.start()
    await bench.step(
        activities=[
            activity("queue", schedule_to_start=10.0),
            activity("close", schedule_to_close=20.0, start_to_close=90.0),
            activity("start", start_to_close=30.0),
            activity("beat", heartbeat=40.0, start_to_close=300.0),
            activity("never"),
        ]
    )
    attempts = {a.ref: a for a in await bench.claim_activities(0) or []}
    assert attempts == {}
    await bench.conn.execute("update aioflow.activity set visible_at = now() + interval '1 d' where ref = 'queue'")
    attempts = {a.ref: a for a in await bench.claim_activities()}
    assert sorted(attempts) == ["beat", "close", "never", "start"]
    assert await bench.store.expired_activities() == []
    await later(bench.conn, 60)
    waiting = await bench.store.expired_activities()  # the worker may be dead: then it was not the activities' fault
    assert [(e.ref, e.timeout) for e in waiting] == [("queue", "schedule_to_start"), ("close", "schedule_to_close")]
    assert await bench.store.renew_lease(bench.worker, 60)
    expired = await bench.store.expired_activities()
    assert [(e.ref, e.timeout) for e in expired] == [
        ("queue", "schedule_to_start"),
        ("close", "schedule_to_close"),
        ("start", "start_to_close"),
        ("beat", "heartbeat"),
    ]
    assert [e.token for e in expired] == [None] + [attempts[ref].token for ref in ("close", "start", "beat")]
    assert await bench.store.heartbeat([beat(attempts["beat"])]) == [True]
    outcomes = [
        rows.ActivityOutcome(
            key=e.key,
            run_id=e.run_id,
            ref=e.ref,
            token=e.token,
            deadline=e.deadline,
            record=record(ev.ActivityTimedOut(at=NOW, ref=e.ref, timeout=e.timeout)),
        )
        for e in expired
    ]
    assert [r.recorded for r in await bench.store.complete_activities(outcomes)] == [True, True, True, False]
    assert await bench.store.heartbeat([beat(attempts["beat"], ask=True)]) == [True]
    assert [r.kind for r in inputs(await bench.load(await bench.claim_one()))] == ["ActivityTimedOut"] * 3
    await bench.healthy()


async def test_an_expired_attempt_is_retried_only_while_its_deadline_stands(bench: Bench) -> None:
    await scheduled(bench, start_to_close=10.0)
    (attempt,) = await bench.claim_activities()
    await later(bench.conn, 30)
    assert await bench.store.renew_lease(bench.worker, 60)
    (expired,) = await bench.store.expired_activities()
    assert expired.token == attempt.token
    stale = retry(attempt, deadline=NOW)
    assert await bench.store.retry_activities([stale]) == [("late", None)]
    assert await bench.store.retry_activities([retry(attempt, deadline=expired.deadline)]) == [("retried", "q")]
    assert await bench.store.expired_activities() == []
    (second,) = await bench.claim_activities()
    assert second.attempt == 2


async def test_an_attempt_given_back_keeps_its_number(bench: Bench) -> None:
    await scheduled(bench)
    (attempt,) = await bench.claim_activities()
    held = rows.HeldActivity(attempt.key.shard, attempt.run_id, attempt.ref, attempt.token)
    assert await bench.store.release_activities([held, held._replace(token=ids())]) == ["q", None]
    (again,) = await bench.claim_activities()
    assert (again.attempt, again.deliveries) == (1, 1)


async def test_claims_take_what_the_worker_knows(bench: Bench) -> None:
    await bench.start()
    await bench.step(activities=[activity("a"), activity("b", activity="other"), activity("c", queue="elsewhere")])
    assert [a.ref for a in await bench.claim_activities()] == ["a"]
    pending = await bench.store.pending_activities(key().shard, (await bench.hot())["run_id"])
    assert {p.ref: p.worker for p in pending} == {"a": "test", "b": None, "c": None}
    backlog = {b.queue: (b.runs, b.activities, b.workers) for b in await bench.store.backlog()}
    assert backlog == {"q": (0, 1, 1), "elsewhere": (0, 1, 0)}


async def test_completion_retry_and_heartbeat_against_a_commit_do_not_deadlock(
    bench: Bench, other: asyncpg.Connection
) -> None:
    await bench.start()
    await bench.step(activities=[activity(f"a{n}") for n in range(10)])
    attempts = await bench.claim_activities()
    await bench.signal()
    loaded = await bench.load(await bench.claim_one())
    transaction = other.transaction()
    await transaction.start()
    await other.fetch(sql("heartbeats"), *([list(c) for c in zip(*[
        (a.key.shard, a.run_id, a.ref, a.token, b"x", True) for a in attempts], strict=True)]))  # fmt: skip
    asked = [record(ev.ActivityCancelRequested(at=NOW, ref=a.ref)) for a in attempts[:5]]
    commit = bench.decide(loaded, records=asked, cancelled_activities=[a.ref for a in attempts[:5]])
    writing = asyncio.create_task(bench.store.commit([commit]))
    await bench.waiting()
    retrying = asyncio.create_task(bench.store.retry_activities([retry(a) for a in attempts[::-1]]))
    await bench.waiting(count=2)
    assert await bench.store.heartbeat([beat(a) for a in attempts]) == [True] * 10
    await transaction.commit()
    (outcome,), retried = await asyncio.gather(writing, retrying)
    assert outcome.status == "ok"
    assert sorted(r.status for r in retried) == ["late"] * 5 + ["retried"] * 5
    await bench.healthy()
