"""The oracle's part for worker processes and for maintenance."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

from aioflow.core.keys import InstanceKey
from aioflow.store import rows
from aioflow.store.workers import Crashed, Released
from tests.faults.stateful.oracle_activities import Activities
from tests.faults.stateful.oracle_tables import Row


class Workers(Activities):
    """Operations on processes, and what any of them does now and then."""

    def register_worker(self, worker: rows.WorkerRow) -> None:
        row = {
            "worker_id": worker.worker_id,
            "identity": worker.identity,
            "namespace": worker.namespace,
            "queues": list(worker.queues),
            "workflows": list(worker.workflows),
            "activities": list(worker.activities),
            "slots": worker.slots,
            "build": worker.build,
            "claim_epoch": 0,
            "lease_until": self.later(worker.lease),
            "dead": False,
            "released": False,
            "blame": None,
            "started_at": self.now,
            "seen_at": self.now,
        }
        self.worker.setdefault(worker.worker_id, row)

    def alive(self, worker_id: UUID) -> Row | None:
        row = self.worker.get(worker_id)
        return None if row is None or row["dead"] else row

    def renew_lease(self, worker_id: UUID, ttl: float) -> bool:
        row = self.alive(worker_id)
        if row is not None:
            row.update(lease_until=self.later(ttl), seen_at=self.now)
        return row is not None

    def bump_epoch(self, worker_id: UUID) -> int | None:
        row = self.alive(worker_id)
        if row is None:
            return None
        row["claim_epoch"] += 1
        return int(row["claim_epoch"])

    def release_unknown(
        self, worker_id: UUID, known_runs: Sequence[UUID], known_activities: Sequence[UUID]
    ) -> Released:
        runs, activities = set(), set()
        for hot in self._owned(self.hot.values(), [worker_id]):
            if hot["token"] not in known_runs:
                self.give_back(hot, 1)
                runs.add(hot["queue"])
        for row in self._owned(self.activity.values(), [worker_id]):
            if row["token"] not in known_activities:
                self.waiting(row, self.now)
                row["deliveries"] -= 1
                activities.add(row["queue"])
        return Released([], runs, activities)

    @staticmethod
    def _owned(table: Iterable[Row], workers: Sequence[UUID]) -> list[Row]:
        return [row for row in table if row["owner"] in workers]

    def unregister_worker(self, worker_id: UUID) -> Released:
        self.retire(worker_id)
        released = self.bury([worker_id] if worker_id in self.worker else [])
        return released._replace(workers=[worker_id])

    def retire(self, worker_id: UUID) -> None:
        """A good-bye: nobody is blamed, unless it came after its death had been counted."""
        row = self.worker.get(worker_id)
        if row is not None and row["blame"] is None:
            row.update(dead=True, blame="none", seen_at=self.now)

    def declare_dead(self) -> list[UUID]:
        """The first step of reaping."""
        late = [row for row in self.worker.values() if not row["dead"] and row["lease_until"] < self.now]
        for row in late:
            row["dead"] = True
        return sorted(row["worker_id"] for row in late)

    def blame(self) -> list[UUID]:
        """The second one: whom the deaths count against. Whose rows are to be released."""
        pending = [row for row in self.worker.values() if row["dead"] and not row["released"]]
        for row in pending:
            held = self._owned([*self.hot.values(), *self.activity.values()], [row["worker_id"]])
            if row["blame"] is None:
                row["blame"] = "suspects" if any(one["isolation"] > 0 for one in held) else "all"
        return [row["worker_id"] for row in pending]

    def reap(self, pause: float = 0.0, quarantine_after: int = 3) -> Released:
        late = self.declare_dead()
        return self.bury(self.blame(), quarantine_after)._replace(workers=late)

    def bury(self, dead: Sequence[UUID], limit: int = 3) -> Released:
        """Release all they own, and count the deaths."""
        crashed: list[tuple[int, Crashed]] = []
        runs, activities = set(), set()
        for hot in self._owned(self.hot.values(), dead):
            blame = self.worker[hot["owner"]]["blame"]
            runs.add(hot["queue"])
            self.give_back(hot, 1 if blame == "none" else 0)
            if self._crash(hot, blame, limit):
                crashed.append((hot["isolation"], self._told(hot, workflow=hot["workflow"])))
                if hot["isolation"] == 2:
                    hot["blocked_reason"] = f"quarantined: {hot['crashes']} workers in a row died while they ran it"
        for row in self._owned(self.activity.values(), dead):
            blame = self.worker[row["owner"]]["blame"]
            activities.add(row["queue"])
            self.waiting(row, self.now)
            row["deliveries"] -= 1 if blame == "none" else 0
            if self._crash(row, blame, limit):
                crashed.append((row["isolation"], self._told(row, activity=row["activity"])))
        for worker_id in dead:
            self.worker[worker_id]["released"] = True
        levels = [sorted((one for level, one in crashed if level == wanted), key=str) for wanted in (1, 2)]
        return Released([], runs, activities, *levels)

    @staticmethod
    def _crash(row: Row, blame: str, limit: int) -> bool:
        """Does the death of its holder count against a row? Two make a suspect, ``limit`` a quarantine."""
        if blame == "none" or (blame == "suspects" and row["isolation"] == 0):
            return False
        row["crashes"] += 1
        row["isolation"] = 2 if row["crashes"] >= limit else 1 if row["crashes"] >= 2 else 0
        return True

    @staticmethod
    def _told(row: Row, workflow: str | None = None, activity: str | None = None) -> Crashed:
        return Crashed(row["namespace"], row["instance_id"], row["run_id"], workflow, activity, row["crashes"])

    def forget_workers(self, older_than: float = 86_400.0) -> int:
        before = self.later(-older_than)
        assert before is not None
        old = [k for k, row in self.worker.items() if row["dead"] and row["released"] and row["seen_at"] < before]
        for worker_id in old:
            del self.worker[worker_id]
        return len(old)

    # -- maintenance --------------------------------------------------------------------------------

    def due_closes(self, limit: int = 100) -> list[rows.DueClose]:
        """In order of time; equals in order of their runs."""
        due = [row for row in self.timer.values() if row["kind"] != "workflow" and row["due_at"] <= self.now]
        due.sort(key=lambda row: (row["due_at"], row["run_id"]))
        return [
            rows.DueClose(InstanceKey.of(r["namespace"], r["instance_id"]), r["run_id"], r["kind"], r["due_at"])
            for r in due[:limit]
        ]

    def expire_requests(self, limit: int = 1000) -> int:
        over: list[Any] = [
            at for at, row in self.request.items() if row["expires_at"] is not None and row["expires_at"] <= self.now
        ]
        for at in over:
            del self.request[at]
        return len(over)
