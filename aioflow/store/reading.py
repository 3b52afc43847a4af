"""What callers read: descriptions, lists, histories, results."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from aioflow.core.events import Record
from aioflow.core.keys import InstanceKey
from aioflow.store.pool import Database
from aioflow.store.queries import sql
from aioflow.store.rows import (
    Description,
    Generations,
    InstanceRef,
    Page,
    PendingActivity,
    ResultRow,
    StoredEvent,
    Summary,
    key_of,
)
from aioflow.store.tasks import record_of


def _refs(refs: Sequence[InstanceRef]) -> list[list[Any]]:
    return [
        [r.key.shard for r in refs],
        [r.key.namespace for r in refs],
        [r.key.instance_id for r in refs],
        [r.run_id for r in refs],
    ]


class Reading:
    """Read-only operations."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def describe(self, key: InstanceKey, run_id: UUID | None = None) -> Description | None:
        """What is known of an instance's current run, or of one of its runs; None: no such thing."""
        rows = await self._db.fetch(sql("describe"), *_refs([InstanceRef(key, run_id)]), point="describe")
        return _description(rows[0]) if rows else None

    async def pending_activities(self, shard: int, run_id: UUID, limit: int = 100) -> list[PendingActivity]:
        """Activities of a run without an outcome, the oldest first."""
        rows = await self._db.fetch(sql("pending_activities"), shard, run_id, limit, point="pending_activities")
        return [PendingActivity(**dict(r)) for r in rows]

    async def list_instances(
        self,
        namespace: str,
        *,
        status: str | None = None,
        workflow: str | None = None,
        queue: str | None = None,
        prefix: str | None = None,
        limit: int = 100,
        after: Page | None = None,
    ) -> list[Summary]:
        """Instances with their current run, the most recently started first.

        ``status`` may be ``reserved`` or one of a run; ``prefix`` begins the instance id; ``after`` is
        ``Page(last.started_at, last.key.instance_id)`` of the page before.
        """
        page: tuple[datetime | None, str | None] = after or (None, None)
        rows = await self._db.fetch(
            sql("list_instances"), namespace, status, workflow, queue, prefix, limit, *page, point="list"
        )
        return [
            Summary(
                key=key_of(r),
                workflow=r["workflow"],
                queue=r["queue"],
                run_id=r["run_id"],
                number=r["number"],
                status=r["status"],
                started_at=r["started_at"],
                closed_at=r["closed_at"],
                blocked_reason=r["blocked_reason"],
                attempt=r["attempt"],
            )
            for r in rows
        ]

    async def read_history(
        self, key: InstanceKey, run_id: UUID, after_seq: int = 0, limit: int = 1000
    ) -> list[StoredEvent]:
        """A page of a history: at most ``limit`` events after ``after_seq``."""
        rows = await self._db.fetch(sql("read_history"), key.shard, run_id, after_seq, limit, point="read_history")
        return [StoredEvent(r["seq"], r["commit"], record_of(r)) for r in rows]

    async def results(self, refs: Sequence[InstanceRef]) -> list[ResultRow | None]:
        """How runs stand; None: no such instance or run."""
        rows = await self._db.fetch(sql("results"), *_refs(refs), point="results")
        found: list[ResultRow | None] = [None] * len(refs)
        for r in rows:
            record: Record | None = record_of(r) if r["kind"] is not None else None
            found[r["ord"] - 1] = ResultRow(r["run_id"], r["workflow"], r["status"], record)
        return found

    async def generations(self, keys: Sequence[InstanceKey]) -> list[Generations | None]:
        """What open instances have accepted and consumed; None: closed or unknown."""
        rows = await self._db.fetch(
            sql("generations"),
            [k.shard for k in keys],
            [k.namespace for k in keys],
            [k.instance_id for k in keys],
            point="generations",
        )
        found: list[Generations | None] = [None] * len(keys)
        for r in rows:
            found[r["ord"] - 1] = Generations(r["wake_gen"], r["ack_gen"], r["run_id"], r["next_seq"])
        return found


def _description(r: Any) -> Description:
    is_open = r["open"]
    return Description(
        key=key_of(r),
        workflow=r["workflow"],
        queue=r["queue"] or r["hot_queue"] or "",
        status=r["status"] or "reserved",
        run_id=r["run_id"],
        current_run_id=r["current_run_id"],
        number=r["number"],
        run_count=r["run_count"],
        build=r["build"],
        created_at=r["created_at"],
        started_at=r["started_at"],
        closed_at=r["closed_at"],
        cancel_requested_at=r["cancel_requested_at"],
        history_length=(r["next_seq"] - 1 if is_open else r["last_seq"]) or 0,
        open=is_open,
        inbox=r["inbox"] or 0,
        activities=r["activities"] or 0,
        timers=r["timers"] or 0,
        attempt=r["attempt"] or 0,
        blocked_reason=r["blocked_reason"],
        crashes=r["crashes"] or 0,
        quarantined=bool(r["quarantined"]),
        sealed=bool(r["sealed"]),
        paused=bool(r["paused"]),
        worker=r["worker"],
        visible_at=r["visible_at"],
        served=bool(r["workers"]) or not is_open,
    )
