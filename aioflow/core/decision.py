"""What one workflow task decided: the value that is written once, fenced, by the store.

Also the order in which inputs are applied: as accepted, with due timers placed by their due time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from aioflow.core import commands as cmd
from aioflow.core import events as ev

STATUS: dict[type[ev.Event], str] = {
    ev.RunCompleted: "completed",
    ev.RunFailed: "failed",
    ev.RunCancelled: "cancelled",
    ev.RunContinuedAsNew: "continued_as_new",
    ev.RunTerminated: "terminated",
    ev.RunTimedOut: "timed_out",
}
MESSAGES = (ev.SignalReceived, ev.UpdateAccepted, ev.CancelRequested)


@dataclass(slots=True)
class Decision:
    """Outcome of applying a batch of inputs.

    ``events`` go into history in this order. ``refused`` means that nothing may be written: ``handle()`` returned
    before a message of the same batch was applied, so the batch has to be decided again, messages first. ``applied``
    counts the inputs that were applied; the others come again. ``size`` is about the bytes of the events.
    """

    events: list[ev.Event] = field(default_factory=list)
    activities: dict[str, cmd.ScheduleActivity] = field(default_factory=dict)
    cancelled_activities: list[str] = field(default_factory=list)
    timers: dict[str, datetime] = field(default_factory=dict)
    gone_timers: list[str] = field(default_factory=list)
    next_due: datetime | None = None
    close: str | None = None
    refused: bool = False
    applied: int = 0
    size: int = 0
    problems: list[dict[str, Any]] = field(default_factory=list)

    def take(self, command: cmd.Command) -> None:
        """Net the effect of a command on tables against what this batch did before."""
        ref = command.ref
        match command:
            case cmd.ScheduleActivity():
                self.activities[ref] = command
            case cmd.CancelActivity():
                if self.activities.pop(ref, None) is None:
                    self.cancelled_activities.append(ref)
            case cmd.StartTimer():
                self.timers[ref] = command.due_at
            case cmd.CancelTimer():
                self.timer_gone(ref)

    def timer_gone(self, ref: str) -> None:
        """A timer fired or was cancelled."""
        if self.timers.pop(ref, None) is None:
            self.gone_timers.append(ref)


def place(inputs: Iterable[ev.Input], timers: Iterable[ev.TimerFired]) -> list[ev.Input]:
    """Inputs in the order they are applied.

    ``inputs`` keep their inbox order, but `RunStarted` comes first (messages may reach a reserved instance before its
    start). Each due timer stands after the last input accepted before its due time; inputs are never re-sorted.
    """
    ordered = sorted(inputs, key=lambda one: not isinstance(one, ev.RunStarted))
    placed: list[ev.Input] = []
    taken = 0
    for timer in sorted(timers, key=lambda one: (one.at, one.ref or "")):
        until = max((i + 1 for i, one in enumerate(ordered) if one.at < timer.at), default=0)
        if until > taken:
            placed += ordered[taken:until]
            taken = until
        placed.append(timer)
    return placed + ordered[taken:]


def generation_after(inputs: Sequence[ev.Input], gens: Mapping[int, int], upto: int, applied: int) -> int | None:
    """The generation that is consumed when only the first ``applied`` inputs are; None: no cut can be made there.

    ``gens`` has the generation of each input from the inbox, by its ``id()``; ``upto`` is the one of the whole batch.
    What is left must be just what has a later one, beside due timers, which come again by themselves.
    """
    done = max((gens[id(one)] for one in inputs[:applied] if id(one) in gens), default=None)
    left = min((gens[id(one)] for one in inputs[applied:] if id(one) in gens), default=None)
    if left is None:
        return upto
    return left - 1 if done is None or done < left else None


def messages_first(inputs: Sequence[ev.Input]) -> list[ev.Input]:
    """The order for deciding a refused batch again: start, then signals, updates and cancels, then the rest."""

    def rank(one: ev.Input) -> int:
        return 0 if isinstance(one, ev.RunStarted) else 1 if isinstance(one, MESSAGES) else 2

    return sorted(inputs, key=rank)
