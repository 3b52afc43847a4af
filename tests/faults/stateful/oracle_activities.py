"""The oracle's part for activities: claim, complete, retry, heartbeat, release, expire."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from aioflow.core.keys import InstanceKey
from aioflow.store import rows
from tests.faults.stateful.oracle_runs import Runs, pair
from tests.faults.stateful.oracle_tables import RESULTS, Key, Row, after, earliest, parsed

Spot = tuple[UUID, str]


class Activities(Runs):
    """Operations of workers on activities."""

    def claimable_activities(
        self, worker_id: UUID, epoch: int, queues: Sequence[str], names: Sequence[str], suspects: bool
    ) -> list[tuple[int, Any, Spot]]:
        """What a claim may take, in order: place of the queue, due time, address."""
        namespace = self.may_claim(worker_id, epoch)
        return sorted(
            (queues.index(row["queue"]), row["visible_at"], spot)
            for spot, row in self.activity.items()
            if row["queue"] in queues
            and row["activity"] in names
            and row["namespace"] == namespace
            and row["owner"] is None
            and row["isolation"] == int(suspects)
            and row["visible_at"] <= self.now
        )

    def claim_activities(
        self,
        worker_id: UUID,
        epoch: int,
        queues: Sequence[str],
        names: Sequence[str],
        tokens: Mapping[Spot, UUID] | Sequence[UUID],
        suspects: bool = False,
    ) -> list[rows.ClaimedActivity]:
        """``tokens`` by address when it is known which attempt got which."""
        due = self.claimable_activities(worker_id, epoch, queues, names, suspects)[: len(tokens)]
        given = tokens if isinstance(tokens, Mapping) else dict(zip([spot for *_, spot in due], tokens, strict=False))
        return [self._claim(worker_id, spot, given[spot]) for *_, spot in due]

    def _claim(self, worker_id: UUID, spot: Spot, token: UUID) -> rows.ClaimedActivity:
        row = self.activity[spot]
        row.update(
            owner=worker_id, token=token, started_at=self.now, heartbeat_at=None, deliveries=row["deliveries"] + 1
        )
        row["deadline"] = self._running_deadline(row)
        same = {name: row[name] for name in rows.ClaimedActivity.__slots__ if name in row}
        return rows.ClaimedActivity(
            key=InstanceKey.of(row["namespace"], row["instance_id"]),
            workflow=self.run[row["run_id"]]["workflow"],
            **same,
        )

    def _running_deadline(self, row: Row) -> Any:
        return earliest(
            self.later(row["heartbeat_timeout"]),
            after(row["started_at"], row["start_to_close"]),
            after(row["scheduled_at"], row["schedule_to_close"]),
        )

    def attempt_row(self, run_id: UUID, ref: str, token: UUID | None, deadline: Any = None) -> Row | None:
        """The row, if this attempt (None: nobody) has it and this deadline stands."""
        row = self.activity.get((run_id, ref))
        mine = row is not None and row["token"] == token and deadline in (None, row["deadline"])
        return row if mine else None

    def complete_activities(
        self, outcomes: Sequence[rows.ActivityOutcome], resent: bool = False
    ) -> list[rows.Recorded]:
        """Outcomes of one call for one instance arrive at once and share a generation."""
        gens: dict[Key, int] = {}
        answers = []
        for place, one in enumerate(outcomes, 1):
            key = pair(one.key)
            if self.attempt_row(one.run_id, one.ref, one.token, one.deadline) is None:
                answers.append(rows.Recorded(resent and self._known(one), None))
                continue
            del self.activity[one.run_id, one.ref]
            hot = self.hot[key]
            if key not in gens:
                gens[key] = self.bump(hot)
            self.put(key, gens[key], place, one.record._replace(ref=one.ref), one.run_id)
            answers.append(rows.Recorded(True, hot["queue"] if hot["owner"] is None else None))
        return answers

    def _known(self, one: rows.ActivityOutcome) -> bool:
        """Was this very outcome recorded before?"""
        stored = [*self.inbox.get(pair(one.key), []), *self.history.get(one.run_id, [])]
        return any(
            row["kind"] in RESULTS
            and row["ref"] == one.ref
            and (parsed(row["attrs"]) or {}).get("attempt_id") == str(one.token)
            for row in stored
        )

    def retry_activities(self, retries: Sequence[rows.ActivityRetry]) -> list[rows.RetryOutcome]:
        return [self._retry(one) for one in retries]

    def _retry(self, one: rows.ActivityRetry) -> rows.RetryOutcome:
        row = self.attempt_row(one.run_id, one.ref, one.token, one.deadline)
        if row is None:
            return rows.RetryOutcome("late", None)
        at, last = self.later(one.delay), after(row["scheduled_at"], row["schedule_to_close"])
        assert at is not None
        if last is not None and at >= last:
            return rows.RetryOutcome("expired", row["queue"])
        self.waiting(row, at)
        row.update(attempt=row["attempt"] + 1, last_failure=one.failure)
        if one.deadline is None:  # its own worker says so: it is alive
            row.update(crashes=0, isolation=0)
        return rows.RetryOutcome("retried", row["queue"])

    def heartbeat(self, beats: Sequence[rows.Heartbeat]) -> list[bool]:
        return [self._beat(one) for one in beats]

    def _beat(self, one: rows.Heartbeat) -> bool:
        row = self.attempt_row(one.run_id, one.ref, one.token)
        if row is not None and not one.ask:
            row["heartbeat_at"] = self.now
            row["heartbeat"] = row["heartbeat"] if one.details is None else one.details
            row["deadline"] = self._running_deadline(row)
        return row is not None

    def release_activities(self, held: Sequence[rows.HeldActivity]) -> list[str | None]:
        return [self._let_go(one) for one in held]

    def _let_go(self, one: rows.HeldActivity) -> str | None:
        row = self.attempt_row(one.run_id, one.ref, one.token)
        if row is None:
            return None
        self.waiting(row, self.now)
        row["deliveries"] -= 1
        return str(row["queue"])

    def expired_activities(self, limit: int = 100) -> list[rows.ExpiredActivity]:
        """In order of their deadlines; equals in order of their addresses."""
        found = [row for row in self.activity.values() if self._expired(row)]
        found.sort(key=lambda row: (row["deadline"], row["run_id"], row["ref"]))
        return [
            rows.ExpiredActivity(
                key=InstanceKey.of(row["namespace"], row["instance_id"]),
                timeout=self._timeout(row),
                **{name: row[name] for name in rows.ExpiredActivity.__slots__ if name in row},
            )
            for row in found[:limit]
        ]

    def _expired(self, row: Row) -> bool:
        if row["deadline"] is None or row["deadline"] > self.now:
            return False
        if row["owner"] is None or self._timeout(row) == "schedule_to_close":
            return True
        worker = self.worker.get(row["owner"])  # which may be dead: then that is what happened, no timeout
        return worker is not None and worker["seen_at"] >= row["deadline"]

    def _timeout(self, row: Row) -> Any:
        def over(since: Any, seconds: float | None) -> bool:
            end = after(since, seconds)
            return end is not None and end <= self.now

        if over(row["scheduled_at"], row["schedule_to_close"]):
            return "schedule_to_close"
        if row["owner"] is None:
            return "schedule_to_start"
        return "start_to_close" if over(row["started_at"], row["start_to_close"]) else "heartbeat"
