"""Everything that runs under one registration of a worker: claimers, runners, lease, listener, maintenance."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import anyio
from anyio.abc import TaskGroup

from aioflow.core.fault import fault
from aioflow.errors import StoreError
from aioflow.store.notify import WAKE, Listener, Notifier
from aioflow.store.rows import ClaimedActivity, ClaimedRun
from aioflow.store.store import Store
from aioflow.telemetry import get_logger
from aioflow.worker.activity_task import ActivityTasks
from aioflow.worker.cache import RunCache
from aioflow.worker.claimer import Claimer, Work
from aioflow.worker.committer import Committer
from aioflow.worker.isolation import Isolation
from aioflow.worker.lease import Lease
from aioflow.worker.maintenance import Maintenance
from aioflow.worker.session import Profile, Session
from aioflow.worker.slots import Slots
from aioflow.worker.stepper import Stepper
from aioflow.worker.wakeup import Waker
from aioflow.worker.workflow_task import WorkflowTasks

__all__ = ["Engine", "Shared"]

log = get_logger("aioflow.worker")
_FAREWELL = 5.0  # seconds to write the last words of a drain


@dataclass(frozen=True, slots=True)
class Shared:
    """What a worker keeps over its registrations."""

    profile: Profile
    store: Store
    dsn: str
    listen_dsn: str
    notifier: Notifier
    stepper: Stepper
    cache: RunCache
    threads: anyio.CapacityLimiter


class Engine:
    """One session at work; ``run`` ends when it was drained or has lost its lease."""

    def __init__(self, shared: Shared, session: Session) -> None:
        profile = shared.profile
        self._shared, self._session, self._settings = shared, session, profile.settings
        self._run_slots, self._activity_slots = (Slots(profile.settings.concurrency) for _ in range(2))
        self._waker = Waker(
            shared.notifier,
            queues=profile.queues,
            workflows=profile.registry.workflows,
            activities=profile.registry.activities,
            run_slots=self._run_slots,
            activity_slots=self._activity_slots,
        )
        self._committer = Committer(shared.store)

    async def run(self, drain: anyio.Event) -> None:
        """Work until ``drain`` is set and done with, or the session is lost."""
        session, settings, waker = self._session, self._settings, self._waker
        lease = Lease(
            self._shared.dsn,
            session.worker_id,
            ttl=settings.lease_ttl,
            stall=settings.loop_stall,
            on_lost=session.lost.set,
        )
        listener = Listener(self._shared.listen_dsn, [WAKE], waker.heard, waker.rescan, on_state=_listening_teller())
        async with lease, listener, anyio.create_task_group() as group:
            activities = ActivityTasks(
                session,
                group,
                cache=self._shared.cache,
                waker=waker,
                slots=self._activity_slots,
                threads=self._shared.threads,
            )
            runs = self._workflow_tasks(activities)
            isolation = Isolation(
                session,
                group,
                runs=runs,
                activities=activities,
                run_slots=self._run_slots,
                activity_slots=self._activity_slots,
            )
            claimers = self._claimers(group, runs, activities)
            group.start_soon(lease.tick)
            group.start_soon(self._watch, group.cancel_scope)
            group.start_soon(Maintenance(session, waker, on_suspects=isolation.hint).run)
            group.start_soon(isolation.run)
            group.start_soon(activities.heartbeats.run)
            for claimer in claimers:
                group.start_soon(claimer.run)
            await drain.wait()
            isolation.stop()
            for claimer in claimers:
                claimer.stop()
            await self._drain(activities)
            group.cancel_scope.cancel()

    def _workflow_tasks(self, activities: ActivityTasks) -> WorkflowTasks | None:
        if not self._session.profile.registry.workflows:
            return None
        return WorkflowTasks(
            self._session,
            stepper=self._shared.stepper,
            cache=self._shared.cache,
            committer=self._committer,
            waker=self._waker,
            slots=self._run_slots,
            on_cancel=activities.cancel,
        )

    def _claimers(
        self, group: TaskGroup, runs: WorkflowTasks | None, activities: ActivityTasks
    ) -> list[Claimer[ClaimedRun] | Claimer[ClaimedActivity]]:
        """A claimer for each kind of work that this worker knows any type of."""
        session, settings = self._session, self._settings
        found: list[Claimer[ClaimedRun] | Claimer[ClaimedActivity]] = []
        if runs is not None:

            def start_runs(claimed: Sequence[ClaimedRun]) -> None:
                group.start_soon(runs.process, claimed)

            run_work = Work[ClaimedRun](
                name="runs",
                slots=self._run_slots,
                wake=self._waker.runs,
                claim=session.claim_runs,
                start=start_runs,
                next_due=session.runs_due,
                recover=session.recover,
            )
            found.append(Claimer(run_work, poll_interval=settings.poll_interval, batch=settings.claim_batch))
        if session.profile.registry.activities:
            activity_work = Work[ClaimedActivity](
                name="activities",
                slots=self._activity_slots,
                wake=self._waker.activities,
                claim=session.claim_activities,
                start=activities.start,
                next_due=session.activities_due,
                recover=session.recover,
            )
            found.append(Claimer(activity_work, poll_interval=settings.poll_interval, batch=settings.claim_batch))
        return found

    async def _watch(self, scope: anyio.CancelScope) -> None:
        """End everything when the lease is lost: what is held belongs to others now."""
        await self._session.lost.wait()
        log.error("lease_lost", worker_id=str(self._session.worker_id))
        scope.cancel()

    async def _drain(self, activities: ActivityTasks) -> None:
        """Finish or give back what is held, write what is known, say good-bye."""
        settings, session = self._settings, self._session
        log.info("worker_draining", worker_id=str(session.worker_id))
        await fault("drain.begin")
        with anyio.move_on_after(settings.drain_grace):
            await self._run_slots.empty()
        await activities.drain(settings.drain_grace, settings.cancel_grace)
        with anyio.move_on_after(_FAREWELL), suppress(StoreError):
            await self._committer.close()
            await activities.close()
            await fault("drain.before_unregister")
            released = await self._shared.store.unregister_worker(session.worker_id)
            self._waker.released(released.run_queues, released.activity_queues)
        log.info("worker_drained", worker_id=str(session.worker_id))


def _listening_teller() -> Callable[[bool, str], None]:
    """Tells whether hints arrive: once loudly when that ends, however often it is tried again."""
    before = True

    def tell(listening: bool, why: str) -> None:
        nonlocal before
        if listening:
            log.debug("listening")
        else:
            (log.warning if before else log.debug)("not_listening", reason=why)
        before = listening

    return tell
