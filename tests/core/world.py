"""The world around one run, simulated in memory: an inbox, a table of activities, timers, a clock, one writer.

`Driver` is what any store and worker do with an execution. `World` makes things happen at random (from one seed) and
commits them in random batches, with evictions, cancel requests, refused closes and messages at bad moments.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any
from uuid import UUID

from aioflow.core import aio, guard
from aioflow.core import events as ev
from aioflow.core.decision import Decision, messages_first, place
from aioflow.core.definition import WorkflowDefinition
from aioflow.core.failure import Failure
from aioflow.core.keys import InstanceKey
from aioflow.core.limits import Limits
from aioflow.core.payload import encode_value
from aioflow.core.registry import workflow_definition
from aioflow.core.replay import Execution
from aioflow.core.versions import decode, encode

START = datetime(2026, 1, 1, tzinfo=UTC)
RUN = UUID("0197a1b2-c3d4-7000-8000-0123456789ab")
KEY = InstanceKey.of("default", "instance")


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def started(definition: WorkflowDefinition, *args: Any, when: datetime = START, seed: str = "seed") -> ev.RunStarted:
    payload = definition.signature.encode(args, {})
    return ev.RunStarted(at=when, payload=payload, workflow=definition.name, queue="default", seed=seed)


def stored(history: Sequence[ev.Event]) -> list[ev.Event]:
    """A history after a way through the store."""
    return [decode(encode(one)) for one in history]


class Driver:
    """One run as store and worker hold it: history and tables, and perhaps an execution in memory."""

    def __init__(self, workflow: type, *, limits: Limits | None = None, run_id: UUID = RUN) -> None:
        aio.install()
        guard.install()  # other tests take them away again
        self.definition = workflow_definition(workflow)
        self.limits, self.run_id = limits, run_id
        self.history: list[ev.Event] = []
        self.decisions: list[Decision] = []
        self.activities: dict[str, Any] = {}
        self.timers: dict[str, datetime] = {}
        self.execution: Execution | None = None
        self.closed: str | None = None

    def loaded(self) -> Execution:
        """The execution: the one in memory, or one replayed from history."""
        if self.execution is None:
            self.execution = Execution(self.definition, KEY, self.run_id, limits=self.limits)
            self.execution.replay(stored(self.history))
        return self.execution

    def evict(self) -> None:
        if self.execution is not None:
            self.execution.evict()
            self.execution = None

    def apply(self, *inputs: ev.Input) -> Decision:
        """Decide and write; a refused decision is decided again, messages first."""
        decision = self.decide(inputs)
        if decision.refused:
            decision = self.decide(messages_first(inputs))
            assert not decision.refused
        self.write(decision)
        return decision

    def decide(self, inputs: Sequence[ev.Input]) -> Decision:
        execution = self.loaded()
        try:
            decision = execution.apply(inputs)
        except BaseException:
            self.execution = None
            raise
        if decision.refused or decision.close:
            assert execution.closed
            self.execution = None
        return decision

    def write(self, decision: Decision) -> None:
        self.history += decision.events
        self.decisions.append(decision)
        self.closed = decision.close
        if decision.close:
            self.activities.clear()
            self.timers.clear()
            return
        assert self.execution is None or self.execution.seq == len(self.history)
        assert not decision.activities.keys() & self.activities.keys(), "scheduled twice"
        assert not decision.timers.keys() & self.timers.keys(), "started twice"
        for ref in decision.cancelled_activities:
            self.activities.pop(ref, None)  # it may have ended, with its outcome on the way
        for ref in decision.gone_timers:
            assert ref in self.timers, "a timer that is not there is gone"
            del self.timers[ref]
        self.activities.update(decision.activities)
        self.timers.update(decision.timers)
        assert decision.next_due == min(self.timers.values(), default=None)

    def start(self, *args: Any) -> Decision:
        return self.apply(started(self.definition, *args))

    def complete(self, ref: str, value: Any, hint: Any = Any, when: float = 1) -> Decision:
        self.activities.pop(ref, None)
        return self.apply(ev.ActivityCompleted(at=at(when), ref=ref, payload=encode_value(value, hint)))

    def fail(self, ref: str, error: BaseException, when: float = 1) -> Decision:
        self.activities.pop(ref, None)
        return self.apply(ev.ActivityFailed(at=at(when), ref=ref, payload=Failure.of(error).to_payload()))

    def fire(self, ref: str) -> Decision:
        return self.apply(ev.TimerFired(at=self.timers[ref], ref=ref))

    def signal(self, name: str, *args: Any, when: float = 1) -> Decision:
        return self.apply(message(name, *args, when=when))

    def cancel(self, reason: str | None = None, when: float = 1) -> Decision:
        return self.apply(ev.CancelRequested(at=at(when), reason=reason))

    def result(self, hint: Any = Any) -> Any:
        """Result of a completed run."""
        from aioflow.core.payload import decode_value

        assert self.closed == "completed", self.failure()
        return decode_value(self.history[-1].payload or b"", hint)

    def failure(self) -> Failure:
        """Failure of a failed run."""
        last = self.history[-1]
        assert isinstance(last, ev.RunFailed), last
        return Failure.from_payload(last.payload or b"")

    def kinds(self) -> list[str]:
        return [one.kind if one.ref is None else f"{one.kind} {one.ref}" for one in self.history]


def message(name: str, *args: Any, when: float = 1, ref: str = "m") -> ev.SignalReceived:
    return ev.SignalReceived(at=at(when), name=name, ref=ref, payload=encode_value(list(args), list))


# -- at random ------------------------------------------------------------------------------------


@dataclass
class Trace:
    """What became of one run: batches as they were applied, what was decided on each."""

    batches: list[list[ev.Input]] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)

    @property
    def inputs(self) -> list[ev.Input]:
        """The inputs that reached history, in order."""
        return [one for decision in self.decisions for one in decision.events if isinstance(one, ev.Input)]

    @property
    def history(self) -> list[ev.Event]:
        return [one for decision in self.decisions for one in decision.events]


FAILURES = [
    Failure.of(ValueError("no")).to_payload(),
    Failure.of(ExceptionGroup("many", [KeyError("k"), OSError("o")])).to_payload(),
]


class World(Driver):
    """Makes things happen to a run until it closes, or nothing more can happen."""

    def __init__(self, workflow: type, seed: int, *args: Any, counts: Counter[str] | None = None) -> None:
        super().__init__(workflow)
        self.random = Random(seed)
        self.now = START
        self.inbox: list[ev.Input] = []
        self.trace = Trace()
        self.counts: Counter[str] = Counter() if counts is None else counts
        self.messages = self.random.choice([0, 2, 5, 9])
        self.cancels = self.random.choice([0, 0, 1, 2])
        if self.random.random() < 0.2:
            self.send()  # to an instance that is only reserved
            self.counts["message before start"] += 1
        self.inbox.append(started(self.definition, *args, when=self.now, seed=str(seed)))
        if self.random.random() < 0.2:
            self.send()

    def play(self, rounds: int = 60) -> Trace:
        for _ in range(rounds):
            self.commit()
            if self.closed:
                break
            if self.random.random() < 0.3:
                self.evict()
                self.counts["evicted"] += 1
            happened = [self.happen() for _ in range(self.random.choice([1, 1, 1, 2, 3, 6]))]
            if not any(happened):
                self.counts["stuck"] += 1
                break
        self.evict()
        self.counts[f"run {self.closed or 'open'}"] += 1
        return self.trace

    # -- what happens -----------------------------------------------------------------------------

    def happen(self) -> bool:
        self.now += timedelta(microseconds=self.random.choice([0, 1, 1000, 900_000, 5_000_000]))
        choices = []
        if self.activities:
            choices += [self.end_activity] * 6
        if self.timers:
            choices += [self.let_time_pass] * 3
        if self.messages:
            choices += [self.send] * 2
        if self.cancels:
            choices.append(self.ask_to_cancel)
        if not choices:
            return bool(self.inbox)
        self.random.choice(choices)()
        return True

    def end_activity(self) -> None:
        ref = self.random.choice(sorted(self.activities))
        command = self.activities.pop(ref)
        how = self.random.random()
        if how < 0.75:
            self.counts["activity completed"] += 1
            value = encode_value("s" if command.activity == "plain" else self.random.randrange(9))
            self.inbox.append(ev.ActivityCompleted(at=self.now, ref=ref, payload=value))
        elif how < 0.9:
            self.counts["activity failed"] += 1
            failure = self.random.choice(FAILURES)
            self.inbox.append(ev.ActivityFailed(at=self.now, ref=ref, payload=failure, attempt=2))
        elif how < 0.95:
            self.counts["activity timed out"] += 1
            self.inbox.append(ev.ActivityTimedOut(at=self.now, ref=ref, timeout="heartbeat"))
        else:
            self.counts["activity cancelled"] += 1
            self.inbox.append(ev.ActivityCancelled(at=self.now, ref=ref))

    def let_time_pass(self) -> None:
        due = min(self.timers.values())
        self.now = max(self.now, due + timedelta(microseconds=self.random.choice([0, 0, 1, 3_000_000])))

    def send(self) -> None:
        self.messages = max(0, self.messages - 1)
        name = self.random.choice(["poke", "poke", "work", "red", "red", "blue", "boom"])
        if name == "boom" and self.random.random() < 0.85:
            name = "poke"
        args = ["bang"] if name == "boom" else [self.random.randrange(3)]
        self.counts[f"signal {name}"] += 1
        payload = encode_value(args, list)
        self.inbox.append(ev.SignalReceived(at=self.now, ref=str(self.messages), name=name, payload=payload))

    def ask_to_cancel(self) -> None:
        self.cancels -= 1
        self.counts["cancel requested"] += 1
        self.inbox.append(ev.CancelRequested(at=self.now, reason="enough"))

    # -- one workflow task ------------------------------------------------------------------------

    def commit(self) -> None:
        due = [ev.TimerFired(at=when, ref=ref) for ref, when in self.timers.items() if when <= self.now]
        if len({one.at for one in due}) < len(due):
            self.counts["timers due at once"] += 1
        batch, self.inbox = place(self.inbox, due), []
        self.counts["batch of several" if len(batch) > 1 else "batch of one"] += 1
        decision = self.decide(batch)
        if decision.refused:
            self.counts["close refused here"] += 1
            batch = messages_first(batch)
            decision = self.decide(batch)
            assert not decision.refused, "refused again"
        elif decision.close and self.messages and self.random.random() < 0.3:
            self.counts["close refused by the store"] += 1
            self.send()
            batch = messages_first([*batch, *self.inbox])
            self.inbox.clear()
            decision = self.decide(batch)
            assert not decision.refused, "refused again"
        for one in batch:
            if isinstance(one, ev.TimerFired) and one not in decision.events:
                self.counts["late fire dropped"] += 1
        self.write(decision)
        self.trace.batches.append(list(batch))
        self.trace.decisions.append(decision)


# -- the same again -------------------------------------------------------------------------------


def again(workflow: type, batches: Sequence[Sequence[ev.Input]], *, cold: bool) -> Driver:
    """Drive a run with the same batches: from one cached execution, or from a replay before each batch."""
    driver = Driver(workflow)
    for batch in batches:
        if cold:
            driver.evict()
        decision = driver.decide(batch)
        driver.write(decision)
    driver.evict()
    return driver


def one_by_one(workflow: type, inputs: Sequence[ev.Input]) -> tuple[Driver, int]:
    """Drive a run with one event per apply until it closes; gives the number of inputs that took."""
    driver = Driver(workflow)
    for position, one in enumerate(inputs):
        driver.write(driver.decide([one]))
        if driver.closed:
            return driver, position + 1
    driver.evict()
    return driver, len(inputs)


def told(event: ev.Event) -> Any:
    """An event for comparison: without the tracebacks and chance contexts of a failure."""
    record = encode(event)
    if isinstance(event, ev.RunFailed) or (isinstance(event, ev.SideEffectRecorded) and event.failed):
        return (*record[:5], _core(Failure.from_payload(event.payload or b"")))
    return tuple(record)


def _core(failure: Failure) -> Any:
    cause = None if failure.cause is None else _core(failure.cause)
    return (failure.type, failure.message, failure.details, cause, [_core(one) for one in failure.errors])


def decided(decision: Decision) -> Any:
    """A decision for comparison."""
    return (
        [told(one) for one in decision.events],
        decision.activities,
        decision.cancelled_activities,
        decision.timers,
        decision.gone_timers,
        decision.next_due,
        decision.close,
        decision.refused,
    )


__all__ = ["Driver", "Trace", "World", "again", "at", "decided", "message", "one_by_one", "started", "told"]
