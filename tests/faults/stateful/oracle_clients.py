"""The oracle's part for callers: start, reserve, signal, cancel, terminate, release of quarantined ones."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from aioflow.core.events import Record
from aioflow.core.keys import InstanceKey
from aioflow.store import rows
from tests.faults.stateful.oracle_tables import (
    FOREVER,
    MOST_SIGNALS,
    NAMESPACES,
    Key,
    Row,
    Tables,
    in_turn,
    parsed,
)

GRACE = "!cancel_grace"


def key_of(item: Any) -> Key:
    return (item.namespace, item.instance_id)


class Clients(Tables):
    """Operations of callers on instances."""

    # -- start and reserve --------------------------------------------------------------------------

    def start(self, requests: Sequence[rows.StartRequest]) -> list[rows.StartOutcome]:
        return in_turn(requests, self._start)

    def _start(self, item: rows.StartRequest, _: int) -> rows.StartOutcome:
        if not self.fresh("start", item, item.run_id):
            assert item.key is not None
            known = self.request[item.namespace, item.instance_id, item.key]
            if self.asked_before("start", item) == "conflict":
                return rows.StartOutcome("conflict", known["run_id"], True)
            done = "started" if known["outcome"] == "accepted" else known["outcome"]
            return rows.StartOutcome(done, known["run_id"], True)
        outcome = self._start_fresh(item)
        if outcome.outcome not in ("started", "existing"):
            self.forget(item)
        elif item.key is not None and outcome.run_id != item.run_id:
            self.request[item.namespace, item.instance_id, item.key].update(outcome="existing", run_id=outcome.run_id)
        return outcome

    def _start_fresh(self, item: rows.StartRequest) -> rows.StartOutcome:
        key, hot = key_of(item), self.hot.get(key_of(item))
        if key[0] not in NAMESPACES:
            return rows.StartOutcome("unknown_namespace", None, False)
        if item.run_id in self.run:
            return rows.StartOutcome("started", item.run_id, True)
        if hot is None and key in self.instance and not self._reusable(key, item.reuse):
            return rows.StartOutcome("closed", self.instance[key]["run_id"], False)
        if hot is not None and hot["run_id"] is not None:
            if item.conflict != "terminate_existing":
                outcome = "existing" if item.conflict == "use_existing" else "exists"
                return rows.StartOutcome(outcome, hot["run_id"], False)  # type: ignore[arg-type]
            forced = Record("RunTerminated", 1, None, self.now, '{"origin":"terminate_existing"}', None)
            self._force(key, hot, item.run_id, forced, "terminated")
            hot["ack_gen"] = hot["wake_gen"]
        self._begin(key, item)
        return rows.StartOutcome("started", item.run_id, False)

    def _reusable(self, key: Key, reuse: str) -> bool:
        """May a closed instance be used again?"""
        last = self.instance[key]["run_id"]
        status = self.run[last]["status"] if last is not None else None
        return reuse == "allow" or (reuse == "allow_failed_only" and status != "completed")

    def _begin(self, key: Key, item: rows.StartRequest) -> None:
        """A run begins, in a new hot row or in the one that is there."""
        instance = self.instance.setdefault(
            key,
            {
                "namespace": key[0],
                "instance_id": key[1],
                "workflow": item.workflow,
                "run_id": None,
                "run_count": 0,
                "created_at": self.now,
                "started_at": self.now,
            },
        )
        instance.update(
            workflow=item.workflow, run_id=item.run_id, run_count=instance["run_count"] + 1, started_at=self.now
        )
        asked = [row for row in self.inbox.get(key, []) if row["kind"] == "CancelRequested"]
        self.run[item.run_id] = self._new_run(
            key,
            item.run_id,
            item.workflow,
            item.queue,
            item.build,
            min((r["accepted_at"] for r in asked), default=None),
        )
        for grace in [g for row in asked if (g := (parsed(row["attrs"]) or {}).get("grace")) is not None]:
            self._grace(key, item.run_id, grace)
        hot = self.hot.get(key) or self._new_hot(key)
        self._occupy(hot, item)
        record = item.record
        begun = Record("RunStarted", record.version, None, self.now, record.attrs, record.payload)
        self.put(key, hot["wake_gen"], 0, begun)

    def _occupy(self, hot: Row, item: rows.StartRequest) -> None:
        """The row is the new run's; whoever held it holds nothing any more."""
        hot.update(
            run_id=item.run_id,
            workflow=item.workflow,
            queue=item.queue,
            build=item.build,
            priority=item.priority,
            visible_at=self.now,
            wake_gen=hot["wake_gen"] + 1,
            owner=None,
            token=None,
            next_seq=1,
            head=None,
            sealed=False,
            refused=0,
            attempt=0,
            crashes=0,
            isolation=0,
            blocked_reason=None,
        )

    def _new_run(
        self, key: Key, run_id: UUID, workflow: str, queue: str, build: str | None, cancelled: Any = None
    ) -> Row:
        return {
            "run_id": run_id,
            "namespace": key[0],
            "instance_id": key[1],
            "number": self.instance[key]["run_count"],
            "workflow": workflow,
            "queue": queue,
            "build": build,
            "status": "running",
            "started_at": self.instance[key]["started_at"],
            "closed_at": None,
            "last_seq": None,
            "cancel_requested_at": cancelled,
            "parent_instance_id": None,
            "parent_run_id": None,
        }

    def _new_hot(self, key: Key) -> Row:
        """The row of an instance that is only reserved."""
        self.hot[key] = hot = {
            "namespace": key[0],
            "instance_id": key[1],
            "run_id": None,
            "workflow": None,
            "queue": None,
            "build": None,
            "priority": 0,
            "visible_at": FOREVER,
            "wake_gen": 0,
            "ack_gen": 0,
            "owner": None,
            "token": None,
            "next_seq": 1,
            "head": None,
            "paused": False,
            "sealed": False,
            "refused": 0,
            "attempt": 0,
            "crashes": 0,
            "isolation": 0,
            "blocked_reason": None,
        }
        return hot

    def reserve(self, requests: Sequence[rows.ReserveRequest]) -> list[rows.ReserveOutcome]:
        return in_turn(requests, self._reserve)

    def _reserve(self, item: rows.ReserveRequest, _: int) -> rows.ReserveOutcome:
        key, hot = key_of(item), self.hot.get(key_of(item))
        if not self.fresh("reserve", item):
            same = self.asked_before("reserve", item) == "duplicate"
            return rows.ReserveOutcome("reserved" if same else "conflict", None, True)
        outcome: Any = None
        if key[0] not in NAMESPACES:
            outcome = rows.ReserveOutcome("unknown_namespace", None, False)
        elif hot is not None:
            outcome = rows.ReserveOutcome("exists", hot["run_id"], False)
        elif key in self.instance and not self._reusable(key, item.reuse):
            outcome = rows.ReserveOutcome("closed", self.instance[key]["run_id"], False)
        if outcome is not None:
            self.forget(item)
            return outcome
        fresh = {"namespace": key[0], "instance_id": key[1], "run_id": None, "run_count": 0, "created_at": self.now}
        self.instance.setdefault(key, fresh).update(workflow=item.workflow, started_at=self.now)
        self._new_hot(key).update(workflow=item.workflow, queue=item.queue, priority=item.priority)
        return rows.ReserveOutcome("reserved", None, False)

    # -- deliveries ---------------------------------------------------------------------------------

    def signal(self, requests: Sequence[rows.SignalRequest]) -> list[rows.DeliveryOutcome]:
        answers: dict[int, rows.DeliveryOutcome] = {}
        together = [n for n, item in enumerate(requests) if not item.alone]
        for group in [together, *([n] for n, item in enumerate(requests) if item.alone)]:
            outcomes = self._signal([requests[n] for n in group])
            answers.update(zip(group, outcomes, strict=True))
        return [answers[n] for n in range(len(requests))]

    def _signal(self, items: list[rows.SignalRequest]) -> list[rows.DeliveryOutcome]:
        """Signals of one call: those for one instance arrive at once and share a generation."""
        fresh = [self.fresh("signal", item) for item in items]
        open_to: dict[Key, Any] = {}
        gens: dict[Key, int] = {}
        for key in {key_of(item) for item, new in zip(items, fresh, strict=True) if new} & set(self.hot):
            hot = self.hot[key]
            wait = sum(row["kind"] == "SignalReceived" for row in self.inbox.get(key, []))
            open_to[key] = "closing" if hot["sealed"] else "full" if wait >= MOST_SIGNALS else "accepted"
            if open_to[key] == "accepted":
                gens[key] = self.bump(hot)
        answers = []
        for place, (item, new) in enumerate(zip(items, fresh, strict=True), 1):
            key = key_of(item)
            if not new:
                answers.append(rows.DeliveryOutcome(self.asked_before("signal", item), None, None, False))
                continue
            outcome, hot = open_to.get(key) or self.absent(key), self.hot.get(key)
            if outcome == "accepted":
                self.put(key, gens[key], place, item.record._replace(kind="SignalReceived"))
            else:
                self.forget(item)
            if hot is None:
                answers.append(rows.DeliveryOutcome(outcome, None, None, False))
                continue
            ready = outcome == "accepted" and hot["owner"] is None and hot["run_id"] is not None
            answers.append(rows.DeliveryOutcome(outcome, hot["run_id"], hot["queue"], ready))
        return answers

    def request_cancel(self, requests: Sequence[rows.CancelRequest]) -> list[rows.DeliveryOutcome]:
        return in_turn(requests, self._cancel)

    def _cancel(self, item: rows.CancelRequest, place: int) -> rows.DeliveryOutcome:
        key, hot = key_of(item), self.hot.get(key_of(item))
        if not self.fresh("cancel", item):
            return rows.DeliveryOutcome(self.asked_before("cancel", item), None, None, False)
        if hot is None:
            self.forget(item)
            return rows.DeliveryOutcome(self.absent(key), None, None, False)
        if hot["sealed"]:
            self.forget(item)
            return rows.DeliveryOutcome("closing", hot["run_id"], hot["queue"], False)
        record = item.record._replace(kind="CancelRequested", payload=None)
        if hot["run_id"] is None:
            if any(row["kind"] == "CancelRequested" for row in self.inbox.get(key, [])):
                return rows.DeliveryOutcome("duplicate", None, hot["queue"], False)
            if item.grace is not None:  # it begins with the run
                record = record._replace(attrs=json.dumps((parsed(record.attrs) or {}) | {"grace": item.grace}))
        else:
            run = self.run[hot["run_id"]]
            if run["cancel_requested_at"] is not None:
                return rows.DeliveryOutcome("duplicate", hot["run_id"], hot["queue"], False)
            run["cancel_requested_at"] = self.now
            if item.grace is not None:
                self._grace(key, hot["run_id"], item.grace)
        self.put(key, self.bump(hot), place, record)
        ready = hot["owner"] is None and hot["run_id"] is not None
        return rows.DeliveryOutcome("accepted", hot["run_id"], hot["queue"], ready)

    def _grace(self, key: Key, run_id: UUID, seconds: float) -> None:
        row = {
            "run_id": run_id,
            "ref": GRACE,
            "namespace": key[0],
            "instance_id": key[1],
            "kind": "cancel_grace",
            "due_at": self.later(seconds),
        }
        self.timer.setdefault((run_id, GRACE), row)

    # -- force --------------------------------------------------------------------------------------

    def terminate(self, requests: Sequence[rows.TerminateRequest]) -> list[rows.TerminateOutcome]:
        return in_turn(requests, self._terminate)

    def _terminate(self, item: rows.TerminateRequest, _: int) -> rows.TerminateOutcome:
        key, hot = key_of(item), self.hot.get(key_of(item))
        current = self.instance[key]["run_id"] if key in self.instance else None
        if not self.fresh("terminate", item):
            return self._named(item, rows.TerminateOutcome(self.asked_before("terminate", item), current))
        if hot is None or item.run_id not in (None, hot["run_id"]):
            self.forget(item)
            outcome = self.absent(key)
            if outcome != "closed":
                return rows.TerminateOutcome(outcome, None)
            return self._named(item, rows.TerminateOutcome("already", current))
        run_id = hot["run_id"]
        if run_id is None:  # only reserved: it closes as a run that never did anything
            run_id = item.commit
            instance = self.instance[key]
            instance.update(run_id=run_id, run_count=instance["run_count"] + 1)
            self.run[run_id] = self._new_run(key, run_id, hot["workflow"], hot["queue"], None)
        self._force(
            key, hot | {"run_id": run_id}, item.commit, item.record._replace(ref=None, at=self.now), item.status
        )
        del self.hot[key]
        return rows.TerminateOutcome("closed", run_id)

    def _named(self, item: rows.TerminateRequest, answer: rows.TerminateOutcome) -> rows.TerminateOutcome:
        """Nothing was done; a run that was named is known or not."""
        if answer.outcome != "already" or item.run_id is None:
            return answer
        run = self.run.get(item.run_id)
        if run is None or (run["namespace"], run["instance_id"]) != key_of(item):
            return rows.TerminateOutcome("unknown", None)
        return rows.TerminateOutcome("already", item.run_id)

    def _force(self, key: Key, hot: Row, commit: UUID, terminal: Record, status: str) -> None:
        """Everything accepted goes to history, then the terminal event."""
        box = sorted(self.inbox.pop(key, []), key=lambda r: (r["kind"] != "RunStarted", r["gen"], r["idx"]))
        taken = [
            Record(r["kind"], r["version"], r["ref"], r["accepted_at"], r["attrs"], r["payload"])
            for r in box
            if r["run_id"] in (None, hot["run_id"])
        ]
        last = self.note(hot["run_id"], hot["next_seq"], commit, [*taken, terminal])
        self.clear(hot["run_id"])
        self.run[hot["run_id"]].update(status=status, closed_at=self.now, last_seq=last)

    def release_quarantined(self, keys: Sequence[InstanceKey]) -> list[rows.ReleaseOutcome]:
        return [self._let_out((key.namespace, key.instance_id)) for key in keys]

    def _let_out(self, key: Key) -> rows.ReleaseOutcome:
        hot = self.hot.get(key)
        if hot is None:
            return rows.ReleaseOutcome("closed" if key in self.instance else "unknown", None, None, ())
        queue, queues = None, set()
        if hot["isolation"] == 2:
            queue = hot["queue"]
            hot.update(isolation=1, crashes=2, blocked_reason=None)
            if hot["owner"] is None:
                hot["visible_at"] = self.now
        for (run_id, _), row in self.activity.items():
            if run_id == hot["run_id"] and row["isolation"] == 2 and row["owner"] is None:
                self.waiting(row, self.now)
                row.update(isolation=1, crashes=2)
                queues.add(row["queue"])
        outcome: Any = "released" if queue is not None or queues else "idle"
        return rows.ReleaseOutcome(outcome, hot["run_id"], queue, tuple(sorted(queues)))
