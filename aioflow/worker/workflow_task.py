"""Workflow tasks: a batch of claimed runs is loaded, stepped in one hop, committed, and kept in the cache.

What goes wrong with the code of a run fails its *task*, never the run: it is given back with a back-off, stays open,
and says why. A close that was refused is discarded and decided again from what is committed, messages first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, TypeVar
from uuid import UUID

from aioflow.core import events as ev
from aioflow.core.decision import Decision, generation_after, messages_first, place
from aioflow.core.definition import WorkflowDefinition
from aioflow.core.event import Record
from aioflow.core.fault import fault
from aioflow.core.limits import Limits
from aioflow.core.plain import clip
from aioflow.core.replay import Execution
from aioflow.core.versions import decode, encode
from aioflow.errors import NondeterminismError, StoreError
from aioflow.store.rows import (
    ClaimedRun,
    Commit,
    CommitOutcome,
    HistoryRef,
    Loaded,
    NewActivity,
    ReleaseRun,
)
from aioflow.telemetry import get_logger
from aioflow.worker.backoff import backoff, persist
from aioflow.worker.cache import RunCache
from aioflow.worker.committer import Committer
from aioflow.worker.session import Session
from aioflow.worker.slots import Slots
from aioflow.worker.stepper import Stepper, StepTooLong, Unit
from aioflow.worker.wakeup import Waker

__all__ = ["RunTask", "WorkflowTasks"]

log = get_logger("aioflow.worker")
_REASON: Final = 2_000
E = TypeVar("E", bound=ev.Input)
Cancel = Callable[[UUID, Decision], None]


class RunTask:
    """One claimed run on its way through the worker."""

    __slots__ = ("again", "claimed", "commit", "decision", "execution", "history", "loaded", "next_token", "unit")

    def __init__(self, claimed: ClaimedRun) -> None:
        self.claimed = claimed
        self.again = False
        self.loaded: Loaded | None = None
        self.history: list[Record] | None = None
        self.execution: Execution | None = None
        self.decision: Decision | None = None
        self.commit: Commit | None = None
        self.unit: Unit | None = None
        self.next_token = claimed.token

    def prepare(self, definition: WorkflowDefinition, limits: Limits, next_token: UUID) -> Unit:
        """The step, to be run on the thread of workflows."""
        self.next_token = next_token
        if self.execution is None:
            self.execution = Execution(definition, self.claimed.key, self.claimed.run_id, limits=limits)
        execution = self.execution
        self.unit = Unit(self._step, progress=lambda: execution.progress, dispose=execution.evict)
        return self.unit

    def _step(self) -> None:
        """Replay unless it was cached, apply what came, decide. On the thread of workflows."""
        execution, loaded = self.execution, self.loaded
        assert execution is not None
        assert loaded is not None
        if self.history:
            execution.replay([decode(record) for record in self.history])
        events = [decode(record) for record in loaded.inbox]
        gens = {id(event): gen for event, gen in zip(events, loaded.gens, strict=True)}
        inputs = place(_inputs(events, ev.Input), _inputs(map(decode, loaded.timers), ev.TimerFired))
        if self.again:
            inputs = messages_first(inputs)
        consumed = partial(generation_after, inputs, gens, loaded.gen)
        self.decision = execution.apply(inputs, lambda applied: consumed(applied) is not None)
        if not self.decision.refused:
            gen = consumed(self.decision.applied)
            assert gen is not None
            self.commit = _commit(self.claimed, loaded, self.decision, gen, self.next_token)


class WorkflowTasks:
    """Does the claimed runs of one session. ``on_cancel`` learns which activities a commit has cancelled."""

    def __init__(
        self,
        session: Session,
        *,
        stepper: Stepper,
        cache: RunCache,
        committer: Committer,
        waker: Waker,
        slots: Slots,
        on_cancel: Cancel,
    ) -> None:
        self._session, self._store = session, session.store
        self._settings = session.profile.settings
        self._definitions = session.profile.registry.workflows
        self._stepper, self._cache, self._committer, self._waker = stepper, cache, committer, waker
        self._slots, self._on_cancel = slots, on_cancel

    async def process(self, claimed: Sequence[ClaimedRun]) -> None:
        """See a claimed batch to its end. Every run has a place, which is given back when it is done."""
        open_: dict[int, RunTask] = {id(task): task for task in map(RunTask, claimed)}
        try:
            tasks = list(open_.values())
            while tasks:
                tasks = await self._round(tasks, open_)
        except StoreError as exc:
            await self._fail([(task, exc) for task in open_.values()], open_)
        except Exception as exc:
            log.exception("workflow_tasks_failed", runs=len(open_))
            await self._fail([(task, exc) for task in open_.values()], open_)
        finally:
            for task in list(open_.values()):
                self._discard(task)
                self._done(task, open_)

    async def _round(self, tasks: list[RunTask], open_: dict[int, RunTask]) -> list[RunTask]:
        """Load, step, commit; gives the tasks that have to be decided again."""
        held = await self._load(tasks, open_)
        limits = self._settings.limits
        units = [task.prepare(self._definitions[task.claimed.workflow], limits, self._session.ids()) for task in held]
        await self._stepper.run(units)
        await fault("workflow_task.after_step")
        again, ready, failures = [], [], []
        for task in held:
            if (error := task.unit.error if task.unit else None) is not None:
                failures.append((task, error))
            elif task.commit is None:
                again.append(task)
            else:
                ready.append(task)
        if failures:
            await self._fail(failures, open_)
        if ready:
            outcomes = await self._committer.commit([task.commit for task in ready if task.commit])
            await fault("workflow_task.after_commit")
            for task, outcome in zip(ready, outcomes, strict=True):
                if isinstance(outcome, StoreError):
                    await self._fail([(task, outcome)], open_)
                elif self._settle(task, outcome):
                    again.append(task)
                else:
                    self._done(task, open_)
        for task in again:
            self._start_over(task)
        return again

    # -- before -----------------------------------------------------------------------------------

    async def _load(self, tasks: list[RunTask], open_: dict[int, RunTask]) -> list[RunTask]:
        """What the runs have to consume, and the history of those that are not cached."""
        loaded = await persist(lambda: self._store.load([task.claimed for task in tasks]))
        held, cold = [], []
        for task, found in zip(tasks, loaded, strict=True):
            claimed = task.claimed
            if found is None:
                self._cache.drop(claimed.key)
                self._done(task, open_)
                continue
            task.loaded = found
            task.execution = self._cache.take(claimed.key, claimed.run_id, found.head, found.next_seq)
            held.append(task)
            if task.execution is None and found.next_seq > 1:
                cold.append(task)
        if cold:
            refs = [
                HistoryRef(task.claimed.key.shard, task.claimed.run_id, task.loaded.next_seq - 1)
                for task in cold
                if task.loaded is not None
            ]
            histories = await persist(lambda: self._store.load_history(refs))
            for task, history in zip(cold, histories, strict=True):
                task.history = history
        return held

    # -- after ------------------------------------------------------------------------------------

    def _settle(self, task: RunTask, outcome: CommitOutcome) -> bool:
        """Act on the answer to a commit; whether the task has to be decided again."""
        commit, decision, claimed = task.commit, task.decision, task.claimed
        assert commit is not None
        assert decision is not None
        assert task.execution is not None
        if outcome.status == "refused":
            log.debug("close_refused", **_ids(claimed))
            return True
        if outcome.status == "fenced":
            log.info("commit_fenced", **_ids(claimed))
            self._discard(task)
            return False
        if commit.close is None:
            self._cache.put(task.execution, commit.token)
        task.execution = None
        self._announce(task, commit, decision, outcome)
        return False

    def _announce(self, task: RunTask, commit: Commit, decision: Decision, outcome: CommitOutcome) -> None:
        """Tell what follows from a commit, now that it is one."""
        claimed, waker = task.claimed, self._waker
        before, limits = commit.base_seq - 1, self._settings.limits
        if before <= limits.history_soft < (events := before + len(commit.records)):
            log.warning("history_long", events=events, most=limits.history_hard, **_ids(claimed))
        for queue, name in {(one.queue, one.activity) for one in commit.activities}:
            waker.activities_ready(queue, name, len(commit.activities))
        if commit.close or commit.cancelled_activities:
            self._on_cancel(claimed.run_id, decision)
        if commit.close:
            waker.run_closed(claimed.run_id)
            log.info("run_closed", status=commit.close, **_ids(claimed))
        elif outcome.rearmed:
            waker.run_ready(claimed.queue, ours=True)
        elif commit.next_due is not None and outcome.clock is not None:
            waker.run_due(claimed.queue, (commit.next_due - outcome.clock).total_seconds())
        for problem in decision.problems:
            error = problem.get("exception")
            log.warning(
                "workflow_callback_failed",
                problem=clip(str(problem.get("message", "")), 200),
                error=type(error).__name__,
                **_ids(claimed),
            )

    def _start_over(self, task: RunTask) -> None:
        """Forget a decision that was refused: the next one begins with what is committed, messages first."""
        self._discard(task)
        task.again = True
        task.loaded = task.history = task.decision = task.commit = task.unit = None

    async def _fail(self, failures: Sequence[tuple[RunTask, BaseException]], open_: dict[int, RunTask]) -> None:
        """Give runs back whose task failed, with a back-off and the reason."""
        releases = []
        for task, error in failures:
            claimed = task.claimed
            delay = backoff(claimed.attempt, self._settings.backoff_first, self._settings.backoff_max)
            releases.append(
                ReleaseRun(
                    key=claimed.key,
                    owner=claimed.owner,
                    token=claimed.token,
                    delay=delay,
                    blocked_reason=_reason(error),
                    alive=not isinstance(error, (StoreError, StepTooLong)),
                    harmful=isinstance(error, StepTooLong),
                )
            )
            told = {"expected": error.expected, "found": error.found} if isinstance(error, NondeterminismError) else {}
            log.warning(
                "workflow_task_failed",
                error=type(error).__name__,
                attempt=claimed.attempt,
                retry_in=round(delay, 3),
                **_ids(claimed),
                **told,
            )
        try:
            await persist(lambda: self._store.release_runs(releases, self._settings.quarantine_after))
        except StoreError:
            log.exception("release_refused", runs=len(releases))
            for release in releases:
                self._session.doubt(release.token)
        for (task, error), release in zip(failures, releases, strict=True):
            self._waker.run_due(task.claimed.queue, release.delay)
            if isinstance(error, StepTooLong):
                task.execution = None  # its thread unwinds it
            self._discard(task)
            self._done(task, open_)
        with suppress(StoreError):  # else maintenance does it
            await self._session.reconcile()

    def _discard(self, task: RunTask) -> None:
        if task.execution is not None:
            self._stepper.post(task.execution.evict)
            task.execution = None

    def _done(self, task: RunTask, open_: dict[int, RunTask]) -> None:
        if open_.pop(id(task), None) is not None:
            self._session.release_run_token(task.claimed.token)
            self._slots.release()


def _reason(error: BaseException) -> str:
    """Why a run cannot go on, for people; the database takes no NUL."""
    return clip(f"{type(error).__name__}: {error}".replace("\x00", "\\x00"), _REASON)


def _ids(claimed: ClaimedRun) -> dict[str, str]:
    return {
        "workflow": claimed.workflow,
        "instance_id": claimed.key.instance_id,
        "run_id": str(claimed.run_id),
    }


def _inputs(events: Iterable[ev.Event], kind: type[E]) -> list[E]:
    return [event for event in events if isinstance(event, kind)]


def _commit(claimed: ClaimedRun, loaded: Loaded, decision: Decision, gen: int, next_token: UUID) -> Commit:
    return Commit(
        key=claimed.key,
        run_id=claimed.run_id,
        owner=claimed.owner,
        token=claimed.token,
        next_token=next_token,
        base_seq=loaded.next_seq,
        gen=gen,
        records=[encode(event) for event in decision.events],
        activities=[NewActivity.of(command) for command in decision.activities.values()],
        cancelled_activities=decision.cancelled_activities,
        timers=list(decision.timers.items()),
        gone_timers=decision.gone_timers,
        next_due=decision.next_due,
        close=decision.close,
        size=decision.size,
    )
