"""Activities of one session: claimed attempts run side by side, their ends are written in batches."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import suppress
from uuid import UUID

import anyio
from anyio.abc import TaskGroup

from aioflow.core.decision import Decision
from aioflow.core.failure import Failure
from aioflow.core.fault import fault
from aioflow.errors import StoreError
from aioflow.store.batching import Batcher
from aioflow.store.rows import (
    ActivityOutcome,
    ActivityRetry,
    ClaimedActivity,
    Recorded,
    RetryOutcome,
)
from aioflow.telemetry import get_logger
from aioflow.worker.attempt import Attempt
from aioflow.worker.backoff import persist
from aioflow.worker.cache import RunCache
from aioflow.worker.heartbeats import Heartbeats
from aioflow.worker.outcome import Ending, failed
from aioflow.worker.session import Session
from aioflow.worker.slots import Slots
from aioflow.worker.wakeup import Waker

__all__ = ["ActivityTasks"]

log = get_logger("aioflow.worker")


class ActivityTasks:
    """Runs the claimed attempts of one session in ``group``. Every attempt has a place, given back at its end."""

    def __init__(
        self,
        session: Session,
        group: TaskGroup,
        *,
        cache: RunCache,
        waker: Waker,
        slots: Slots,
        threads: anyio.CapacityLimiter,
    ) -> None:
        self._session, self._store, self._group = session, session.store, group
        self._settings = session.profile.settings
        self._definitions = session.profile.registry.activities
        self._cache, self._waker, self._slots, self._threads = cache, waker, slots, threads
        self._running: dict[UUID, Attempt] = {}
        self._by_run: dict[UUID, dict[str, Attempt]] = {}
        self._draining = False
        self._completions: Batcher[ActivityOutcome, Recorded] = Batcher(
            self._store.complete_activities, bytes=lambda one: one.record.size
        )
        self._retries: Batcher[ActivityRetry, RetryOutcome] = Batcher(self._store.retry_activities)
        self.heartbeats = Heartbeats(self._store, self._running, self._settings.heartbeat_interval)

    def start(self, claimed: Sequence[ClaimedActivity]) -> None:
        """Take claimed attempts over."""
        for row in claimed:
            self._group.start_soon(self.attend, row)

    def cancel(self, run_id: UUID, decision: Decision) -> None:
        """A commit of this process has cancelled activities of a run, or all of them by closing it."""
        attempts = self._by_run.get(run_id)
        if not attempts:
            return
        refs = list(attempts) if decision.close else decision.cancelled_activities
        for ref in refs:
            if (attempt := attempts.get(ref)) is not None:
                attempt.gone()

    async def drain(self, grace: float, cancel_grace: float) -> None:
        """Let attempts end; past ``grace`` cancel them, past ``cancel_grace`` leave them. All are given back."""
        self._draining = True
        with anyio.move_on_after(grace):
            await self._slots.empty()
        for attempt in list(self._running.values()):
            attempt.give_up()
        with anyio.move_on_after(cancel_grace):
            await self._slots.empty()
        left = list(self._running.values())
        if left:
            log.warning("activities_abandoned", activities=sorted({one.row.activity for one in left}))
            with suppress(StoreError):
                await self._store.release_activities([Attempt.address(one.row) for one in left])
        for attempt in left:
            attempt.abandon()

    async def close(self) -> None:
        """Wait until everything is written. What ends later may still try: its token tells."""
        await self._completions.settle()
        await self._retries.settle()

    # -- one attempt ------------------------------------------------------------------------------

    async def attend(self, row: ClaimedActivity) -> None:
        """See one claimed attempt to its end."""
        attempt: Attempt | None = None
        try:
            if self._draining:
                await self._give_back(row)
                return
            await fault("activity.before_start")
            attempt = Attempt(
                row,
                self._definitions[row.activity],
                threads=self._threads,
                payload_limit=self._settings.limits.payload,
            )
            self._running[row.token] = attempt
            self._by_run.setdefault(row.run_id, {})[row.ref] = attempt
            self.heartbeats.begun(attempt)
            ending = await attempt.run()
            await fault("activity.after_end")
            if ending is not None:
                await self._report(attempt, ending)
            elif attempt.given_up:
                await self._give_back(row)
            await attempt.ended()
        except anyio.get_cancelled_exc_class():
            if attempt is not None:
                await self._leave(attempt)
            raise
        finally:
            self._forget(row)

    async def _leave(self, attempt: Attempt) -> None:
        """The session is over: stop the code, and give it a while to clean up if it can be interrupted at all."""
        attempt.gone()
        with anyio.move_on_after(self._settings.cancel_grace, shield=True):
            if attempt.definition.is_async:
                await attempt.ended()
        attempt.abandon()

    def _forget(self, row: ClaimedActivity) -> None:
        self._running.pop(row.token, None)
        if (attempts := self._by_run.get(row.run_id)) is not None:
            attempts.pop(row.ref, None)
            if not attempts:
                del self._by_run[row.run_id]
        self._session.release_attempt_token(row.token)
        self._slots.release()

    async def _give_back(self, row: ClaimedActivity) -> None:
        """Unfinished, without using up an attempt."""
        held = Attempt.address(row)
        try:
            (queue,) = await persist(lambda: self._store.release_activities([held]))
        except StoreError:
            self._session.doubt(row.token)
        else:
            if queue is not None:
                log.info("activity_given_back", **_ids(row))
                self._waker.activities_ready(queue, None)

    async def _report(self, attempt: Attempt, ending: Ending) -> None:
        """Write how it ended; what the database refuses for good is written as a failure instead."""
        try:
            await self._write(attempt, ending)
        except StoreError as exc:
            log.exception("activity_outcome_refused", **_ids(attempt.row))
            instead = failed(attempt.row, Failure(type=type(exc).__name__), random.random)
            try:
                await self._write(attempt, instead)
            except StoreError:
                self._session.doubt(attempt.row.token)

    async def _write(self, attempt: Attempt, ending: Ending) -> None:
        row, retry = attempt.row, ending.retry
        if retry is not None:
            await persist(lambda: self.heartbeats.flush(attempt))
            outcome = await persist(lambda: self._retries(retry))
            if outcome.status != "expired":
                if outcome.status == "retried":
                    self._waker.activity_due(row.queue, retry.delay)
                    log.info("activity_retried", retry_in=round(retry.delay, 3), **_ids(row))
                return
        recorded = await persist(lambda: self._completions(ending.final))
        if not recorded.recorded:
            log.info("activity_outcome_late", **_ids(row))
        elif recorded.queue is not None:
            self._waker.run_ready(recorded.queue, ours=row.key in self._cache)


def _ids(row: ClaimedActivity) -> dict[str, str | int]:
    return {
        "activity": row.activity,
        "attempt": row.attempt,
        "execution_id": str(row.execution_id),
        "instance_id": row.key.instance_id,
        "run_id": str(row.run_id),
    }
