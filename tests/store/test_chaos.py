"""Everything at once: senders, workers that die, lose answers, give up, time out; at the end all is accounted for."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

import asyncpg

from aioflow.core import events as ev
from aioflow.core.events import Record
from aioflow.errors import DatabaseUnavailable
from aioflow.store import rows
from aioflow.store.pool import Database
from aioflow.store.store import Store
from tests.store.bench import NOW, Bench, activity, completed, ids, inputs, key, record, signalled
from tests.support import eventually

INSTANCES = 12
SIGNALS = 60


class Chaos:
    """Drives one database from several stores; every run schedules activities and ends on the signal ``stop``."""

    def __init__(self, stores: list[Store], seed: int, kill: Callable[[], Awaitable[object]]) -> None:
        self.stores, self.random, self.kill = stores, random.Random(seed), kill
        self.killing = asyncio.Lock()
        self.accepted: dict[str, list[str]] = {f"i{n}": [] for n in range(INSTANCES)}
        self.sent = 0
        self.stopped = False
        self.counts: dict[str, int] = {}

    def note(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    async def sender(self, store: Store) -> None:
        while self.sent < SIGNALS * INSTANCES:
            requests = []
            for _ in range(self.random.randint(1, 6)):
                self.sent += 1
                ref = f"s{self.sent}"
                instance = self.random.choice(list(self.accepted))
                requests.append(
                    rows.SignalRequest(
                        namespace="default", instance_id=instance, record=signalled(ref=ref), key=ref, alone=False
                    )
                )
            outcomes = await store.signal(requests)
            for request, outcome in zip(requests, outcomes, strict=True):
                self.note(outcome.outcome)
                if outcome.outcome in ("accepted", "duplicate"):
                    self.accepted[request.instance_id].append(request.record.ref or "")

    async def worker(self, store: Store) -> None:
        """A worker process: registers, works, and now and then vanishes with all it holds."""
        while not self.stopped:
            me = ids()
            await store.register_worker(rows.WorkerRow(worker_id=me, identity="chaos", queues=("q",), lease=3600))
            epoch = 0
            while not self.stopped and self.random.random() > 0.05:
                if self.random.random() < 0.1 and self.sent < SIGNALS * INSTANCES:
                    async with self.killing:
                        await self.kill()
                    self.note("killed")
                try:
                    await self.runs(store, me, epoch)
                    await self.activities(store, me, epoch)
                except DatabaseUnavailable:
                    self.note("lost claim")
                    epoch = await store.bump_epoch(me) or 0
                    await store.release_unknown(me, [], [])
            self.note("worker gone")
            await store.unregister_worker(me)

    async def runs(self, store: Store, me: object, epoch: int) -> None:
        runs = await store.claim_runs(me, epoch, ["q"], ["W"], 4, ids())  # type: ignore[arg-type]  # a worker id
        commits = []
        for loaded in await store.load(runs):
            assert loaded is not None
            dice = self.random.random()
            if dice < 0.05:
                continue  # forgotten, until the worker goes
            if dice < 0.15:
                release = rows.ReleaseRun(key=loaded.run.key, owner=loaded.run.owner, token=loaded.run.token)
                await store.release_runs([release])
                self.note("released")
                continue
            commits.append(self.decide(loaded))
        for outcome in await store.commit(commits) if commits else []:
            self.note(outcome.status)

    def decide(self, loaded: rows.Loaded) -> rows.Commit:
        records = inputs(loaded)
        commit = rows.Commit(
            key=loaded.run.key, run_id=loaded.run.run_id, owner=loaded.run.owner, token=loaded.run.token,
            next_token=ids(), base_seq=loaded.next_seq, gen=loaded.gen, records=records,
        )  # fmt: skip
        if any(r.ref == "stop" for r in records):
            commit.close = "completed"
            records.append(record(ev.RunCompleted(at=NOW, payload=b"\x01null")))
            return commit
        for n in range(self.random.randint(0, 2)):
            new = activity(f"{loaded.next_seq}.{n}")
            commit.activities.append(new)
            event = ev.ActivityScheduled(at=NOW, ref=new.ref, activity="act", execution_id=new.execution_id, queue="q")
            records.append(record(event))
        return commit

    async def activities(self, store: Store, me: object, epoch: int) -> None:
        tokens = [ids() for _ in range(6)]
        attempts = await store.claim_activities(me, epoch, ["q"], ["act"], tokens)  # type: ignore[arg-type]
        outcomes: list[rows.ActivityOutcome] = []
        retries: list[rows.ActivityRetry] = []
        for a in attempts:
            if (dice := self.random.random()) < 0.1:
                continue
            if dice < 0.25:
                retries.append(
                    rows.ActivityRetry(key=a.key, run_id=a.run_id, ref=a.ref, token=a.token, delay=0.0, failure=None)
                )
            else:
                done: Record = completed(a.token, ref=a.ref)
                outcomes.append(rows.ActivityOutcome(key=a.key, run_id=a.run_id, ref=a.ref, token=a.token, record=done))
        for result in await store.complete_activities(outcomes) if outcomes else []:
            self.note(f"recorded {result.recorded}")
        for again in await store.retry_activities(retries) if retries else []:
            self.note(again.status)


async def test_chaos(bench: Bench, database: str, conn: asyncpg.Connection) -> None:
    stores = [Store(await Database.connect(database, max_size=3, application_name="chaos")) for _ in range(3)]

    async def kill() -> object:
        return await conn.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'chaos' "
            "and datname = current_database() and random() < 0.4"
        )

    chaos = Chaos(stores, 7, kill)
    started = [(await bench.start(name)).run_id for name in chaos.accepted]
    workers = [asyncio.create_task(chaos.worker(store)) for store in stores]
    await asyncio.gather(*(chaos.sender(store) for store in stores))
    for name in chaos.accepted:
        assert (await bench.signal(name, record=signalled(ref="stop"))).outcome == "accepted"

    async def ended() -> bool:
        return await bench.leftovers() == 0

    await eventually(ended, within=40)
    chaos.stopped = True
    await asyncio.gather(*workers)
    await bench.healthy()
    for n, (name, run_id) in enumerate(zip(chaos.accepted, started, strict=True)):
        assert run_id is not None
        history = await bench.store.read_history(key(name), run_id, limit=10_000)
        refs = [e.record.ref for e in history if e.record.kind == "SignalReceived" and e.record.ref != "stop"]
        assert sorted(refs) == sorted(chaos.accepted[name]), n
        assert len(set(refs)) == len(refs)
    for what in ("ok", "released", "retried", "recorded True", "worker gone", "accepted", "killed"):
        assert chaos.counts.get(what), (what, chaos.counts)
    for store in stores:
        await store.db.close()
