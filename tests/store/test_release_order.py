"""What a worker owns and does not know is given back in the lock order of all others: runs, then activities."""

from __future__ import annotations

import asyncio

import asyncpg

from aioflow.store import rows
from tests.store.bench import Bench, activity, completed, key


async def test_giving_back_attempts_and_recording_outcomes_do_not_wait_for_each_other(
    bench: Bench, other: asyncpg.Connection
) -> None:
    await bench.start()
    assert (await bench.step(activities=[activity(ref) for ref in "abc"])).status == "ok"
    held = sorted(await bench.claim_activities(), key=lambda one: one.ref, reverse=True)
    assert [one.ref for one in held] == ["c", "b", "a"]
    bench.epoch = await bench.store.bump_epoch(bench.worker) or 0
    async with other.transaction():
        await other.execute("select 1 from aioflow.activity where ref = 'b' for no key update")
        ending = asyncio.create_task(
            bench.store.complete_activities(
                [
                    rows.ActivityOutcome(
                        key=key(),
                        run_id=one.run_id,
                        ref=one.ref,
                        token=one.token,
                        record=completed(one.token, ref=one.ref),
                    )
                    for one in held
                ]
            )
        )
        await bench.waiting()
        giving = asyncio.create_task(bench.store.release_unknown(bench.worker, [], []))
        await bench.waiting(count=2)
    await giving
    assert all(one.recorded for one in await ending)
    deadlocks = await bench.conn.fetchval("select deadlocks from pg_stat_database where datname = current_database()")
    assert deadlocks == 0
    await bench.healthy()


async def test_what_is_known_is_kept(bench: Bench) -> None:
    await bench.start()
    assert (await bench.step(activities=[activity(ref) for ref in "ab"])).status == "ok"
    first, second = sorted(await bench.claim_activities(), key=lambda one: one.ref)
    released = await bench.store.release_unknown(bench.worker, [], [first.token])
    assert released.activity_queues == {"q"}
    assert (await bench.complete(first)).recorded
    assert not (await bench.complete(second)).recorded
    (again,) = await bench.claim_activities()
    assert (again.ref, again.attempt, again.deliveries) == ("b", 1, 1)
    await bench.healthy()
