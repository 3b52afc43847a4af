"""What any engine process does now and then, and what a doctor asks."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import cast

from aioflow.store.pool import Database
from aioflow.store.queries import names, sql
from aioflow.store.rows import Backlog, DueClose, NextDue, Quarantined, Suspects, Violation, key_of


class Maintenance:
    """Sweeps and checks."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def next_due(
        self, namespace: str, queues: Sequence[str], workflows: Sequence[str], activities: Sequence[str]
    ) -> NextDue:
        """Seconds until something ordinary of these types is due on these queues; suspects have `suspects`.

        None also when it stands behind more than 1,000 things of other types: then polling finds it.
        """
        (row,) = await self._db.fetch(
            sql("next_due"), list(queues), list(workflows), list(activities), namespace, point="next_due"
        )
        return NextDue(*(None if at is None else max(0.0, at) for at in (row["runs"], row["activities"])))

    async def suspects(
        self, namespace: str, queues: Sequence[str], workflows: Sequence[str], activities: Sequence[str]
    ) -> Suspects:
        """Whether runs or activities are due that seem to kill workers."""
        (row,) = await self._db.fetch(
            sql("suspects"), list(queues), list(workflows), list(activities), namespace, point="suspects"
        )
        return Suspects(row["runs"], row["activities"])

    async def quarantined(self, namespace: str | None = None, limit: int = 100) -> list[Quarantined]:
        """What waits in quarantine for `release_quarantined`; all namespaces: None."""
        rows = await self._db.fetch(sql("quarantined"), namespace, limit, point="quarantined")
        return [Quarantined(**dict(r)) for r in rows]

    async def due_closes(self, limit: int = 100) -> list[DueClose]:
        """Runs whose grace or timeout is over: end each with `terminate`, naming its run."""
        rows = await self._db.fetch(sql("due_closes"), limit, point="due_closes")
        return [DueClose(key_of(r), r["run_id"], r["kind"], r["due_at"]) for r in rows]

    async def expire_requests(self, limit: int = 1000) -> int:
        """Forget request keys past their time; how many."""
        return len(await self._db.fetch(sql("expire_requests"), limit, point="expire_requests"))

    async def backlog(self) -> list[Backlog]:
        """Due work per queue, and how many live workers serve it."""
        rows = await self._db.fetch(sql("backlog"), point="backlog")
        return [Backlog(r["queue"], r["runs"], r["activities"], r["oldest"], r["workers"]) for r in rows]

    async def clock(self) -> datetime:
        """The database's time."""
        (row,) = await self._db.fetch(sql("clock"), point="clock")
        return cast(datetime, row["clock"])

    async def invariants(self, limit: int = 100) -> list[Violation]:
        """Everything that contradicts the protocol, at most ``limit`` rows per rule. Reads whole tables."""
        found = []
        for name in names("invariant_"):
            rows = await self._db.fetch(sql(name), limit, point="invariants")
            found += [Violation(name.removeprefix("invariant_"), r["subject"], r["detail"]) for r in rows]
        return found
