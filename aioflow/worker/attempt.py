"""One attempt of an activity in this process: the user's code, its deadlines, and how it ends.

The code runs in a plain task of its own, so that a cancellation reaches it once, as asyncio's users expect, and
not again in every ``await`` of its clean-up. Whatever ends the attempt first counts; what comes later is dropped.
"""

from __future__ import annotations

import asyncio
import random
import threading
from functools import partial
from typing import Any

import anyio
import anyio.to_thread

from aioflow.api.attempt import ATTEMPT, ActivityContext, ActivityInfo
from aioflow.core.definition import ActivityDefinition
from aioflow.core.failure import Failure
from aioflow.core.payload import decode_value, encode_value
from aioflow.store.rows import ClaimedActivity, Heartbeat, HeldActivity
from aioflow.worker.outcome import Ending, completed, failed, timed_out

__all__ = ["Attempt"]


class Attempt:
    """An attempt that this process holds.

    ``dirty``: a heartbeat was not written yet. ``asked`` is when the database was last asked about it.
    """

    def __init__(
        self,
        row: ClaimedActivity,
        definition: ActivityDefinition,
        *,
        threads: anyio.CapacityLimiter,
        payload_limit: int,
    ) -> None:
        self.row, self.definition = row, definition
        self.dirty = False
        self.details: bytes | None = None
        self.given_up = False
        self._threads, self._limit = threads, payload_limit
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self.asked = self.beaten = self._loop.time()
        self._ending: asyncio.Future[Ending | None] = self._loop.create_future()
        self._task: asyncio.Task[Ending] | None = None
        self._timers: list[asyncio.TimerHandle] = []
        self._context = ActivityContext(info=_info(row), heartbeat=self._heartbeat)

    # -- life -------------------------------------------------------------------------------------

    async def run(self) -> Ending | None:
        """Run the code until the attempt ends, by whatever; None when there is nothing to report."""
        self._task = asyncio.ensure_future(self._call())
        self._task.add_done_callback(self._finished)
        self._arm()
        try:
            return await asyncio.shield(self._ending)
        finally:
            for timer in self._timers:
                timer.cancel()

    async def ended(self) -> None:
        """Wait until the code is really done; a thread cannot be interrupted, a task may ignore its cancellation."""
        if self._task is not None and not self._task.done():
            await asyncio.wait((self._task,))

    def gone(self) -> None:
        """The attempt is not ours any more (cancelled, closed, timed out elsewhere): stop, and report nothing."""
        self._resolve(None)
        self._stop()

    def give_up(self) -> None:
        """The worker has to go: stop the code. A result that it still gives counts, a failure does not."""
        self.given_up = True
        self._stop()

    def abandon(self) -> None:
        """Wait no longer, not for a thread either."""
        self.gone()
        if self._task is not None:
            self._task.cancel()

    def _stop(self) -> None:
        self._context.cancelled.set()
        if self.definition.is_async and self._task is not None:
            self._task.cancel()

    async def _call(self) -> Ending:
        row, definition = self.row, self.definition
        ATTEMPT.set(self._context)
        try:
            args, kwargs = definition.signature.decode(row.payload or b"")
            if definition.is_async:
                value = await definition.fn(*args, **kwargs)
            else:
                call = partial(definition.fn, *args, **kwargs)
                value = await anyio.to_thread.run_sync(call, abandon_on_cancel=True, limiter=self._threads)
            return completed(row, definition.encode_result(value, limit=self._limit))
        except (
            Exception,
            SystemExit,
            KeyboardInterrupt,
            BaseExceptionGroup,
        ) as exc:  # two that asyncio lets end a loop
            return failed(row, Failure.of(exc), random.random)

    def _finished(self, task: asyncio.Task[Ending]) -> None:
        if task.cancelled():
            # A CancelledError that nobody asked for, such as one from a task that the code awaited, is a failure.
            ending = failed(self.row, Failure.of(asyncio.CancelledError()), random.random)
        elif (error := task.exception()) is not None:
            ending = failed(self.row, Failure.of(error), random.random)
        else:
            ending = task.result()
        if self.given_up and ending.final.record.kind != "ActivityCompleted":
            self._resolve(None)
        else:
            self._resolve(ending)

    def _resolve(self, ending: Ending | None) -> None:
        if not self._ending.done():
            self._ending.set_result(ending)

    # -- deadlines --------------------------------------------------------------------------------

    def _arm(self) -> None:
        """Deadlines that are enforced here; whoever finds one in the database first may be another worker."""
        row = self.row
        self._expire_after(row.start_to_close, "start_to_close")
        if row.schedule_to_close is not None:
            waited = (row.started_at - row.scheduled_at).total_seconds()
            self._expire_after(row.schedule_to_close - waited, "schedule_to_close")
        if row.heartbeat_timeout is not None:
            self._timers.append(self._loop.call_later(row.heartbeat_timeout, self._check_beat))

    def _expire_after(self, seconds: float | None, timeout: str) -> None:
        if seconds is not None:
            self._timers.append(self._loop.call_later(max(0.0, seconds), self._expire, timeout))

    def _check_beat(self) -> None:
        left = self.beaten + (self.row.heartbeat_timeout or 0.0) - self._loop.time()
        if left > 0:
            self._timers[-1] = self._loop.call_later(left, self._check_beat)
        else:
            self._expire("heartbeat")

    def _expire(self, timeout: str) -> None:
        self._resolve(timed_out(self.row, timeout, random.random))
        self._stop()

    # -- signs of life ----------------------------------------------------------------------------

    def _heartbeat(self, details: tuple[Any, ...]) -> None:
        """From any thread. Raises `EncodeError` or `PayloadTooLarge` for details that cannot be kept."""
        if details:
            self.details = encode_value(list(details), list[Any], what="heartbeat details", limit=self._limit)
        if threading.get_ident() == self._thread:
            self._beat()
        else:
            self._loop.call_soon_threadsafe(self._beat)

    def _beat(self) -> None:
        if not self._ending.done():
            self.beaten, self.dirty = self._loop.time(), True

    def beat(self, *, ask: bool) -> Heartbeat:
        """What to write, or only to ask."""
        row = self.row
        details = None if ask else self.details
        return Heartbeat(shard=row.key.shard, run_id=row.run_id, ref=row.ref, token=row.token, details=details, ask=ask)

    @staticmethod
    def address(row: ClaimedActivity) -> HeldActivity:
        """The attempt of a row, to give it back."""
        return HeldActivity(row.key.shard, row.run_id, row.ref, row.token)


def _info(row: ClaimedActivity) -> ActivityInfo:
    return ActivityInfo(
        execution_id=row.execution_id,
        attempt_id=row.token,
        attempt=row.attempt,
        activity=row.activity,
        instance_id=row.key.instance_id,
        run_id=row.run_id,
        workflow=row.workflow,
        queue=row.queue,
        namespace=row.key.namespace,
        heartbeat_details=_details(row.heartbeat),
        scheduled_at=row.scheduled_at,
        started_at=row.started_at,
        start_to_close=row.start_to_close,
        heartbeat_timeout=row.heartbeat_timeout,
    )


def _details(payload: bytes | None) -> tuple[Any, ...]:
    try:
        return tuple(decode_value(payload, list[Any])) if payload else ()
    except Exception:  # written by something newer: the attempt can do without
        return ()
