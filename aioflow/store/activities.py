"""Activities: claim, complete, retry, heartbeat, release, expire."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from aioflow.store.pool import Database
from aioflow.store.queries import sql
from aioflow.store.rows import (
    ActivityOutcome,
    ActivityRetry,
    ClaimedActivity,
    ExpiredActivity,
    Heartbeat,
    HeldActivity,
    Recorded,
    RetryOutcome,
    key_of,
)
from aioflow.telemetry import get_logger

log = get_logger("aioflow.store")
_CLAIMED = (
    "run_id",
    "ref",
    "execution_id",
    "activity",
    "queue",
    "token",
    "attempt",
    "deliveries",
    "scheduled_at",
    "started_at",
    "start_to_close",
    "schedule_to_close",
    "heartbeat_timeout",
    "heartbeat",
    "retry",
    "last_failure",
    "payload",
    "workflow",
)


class Activities:
    """Operations of workers on activities."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def claim_activities(
        self,
        worker_id: UUID,
        epoch: int,
        queues: Sequence[str],
        names: Sequence[str],
        tokens: Sequence[UUID],
        suspects: bool = False,
    ) -> list[ClaimedActivity]:
        """Take due activities, at most one per token; a token becomes the id of the attempt. ``suspects`` as of runs.

        A lost answer is told at once (`DatabaseUnavailable`): then `bump_epoch` and `release_unknown`.
        """
        rows = await self._db.fetch(
            sql("claim_activities"),
            worker_id,
            epoch,
            list(queues),
            list(names),
            list(tokens),
            suspects,
            point="claim_activities",
            resend=False,
            shield=True,
        )
        return [
            ClaimedActivity(
                key=key_of(r),
                owner=worker_id,
                **{name: r[name] for name in _CLAIMED},
            )
            for r in rows
        ]

    async def complete_activities(self, outcomes: Sequence[ActivityOutcome]) -> list[Recorded]:
        """Hand outcomes to the runs. One that comes late is not recorded, which is no error."""
        args = [
            *_addresses(outcomes),
            [o.token for o in outcomes],
            [o.deadline for o in outcomes],
            [o.record.kind for o in outcomes],
            [o.record.version for o in outcomes],
            [o.record.attrs for o in outcomes],
            [o.record.payload for o in outcomes],
        ]
        rows, resent = await self._db.fetch_told(sql("complete_activities"), *args, point="complete_activities")
        found = [Recorded(False, None)] * len(outcomes)
        for r in rows:
            found[r["ord"] - 1] = Recorded(True, r["queue"])
        if resent:
            late = [n for n, item in enumerate(found) if not item.recorded]
            for n in await self._recorded_before([outcomes[n] for n in late]):
                found[late[n]] = Recorded(True, None)
        return found

    async def _recorded_before(self, outcomes: Sequence[ActivityOutcome]) -> list[int]:
        if not outcomes:
            return []
        rows = await self._db.fetch(
            sql("completion_verdict"),
            *_addresses(outcomes),
            [str(o.token) for o in outcomes],
            point="completion_verdict",
        )
        for outcome in (outcomes[r["ord"] - 1] for r in rows):
            log.info("completion_recognised", instance_id=outcome.key.instance_id, run_id=str(outcome.run_id))
        return [r["ord"] - 1 for r in rows]

    async def retry_activities(self, retries: Sequence[ActivityRetry]) -> list[RetryOutcome]:
        """Send failed attempts back to their queue for the next one.

        When the answer was lost and the first try did it, the second one says ``late``: the next attempt is
        on its way either way.
        """
        rows = await self._db.fetch(
            sql("retry_activities"),
            *_addresses(retries),
            [r.token for r in retries],
            [r.deadline for r in retries],
            [r.delay for r in retries],
            [r.failure for r in retries],
            point="retry_activities",
            shield=True,
        )
        found = [RetryOutcome("late", None)] * len(retries)
        for r in rows:
            found[r["ord"] - 1] = RetryOutcome("retried" if r["retried"] else "expired", r["queue"])
        return found

    async def heartbeat(self, beats: Sequence[Heartbeat]) -> list[bool]:
        """Note signs of life; False: the attempt is not the holder's any more and should be cancelled."""
        rows = await self._db.fetch(
            sql("heartbeats"),
            [b.shard for b in beats],
            [b.run_id for b in beats],
            [b.ref for b in beats],
            [b.token for b in beats],
            [b.details for b in beats],
            [not b.ask for b in beats],
            point="heartbeat",
            shield=True,
        )
        mine = {r["ord"] for r in rows}
        return [n in mine for n in range(1, len(beats) + 1)]

    async def release_activities(self, held: Sequence[HeldActivity]) -> list[str | None]:
        """Give attempts back unfinished.

        Returns the queue of each; None: not held any more, or just being ended.
        """
        rows = await self._db.fetch(
            sql("release_activities"),
            [h.shard for h in held],
            [h.run_id for h in held],
            [h.ref for h in held],
            [h.token for h in held],
            point="release_activities",
            shield=True,
        )
        queues: list[str | None] = [None] * len(held)
        for r in rows:
            queues[r["ord"] - 1] = r["queue"]
        return queues

    async def expired_activities(self, limit: int = 100) -> list[ExpiredActivity]:
        """Activities past a deadline, the most overdue first.

        End or retry each with its token and deadline.
        """
        rows = await self._db.fetch(sql("expired_activities"), limit, point="expired_activities")
        return [
            ExpiredActivity(
                key=key_of(r),
                **{
                    name: r[name]
                    for name in (
                        "run_id",
                        "ref",
                        "execution_id",
                        "activity",
                        "queue",
                        "token",
                        "attempt",
                        "deadline",
                        "retry",
                        "last_failure",
                        "timeout",
                    )
                },
            )
            for r in rows
        ]


def _addresses(items: Sequence[ActivityOutcome] | Sequence[ActivityRetry]) -> list[list[Any]]:
    return [
        [i.key.shard for i in items],
        [i.key.namespace for i in items],
        [i.key.instance_id for i in items],
        [i.run_id for i in items],
        [i.ref for i in items],
    ]
