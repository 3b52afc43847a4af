"""A statement whose answer, or whose request, was lost: sent again unchanged, done once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import anyio
import asyncpg
import pytest
from structlog.testing import capture_logs

from aioflow.core.fault import set_fault_hook
from aioflow.errors import DatabaseUnavailable, StoreError
from aioflow.store import rows
from aioflow.store.pool import Database
from aioflow.store.store import Store
from tests.store.bench import Bench, activity, ids, inputs, signalled
from tests.support import eventually


class Faults:
    """Raises at a point, a number of times."""

    def __init__(self) -> None:
        self.plan: dict[str, int] = {}
        self.seen: list[str] = []

    def lose(self, point: str, times: int = 1) -> None:
        self.plan[point] = times

    async def hook(self, point: str) -> None:
        self.seen.append(point)
        if self.plan.get(point, 0) > 0:
            self.plan[point] -= 1
            raise ConnectionResetError(point)


@pytest.fixture
def faults() -> Iterator[Faults]:
    made = Faults()
    set_fault_hook(made.hook)
    yield made
    set_fault_hook(None)


SIDES = ("before_send", "after_send")


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("close", [None, "completed"])
async def test_commit(bench: Bench, faults: Faults, side: str, close: str | None) -> None:
    run_id = (await bench.start()).run_id
    commit = bench.decide(await bench.load(await bench.claim_one()), close=close)
    faults.lose(f"commit.{side}", 2)
    (outcome,) = await bench.store.commit([commit])
    assert (outcome.status, outcome.rearmed) == ("ok", False)
    assert await bench.kinds(run_id) == ["RunStarted", *(["RunCompleted"] if close else [])]
    assert faults.seen.count("commit.before_send") == 3
    await bench.healthy()


async def test_kept_commit_is_still_held(bench: Bench, faults: Faults) -> None:
    await bench.start()
    commit = bench.decide(await bench.load(await bench.claim_one()), keep=True)
    faults.lose("commit.after_send")
    (outcome,) = await bench.store.commit([commit])
    assert (outcome.status, outcome.held) == ("ok", True)


async def test_commit_that_took_effect_and_was_followed_by_others_is_known_by_history(
    bench: Bench, faults: Faults
) -> None:
    await bench.start()
    commit = bench.decide(await bench.load(await bench.claim_one()))
    await bench.store.commit([commit])
    await bench.signal()
    await bench.step()
    (outcome,) = await bench.store.commit([commit])
    assert (outcome.status, outcome.held) == ("ok", False)


async def test_commits_of_a_batch_are_sorted_out_one_by_one(bench: Bench, faults: Faults) -> None:
    for n in range(3):
        await bench.start(f"i{n}")
    loads = [await bench.load(run) for run in await bench.claim()]
    commits = [bench.decide(loaded) for loaded in loads]
    commits[1].token = ids()
    faults.lose("commit.after_send")
    with capture_logs() as logs:
        outcomes = await bench.store.commit(commits)
    assert [o.status for o in outcomes] == ["ok", "fenced", "ok"]
    told = [(one["event"], one["instance_id"]) for one in logs]
    assert sorted(told) == [("commit_recognised", "i0"), ("commit_recognised", "i2")]


@pytest.mark.parametrize("side", SIDES)
async def test_start_signal_cancel_terminate_and_completion(bench: Bench, faults: Faults, side: str) -> None:
    for point in ("start", "signal", "request_cancel", "terminate", "complete_activities", "reserve"):
        faults.lose(f"{point}.{side}")
    outcome = await bench.start()
    assert (outcome.outcome, outcome.again) == ("started", side == "after_send")
    sent = await bench.signal(key="k", digest=b"d")
    assert sent.outcome == ("accepted" if side == "before_send" else "duplicate")
    assert [r.kind for r in inputs(await bench.load(await bench.claim_one()))] == ["RunStarted", "SignalReceived"]
    await bench.conn.execute("update aioflow.instance_hot set owner = null, token = null, visible_at = now()")
    await bench.step(activities=[activity()])
    (attempt,) = await bench.claim_activities()
    assert (await bench.complete(attempt)).recorded
    assert not (await bench.complete(attempt)).recorded
    assert (await bench.cancel(key="c")).outcome == ("accepted" if side == "before_send" else "duplicate")
    ended = await bench.terminate(key="t")
    assert ended.outcome == ("closed" if side == "before_send" else "duplicate")
    request = rows.ReserveRequest(namespace="default", instance_id="r", workflow="W", queue="q", key="k")
    (reserved,) = await bench.store.reserve([request])
    assert (reserved.outcome, reserved.again) == ("reserved", side == "after_send")
    await bench.healthy()


async def test_completion_consumed_meanwhile_is_found_in_history(bench: Bench, faults: Faults) -> None:
    await bench.start()
    await bench.step(activities=[activity()])
    (attempt,) = await bench.claim_activities()
    assert (await bench.complete(attempt)).recorded
    await bench.step()
    with capture_logs() as logs:
        faults.lose("complete_activities.before_send")
        assert (await bench.complete(attempt)).recorded
        faults.lose("complete_activities.before_send")
        assert not (await bench.complete(attempt, token=ids())).recorded
    assert [one["event"] for one in logs] == ["completion_recognised"]


async def test_a_lost_claim_is_told_and_given_back(bench: Bench, faults: Faults) -> None:
    await bench.start("a")
    known = await bench.claim_one()
    await bench.start("b")
    faults.lose("claim_runs.after_send")
    with pytest.raises(DatabaseUnavailable):
        await bench.claim()
    assert (await bench.hot("b"))["owner"] == bench.worker
    epoch = await bench.store.bump_epoch(bench.worker)
    assert epoch == 1
    assert await bench.claim() == []
    released = await bench.store.release_unknown(bench.worker, [known.token], [])
    assert released.run_queues == {"q"}
    assert (await bench.hot("a"))["token"] == known.token
    assert (await bench.hot("b"))["owner"] is None
    bench.epoch = epoch
    again = await bench.claim_one()
    assert (again.key.instance_id, again.attempt) == ("b", 1)
    await bench.healthy()


async def test_a_lost_claim_of_activities_is_given_back(bench: Bench, faults: Faults) -> None:
    await bench.start()
    await bench.step(activities=[activity("a"), activity("b")])
    (known,) = await bench.claim_activities(1)
    faults.lose("claim_activities.after_send")
    with pytest.raises(DatabaseUnavailable):
        await bench.claim_activities()
    bench.epoch = await bench.store.bump_epoch(bench.worker) or 0
    released = await bench.store.release_unknown(bench.worker, [], [known.token])
    assert released.activity_queues == {"q"}
    (again,) = await bench.claim_activities()
    assert (again.attempt, again.deliveries, again.ref != known.ref) == (1, 1, True)


async def test_patience_ends(database: str, faults: Faults) -> None:
    async with await Database.connect(database, patience=0.2) as db:
        faults.lose("clock.before_send", 10_000)
        with pytest.raises(DatabaseUnavailable):
            await Store(db).clock()
        assert 1 < faults.seen.count("clock.before_send") < 20


async def test_a_statement_too_large_for_the_wire_is_refused_for_good(bench: Bench) -> None:
    async def hook(point: str) -> None:
        if point == "commit.before_send":
            raise BufferError("message is too large")  # of the driver, past a gigabyte

    await bench.start()
    commit = bench.decide(await bench.load(await bench.claim_one()))
    set_fault_hook(hook)
    try:
        with pytest.raises(StoreError, match="too large") as caught:
            await bench.store.commit([commit])
    finally:
        set_fault_hook(None)
    assert not isinstance(caught.value, DatabaseUnavailable)  # sending it again would not help
    assert (await bench.store.commit([commit]))[0].status == "ok"


async def test_a_cancelled_commit_is_finished_first(bench: Bench, other: asyncpg.Connection) -> None:
    run_id = (await bench.start()).run_id
    commit = bench.decide(await bench.load(await bench.claim_one()))
    transaction = other.transaction()
    await transaction.start()
    await other.fetchrow("select 1 from aioflow.instance_hot for no key update")
    task = asyncio.create_task(bench.store.commit([commit]))
    await bench.waiting()
    task.cancel()
    await asyncio.sleep(0)
    assert not task.done()
    await transaction.commit()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await bench.kinds(run_id) == ["RunStarted"]


async def test_a_commit_in_a_cancelled_scope_is_finished_first(bench: Bench) -> None:
    run_id = (await bench.start()).run_id
    commit = bench.decide(await bench.load(await bench.claim_one()))
    with anyio.CancelScope() as scope:
        scope.cancel()
        await bench.store.commit([commit])
    assert await bench.kinds(run_id) in ([], ["RunStarted"])


async def test_killed_backends_are_survived(bench: Bench, store: Store) -> None:
    await bench.start()
    kill = (
        "select count(pg_terminate_backend(pid)) from pg_stat_activity "
        "where application_name = 'aioflow' and datname = current_database()"
    )
    for _ in range(3):
        assert await bench.conn.fetchval(kill) >= 1
        assert (await bench.signal(key=ids().hex)).outcome == "accepted"
    slow = asyncio.create_task(store.db.fetch("select pg_sleep(2)", point="sleep", resend=False))
    busy = "select count(*) from pg_stat_activity where query = 'select pg_sleep(2)' and state = 'active'"
    await eventually(lambda: bench.conn.fetchval(busy))
    await bench.conn.fetchval(kill)
    with pytest.raises(DatabaseUnavailable):
        await slow


async def test_a_refusal_is_final(store: Store, faults: Faults) -> None:
    with pytest.raises(StoreError, match="division by zero"):
        await store.db.fetch("select 1 / 0", point="x")
    assert faults.seen == ["x.before_send"]


async def test_session_settings(store: Store) -> None:
    shown = {
        name: (await store.db.fetch(f"show {name}"))[0][0]
        for name in ("synchronous_commit", "statement_timeout", "lock_timeout", "search_path", "timezone", "jit")
    }
    assert shown == {
        "synchronous_commit": "on",
        "statement_timeout": "15s",
        "lock_timeout": "3s",
        "search_path": "pg_catalog",
        "timezone": "UTC",
        "jit": "off",
    }


async def test_text_that_the_database_cannot_hold_is_an_error_of_ours(bench: Bench) -> None:
    await bench.start()
    with pytest.raises(StoreError):
        await bench.signal(record=signalled(ref="a\0b"))
    assert (await bench.hot())["wake_gen"] == 1
