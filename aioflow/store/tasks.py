"""Workflow tasks: claim, load, commit, release."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from aioflow.core.events import Record
from aioflow.store.pool import Database
from aioflow.store.queries import sql
from aioflow.store.rows import (
    ClaimedRun,
    Commit,
    CommitOutcome,
    HistoryRef,
    Loaded,
    ReleaseRun,
    key_of,
)
from aioflow.telemetry import get_logger

_PAGE = 1000
log = get_logger("aioflow.store")


def record_of(row: Any) -> Record:
    """The event in a row."""
    return Record(row["kind"], row["version"], row["ref"], row["at"], row["attrs"], row["payload"])


class Tasks:
    """Operations of workers on runs."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def claim_runs(
        self,
        worker_id: UUID,
        epoch: int,
        queues: Sequence[str],
        workflows: Sequence[str],
        limit: int,
        token: UUID,
        suspects: bool = False,
    ) -> list[ClaimedRun]:
        """Take up to ``limit`` due runs, by one new token. Queues are served in the order given: rotate them.

        ``suspects``: only runs that two workers in a row have died with, otherwise none of them. Whoever takes one
        runs nothing else beside it, since a crash is then blamed on it alone.

        A lost answer is told at once (`DatabaseUnavailable`): then `bump_epoch` and `release_unknown`.
        """
        rows = await self._db.fetch(
            sql("claim_runs"),
            worker_id,
            epoch,
            list(queues),
            list(workflows),
            limit,
            token,
            suspects,
            point="claim_runs",
            resend=False,
            shield=True,
        )
        return [
            ClaimedRun(
                key=key_of(r),
                run_id=r["run_id"],
                workflow=r["workflow"],
                queue=r["queue"],
                build=r["build"],
                owner=worker_id,
                token=r["token"],
                next_seq=r["next_seq"],
                head=r["head"],
                attempt=r["attempt"],
                blocked_reason=r["blocked_reason"],
                clock=r["clock"],
            )
            for r in rows
        ]

    async def load(self, runs: Sequence[ClaimedRun]) -> list[Loaded | None]:
        """What each run has to consume, in one snapshot; None for one that is not held any more.

        To load again after a refused or kept commit, give the run with the outcome's ``clock`` and the token held.
        """
        rows = await self._db.fetch(
            sql("load_inbox"),
            [r.key.shard for r in runs],
            [r.key.namespace for r in runs],
            [r.key.instance_id for r in runs],
            [r.owner for r in runs],
            [r.token for r in runs],
            [r.clock for r in runs],
            point="load",
        )
        found: list[Loaded | None] = [None] * len(runs)
        now: Loaded | None = None
        for r in rows:
            if r["part"] == 0:
                run = runs[r["ord"] - 1]
                now = found[r["ord"] - 1] = Loaded(
                    run=run,
                    gen=r["gen"],
                    next_seq=r["idx"],
                    head=r["head"],
                    sealed=r["sealed"],
                    refused=r["refused"],
                    inbox=[],
                    gens=[],
                    timers=[],
                )
            elif now is not None and r["part"] == 1:
                now.inbox.append(record_of(r))
                now.gens.append(r["gen"])
            elif now is not None:
                now.timers.append(record_of(r))
        return found

    async def load_history(self, refs: Sequence[HistoryRef]) -> list[list[Record]]:
        """Events of several histories, in order; long ones are fetched in pages."""
        found: list[list[Record]] = [[] for _ in refs]
        todo = {n: ref.after for n, ref in enumerate(refs) if ref.after < ref.upto}
        while todo:
            order = list(todo)
            rows = await self._db.fetch(
                sql("load_history"),
                [refs[n].shard for n in order],
                [refs[n].run_id for n in order],
                [todo[n] for n in order],
                [refs[n].upto for n in order],
                _PAGE,
                point="load_history",
            )
            got = dict.fromkeys(order, 0)
            for r in rows:
                n = order[r["ord"] - 1]
                found[n].append(record_of(r))
                got[n], todo[n] = got[n] + 1, r["seq"]
            todo = {n: seq for n, seq in todo.items() if got[n] == _PAGE and seq < refs[n].upto}
        return found

    async def commit(self, commits: Sequence[Commit]) -> list[CommitOutcome]:
        """Write decisions, each by itself: one that is refused or fenced does not touch the others.

        An instance may appear once in a call. A lost answer is sorted out here: the same commits are sent again,
        and one that finds its row changed is looked up by its token.
        """
        rows = await self._db.fetch(sql("commit_runs"), *_commit_args(commits), point="commit", shield=True)
        found: list[CommitOutcome | None] = [None] * len(commits)
        for r in rows:
            n = r["ord"] - 1
            if r["status"] != "fenced":
                found[n] = _outcome(commits[n], r["status"], r["wake_gen"], r["clock"])
        missing = [n for n, outcome in enumerate(found) if outcome is None]
        for n, verdict in zip(missing, await self._verdicts([commits[n] for n in missing]), strict=True):
            found[n] = verdict
        return [outcome for outcome in found if outcome is not None]

    async def _verdicts(self, commits: Sequence[Commit]) -> list[CommitOutcome]:
        if not commits:
            return []
        rows = await self._db.fetch(
            sql("commit_verdict"),
            [c.key.shard for c in commits],
            [c.key.namespace for c in commits],
            [c.key.instance_id for c in commits],
            [c.run_id for c in commits],
            [c.owner for c in commits],
            [c.token for c in commits],
            [c.next_token for c in commits],
            [c.base_seq for c in commits],
            point="commit_verdict",
        )
        for commit in (commits[r["ord"] - 1] for r in rows if r["committed"]):
            log.info("commit_recognised", instance_id=commit.key.instance_id, run_id=str(commit.run_id))
        return [
            CommitOutcome("ok", r["wake_gen"], r["clock"], r["ready"], r["mine"])
            if r["committed"]
            else CommitOutcome("fenced", None, None, False, False)
            for r in rows
        ]

    async def release_runs(self, releases: Sequence[ReleaseRun], quarantine_after: int = 5) -> list[str | None]:
        """Give runs back, now or after a back-off. Returns the queue of each; None: it was not held any more."""
        rows = await self._db.fetch(
            sql("release_runs"),
            [r.key.shard for r in releases],
            [r.key.namespace for r in releases],
            [r.key.instance_id for r in releases],
            [r.owner for r in releases],
            [r.token for r in releases],
            [r.delay for r in releases],
            [r.blocked_reason for r in releases],
            [r.uncount for r in releases],
            [r.alive for r in releases],
            [r.harmful for r in releases],
            quarantine_after,
            point="release_runs",
            shield=True,
        )
        queues: list[str | None] = [None] * len(releases)
        for r in rows:
            queues[r["ord"] - 1] = r["queue"]
        return queues


def _outcome(commit: Commit, status: Any, wake_gen: int, clock: Any) -> CommitOutcome:
    kept = commit.keep and commit.close is None
    rearmed = status == "ok" and commit.close is None and not kept and wake_gen != commit.gen
    return CommitOutcome(status, wake_gen, clock, rearmed, status == "refused" or kept)


def _commit_args(commits: Sequence[Commit]) -> list[Any]:
    return [
        [c.key.shard for c in commits],
        [c.key.namespace for c in commits],
        [c.key.instance_id for c in commits],
        [c.run_id for c in commits],
        [c.owner for c in commits],
        [c.token for c in commits],
        [c.next_token for c in commits],
        [c.base_seq for c in commits],
        [c.gen for c in commits],
        [len(c.records) for c in commits],
        [c.next_due for c in commits],
        [c.close for c in commits],
        [c.keep for c in commits],
        *_columns(8, [(n, c.base_seq + i, *r) for n, c in enumerate(commits, 1) for i, r in enumerate(c.records)]),
        *_columns(
            12,
            [
                (
                    n,
                    a.ref,
                    a.execution_id,
                    a.activity,
                    a.queue,
                    a.priority,
                    a.start_to_close,
                    a.schedule_to_start,
                    a.schedule_to_close,
                    a.heartbeat,
                    a.retry,
                    a.payload,
                )
                for n, c in enumerate(commits, 1)
                for a in c.activities
            ],
        ),
        *_columns(2, [(n, ref) for n, c in enumerate(commits, 1) for ref in c.cancelled_activities]),
        *_columns(3, [(n, ref, due) for n, c in enumerate(commits, 1) for ref, due in c.timers]),
        *_columns(2, [(n, ref) for n, c in enumerate(commits, 1) for ref in c.gone_timers]),
    ]


def _columns(width: int, rows: list[tuple[Any, ...]]) -> list[list[Any]]:
    """Rows turned into columns, ``width`` of them also when there is no row."""
    return [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in range(width)]
