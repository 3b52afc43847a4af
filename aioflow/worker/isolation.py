"""Runs and activities that workers have died with are tried alone, so that another death can be blamed on them only.

The store hands suspects out apart. While one waits, the worker claims nothing else, lets what runs end, and tries
suspects one after the other with nothing beside them. Both waits are bounded: past them ordinary work goes on beside a
suspect. That is safe for the neighbours, since the death of a worker that holds suspects counts against those alone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import anyio
from anyio.abc import TaskGroup

from aioflow.core.fault import fault
from aioflow.errors import StoreError
from aioflow.telemetry import get_logger
from aioflow.worker.activity_task import ActivityTasks
from aioflow.worker.backoff import jittered
from aioflow.worker.session import Session
from aioflow.worker.slots import Slots
from aioflow.worker.workflow_task import WorkflowTasks

__all__ = ["Isolation"]

log = get_logger("aioflow.worker")
Trial = Callable[[], Awaitable[None]]
T = TypeVar("T", bound=Sequence[Any])


class Isolation:
    """Tries the suspects that one session can run. ``runs`` is None in a worker without workflows."""

    def __init__(
        self,
        session: Session,
        group: TaskGroup,
        *,
        runs: WorkflowTasks | None,
        activities: ActivityTasks,
        run_slots: Slots,
        activity_slots: Slots,
    ) -> None:
        self._session, self._group = session, group
        self._settings = session.profile.settings
        self._runs, self._activities = runs, activities
        self._run_slots, self._activity_slots = run_slots, activity_slots
        self._hint = anyio.Event()
        self._stopped = False

    def hint(self) -> None:
        """There may be suspects."""
        self._hint.set()

    def stop(self) -> None:
        """Begin no other trial; one that is under way holds a place until it ends."""
        self._stopped = True
        self._hint.set()

    async def run(self) -> None:
        """Look for suspects now and then until stopped."""
        pause = self._settings.poll_interval
        while True:
            with anyio.move_on_after(jittered(pause)):
                await self._hint.wait()
            if self._stopped:
                return
            self._hint = anyio.Event()
            begun = anyio.current_time()
            try:
                if any(await self._session.suspects()):
                    await self._try_all()
            except StoreError as exc:
                log.warning("isolation_failed", error=type(exc).__name__)
            # Ordinary work gets as much time as the trials had.
            pause = max(self._settings.poll_interval, anyio.current_time() - begun)

    async def _try_all(self) -> None:
        slots = self._run_slots, self._activity_slots
        for one in slots:
            one.shut()
        ended: anyio.Event | None = None
        try:
            if await self._quiet():
                until = anyio.current_time() + self._settings.isolation_time
                while not self._stopped and anyio.current_time() < until:
                    ended = await self._begin()
                    if ended is None:
                        break
                    with anyio.move_on_after(until - anyio.current_time()):
                        await ended.wait()
        finally:
            for one in slots:
                one.open()
        if ended is not None:
            await ended.wait()

    async def _quiet(self) -> bool:
        """Wait until nothing runs here, but not for ever; False: others have taken the suspects meanwhile."""
        until = anyio.current_time() + self._settings.isolation_wait
        while (left := until - anyio.current_time()) > 0:
            with anyio.move_on_after(min(left, self._settings.poll_interval)):
                while self._run_slots.busy or self._activity_slots.busy:
                    await self._run_slots.empty()
                    await self._activity_slots.empty()
                return True
            if self._stopped or not any(await self._session.suspects()):
                return False
        log.info("suspects_not_alone", runs=self._run_slots.busy, activities=self._activity_slots.busy)
        return True

    async def _begin(self) -> anyio.Event | None:
        """Take one suspect and start it; an event for its end, None when there is none."""
        await fault("isolation.before_claim")
        if self._runs is not None:
            runs = await self._claim(self._run_slots, partial(self._session.claim_runs, 1, suspects=True))
            if runs:
                return self._start("workflow", runs[0].workflow, partial(self._runs.process, runs))
        found = await self._claim(self._activity_slots, partial(self._session.claim_activities, 1, suspects=True))
        if found:
            return self._start("activity", found[0].activity, partial(self._activities.attend, found[0]))
        return None

    async def _claim(self, slots: Slots, claim: Callable[[], Awaitable[T]]) -> T:
        """Claim with a place for one; it is given back if there is none."""
        slots.take()
        items: Sequence[object] = ()
        try:
            items = found = await claim()
            return found
        except StoreError:
            await self._session.recover()
            raise
        finally:
            if not items:
                slots.release()

    def _start(self, kind: str, name: str, trial: Trial) -> anyio.Event:
        ended = anyio.Event()

        async def run() -> None:
            try:
                await trial()
            finally:
                ended.set()

        log.info("suspect_tried_alone", **{kind: name})
        self._group.start_soon(run)
        return ended
