"""Worker processes: their leases, claim epochs, and what happens to the work of a dead one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple
from uuid import UUID

from pydantic_core import to_json

from aioflow.store.pool import Database
from aioflow.store.queries import sql
from aioflow.store.rows import DefinitionRow, WorkerInfo, WorkerRow

_BATCH = 500
_PASSES = 50


class Crashed(NamedTuple):
    """A run (``activity`` None) or activity that a worker died with, and the crashes it has seen in a row."""

    namespace: str
    instance_id: str
    run_id: UUID
    workflow: str | None
    activity: str | None
    crashes: int


class Released(NamedTuple):
    """Queues whose rows became claimable, so that they may be woken; and who was declared dead.

    ``suspects`` and ``quarantined`` became that just now.
    """

    workers: list[UUID]
    run_queues: set[str]
    activity_queues: set[str]
    suspects: Sequence[Crashed] = ()
    quarantined: Sequence[Crashed] = ()


class Workers:
    """Operations on the rows of worker processes."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def register_worker(self, worker: WorkerRow) -> None:
        """A process starts; its id must be new. The lease runs from now."""
        await self._db.fetch(
            sql("worker_register"),
            worker.worker_id,
            worker.identity,
            worker.namespace,
            list(worker.queues),
            list(worker.workflows),
            list(worker.activities),
            worker.slots,
            worker.build,
            worker.lease,
            point="register_worker",
            shield=True,
        )

    async def renew_lease(self, worker_id: UUID, ttl: float) -> bool:
        """Hold all work for another ``ttl`` seconds; False: declared dead for ever, drop everything."""
        return bool(await self._db.fetch(sql("worker_renew"), worker_id, ttl, point="renew_lease"))

    async def bump_epoch(self, worker_id: UUID) -> int | None:
        """Void all claims sent before; the new epoch, None when the worker is dead. Sending it twice is harmless."""
        rows = await self._db.fetch(sql("worker_epoch"), worker_id, point="bump_epoch", shield=True)
        return rows[0]["claim_epoch"] if rows else None

    async def release_unknown(
        self, worker_id: UUID, known_runs: Sequence[UUID], known_activities: Sequence[UUID]
    ) -> Released:
        """After `bump_epoch`: give back what the worker owns by tokens other than those it knows.

        ``known_runs`` has the tokens of runs held, and of commits in flight both the spent and the next one.
        """
        runs = await self._db.fetch(
            sql("release_unknown_runs"), worker_id, list(known_runs), point="release_unknown", shield=True
        )
        activities = await self._db.fetch(
            sql("release_unknown_activities"),
            worker_id,
            list(known_activities),
            point="release_unknown",
            shield=True,
        )
        return Released([], {r["queue"] for r in runs}, {r["queue"] for r in activities})

    async def unregister_worker(self, worker_id: UUID) -> Released:
        """A process goes; whatever it still owns is released."""
        await self._db.fetch(sql("worker_retire"), worker_id, point="unregister_worker", shield=True)
        released = await self._release([worker_id])
        return released._replace(workers=[worker_id])

    async def reap(self, pause: float = 10.0, quarantine_after: int = 3) -> Released:
        """Declare dead whose lease is over and release all they own, in several transactions.

        Nobody is declared dead within ``pause`` seconds of a server start: give the lease time. What they held is a
        suspect after two crashes in a row, and quarantined after ``quarantine_after``; if a worker held suspects,
        its death counts against those alone.
        """
        late = await self._db.fetch(sql("reap_declare"), pause, point="reap_declare", shield=True)
        pending = await self._db.fetch(sql("reap_pending"), point="reap_pending")
        dead = [r["worker_id"] for r in pending]
        if dead:
            await self._db.fetch(sql("reap_blame"), dead, point="reap_blame", shield=True)
        released = await self._release(dead, quarantine_after)
        return released._replace(workers=[r["worker_id"] for r in late])

    async def _release(self, dead: list[UUID], limit: int = 3) -> Released:
        """Release until no row is left: commits in flight may still add owned ones."""
        released, crashed = Released([], set(), set()), []
        for _ in range(_PASSES):
            if not dead:
                break
            runs = await self._db.fetch(sql("reap_runs"), dead, _BATCH, limit, point="reap_release", shield=True)
            activities = await self._db.fetch(
                sql("reap_activities"), dead, _BATCH, limit, point="reap_release", shield=True
            )
            crashed += [(r["isolation"], _crashed(r, run=True)) for r in runs if r["crashed"]]
            crashed += [(r["isolation"], _crashed(r, run=False)) for r in activities if r["crashed"]]
            released.run_queues.update(r["queue"] for r in runs)
            released.activity_queues.update(r["queue"] for r in activities)
            if len(runs) < _BATCH and len(activities) < _BATCH:
                done = await self._db.fetch(sql("reap_settle"), dead, point="reap_settle", shield=True)
                gone = {r["worker_id"] for r in done}
                dead = [worker for worker in dead if worker not in gone]
        suspects, quarantined = ([one for level, one in crashed if level == wanted] for wanted in (1, 2))
        return released._replace(suspects=suspects, quarantined=quarantined)

    async def workers(self, *, dead: bool = False) -> list[WorkerInfo]:
        """Worker processes, live ones first; dead ones on request."""
        rows = await self._db.fetch(sql("workers"), dead, point="workers")
        return [
            WorkerInfo(
                worker_id=r["worker_id"],
                identity=r["identity"],
                namespace=r["namespace"],
                queues=tuple(r["queues"]),
                workflows=tuple(r["workflows"]),
                activities=tuple(r["activities"]),
                slots=r["slots"],
                build=r["build"],
                live=r["live"],
                dead=r["dead"],
                started_at=r["started_at"],
                seen_at=r["seen_at"],
            )
            for r in rows
        ]

    async def register_definitions(self, definitions: Sequence[DefinitionRow]) -> None:
        """Tell callers what the workflows of this process are called and what they take."""
        await self._db.fetch(
            sql("register_definitions"),
            [d.namespace for d in definitions],
            [d.workflow for d in definitions],
            [to_json(d.signals).decode() for d in definitions],
            [to_json(d.queries).decode() for d in definitions],
            [d.open_signals for d in definitions],
            [d.queue for d in definitions],
            point="register_definitions",
            shield=True,
        )

    async def definitions(self, namespace: str, names: Sequence[str] | None = None) -> list[DefinitionRow]:
        """What workers told of these workflows (all: None)."""
        rows = await self._db.fetch(
            sql("definitions"), namespace, None if names is None else list(names), point="definitions"
        )
        return [
            DefinitionRow(
                namespace=r["namespace"],
                workflow=r["workflow"],
                queue=r["queue"],
                signals=tuple(r["signals"]),
                queries=tuple(r["queries"]),
                open_signals=r["open_signals"],
            )
            for r in rows
        ]

    async def forget_workers(self, older_than: float = 86_400.0) -> int:
        """Drop rows of workers dead for so many seconds; how many."""
        return len(await self._db.fetch(sql("forget_workers"), older_than, point="forget_workers"))


def _crashed(row: Any, *, run: bool) -> Crashed:
    return Crashed(
        namespace=row["namespace"],
        instance_id=row["instance_id"],
        run_id=row["run_id"],
        workflow=row["name"] if run else None,
        activity=None if run else row["name"],
        crashes=row["crashes"],
    )
