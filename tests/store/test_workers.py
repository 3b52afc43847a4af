"""Leases, claim epochs and reaping."""

from __future__ import annotations

import asyncio

import asyncpg

from aioflow.store import rows
from aioflow.store.queries import sql
from tests.store.bench import Bench, activity, ids, key, later


async def test_a_dead_worker_s_work_is_taken_over(bench: Bench) -> None:
    await bench.start("a")
    await bench.step(activities=[activity()])
    await bench.start("b")
    (attempt,) = await bench.claim_activities()
    run = await bench.claim_one()
    loaded = await bench.load(run)
    assert (await bench.store.reap(0.0)).workers == []
    assert await bench.store.renew_lease(bench.worker, 5.0)
    await later(bench.conn, 60)
    dead = bench.worker
    released = await bench.store.reap(0.0)
    assert released[:3] == ([dead], {"q"}, {"q"})
    assert (await bench.store.reap(0.0))[:3] == ([], set(), set())
    assert not await bench.store.renew_lease(dead, 5.0)
    assert await bench.store.bump_epoch(dead) is None
    assert await bench.claim() == []
    assert await bench.claim_activities() == []
    assert (await bench.store.commit([bench.decide(loaded)]))[0].status == "fenced"
    assert not (await bench.complete(attempt)).recorded
    assert await bench.store.heartbeat(
        [rows.Heartbeat(shard=attempt.key.shard, run_id=attempt.run_id, ref=attempt.ref, token=attempt.token)]
    ) == [False]
    await bench.add_worker()
    (again,) = await bench.claim_activities()
    assert (again.execution_id, again.attempt, again.deliveries) == (attempt.execution_id, 1, 2)
    taken = await bench.claim_one()
    assert (taken.key, taken.attempt) == (run.key, 2)
    await bench.healthy()
    assert [w.live for w in await bench.store.workers(dead=True)] == [True, False]
    await later(bench.conn, 200_000)
    assert await bench.store.forget_workers() == 1


async def test_nobody_is_declared_dead_after_a_server_start(bench: Bench) -> None:
    await later(bench.conn, 3600)
    assert (await bench.store.reap(1e9)).workers == []
    assert (await bench.store.reap(0.0)).workers == [bench.worker]


async def test_a_claim_in_flight_is_not_orphaned(bench: Bench, other: asyncpg.Connection) -> None:
    await bench.start()
    transaction = other.transaction()
    await transaction.start()
    (claimed,) = await other.fetch(sql("claim_runs"), bench.worker, 0, ["q"], ["W"], 5, ids(), False)
    await later(bench.conn, 3600)
    assert (await bench.store.reap(0.0)).workers == []  # left for the next time: its row is locked
    going = asyncio.create_task(bench.store.unregister_worker(bench.worker))
    await bench.waiting(going)
    assert not going.done()
    await transaction.commit()
    assert (await going).run_queues == {"q"}
    assert (await bench.hot())["owner"] is None
    assert claimed["instance_id"] == "i"
    await bench.healthy()


async def test_a_paused_claim_of_a_dead_worker_or_old_epoch_takes_nothing(
    bench: Bench, other: asyncpg.Connection
) -> None:
    await bench.start()
    for statement in ("worker_epoch", "worker_retire"):
        transaction = other.transaction()
        await transaction.start()
        await other.fetch(sql(statement), bench.worker)
        claiming = asyncio.create_task(bench.claim())
        await bench.waiting(claiming)
        assert not claiming.done()
        await transaction.commit()
        assert await claiming == []
        bench.epoch = 1
    await bench.healthy()


async def test_renewal_does_not_wait_for_a_claim_in_flight(bench: Bench, other: asyncpg.Connection) -> None:
    await bench.start()
    async with other.transaction():
        await other.fetch(sql("claim_runs"), bench.worker, 0, ["q"], ["W"], 5, ids(), False)
        assert await bench.store.renew_lease(bench.worker, 10.0)


async def test_release_waits_for_a_commit_that_keeps_the_run(bench: Bench, other: asyncpg.Connection) -> None:
    """A commit in flight of a worker declared dead keeps the row owned: the release comes after it."""
    await bench.start()
    commit = bench.decide(await bench.load(await bench.claim_one()), keep=True, activities=[activity()])
    transaction = other.transaction()
    await transaction.start()
    await other.fetchrow("select 1 from aioflow.instance_hot for no key update")
    writing = asyncio.create_task(bench.store.commit([commit]))
    await bench.waiting()
    await later(bench.conn, 3600)
    reaping = asyncio.create_task(bench.store.reap(0.0))
    await bench.waiting(count=2)
    await transaction.commit()
    assert (await writing)[0].status == "ok"
    assert (await reaping).run_queues == {"q"}
    hot = await bench.hot()
    assert (hot["owner"], hot["wake_gen"]) == (None, hot["ack_gen"])
    await bench.add_worker()  # armed all the same: an owned row has lost its timer from visible_at
    assert len(await bench.claim()) == 1
    await bench.healthy()


async def test_many_claimers_share_without_overlap(bench: Bench) -> None:
    for n in range(40):
        await bench.start(f"i{n}")
    workers = [await bench.add_worker() for _ in range(4)]
    taken = await asyncio.gather(
        *(bench.store.claim_runs(w, 0, ["q", "none"], ["W"], 10, ids()) for w in workers for _ in range(2))
    )
    found = [run.key for part in taken for run in part]
    assert len(found) == len(set(found)) == 40
    assert await bench.claim() == []


async def test_a_worker_takes_only_workflows_it_knows(bench: Bench) -> None:
    await bench.start()
    assert await bench.store.claim_runs(bench.worker, 0, ["q"], ["Other"], 5, ids()) == []
    assert await bench.store.claim_runs(bench.worker, 0, ["other"], ["W"], 5, ids()) == []
    assert len(await bench.claim()) == 1


async def test_definitions_are_known_to_callers(bench: Bench) -> None:
    one = rows.DefinitionRow(namespace="default", workflow="W", queue="q", signals=("a", "b"), queries=("c",))
    two = rows.DefinitionRow(namespace="default", workflow="X", queue="q", open_signals=True)
    await bench.store.register_definitions([two, one])
    await bench.store.register_definitions([one])
    assert await bench.store.definitions("default") == [one, two]
    assert await bench.store.definitions("default", ["X", "none"]) == [two]
    assert await bench.store.definitions("elsewhere") == []


async def test_generations_tell_what_was_consumed(bench: Bench) -> None:
    started = await bench.start()
    await bench.signal()
    assert await bench.store.generations([key(), key("none")]) == [(2, 0, started.run_id, 1), None]
    await bench.step()
    assert await bench.store.generations([key()]) == [(2, 2, started.run_id, 3)]
