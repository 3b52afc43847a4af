"""A database with the scene in it, and schedules run on it one after the other."""

from __future__ import annotations

import asyncio
import random
import zlib
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Self

import asyncpg

from aioflow.store import rows
from aioflow.store.pool import SESSION_SETTINGS, Database
from aioflow.store.store import Store
from tests.faults.interleave.clients import CLIENTS
from tests.faults.interleave.connections import Actor, Slot
from tests.faults.interleave.ledger import Hand, Ledger
from tests.faults.interleave.mutants import Mutant
from tests.faults.interleave.oracle import disagreements, unfinished
from tests.faults.interleave.scene import LEASE, TABLES, Scene, build
from tests.faults.interleave.schedule import Gate, Schedule
from tests.faults.interleave.workers import WORKERS, decide
from tests.store.bench import ids
from tests.support import eventually

__all__ = ["OPERATIONS", "Result", "Rig"]

Operation = Callable[[Hand], Awaitable[None]]
OPERATIONS: dict[str, Operation] = {one.__name__: one for one in (*CLIENTS, *WORKERS)}
_ACTORS = 4
_ROUNDS = 10
_VACUUM_EVERY = 40


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one schedule; ``broken`` is empty when all is well."""

    names: tuple[str, ...]
    seed: int
    broken: list[str]
    trace: list[str]
    counts: Counter[str] = field(default_factory=Counter)
    sent: set[str] = field(default_factory=set)

    def __str__(self) -> str:
        again = f"python -m tests.faults.interleave --pair {','.join(self.names)} --seed {self.seed}"
        return "\n".join([again, *(f"  broken: {one}" for one in self.broken), *(f"    {one}" for one in self.trace)])


class Rig:
    """Connections, and the scene. An async context manager."""

    def __init__(self, dsn: str, mutant: Mutant | None = None) -> None:
        self._dsn, self._mutant = dsn, mutant
        self._slots = [Slot(dsn, n) for n in range(_ACTORS)]
        self._conns: list[Any] = []
        self.scene: Scene
        self.ran = 0

    async def __aenter__(self) -> Self:
        settings = {**SESSION_SETTINGS, "statement_timeout": "0", "lock_timeout": "0", "synchronous_commit": "off",
                    "idle_in_transaction_session_timeout": "0"}  # fmt: skip
        self._conns = [await asyncpg.connect(self._dsn, server_settings=settings) for _ in range(3)]
        self.admin = self._conns[0]
        self.scene = await build(self._dsn, self.admin)
        if self._mutant is not None:
            await self.admin.execute(self._mutant.prepare())
        self._db = await Database.connect(self._dsn, max_size=1)
        self._store = Store(self._db)
        return self

    async def __aexit__(self, *exc: object) -> None:
        for slot in self._slots:
            slot.drop()
        await self._db.close()
        for conn in self._conns:
            await conn.close()

    async def schedule(self, names: tuple[str, ...], seed: int) -> Result:
        """Put the scene back, run these operations together, and look."""
        rng = random.Random(zlib.crc32(repr((names, seed)).encode()))
        await self._restore()
        changed = asyncio.Event()
        actors, ledger = [], self._ledger()
        for n, name in enumerate(names):
            slot = self._slots[n]
            await slot.connect()
            actor = Actor(f"{'ABCDEF'[n]} {name}", slot, changed, self._mutant)
            hand = Hand(actor.name, actor.store, random.Random(rng.random()), self.scene, ledger)
            actor.begin(OPERATIONS[name](hand))
            actors.append(actor)
        gates = [Gate(conn) for conn in self._conns[1:][: rng.choice((0, 1, 1, 2, 2))]]
        for gate in gates:
            await gate.hold(*self._row(rng))
        run = Schedule(actors, gates, self.admin, rng, changed)
        broken: list[str] = []
        try:
            await run.run()
            broken = await self._look(ledger, heal=rng.random() < 0.5)
        except TimeoutError:
            broken = ["it did not end: " + ", ".join(f"{one.name} {one.state} {one.want}" for one in actors)]
        finally:
            for actor in actors:
                if actor.state != "done" or actor.armed:
                    await actor.stop()
            for gate in gates:
                await gate.release()
            await self.admin.execute("select pg_advisory_unlock_all()")
        broken += [f"{one.name}: {error}" for one in actors for error in one.errors]
        broken += [f"{one.name} failed: {one.failed}" for one in actors if one.unexpected]
        run.counts.update(ledger.told())
        run.counts["unavailable"] += sum(one.failed is not None for one in actors)
        run.trace += [f"{one.name} failed: {one.failed}" for one in actors if one.failed is not None]
        held = ["held: " + gate.label for gate in gates]
        return Result(names, seed, broken, held + run.trace, run.counts, set().union(*(one.sent for one in actors)))

    async def deadlocks(self) -> int:
        """How many the server has seen in this database; sessions tell when they end."""
        for slot in self._slots:
            slot.drop()
        others = "select count(*) from pg_stat_activity where application_name = 'interleave'"

        async def ended() -> bool:
            return not await self.admin.fetchval(others)

        await eventually(ended)
        counted = "select deadlocks from pg_stat_database where datname = current_database()"
        return int(await self.admin.fetchval(counted))

    async def _restore(self) -> None:
        if self.ran % _VACUUM_EVERY == 0:
            for table in TABLES:
                await self.admin.execute(" ".join(("vacuum analyze", f"aioflow.{table}")))
        self.ran += 1
        await self.admin.execute(self.scene.restore)
        await self.admin.fetch(
            "select setval('il.shift', (extract(epoch from $1::timestamptz - clock_timestamp()) * 1e6)::bigint)",
            self.scene.clock,
        )

    def _ledger(self) -> Ledger:
        ledger = Ledger()
        ledger.held_runs.update(one.token for one in self.scene.runs.values())
        ledger.held_attempts.update(one.token for some in self.scene.attempts.values() for one in some)
        return ledger

    def _row(self, rng: random.Random) -> tuple[str, str, str]:
        kind = rng.choice(
            ("hot",) * 9 + ("activity",) * 5 + ("instance",) * 2 + ("worker", "request", "run", "timer", "inbox")
        )
        if kind == "worker":
            return kind, rng.choice(("one", "two")), ""
        return kind, rng.choice("ppppqqqqrstuyz"), rng.choice("abbccdegx") if kind == "activity" else ""

    async def _look(self, ledger: Ledger, *, heal: bool) -> list[str]:
        broken = await disagreements(self.admin, self._store, ledger)
        if broken or not heal:
            return broken
        return await self._heal() or await unfinished(self.admin)

    async def _heal(self) -> list[str]:
        """Every holder is gone, and a new worker does what is left."""
        await self.admin.execute("update aioflow.worker set lease_until = '-infinity' where not dead")
        await self._store.reap(0.0, quarantine_after=100)
        worker = ids()
        await self._store.register_worker(rows.WorkerRow(worker_id=worker, identity="new", queues=("q",), lease=LEASE))
        hand = Hand("new", self._store, random.Random(0), self.scene, Ledger())
        for suspects in (False, True):
            for _ in range(_ROUNDS):
                runs = await self._store.claim_runs(worker, 0, ["q"], ["W"], 20, ids(), suspects)
                if not runs:
                    break
                loaded = [one for one in await self._store.load(runs) if one is not None]
                await self._store.commit([decide(hand, one) for one in loaded])
            else:
                return ["fresh workers do not come to an end"]
        return []


async def found(dsn: str, mutant: Mutant, limit: int) -> tuple[int, Result | None]:
    """The first schedule that finds a mistake in a fresh, migrated database; None: none of ``limit`` did."""
    async with Rig(dsn, mutant) as rig:
        for seed in range(1, limit + 1):
            result = await rig.schedule(mutant.names, seed)
            if result.broken:
                return seed, result
    return limit, None


def pairs() -> list[tuple[str, ...]]:
    """Every operation beside every one, itself included."""
    every = list(OPERATIONS)
    return [(one, other) for n, one in enumerate(every) for other in every[n:]]


TRIPLES: list[tuple[str, ...]] = [
    ("reap", "claim_runs", "commit"),
    ("reap", "claim_activities", "complete"),
    ("signal", "commit", "close"),
    ("signal", "keep", "terminate"),
    ("terminate", "complete", "commit"),
    ("commit", "commit", "reap"),
    ("late_commit", "late_commit", "reap"),
    ("restart", "terminate", "signal"),
    ("restart", "commit", "complete"),
    ("start", "terminate", "reserve"),
    ("cancel", "due_closes", "restart"),
    ("unknown", "commit", "claim_activities"),
    ("unknown", "terminate", "heartbeat"),
    ("unknown", "reap", "complete"),
    ("unknown", "unknown", "close"),
    ("retire", "reap", "late_commit"),
    ("retire", "claim_runs", "reap"),
    ("time_out", "heartbeat", "reap"),
    ("time_out", "complete", "retry"),
    ("release_quarantined", "unknown", "terminate"),
    ("release_activities", "claim_activities", "commit"),
    ("bump_epoch", "claim_runs", "unknown"),
]
