"""Everything that locks, at once, over a few instances: nobody may ever wait in a circle."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Any

import asyncpg

from aioflow.core import events as ev
from aioflow.store import rows
from aioflow.store.pool import Database
from aioflow.store.store import Store
from tests.store.bench import NOW, Bench, activity, completed, ids, inputs, record, scheduled, signalled, started
from tests.support import eventually

INSTANCES = [f"i{n}" for n in range(4)]
ROUNDS = 120


class Client:
    """Does one thing after the other to several instances at once, named in any order."""

    def __init__(self, store: Store, seed: int, told: Counter[str]) -> None:
        self.store, self.random, self.told = store, random.Random(seed), told

    async def run(self) -> None:
        for _ in range(ROUNDS):
            do = self.random.choice([self.start, self.start, self.reserve, self.terminate, self.signal, self.cancel])
            for outcome in await do(self.random.sample(INSTANCES, self.random.randint(1, 4))):
                self.told[f"{do.__name__} {outcome.outcome}"] += 1

    async def start(self, chosen: list[str]) -> list[Any]:
        conflict = self.random.choice(["fail", "terminate_existing"])
        return await self.store.start(
            [self._request(rows.StartRequest, i, run_id=ids(), workflow="W", queue="q", record=started(),
                           conflict=conflict, reuse="allow") for i in chosen]
        )  # fmt: skip

    async def reserve(self, chosen: list[str]) -> list[Any]:
        return await self.store.reserve(
            [self._request(rows.ReserveRequest, i, workflow="W", queue="q", reuse="allow") for i in chosen]
        )

    async def terminate(self, chosen: list[str]) -> list[Any]:
        end = record(ev.RunTerminated(at=NOW))
        return await self.store.terminate(
            [self._request(rows.TerminateRequest, i, run_id=None, commit=ids(), record=end) for i in chosen]
        )

    async def signal(self, chosen: list[str]) -> list[Any]:
        return await self.store.signal([self._request(rows.SignalRequest, i, record=signalled()) for i in chosen])

    async def cancel(self, chosen: list[str]) -> list[Any]:
        asked = record(ev.CancelRequested(at=NOW, ref=ids().hex))
        grace = self.random.choice([None, 0.01])
        return await self.store.request_cancel(
            [self._request(rows.CancelRequest, i, record=asked, grace=grace) for i in chosen]
        )

    @staticmethod
    def _request(kind: Any, instance_id: str, **fields: Any) -> Any:
        return kind(namespace="default", instance_id=instance_id, key=ids().hex, alone=False, **fields)


class Worker:
    """Runs that schedule activities or close; activities that end, and some that are forgotten and given back."""

    def __init__(self, store: Store, seed: int, told: Counter[str]) -> None:
        self.store, self.random, self.told = store, random.Random(seed), told
        self.id = ids()

    async def run(self) -> None:
        await self.store.register_worker(
            rows.WorkerRow(worker_id=self.id, identity="lock", queues=("q",), lease=3600)
        )  # fmt: skip
        while True:
            claimed = await self.store.claim_runs(self.id, 0, ["q"], ["W"], 3, ids())
            commits = [self.decide(one) for one in await self.store.load(claimed) if one is not None]
            for outcome in await self.store.commit(commits) if commits else ():
                self.told[f"commit {outcome.status}"] += 1
            await self.activities()
            if self.random.random() < 0.2:
                await self.store.release_unknown(self.id, [], [])
            await self.close_overdue()

    def decide(self, loaded: rows.Loaded) -> rows.Commit:
        run, records = loaded.run, inputs(loaded)
        commit = rows.Commit(
            key=run.key, run_id=run.run_id, owner=run.owner, token=run.token, next_token=ids(),
            base_seq=loaded.next_seq, gen=loaded.gen, records=records,
        )  # fmt: skip
        if self.random.random() < 0.3:
            commit.close = "completed"
            records.append(record(ev.RunCompleted(at=NOW, payload=b"\x01null")))
        else:
            commit.activities += [activity(f"{loaded.next_seq}.{n}") for n in range(self.random.randint(1, 6))]
            records += [scheduled(one) for one in commit.activities]
        return commit

    async def activities(self) -> None:
        attempts = await self.store.claim_activities(self.id, 0, ["q"], ["act"], [ids() for _ in range(8)])
        self.random.shuffle(attempts)
        outcomes = [
            rows.ActivityOutcome(
                key=a.key, run_id=a.run_id, ref=a.ref, token=a.token, record=completed(a.token, ref=a.ref)
            )
            for a in attempts
            if self.random.random() < 0.7
        ]
        for outcome in await self.store.complete_activities(outcomes) if outcomes else ():
            self.told[f"recorded {outcome.recorded}"] += 1

    async def close_overdue(self) -> None:
        if due := await self.store.due_closes(10):
            end = record(ev.RunTerminated(at=NOW))
            await self.store.terminate(
                [
                    rows.TerminateRequest(
                        namespace="default", instance_id=one.key.instance_id, run_id=one.run_id, commit=ids(),
                        record=end, alone=False,
                    )
                    for one in due
                ]
            )  # fmt: skip


async def test_nobody_waits_in_a_circle(bench: Bench, database: str, conn: asyncpg.Connection) -> None:
    await conn.execute("do $$ begin execute format("
                       "'alter database %I set deadlock_timeout = ''50ms''', current_database()); end $$")  # fmt: skip
    stores = [Store(await Database.connect(database, max_size=1, application_name="circle")) for _ in range(8)]
    told: Counter[str] = Counter()
    workers = [asyncio.create_task(Worker(store, n, told).run()) for n, store in enumerate(stores[6:])]
    await asyncio.gather(*(Client(store, n, told).run() for n, store in enumerate(stores[:6])))
    for worker in workers:
        worker.cancel()
    await asyncio.wait(workers)
    await bench.healthy()
    for what in ("start started", "reserve reserved", "terminate closed", "cancel accepted", "signal accepted",
                 "commit ok", "commit fenced", "recorded True"):  # fmt: skip
        assert told[what], (what, told)

    for store in stores:
        await store.db.close()  # a session tells its counts when it ends
    others = "select pid from pg_stat_activity where datname = current_database() and application_name = 'circle'"

    async def ended() -> bool:
        return not await conn.fetch(others)

    await eventually(ended)
    assert await conn.fetchval("select deadlocks from pg_stat_database where datname = current_database()") == 0
