"""What every worker does now and then for all: dead workers, deadlines of activities, forced closes, old keys.

Any number of workers may do it at once; each step is guarded by tokens, deadlines or locks.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable

import anyio

from aioflow.core import events as ev
from aioflow.core.fault import fault
from aioflow.core.versions import encode
from aioflow.errors import StoreError
from aioflow.store.rows import ActivityOutcome, DueClose, TerminateRequest
from aioflow.store.workers import Crashed
from aioflow.telemetry import get_logger
from aioflow.worker.backoff import jittered
from aioflow.worker.outcome import expired
from aioflow.worker.session import Session
from aioflow.worker.wakeup import Waker

__all__ = ["Maintenance"]

log = get_logger("aioflow.worker")
_BATCH = 200


class Maintenance:
    """The sweeps of one worker, in ``settings.maintenance_interval`` with jitter."""

    def __init__(self, session: Session, waker: Waker, on_suspects: Callable[[], None] = lambda: None) -> None:
        self._session, self._store, self._waker = session, session.store, waker
        self._settings, self._on_suspects = session.profile.settings, on_suspects
        self._no_reaping_until = 0.0

    async def run(self) -> None:
        """Never returns."""
        settings = self._settings
        async with anyio.create_task_group() as group:
            group.start_soon(self._every, settings.lease_ttl / 4, self.reap)
            group.start_soon(self._every, settings.maintenance_interval, self.expire_activities)
            group.start_soon(self._every, settings.maintenance_interval, self.close_overdue)
            group.start_soon(self._every, settings.maintenance_interval, self._session.reconcile)
            group.start_soon(self._every, settings.request_keep_interval, self.expire_requests)

    async def _every(self, interval: float, sweep: Callable[[], Awaitable[object]]) -> None:
        while True:
            await anyio.sleep(jittered(interval))
            try:
                await fault("maintenance.before_sweep")
                await sweep()
            except StoreError as exc:
                # Others could not renew either: give them the time of a lease after it is over.
                self._no_reaping_until = anyio.current_time() + self._settings.lease_ttl
                log.warning("maintenance_failed", sweep=sweep.__name__, reason=str(exc))

    async def reap(self) -> None:
        """Declare workers dead whose lease is over, and give their work to others."""
        if anyio.current_time() < self._no_reaping_until:
            return
        settings = self._settings
        released = await self._store.reap(settings.lease_ttl, settings.quarantine_after)
        for worker_id in released.workers:
            log.warning("worker_dead", dead_worker_id=str(worker_id))
        for one in released.suspects:
            log.warning("suspected", **_told(one))
        for one in released.quarantined:
            log.error("quarantined", **_told(one))
        self._waker.released(released.run_queues, released.activity_queues)
        if released.suspects:
            self._on_suspects()

    async def expire_activities(self) -> None:
        """Retry or end activities whose time is over."""
        rows = await self._store.expired_activities(_BATCH)
        endings = [expired(row, random.random) for row in rows]
        finals: list[ActivityOutcome] = [one.final for one in endings if one.retry is None]
        again = [one for one in endings if one.retry is not None]
        if again:
            outcomes = await self._store.retry_activities([one.retry for one in again if one.retry])
            for ending, outcome in zip(again, outcomes, strict=True):
                if outcome.status == "expired":
                    finals.append(ending.final)
                elif outcome.status == "retried" and outcome.queue and ending.retry:
                    self._waker.activity_due(outcome.queue, ending.retry.delay)
        if finals:
            await fault("maintenance.before_timeouts")
            for recorded in await self._store.complete_activities(finals):
                if recorded.queue is not None:
                    self._waker.run_ready(recorded.queue, ours=False)

    async def close_overdue(self) -> None:
        """Close runs by force whose grace or timeout is over."""
        due = await self._store.due_closes(_BATCH)
        if not due:
            return
        for one, outcome in zip(due, await self._store.terminate(list(map(self._request, due))), strict=True):
            if outcome.outcome == "closed":
                log.info("run_closed_by_force", kind=one.kind, instance_id=one.key.instance_id, run_id=str(one.run_id))
                self._waker.run_closed(one.run_id)

    async def expire_requests(self) -> None:
        """Forget request keys past their time, and workers long dead."""
        while await self._store.expire_requests(1_000) == 1_000:
            pass
        await self._store.forget_workers()

    def _request(self, due: DueClose) -> TerminateRequest:
        event: ev.Forced
        if due.kind.endswith("_timeout"):
            event, status = ev.RunTimedOut(at=due.due_at, timeout=due.kind.removesuffix("_timeout")), "timed_out"
        else:
            event, status = ev.RunTerminated(at=due.due_at, origin=due.kind), "terminated"
        return TerminateRequest(
            namespace=due.key.namespace,
            instance_id=due.key.instance_id,
            run_id=due.run_id,
            record=encode(event),
            commit=self._session.ids(),
            status=status,
        )


def _told(one: Crashed) -> dict[str, str | int]:
    what = {"activity": one.activity} if one.activity is not None else {"workflow": one.workflow or ""}
    return {**what, "instance_id": one.instance_id, "run_id": str(one.run_id), "crashes": one.crashes}
