"""Mistakes planted into the runtime, each of which the properties must find."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from aioflow.core import events as ev
from aioflow.core import groups
from aioflow.core.branch import Branch
from aioflow.core.context import Context
from aioflow.core.loop import WorkflowLoop
from aioflow.core.replay import Execution
from aioflow.core.resolve import resolve

Mutant = Callable[[pytest.MonkeyPatch], None]


def resolved_at_once(patch: pytest.MonkeyPatch) -> None:
    """On replay an activity resolves when it is scheduled, from whatever the history holds."""
    replay, schedule = Execution._replay, Context.schedule_activity
    outcomes: dict[str, ev.Event] = {}

    def replaying(self: Execution, history: Sequence[ev.Event]) -> None:
        outcomes.clear()
        outcomes.update((one.ref or "", one) for one in history if isinstance(one, ev.ActivityCompleted))
        replay(self, history)

    def scheduling(self: Context, *args: Any) -> Any:
        future: Any = schedule(self, *args)
        if self.replaying and (outcome := outcomes.get(future.ref)) is not None:
            resolve(self, outcome)
        return future

    patch.setattr(Execution, "_replay", replaying)
    patch.setattr(Context, "schedule_activity", scheduling)


def hashes_of_the_process(patch: pytest.MonkeyPatch) -> None:
    """Tasks and futures hash as addresses do, alike in no two drives, and groups keep their members in plain sets."""
    generator = random.Random(1)
    patch.setattr(WorkflowLoop, "next_sequence", lambda self: generator.getrandbits(40))
    patch.setattr(groups, "OrderedSet", set)


def batch_together(patch: pytest.MonkeyPatch) -> None:
    """Code runs once per batch, when all of its inputs are resolved."""
    apply, step = Execution._apply, Execution._step
    left = {"inputs": 0}

    def applying(self: Execution, inputs: Sequence[ev.Input], *rest: Any) -> Any:
        left["inputs"] = len(inputs)
        return apply(self, inputs, *rest)

    def stepping(self: Execution, context: Context, event: ev.Event) -> None:
        left["inputs"] -= 1
        loop: Any = context.loop
        if left["inputs"] > 0 and not isinstance(event, ev.RunStarted):
            loop.drain = lambda: None
            try:
                step(self, context, event)
            finally:
                del loop.drain
        else:
            step(self, context, event)

    patch.setattr(Execution, "_apply", applying)
    patch.setattr(Execution, "_step", stepping)


def cut_per_batch(patch: pytest.MonkeyPatch) -> None:
    """Start and cancel vanish together within a batch, and not only within one event."""
    apply, cut = Execution._apply, Context.cut
    left = {"inputs": 0}

    def applying(self: Execution, inputs: Sequence[ev.Input], *rest: Any) -> Any:
        left["inputs"] = len(inputs)
        return apply(self, inputs, *rest)

    def cutting(self: Context) -> Any:
        left["inputs"] -= 1
        return [] if left["inputs"] > 0 and not self.replaying else cut(self)

    patch.setattr(Execution, "_apply", applying)
    patch.setattr(Context, "cut", cutting)


def process_wide_ids(patch: pytest.MonkeyPatch) -> None:
    """Addresses come from one counter of the process."""
    counter = itertools.count(1)
    patch.setattr(Branch, "command_id", lambda self, kind: f"{self.path}:{kind}{next(counter)}")


def wall_clock(patch: pytest.MonkeyPatch) -> None:
    """``now()`` is the time of the machine."""
    ticks, begin = itertools.count(), datetime(2026, 1, 1, tzinfo=UTC)
    patch.setattr(Context, "now", lambda self: begin + timedelta(milliseconds=next(ticks)))


def unseeded(patch: pytest.MonkeyPatch) -> None:
    """Randomness is the process's own."""
    seeds = itertools.count()
    patch.setattr(Context, "random", lambda self: random.Random(next(seeds)))


def shared_randomness(patch: pytest.MonkeyPatch) -> None:
    """All runs of the process draw from one generator."""
    generator = random.Random(1)
    patch.setattr(Context, "random", lambda self: generator)


def forgotten_side_effects(patch: pytest.MonkeyPatch) -> None:
    """Side effects run again on replay."""

    def side_effect(self: Context, fn: Callable[[], Any], hint: Any) -> Any:
        replaying, self.replaying = self.replaying, False
        self.recorded.clear()
        try:
            return original(self, lambda: next(values), hint)
        finally:
            self.replaying = replaying

    original, values = Context.side_effect, itertools.count()
    patch.setattr(Context, "side_effect", side_effect)


def conditions_per_batch(patch: pytest.MonkeyPatch) -> None:
    """Conditions are tried at the end of a batch only."""
    apply, attempt = Execution._apply, WorkflowLoop._try_conditions
    left = {"inputs": 0}

    def applying(self: Execution, inputs: Sequence[ev.Input], *rest: Any) -> Any:
        left["inputs"] = len(inputs)
        return apply(self, inputs, *rest)

    def drained(self: Execution, context: Context, event: ev.Event) -> None:
        left["inputs"] -= 1
        step(self, context, event)

    step = Execution._step
    patch.setattr(Execution, "_apply", applying)
    patch.setattr(Execution, "_step", drained)
    patch.setattr(WorkflowLoop, "_try_conditions", lambda self: left["inputs"] <= 0 and attempt(self))


def late_fires_kept(patch: pytest.MonkeyPatch) -> None:
    """The fire of a timer that is gone goes into history like any other."""

    class Everything(dict[str, datetime]):
        def __contains__(self, ref: object) -> bool:
            return True

    init = Context.__init__

    def starting(self: Context, *args: Any) -> None:
        init(self, *args)
        self.timers = Everything()

    patch.setattr(Context, "__init__", starting)


MUTANTS: dict[str, Mutant] = {
    fn.__name__: fn
    for fn in (
        resolved_at_once,
        hashes_of_the_process,
        batch_together,
        cut_per_batch,
        process_wide_ids,
        wall_clock,
        unseeded,
        shared_randomness,
        forgotten_side_effects,
        conditions_per_batch,
        late_fires_kept,
    )
}
