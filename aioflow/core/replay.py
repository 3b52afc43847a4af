"""Events in, decision out: one run of a workflow, stepped through its history and beyond.

Events are applied one at a time, in history order; after each the code runs until quiet. How they were batched into
workflow tasks cannot matter. *Replayed* events come from loaded history, and every command issued while one is applied
must be recorded right behind it; *live* events come from the inbox, and what they cause is the decision::

    execution = Execution(definition, key, run_id)
    execution.replay(history)            # after a crash, a deploy, an eviction
    decision = execution.apply(inputs)   # the store writes it, once

An execution that raised is spoiled and already evicted: drop it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final
from uuid import UUID

from aioflow.core import commands as cmd
from aioflow.core import events as ev
from aioflow.core.branch import Branch
from aioflow.core.context import Context, WorkflowInfo
from aioflow.core.decision import MESSAGES, STATUS, Decision
from aioflow.core.definition import WorkflowDefinition
from aioflow.core.failure import Failure
from aioflow.core.keys import InstanceKey
from aioflow.core.limits import Limits
from aioflow.core.matching import HISTORY, Ledger
from aioflow.core.resolve import resolve
from aioflow.core.tasks import Sealed, Task
from aioflow.errors import (
    NondeterminismError,
    NotDurable,
    StructuralLimitExceeded,
    UnknownQuery,
    WorkflowLivelock,
)

# A deploy can mend these, so they block the run instead of failing it.
BLOCKING = (NotDurable, NondeterminismError, WorkflowLivelock)
_EARLY: Final = 8  # a part of the bytes of a step: what several events add to is written in several commits


class Execution:
    """The code of one run, suspended between events. ``seq`` is the number of events in its history."""

    def __init__(
        self, definition: WorkflowDefinition, key: InstanceKey, run_id: UUID, *, limits: Limits | None = None
    ) -> None:
        self.definition, self.key, self.run_id = definition, key, run_id
        self.limits = limits or Limits()
        self.seq = 0
        self.history_bytes = 0
        self.closed = False
        self._context: Context | None = None
        self._started: ev.RunStarted | None = None
        self._instance: Any = None
        self._main: Task[Any] | None = None
        self._handlers: list[Task[Any]] = []
        self._handled = 0
        self._cancel: ev.CancelRequested | None = None
        self._end: cmd.Command | None = None

    @property
    def progress(self) -> tuple[int, int]:
        """Changes while events are applied and commands are issued; what only computes or loops stands still."""
        return self.seq, self._context.tried if self._context is not None else 0

    # -- stepping ---------------------------------------------------------------------------------

    def replay(self, history: Sequence[ev.Event]) -> None:
        """Apply a recorded history from its start.

        Raises `NondeterminismError` when code and history disagree, `DecodeError` for values that cannot be read;
        either way nothing was written and the run may be tried again with other code.
        """
        try:
            self._replay(history)
        except BaseException:
            self.evict()
            raise

    def apply(self, inputs: Sequence[ev.Input], may_stop: Callable[[int], bool] = lambda _: False) -> Decision:
        """Apply new inputs and decide. A refused decision has spoiled the execution: replay and decide again.

        A decision that has grown large is taken early where ``may_stop`` allows it, asked with the number of inputs
        applied so far; ``applied`` of the decision tells.
        """
        try:
            decision = self._apply(inputs, may_stop)
        except BaseException:
            self.evict()
            raise
        if decision.refused or decision.close:
            self.evict()
        return decision

    def evict(self) -> None:
        """Unwind the code and forget it; nothing can come out any more."""
        self.closed = True
        if self._context is not None:
            self._context.loop.evict()

    def _replay(self, history: Sequence[ev.Event]) -> None:
        ledger = Ledger(history)
        for event, recorded in ledger.turns():
            context = self._open(event)
            context.replaying = True
            context.recorded = ledger.values
            context.allowed = {one.ref for one in recorded if one.ref} if recorded else ()
            with context.loop.entered():
                self._step(context, event)
            ledger.match(context.cut(), recorded)
            for one in recorded:
                if isinstance(one, ev.TimerStarted):
                    context.retime(one.ref or "", one.due_at)
            self.seq += 1 + len(recorded)
            self._count(event, *recorded)
        if self._context is not None:
            self._context.replaying, self._context.allowed = False, ()
        ledger.match_end(self._end)
        if ledger.end is not None:
            self.seq += 1
            self.closed = True

    def _apply(self, inputs: Sequence[ev.Input], may_stop: Callable[[int], bool]) -> Decision:
        decision = Decision(applied=len(inputs))
        most = self.limits.step_bytes // _EARLY
        for position, event in enumerate(inputs):
            context = self._open(event)
            if isinstance(event, ev.TimerFired):
                if event.ref not in context.timers:
                    continue  # cancelled by an earlier input: a late fire is dropped
                decision.timer_gone(event.ref)
            with context.loop.entered():
                running = self._end is None
                self._step(context, event)
            # Messages come first when it is decided again, but never before the start.
            returned = running and self._end is not None and not isinstance(event, (ev.RunStarted, *MESSAGES))
            if returned and any(isinstance(one, MESSAGES) for one in inputs[position + 1 :]):
                return Decision(refused=True)
            issued = context.cut()
            for command in issued:
                decision.take(command)
            at = context.now()
            self._extend(decision, event, *(command.event(at) for command in issued))
            if decision.size > most and self._end is None and may_stop(position + 1):
                decision.applied = position + 1
                break
        self._finish(decision)
        return decision

    def _finish(self, decision: Decision) -> None:
        context = self._context
        if context is None:
            return
        if self._end is None and self.seq > self.limits.history_hard:
            over = StructuralLimitExceeded(HISTORY, self.limits.history_hard)
            self._end = cmd.FailRun(ref="0", payload=Failure.of(over).to_payload(), limit=over.limit)
        if self._end is not None:
            terminal = self._end.event(context.now())
            self._extend(decision, terminal)
            decision.close = STATUS[type(terminal)]
        decision.next_due = min(context.timers.values(), default=None)
        decision.problems, context.problems = context.problems, []

    def _extend(self, decision: Decision, *events: ev.Event) -> None:
        decision.events.extend(events)
        self.seq += len(events)
        decision.size += self._count(*events)

    def _count(self, *events: ev.Event) -> int:
        # 100 bytes stand for the columns beside the payload; this bounds memory, it bills nobody.
        size = sum(100 + len(one.payload or b"") for one in events)
        self.history_bytes += size
        return size

    # -- one event --------------------------------------------------------------------------------

    def _open(self, event: ev.Event) -> Context:
        """The context of the run; its first event makes it."""
        if self._context is None:
            if not isinstance(event, ev.RunStarted):
                raise NondeterminismError("RunStarted as the first event", event.kind, 1)
            self._context = Context(self.definition, self.key, self.run_id, event.seed, self.limits)
            self._context.info = self._info
            self._started = event
        return self._context

    def _step(self, context: Context, event: ev.Event) -> None:
        loop = context.loop
        loop.advance(event.at.timestamp())
        match event:
            case ev.RunStarted():
                args, kwargs = self.definition.signature.decode(event.payload or b"")
                self._main = loop.spawn(self._handle(args, kwargs), loop.root)
            case ev.SignalReceived():
                self._signal(context, event)
            case ev.CancelRequested():
                if self._cancel is None:
                    self._cancel = event
                    assert self._main is not None
                    self._main.cancel()
            case _:
                resolve(context, event)
        loop.drain()
        if context.fault is not None:
            raise context.fault
        if self._end is None:
            self._end = self._ended()

    async def _handle(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        assert self._context is not None
        try:
            self._instance = self.definition.cls()
            return await self._instance.handle(*args, **kwargs)
        finally:
            if not self._context.loop.sealed:
                await self._context.loop.shutdown_asyncgens()

    def _signal(self, context: Context, event: ev.SignalReceived) -> None:
        handler = self.definition.signals.get(event.name)
        if handler is None:
            context.deliver(event.name, event.payload or b"")
            return
        args, kwargs = handler.signature.decode(event.payload or b"")

        async def run() -> None:
            outcome = handler.fn(self._instance, *args, **kwargs)
            if isinstance(outcome, Coroutine):
                await outcome

        self._handled += 1
        self._handlers.append(context.loop.spawn(run(), Branch(f"h{self._handled}")))

    # -- the end ----------------------------------------------------------------------------------

    def _ended(self) -> cmd.Command | None:
        """The closing command once ``handle()`` is done or a handler failed, else None."""
        for task in [one for one in self._handlers if one.done()]:
            self._handlers.remove(task)
            if not task.cancelled() and (error := task.exception()) is not None:
                return self._fail(error)
        main = self._main
        if main is None or not main.done():
            return None
        if main.cancelled():
            if self._cancel is not None:
                return cmd.CancelRun(ref="0", reason=self._cancel.reason)
            return self._fail(asyncio.CancelledError())
        if (error := main.exception()) is not None:
            return self._fail(error)
        try:
            hint = self.definition.signature.result_hint
            payload = self.definition.encode_result(main.result(), hint, self.limits.payload)
        except Exception as exc:
            return self._fail(exc)
        return cmd.CompleteRun(ref="0", payload=payload)

    def _fail(self, error: BaseException) -> cmd.Command:
        if _holds(error, (*BLOCKING, *self.definition.blocking, Sealed)):
            raise error
        limit = error.limit if isinstance(error, StructuralLimitExceeded) else None
        return cmd.FailRun(ref="0", payload=Failure.of(error).to_payload(), limit=limit)

    # -- questions --------------------------------------------------------------------------------

    def query(self, name: str, payload: bytes) -> bytes:
        """Answer a query from the state as it is; gives the encoded result.

        Raises `UnknownQuery`, `DecodeError` for arguments that do not fit, `NotDurable` for a handler that does more
        than read, and whatever the handler raises.
        """
        handler = self.definition.queries.get(name)
        if handler is None:
            known = ", ".join(sorted(self.definition.queries)) or "none"
            raise UnknownQuery(f"workflow {self.definition.name} has no query {name!r} (it has: {known})")
        context = self._context
        if context is None or self._instance is None:
            raise UnknownQuery(f"instance {self.key.instance_id} has not started yet")
        args, kwargs = handler.signature.decode(payload)
        try:
            with context.loop.entered(), context.reading():
                value = handler.fn(self._instance, *args, **kwargs)
        except NotDurable:
            self.evict()  # or what it set off would go on at the next event, and not on replay
            raise
        return self.definition.encode_result(value, handler.signature.result_hint, self.limits.payload)

    def _info(self) -> WorkflowInfo:
        started = self._started
        assert started is not None
        return WorkflowInfo(
            instance_id=self.key.instance_id,
            run_id=self.run_id,
            namespace=self.key.namespace,
            workflow=started.workflow,
            queue=started.queue,
            number=started.number,
            attempt=started.attempt,
            started_at=started.at,
            history_length=self.seq,
            history_bytes=self.history_bytes,
        )


def _holds(error: BaseException, kinds: tuple[type[BaseException], ...]) -> bool:
    """Whether an exception, or a member of an exception group, is of one of the kinds."""
    if isinstance(error, BaseExceptionGroup):
        return any(_holds(one, kinds) for one in error.exceptions)
    return isinstance(error, kinds)
