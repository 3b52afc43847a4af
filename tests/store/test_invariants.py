"""The invariant queries find what was broken by hand, and nothing in a healthy database."""

from __future__ import annotations

from datetime import timedelta

import pytest

from aioflow.store.queries import names, sql
from tests.store.bench import Bench, activity, later

PLANTED = {
    "history": [
        "delete from aioflow.history where seq = 1 and kind = 'RunStarted'",
        "update aioflow.instance_hot set next_seq = next_seq + 1 where instance_id = 'idle'",
        "update aioflow.run set last_seq = 1 where status = 'completed'",
        "delete from aioflow.run where status = 'completed'",
    ],
    "terminal": [
        "update aioflow.run set status = 'failed' where status = 'completed'",
        "update aioflow.history set kind = 'RunCompleted' where kind = 'ActivityScheduled'",
        "update aioflow.history set kind = 'SideEffectRecorded' where kind = 'RunCompleted'",
        "update aioflow.run set closed_at = null where status = 'completed'",
    ],
    "open": [
        "delete from aioflow.instance_hot where instance_id = 'idle'",
        "update aioflow.run set status = 'running', closed_at = null where status = 'completed'",
        "update aioflow.instance set run_id = gen_random_uuid() where instance_id = 'idle'",
    ],
    "inbox": [
        "update aioflow.inbox set gen = gen + 10",
        "update aioflow.instance_hot set ack_gen = wake_gen where instance_id = 'waiting'",
        "delete from aioflow.instance_hot where instance_id = 'waiting'",
    ],
    "wakeup": [
        "update aioflow.instance_hot set visible_at = 'infinity' where instance_id = 'waiting'",
        "update aioflow.instance_hot set visible_at = 'infinity' where instance_id = 'sleeping'",
        "update aioflow.instance_hot set visible_at = now() + interval '1 d' where instance_id = 'waiting'",
        "update aioflow.instance_hot set visible_at = now() where instance_id = 'held'",
        "update aioflow.instance_hot set ack_gen = wake_gen + 1 where instance_id = 'idle'",
        "update aioflow.instance_hot set wake_gen = wake_gen + 1 where instance_id = 'idle'",
    ],
    "owner": [
        "delete from aioflow.worker",
        "update aioflow.worker set dead = true, released = true",
        "update aioflow.activity set token = null where owner is not null",
        "update aioflow.instance_hot set token = null where instance_id = 'held'",
    ],
    "activity": [
        "delete from aioflow.activity where ref = 'a'",
        "update aioflow.activity set run_id = gen_random_uuid() where ref = 'a'",
        "delete from aioflow.history where kind = 'ActivityScheduled'",
        "insert into aioflow.history (shard, run_id, seq, kind, version, ref, at, commit) select shard, run_id, 9, "
        "'ActivityCompleted', 1, ref, at, commit from aioflow.history where kind = 'ActivityScheduled' and ref = 'a'",
    ],
    "timer": [
        "delete from aioflow.timer",
        "delete from aioflow.history where kind = 'TimerStarted'",
        "insert into aioflow.history (shard, run_id, seq, kind, version, ref, at, commit) select shard, run_id, 9, "
        "'TimerFired', 1, ref, at, commit from aioflow.history where kind = 'TimerStarted'",
    ],
    "shard": ["update aioflow.instance set shard = (shard + 1) % 64"],
}


def test_every_invariant_has_a_planted_violation() -> None:
    assert {name.removeprefix("invariant_") for name in names("invariant_")} == set(PLANTED)


async def populated(bench: Bench) -> None:
    """Runs in every usual state."""
    await bench.start("done")
    await bench.step(close="completed")
    await bench.start("idle")
    await bench.step()
    due = await bench.store.clock() + timedelta(hours=1)
    await bench.start("sleeping")
    await bench.step(timers=[("t", due)], next_due=due)
    await bench.start("working")
    await bench.step(activities=[activity("a"), activity("b")])
    await bench.claim_activities(1)
    await bench.start("held")
    await bench.claim_one()
    await bench.start("waiting")


@pytest.mark.parametrize("name", PLANTED)
async def test_planted_violations_are_found(bench: Bench, name: str) -> None:
    await populated(bench)
    await bench.healthy()
    for statement in PLANTED[name]:
        transaction = bench.conn.transaction()
        await transaction.start()
        changed = await bench.conn.execute(statement)
        assert not changed.endswith(" 0"), statement
        found = await bench.conn.fetch(sql(f"invariant_{name}"), 100)
        assert found, statement
        assert all(row["subject"] and row["detail"] for row in found)
        await transaction.rollback()
    await bench.healthy()


async def test_a_run_given_back_after_its_timer_was_due_is_no_violation(bench: Bench) -> None:
    await bench.start()
    due = await bench.store.clock() + timedelta(seconds=5)
    await bench.step(timers=[("t", due)], next_due=due, keep=True)
    await later(bench.conn, 120)
    await bench.store.unregister_worker(bench.worker)
    hot = await bench.hot()
    assert (hot["owner"], hot["attempt"], hot["visible_at"] > due) == (None, 0, True)
    await bench.healthy()
