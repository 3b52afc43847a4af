"""The oracle's part for workflow tasks: claim, load, commit, release."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from aioflow.core.events import Record
from aioflow.core.keys import InstanceKey
from aioflow.store import rows
from tests.faults.stateful.oracle_tables import FOREVER, Key, Row, Tables, earliest, plain


def pair(key: InstanceKey) -> Key:
    return (key.namespace, key.instance_id)


def widened(limit: int, order: Sequence[Any]) -> int:
    """The limit that cuts no tie: which of several equals come first is nobody's promise."""
    while 0 < limit < len(order) and order[limit - 1][:2] == order[limit][:2]:
        limit += 1
    return limit


class Runs(Tables):
    """Operations of workers on runs."""

    def may_claim(self, worker_id: UUID, epoch: int) -> str | None:
        """The namespace in which a claim takes something; None: not registered, dead, or of an old epoch."""
        worker = self.worker.get(worker_id)
        alive = worker is not None and not worker["dead"] and worker["claim_epoch"] == epoch
        return worker["namespace"] if worker is not None and alive else None

    def claimable_runs(
        self, worker_id: UUID, epoch: int, queues: Sequence[str], workflows: Sequence[str], suspects: bool
    ) -> list[tuple[int, Any, Key]]:
        """What a claim may take, in order: place of the queue, due time, key."""
        namespace = self.may_claim(worker_id, epoch)
        return sorted(
            (queues.index(hot["queue"]), hot["visible_at"], key)
            for key, hot in self.hot.items()
            if hot["queue"] in queues
            and hot["workflow"] in workflows
            and hot["namespace"] == namespace
            and hot["owner"] is None
            and hot["isolation"] == int(suspects)
            and hot["visible_at"] <= self.now
        )

    def claim_runs(
        self,
        worker_id: UUID,
        epoch: int,
        queues: Sequence[str],
        workflows: Sequence[str],
        limit: int,
        token: UUID,
        suspects: bool = False,
    ) -> list[rows.ClaimedRun]:
        claimed = []
        for _, _, key in self.claimable_runs(worker_id, epoch, queues, workflows, suspects)[:limit]:
            hot = self.hot[key]
            hot.update(owner=worker_id, token=token, visible_at=FOREVER, attempt=hot["attempt"] + 1)
            claimed.append(
                rows.ClaimedRun(
                    key=InstanceKey.of(*key),
                    owner=worker_id,
                    clock=self.now,
                    **{
                        name: hot[name]
                        for name in (
                            "run_id",
                            "workflow",
                            "queue",
                            "build",
                            "token",
                            "next_seq",
                            "head",
                            "attempt",
                            "blocked_reason",
                        )
                    },
                )
            )
        return claimed

    def held(self, key: InstanceKey, owner: UUID, token: UUID) -> Row | None:
        """The hot row, if it is held so."""
        hot = self.hot.get(pair(key))
        return hot if hot is not None and (hot["owner"], hot["token"]) == (owner, token) else None

    def load(self, runs: Sequence[rows.ClaimedRun]) -> list[Any]:
        return [self._load(run) for run in runs]

    def _load(self, run: rows.ClaimedRun) -> Any:
        """What is to be consumed, as it compares."""
        hot = self.held(run.key, run.owner, run.token)
        if hot is None:
            return None
        box = sorted(self.inbox.get(pair(run.key), []), key=lambda row: (row["gen"], row["idx"]))
        timers = sorted(
            (row["due_at"], row["ref"])
            for (run_id, _), row in self.timer.items()
            if run_id == hot["run_id"] and row["kind"] == "workflow" and row["due_at"] <= run.clock
        )
        return {
            "gen": hot["wake_gen"],
            "next_seq": hot["next_seq"],
            "head": hot["head"],
            "sealed": hot["sealed"],
            "refused": hot["refused"],
            "inbox": [
                plain(Record(r["kind"], r["version"], r["ref"], r["accepted_at"], r["attrs"], r["payload"]))
                for r in box
            ],
            "gens": [row["gen"] for row in box],
            "timers": [("TimerFired", 1, ref, due, None, None) for due, ref in timers],
        }

    # -- commits ------------------------------------------------------------------------------------

    def commit(self, commits: Sequence[rows.Commit]) -> list[rows.CommitOutcome]:
        """A commit whose row has moved on was either done before, which its token tells, or is fenced."""
        found = [self._commit(one) for one in commits]
        return [self._verdict(one) if made is None else made for one, made in zip(commits, found, strict=True)]

    def _commit(self, one: rows.Commit) -> rows.CommitOutcome | None:
        hot = self.held(one.key, one.owner, one.token)
        if hot is None or (hot["run_id"], hot["next_seq"]) != (one.run_id, one.base_seq):
            return None
        behind = hot["wake_gen"] != one.gen
        if one.close is not None and behind:
            hot.update(refused=hot["refused"] + 1, sealed=hot["refused"] + 1 >= 3)
            return rows.CommitOutcome("refused", hot["wake_gen"], self.now, False, True)
        last = self.note(one.run_id, one.base_seq, one.token, one.records)
        self._consume(pair(one.key), one.gen)
        if one.close is not None:
            self.clear(one.run_id)
            self.run[one.run_id].update(status=one.close, closed_at=self.now, last_seq=last)
            del self.hot[pair(one.key)]
            return rows.CommitOutcome("ok", hot["wake_gen"], self.now, False, False)
        self._schedule(one)
        hot.update(
            ack_gen=one.gen,
            head=one.token,
            token=one.next_token,
            owner=one.owner if one.keep else None,
            next_seq=last + 1,
            attempt=0,
            crashes=0,
            isolation=0,
            sealed=False,
            refused=0,
            blocked_reason=None,
            visible_at=FOREVER if one.keep else self.now if behind else one.next_due or FOREVER,
        )
        return rows.CommitOutcome("ok", hot["wake_gen"], self.now, behind and not one.keep, one.keep)

    def _consume(self, key: Key, gen: int) -> None:
        left = [row for row in self.inbox.pop(key, []) if row["gen"] > gen]
        if left:
            self.inbox[key] = left

    def _schedule(self, one: rows.Commit) -> None:
        """Activities and timers, new ones and those that are over."""
        for ref in one.cancelled_activities:
            self.activity.pop((one.run_id, ref), None)
        for ref in one.gone_timers:
            self.timer.pop((one.run_id, ref), None)
        for new in one.activities:
            self.activity[one.run_id, new.ref] = self._new_activity(one, new)
        for ref, due in one.timers:
            self.timer[one.run_id, ref] = {
                "run_id": one.run_id,
                "ref": ref,
                "namespace": one.key.namespace,
                "instance_id": one.key.instance_id,
                "kind": "workflow",
                "due_at": due,
            }

    def _new_activity(self, one: rows.Commit, new: rows.NewActivity) -> Row:
        return {
            "run_id": one.run_id,
            "ref": new.ref,
            "namespace": one.key.namespace,
            "instance_id": one.key.instance_id,
            "execution_id": new.execution_id,
            "activity": new.activity,
            "queue": new.queue,
            "priority": new.priority,
            "visible_at": self.now,
            "owner": None,
            "token": None,
            "attempt": 1,
            "deliveries": 0,
            "crashes": 0,
            "isolation": 0,
            "scheduled_at": self.now,
            "started_at": None,
            "deadline": earliest(self.later(new.schedule_to_start), self.later(new.schedule_to_close)),
            "start_to_close": new.start_to_close,
            "schedule_to_start": new.schedule_to_start,
            "schedule_to_close": new.schedule_to_close,
            "heartbeat_timeout": new.heartbeat,
            "heartbeat_at": None,
            "heartbeat": None,
            "retry": new.retry,
            "last_failure": None,
            "payload": new.payload,
        }

    def _verdict(self, one: rows.Commit) -> rows.CommitOutcome:
        """By its token: the last commit of the run, or whoever wrote the history where it would have."""
        hot = self.hot.get(pair(one.key))
        if hot is not None and hot["run_id"] != one.run_id:
            hot = None
        events = self.history.get(one.run_id, [])
        wrote = len(events) >= one.base_seq and events[one.base_seq - 1]["commit"] == one.token
        if not wrote and (hot is None or hot["head"] != one.token):
            return rows.CommitOutcome("fenced", None, None, False, False)
        if hot is None:
            return rows.CommitOutcome("ok", None, self.now, False, False)
        ready = hot["owner"] is None and hot["visible_at"] <= self.now
        mine = (hot["owner"], hot["token"]) == (one.owner, one.next_token)
        return rows.CommitOutcome("ok", hot["wake_gen"], self.now, ready, mine)

    # -- release ------------------------------------------------------------------------------------

    def release_runs(self, releases: Sequence[rows.ReleaseRun], quarantine_after: int = 5) -> list[str | None]:
        return [self._release(one, quarantine_after) for one in releases]

    def _release(self, one: rows.ReleaseRun, quarantine_after: int) -> str | None:
        hot = self.held(one.key, one.owner, one.token)
        if hot is None:
            return None
        self.give_back(hot, 1 if one.uncount else 0)
        hot.update(visible_at=self.later(one.delay), blocked_reason=one.blocked_reason)
        harms = hot["crashes"] + 1
        if one.harmful:
            hot.update(crashes=harms, isolation=0 if harms < 2 else 1 if harms < quarantine_after else 2)
            if harms >= quarantine_after:
                hot["blocked_reason"] = f"quarantined after {harms} tries: {one.blocked_reason or ''}"
        if one.alive:
            hot.update(crashes=0, isolation=0)
        return str(hot["queue"])

    def give_back(self, hot: Row, uncounted: int) -> None:
        """A held run is claimable again, at once; it is not about to close any more."""
        hot.update(
            owner=None,
            token=None,
            visible_at=self.now,
            sealed=False,
            refused=0,
            attempt=max(0, hot["attempt"] - uncounted),
        )
