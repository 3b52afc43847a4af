"""Runs that seem to kill workers are tried alone, so that no neighbour is blamed, and then set aside for long.

Every claim counts as an attempt until a commit; a task that fails says why. So many attempts without a reason mean
that the worker was gone each time.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from aioflow.errors import StoreError
from aioflow.store.rows import ClaimedRun, ReleaseRun
from aioflow.telemetry import get_logger
from aioflow.worker.backoff import jittered, persist
from aioflow.worker.session import Session
from aioflow.worker.slots import Slots
from aioflow.worker.workflow_task import WorkflowTasks

__all__ = ["Isolation", "suspected"]

log = get_logger("aioflow.worker")
_ALONE: Final = 3  # claims, this one included, before it is tried alone
_ASIDE: Final = 6  # claims before it is set aside between tries
_MARK: Final = "quarantined"
_SOON: Final = 0.01  # seconds; while one is tried alone there is no place to claim them anyway


def suspected(run: ClaimedRun) -> bool:
    """Whether the last claims of a run ended with the worker that held it."""
    reason = run.blocked_reason
    return run.attempt >= _ALONE and (reason is None or reason.startswith(_MARK))


class Isolation:
    """Stands before `WorkflowTasks`: suspects go through one at a time, with nothing else of the kind under way."""

    def __init__(self, session: Session, tasks: WorkflowTasks, slots: Slots) -> None:
        self._session, self._tasks, self._slots = session, tasks, slots
        self._pause = session.profile.settings.quarantine
        self._busy = False

    async def process(self, claimed: Sequence[ClaimedRun]) -> None:
        """See a claimed batch to its end."""
        suspects = [run for run in claimed if suspected(run)]
        if not suspects:
            await self._tasks.process(claimed)
            return
        aside = [run for run in suspects if run.attempt >= _ASIDE and run.attempt % 2 == 0]
        trial = [run for run in suspects if run not in aside]
        chosen = [] if self._busy else trial[:1]
        self._busy = self._busy or bool(chosen)
        try:
            await self._give_back([run for run in trial if run not in chosen])
            await self._set_aside(aside)
            if plain := [run for run in claimed if not suspected(run)]:
                await self._tasks.process(plain)
            if chosen:
                async with self._slots.alone():
                    await self._tasks.process(chosen)
        finally:
            if chosen:
                self._busy = False

    async def _give_back(self, runs: Sequence[ClaimedRun]) -> None:
        """Claim them again when the others are done; not their fault, so it does not count."""
        await self._release([(run, _SOON, run.blocked_reason, True) for run in runs])

    async def _set_aside(self, runs: Sequence[ClaimedRun]) -> None:
        """Open and visible, but not tried for a while. It counts: the next claim is a trial again."""
        for run in runs:
            ids = {"instance_id": run.key.instance_id, "run_id": str(run.run_id), "workflow": run.workflow}
            log.error("run_quarantined", attempt=run.attempt, seconds=self._pause, **ids)
        await self._release(
            [
                (run, self._pause, f"{_MARK}: the last {run.attempt - 1} workers that held it died", False)
                for run in runs
            ]
        )

    async def _release(self, runs: Sequence[tuple[ClaimedRun, float, str | None, bool]]) -> None:
        if not runs:
            return
        releases = [
            ReleaseRun(
                key=run.key,
                owner=run.owner,
                token=run.token,
                delay=jittered(delay),
                blocked_reason=reason,
                uncount=uncount,
            )
            for run, delay, reason, uncount in runs
        ]
        try:
            with suppress(StoreError):
                await persist(lambda: self._session.store.release_runs(releases))
        finally:
            for run, *_ in runs:
                self._session.release_run_token(run.token)
                self._slots.release()
