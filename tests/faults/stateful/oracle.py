"""The oracle: predicts the outcome of every operation of the store, and every row after it.

`Oracle` has the operations of `aioflow.store.store.Store` by the same names; here are those that only read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from aioflow.core.events import Record
from aioflow.core.keys import InstanceKey
from aioflow.store import rows
from tests.faults.stateful.oracle_clients import Clients
from tests.faults.stateful.oracle_runs import pair
from tests.faults.stateful.oracle_tables import FOREVER, Key, Row, plain
from tests.faults.stateful.oracle_workers import Workers

__all__ = ["Oracle"]

_SICK = "activity {activity} is quarantined: {crashes} workers in a row died while they ran it"


class Oracle(Clients, Workers):
    """All operations, and what reading gives."""

    def shown_run(self, key: Key, run_id: UUID | None = None) -> UUID | None:
        """Which run is meant when none is named: the current one, else the last one."""
        if run_id is not None:
            return run_id
        hot = self.hot.get(key)
        return hot["run_id"] if hot is not None else self.instance[key]["run_id"]  # type: ignore[no-any-return]

    def blocked(self, hot: Row | None, run_id: UUID | None) -> str | None:
        if hot is not None and hot["blocked_reason"] is not None:
            return str(hot["blocked_reason"])
        sick = [row for (run, _), row in self.activity.items() if run == run_id and row["isolation"] == 2]
        return _SICK.format(**min(sick, key=lambda row: row["ref"])) if sick else None

    def describe(self, key: InstanceKey, run_id: UUID | None = None) -> rows.Description | None:
        instance, hot = self.instance.get(pair(key)), self.hot.get(pair(key))
        if instance is None or (run_id is not None and run_id not in self.run):
            return None
        if hot is not None and run_id not in (None, hot["run_id"]):
            hot = None
        shown = run_id or (hot["run_id"] if hot is not None else instance["run_id"])
        run = self.run.get(shown) if shown is not None else None
        told = rows.Description(
            key=key,
            workflow=(run or instance)["workflow"],
            queue=(run or hot or {"queue": ""})["queue"],
            status=run["status"] if run else "reserved",
            run_id=shown,
            current_run_id=instance["run_id"],
            number=run["number"] if run else None,
            run_count=instance["run_count"],
            build=run["build"] if run else None,
            created_at=instance["created_at"],
            started_at=run["started_at"] if run else None,
            closed_at=run["closed_at"] if run else None,
            cancel_requested_at=run["cancel_requested_at"] if run else None,
            history_length=(hot["next_seq"] - 1 if hot else run["last_seq"] if run else 0),
            open=hot is not None,
        )
        return self._opened(told, hot) if hot is not None else told

    def _opened(self, told: rows.Description, hot: Row) -> rows.Description:
        owner = self.worker.get(hot["owner"])
        return replace(
            told,
            inbox=len(self.inbox.get((hot["namespace"], hot["instance_id"]), [])),
            activities=sum(run == told.run_id for run, _ in self.activity),
            timers=sum(run == told.run_id and r["kind"] == "workflow" for (run, _), r in self.timer.items()),
            attempt=hot["attempt"],
            blocked_reason=self.blocked(hot, told.run_id),
            crashes=hot["crashes"],
            quarantined=hot["isolation"] == 2,
            sealed=hot["sealed"],
            worker=owner["identity"] if owner else None,
            visible_at=None if hot["visible_at"] == FOREVER else hot["visible_at"],
            served=any(self._serves(row, hot["queue"]) for row in self.worker.values()),
        )

    def _serves(self, worker: Row, queue: str) -> bool:
        return not worker["dead"] and worker["lease_until"] > self.now and queue in worker["queues"]

    def pending_activities(self, run_id: UUID) -> list[rows.PendingActivity]:
        found = sorted(
            (row for (run, _), row in self.activity.items() if run == run_id),
            key=lambda row: (row["scheduled_at"], row["ref"]),
        )
        return [
            rows.PendingActivity(
                quarantined=row["isolation"] == 2,
                worker=self.worker[row["owner"]]["identity"] if row["owner"] in self.worker else None,
                **{name: row[name] for name in rows.PendingActivity.__slots__ if name in row},
            )
            for row in found
        ]

    def list_instances(self, namespace: str, status: str | None = None) -> list[rows.Summary]:
        found = []
        for key, instance in self.instance.items():
            hot, shown = self.hot.get(key), self.shown_run(key)
            run = self.run[shown] if shown is not None else None
            found.append(
                rows.Summary(
                    key=InstanceKey.of(*key),
                    workflow=instance["workflow"],
                    queue=(run or hot or {})["queue"],
                    run_id=shown,
                    number=run["number"] if run else None,
                    status=run["status"] if run else "reserved",
                    started_at=instance["started_at"],
                    closed_at=run["closed_at"] if run else None,
                    blocked_reason=self.blocked(hot, shown if hot else None),
                    attempt=hot["attempt"] if hot else None,
                )
            )
        found.sort(key=lambda one: (one.started_at, one.key.instance_id), reverse=True)
        return [one for one in found if one.key.namespace == namespace and status in (None, one.status)]

    def read_history(self, run_id: UUID, after: int, limit: int) -> list[Any]:
        return [
            (row["seq"], row["commit"], self._event(row)) for row in self.history.get(run_id, [])[after : after + limit]
        ]

    @staticmethod
    def _event(row: Row) -> tuple[Any, ...]:
        return plain(Record(row["kind"], row["version"], row["ref"], row["at"], row["attrs"], row["payload"]))

    def results(self, ref: rows.InstanceRef) -> Any:
        """As it compares: run, workflow, status, terminal event."""
        key = pair(ref.key)
        if key not in self.instance:
            return None
        run = self.run.get(self.shown_run(key, ref.run_id))  # type: ignore[arg-type]
        if run is None:
            return None if ref.run_id is not None else (None, None, "reserved", None)
        last = run["last_seq"]
        ended = self._event(self.history[run["run_id"]][last - 1]) if last is not None else None
        return (run["run_id"], run["workflow"], run["status"], ended)

    def generations(self, keys: Sequence[InstanceKey]) -> list[rows.Generations | None]:
        hots = [self.hot.get(pair(key)) for key in keys]
        return [h and rows.Generations(h["wake_gen"], h["ack_gen"], h["run_id"], h["next_seq"]) for h in hots]  # type: ignore[misc]

    # -- what is due --------------------------------------------------------------------------------

    def _waiting_for(self, namespace: str, queues: Any, workflows: Any, activities: Any, level: int) -> list[list[Any]]:
        """When runs and activities of these types become claimable, of one level of isolation."""
        runs = [
            row["visible_at"]
            for row in self.hot.values()
            if row["workflow"] in workflows and row["visible_at"] < FOREVER and self._of(row, namespace, queues, level)
        ]
        rest = [
            row["visible_at"]
            for row in self.activity.values()
            if row["activity"] in activities and row["owner"] is None and self._of(row, namespace, queues, level)
        ]
        return [runs, rest]

    @staticmethod
    def _of(row: Row, namespace: str, queues: Any, level: int) -> bool:
        return row["namespace"] == namespace and row["queue"] in queues and row["isolation"] == level

    def next_due(self, *types: Any) -> rows.NextDue:
        found = self._waiting_for(*types, 0)
        return rows.NextDue(*(max(0.0, (min(times) - self.now).total_seconds()) if times else None for times in found))

    def suspects(self, *types: Any) -> rows.Suspects:
        return rows.Suspects(*(any(at <= self.now for at in times) for times in self._waiting_for(*types, 1)))

    def quarantined(self) -> list[rows.Quarantined]:
        def told(row: Row, workflow: Any, activity: Any, ref: Any) -> rows.Quarantined:
            place = (row["namespace"], row["instance_id"], row["run_id"])
            return rows.Quarantined(*place, workflow, activity, ref, row["crashes"])

        runs = [told(h, h["workflow"], None, None) for h in self.hot.values() if h["isolation"] == 2]
        rest = [
            told(a, self.run[a["run_id"]]["workflow"], a["activity"], a["ref"])
            for a in self.activity.values()
            if a["isolation"] == 2 and a["owner"] is None
        ]
        return sorted([*runs, *rest], key=lambda one: (one.namespace, one.instance_id, one.ref or ""))

    def backlog(self) -> list[rows.Backlog]:
        due = [
            *((h["queue"], 1, 0, h["visible_at"]) for h in self.hot.values() if h["isolation"] < 2),
            *((a["queue"], 0, 1, a["visible_at"]) for a in self.activity.values() if self._waits(a)),
        ]
        due = [one for one in due if one[3] <= self.now]
        found = []
        for queue in sorted({one[0] for one in due}):
            mine = [one for one in due if one[0] == queue]
            oldest = (self.now - min(one[3] for one in mine)).total_seconds()
            workers = sum(self._serves(row, queue) for row in self.worker.values())
            found.append(rows.Backlog(queue, sum(o[1] for o in mine), sum(o[2] for o in mine), oldest, workers))
        return found

    @staticmethod
    def _waits(row: Row) -> bool:
        return row["owner"] is None and row["isolation"] < 2

    def workers(self, dead: bool) -> list[rows.WorkerInfo]:
        """In order of their ids."""
        return [
            rows.WorkerInfo(
                live=row["lease_until"] > self.now and not row["dead"],
                **{
                    name: tuple(row[name]) if isinstance(row[name], list) else row[name]
                    for name in rows.WorkerInfo.__slots__
                    if name in row
                },
            )
            for _, row in sorted(self.worker.items())
            if dead or not row["dead"]
        ]
