"""A worker of a few lines, for tests that need runs to go on without the real one.

It claims, replays from history every time, applies, commits, and runs activities one after the other; no leases, no
cache, no hints.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

from aioflow.core import events as ev
from aioflow.core.decision import Decision, messages_first, place
from aioflow.core.definition import ActivityDefinition, WorkflowDefinition
from aioflow.core.failure import Failure
from aioflow.core.ids import IdSource
from aioflow.core.registry import activity_definition, workflow_definition
from aioflow.core.replay import Execution
from aioflow.core.versions import decode, encode
from aioflow.store.rows import (
    ActivityOutcome,
    ClaimedActivity,
    Commit,
    DefinitionRow,
    HistoryRef,
    Loaded,
    NewActivity,
    WorkerRow,
)
from aioflow.store.store import Store
from tests.support import eventually


class Runs:
    """Runs workflows and activities of a database step by step; failed activities are not retried."""

    def __init__(
        self, store: Store, *targets: Any, queues: tuple[str, ...] = ("default",), namespace: str = "default"
    ) -> None:
        self.store, self.queues, self.namespace = store, queues, namespace
        self.ids = IdSource(time.time, secrets.token_bytes)
        self.worker_id: UUID = self.ids()
        self.workflows: dict[str, WorkflowDefinition] = {}
        self.activities: dict[str, ActivityDefinition] = {}
        for target in targets:
            if isinstance(target, type):
                self.workflows[workflow_definition(target).name] = workflow_definition(target)
            else:
                self.activities[activity_definition(target).name] = activity_definition(target)
        self.committed: list[tuple[Loaded, Decision]] = []

    async def register(self) -> Runs:
        """Make the worker and its definitions known."""
        await self.store.register_worker(
            WorkerRow(
                worker_id=self.worker_id,
                identity="test-worker",
                queues=self.queues,
                namespace=self.namespace,
                workflows=tuple(self.workflows),
                activities=tuple(self.activities),
                lease=3600.0,
            )
        )
        await self.store.register_definitions(
            [
                DefinitionRow(
                    namespace=self.namespace,
                    workflow=one.name,
                    queue=one.queue,
                    signals=tuple(one.signals),
                    queries=tuple(one.queries),
                    open_signals=one.open_signals,
                )
                for one in self.workflows.values()
            ]
        )
        return self

    async def step(self) -> int:
        """Do all that is due once; how many commits and outcomes that made."""
        done = 0
        claimed = await self.store.claim_runs(self.worker_id, 0, self.queues, list(self.workflows), 500, self.ids())
        if claimed:
            commits = []
            for loaded in await self.store.load(claimed):
                assert loaded is not None
                commits.append(await self._decide(loaded))
            outcomes = await self.store.commit(commits)
            done += sum(one.status == "ok" for one in outcomes)
        tokens = [self.ids() for _ in range(100)]
        for task in await self.store.claim_activities(self.worker_id, 0, self.queues, list(self.activities), tokens):
            await self.store.complete_activities([await self._run(task)])
            done += 1
        return done

    async def settle(self) -> None:
        """Step until nothing is due."""
        while await self.step():
            pass

    async def until(self, check: Callable[[], Any | Awaitable[Any]], *, within: float = 20.0) -> Any:
        """Step until ``check`` gives something true."""

        async def stepped() -> Any:
            await self.step()
            found = check()
            return await found if isinstance(found, Awaitable) else found

        return await eventually(stepped, within=within)

    async def serve(self) -> None:
        """Step for ever, with short pauses; a task to cancel."""
        while True:
            if not await self.step():
                await asyncio.sleep(0.005)

    async def _decide(self, loaded: Loaded) -> Commit:
        run = loaded.run
        (records,) = await self.store.load_history([HistoryRef(run.key.shard, run.run_id, loaded.next_seq - 1)])
        history = [decode(one) for one in records]
        inputs: list[Any] = place(
            [decode(one) for one in loaded.inbox],  # type: ignore[misc]
            [decode(one) for one in loaded.timers],  # type: ignore[misc]
        )
        decision = self._apply(loaded, history, inputs)
        if decision.refused:
            decision = self._apply(loaded, history, messages_first(inputs))
        self.committed.append((loaded, decision))
        return Commit(
            key=run.key,
            run_id=run.run_id,
            owner=run.owner,
            token=run.token,
            next_token=self.ids(),
            base_seq=loaded.next_seq,
            gen=loaded.gen,
            records=[encode(one) for one in decision.events],
            activities=[NewActivity.of(one) for one in decision.activities.values()],
            cancelled_activities=decision.cancelled_activities,
            timers=list(decision.timers.items()),
            gone_timers=decision.gone_timers,
            next_due=decision.next_due,
            close=decision.close,
        )

    def _apply(self, loaded: Loaded, history: list[ev.Event], inputs: list[Any]) -> Decision:
        execution = Execution(self.workflows[loaded.run.workflow], loaded.run.key, loaded.run.run_id)
        execution.replay(history)
        decision = execution.apply(inputs)
        execution.evict()
        return decision

    async def _run(self, task: ClaimedActivity) -> ActivityOutcome:
        definition = self.activities[task.activity]
        args, kwargs = definition.signature.decode(task.payload or b"")
        facts: dict[str, Any] = {"ref": task.ref, "attempt_id": task.token, "at": task.started_at}
        try:
            value = definition.fn(*args, **kwargs)
            if isinstance(value, Awaitable):
                value = await value
            event: ev.Event = ev.ActivityCompleted(payload=definition.encode_result(value), **facts)
        except Exception as exc:
            event = ev.ActivityFailed(payload=Failure.of(exc).to_payload(), **facts)
        return ActivityOutcome(key=task.key, run_id=task.run_id, ref=task.ref, token=task.token, record=encode(event))
