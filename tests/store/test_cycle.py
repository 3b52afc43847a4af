"""The life of a run, one statement after the other."""

from __future__ import annotations

from datetime import timedelta

import pytest

from aioflow.core import events as ev
from aioflow.core.versions import decode
from aioflow.store import rows
from tests.store.bench import NOW, Bench, activity, completed, ids, inputs, key, later, record, signalled, started


async def test_a_run_from_start_to_result(bench: Bench) -> None:
    run_id = (await bench.start(record=started(b"\x01[7]"))).run_id
    run = await bench.claim_one()
    assert (run.key, run.run_id, run.attempt, run.next_seq) == (key(), run_id, 1, 1)
    loaded = await bench.load(run)
    assert [r.kind for r in inputs(loaded)] == ["RunStarted"]
    assert inputs(loaded)[0].payload == b"\x01[7]"
    assert isinstance(decode(inputs(loaded)[0]), ev.RunStarted)

    scheduled = record(ev.SideEffectRecorded(at=NOW, ref="0"))
    commit = bench.decide(loaded, records=[scheduled], activities=[activity()])
    (outcome,) = await bench.store.commit([commit])
    assert (outcome.status, outcome.wake_gen, outcome.rearmed, outcome.held) == ("ok", 1, False, False)
    assert await bench.claim() == []

    (attempt,) = await bench.claim_activities()
    assert (attempt.activity, attempt.attempt, attempt.deliveries) == ("act", 1, 1)
    done = rows.ActivityOutcome(
        key=attempt.key, run_id=attempt.run_id, ref=attempt.ref, token=attempt.token, record=completed(attempt.token)
    )
    assert await bench.store.complete_activities([done]) == [rows.Recorded(True, "q")]
    assert await bench.store.complete_activities([done]) == [rows.Recorded(False, None)]

    outcome = await bench.step(close="completed")
    assert outcome.status == "ok"
    assert await bench.hot() is None
    assert await bench.kinds(run_id) == [
        "RunStarted",
        "SideEffectRecorded",
        "ActivityScheduled",
        "ActivityCompleted",
        "RunCompleted",
    ]
    await bench.healthy()
    (result,) = await bench.store.results([rows.InstanceRef(key())])
    assert result is not None
    assert result.record is not None
    assert (result.status, result.record.payload) == ("completed", b"\x0142")
    assert (await bench.signal()).outcome == "closed"
    assert (await bench.signal("nobody")).outcome == "unknown"


async def test_signals_are_consumed_in_order_of_acceptance(bench: Bench) -> None:
    await bench.start()
    requests = [
        rows.SignalRequest(namespace="default", instance_id="i", record=signalled(ref=str(n)), alone=False)
        for n in range(5)
    ]
    outcomes = await bench.store.signal(requests)
    assert {(o.outcome, o.ready) for o in outcomes} == {("accepted", True)}
    loaded = await bench.load(await bench.claim_one())
    assert [r.ref for r in inputs(loaded)] == [None, "0", "1", "2", "3", "4"]


async def test_too_many_waiting_signals_are_refused_until_some_are_taken(bench: Bench) -> None:
    await bench.conn.execute("create or replace function aioflow.most_signals() returns integer language sql return 5")

    async def told(instance: str, count: int = 1, key: str | None = None) -> list[str]:
        found = await bench.conn.fetch(
            "select outcome from aioflow.signal($1, $2, $3, $4, $5, $6, $7, $8, $9)",
            ["default"] * count,
            [instance] * count,
            [1] * count,
            [ids().hex for _ in range(count)],
            ['{"name":"n"}'] * count,
            [None] * count,
            [key] * count,
            [None] * count,
            [None] * count,
        )
        return [r["outcome"] for r in found]

    await bench.start("busy")
    await bench.start("idle")
    request = rows.ReserveRequest(namespace="default", instance_id="reserved", workflow="W", queue="q")
    await bench.store.reserve([request])
    for name in ("busy", "reserved"):
        assert await told(name, 4) == ["accepted"] * 4
        assert await told(name) == ["accepted"]
        assert await told(name, 2) == ["full", "full"]
        assert await told(name, 1, "k") == ["full"]  # and the key is not used up
    assert await told("idle") == ["accepted"]
    assert (await bench.cancel("busy")).outcome == "accepted"
    before = await bench.hot("busy")
    assert await told("busy") == ["full"]
    assert await bench.hot("busy") == before
    runs = {run.key.instance_id: run for run in await bench.claim()}
    (outcome,) = await bench.store.commit([bench.decide(await bench.load(runs["busy"]))])
    assert outcome.status == "ok"
    assert await told("busy", 1, "k") == ["accepted"]
    await bench.healthy()


async def test_what_is_due_next_is_told_past_the_work_of_others(bench: Bench) -> None:
    due = await bench.store.clock() + timedelta(hours=1)
    await bench.start("other", workflow="theirs")
    await bench.start("ours")
    await bench.step(timers=[("t", due)], next_due=due, activities=[activity(activity="theirs")])

    async def seconds(workflow: str, name: str) -> list[float | None]:
        return list(await bench.store.next_due("default", ["q"], [workflow], [name]))

    assert await seconds("W", "act") == [pytest.approx(3600, abs=60), None]
    assert await seconds("theirs", "theirs") == [0.0, 0.0]
    assert await bench.store.next_due("elsewhere", ["q"], ["W", "theirs"], ["theirs"]) == (None, None)
    for n in range(1_000):
        await bench.conn.execute(
            "insert into aioflow.instance_hot (shard, namespace, instance_id, run_id, workflow, queue, visible_at)"
            " values (0, 'default', $1, gen_random_uuid(), 'theirs', 'q', aioflow.clock())",
            f"crowd-{n}",
        )
    assert await seconds("W", "act") == [None, None]  # too far behind: polling finds it


async def test_a_timer_wakes_the_run_when_it_is_due(bench: Bench) -> None:
    await bench.start()
    now = await bench.store.clock()
    due = now + timedelta(hours=1)
    await bench.step(timers=[("t", due)], next_due=due)
    assert await bench.claim() == []
    assert (await bench.store.next_due("default", ["q"], ["W"], ["act"])).runs == pytest.approx(3600, abs=60)
    await later(bench.conn, 7200)
    loaded = await bench.load(await bench.claim_one())
    assert [(r.kind, r.ref, r.at) for r in inputs(loaded)] == [("TimerFired", "t", due)]
    await bench.store.commit([bench.decide(loaded, gone_timers=["t"])])
    assert await bench.conn.fetchval("select count(*) from aioflow.timer") == 0


async def test_release_always_arms(bench: Bench) -> None:
    await bench.start()
    run = await bench.claim_one()
    release = rows.ReleaseRun(key=run.key, owner=run.owner, token=run.token)
    assert await bench.store.release_runs([release]) == ["q"]
    assert await bench.store.release_runs([release]) == [None]
    again = await bench.claim_one()
    assert again.attempt == 2
    later = rows.ReleaseRun(
        key=run.key, owner=run.owner, token=again.token, delay=60, blocked_reason="no fitting code", uncount=True
    )
    await bench.store.release_runs([later])
    assert await bench.claim() == []
    hot = await bench.hot()
    assert (hot["attempt"], hot["blocked_reason"]) == (1, "no fitting code")
    described = await bench.store.describe(key())
    assert described is not None
    assert (described.status, described.blocked_reason, described.served) == ("running", "no fitting code", True)


async def test_kept_run_goes_on_with_the_next_token(bench: Bench) -> None:
    await bench.start()
    commit = bench.decide(await bench.load(await bench.claim_one()), keep=True)
    (outcome,) = await bench.store.commit([commit])
    assert (outcome.status, outcome.held) == ("ok", True)
    hot = await bench.hot()
    assert (hot["owner"], hot["token"], hot["head"]) == (bench.worker, commit.next_token, commit.token)
    await bench.signal()
    assert await bench.claim() == []
    await bench.healthy()
