"""What must hold for every run: however its inputs come together, whatever is in memory, its history is the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from aioflow.core import events as ev
from tests.core.programs import Block, Program
from tests.core.world import Driver, Trace, World, again, decided, one_by_one, told


def check_in_process(program: Block, seed: int, counts: Counter[str] | None = None) -> Trace:
    """Play a program in a random world, then drive it again in every other way; gives what happened."""
    world = World(Program, seed, program, counts=counts)
    trace = world.play()
    expected = [decided(one) for one in trace.decisions]
    for cold in (False, True):
        driver = again(Program, trace.batches, cold=cold)
        assert_same("cold replay" if cold else "cached continuation", map(decided, driver.decisions), expected)
    check_batching(trace)
    check_ids(trace)
    return trace


def check_batching(trace: Trace) -> None:
    """One event per apply, and all in one apply, give the history of the random batches."""
    single, taken = one_by_one(Program, trace.inputs)
    inputs = trace.inputs[:taken]
    history = [told(one) for one in trace.history]
    alone = [told(one) for one in single.history]
    until = len(alone) - (single.closed is not None)
    assert_same("one event per apply", alone[:until], history[:until])
    rest = [one.kind for one in trace.history[until:]]
    if single.closed:
        # What came with the event that closed the run was still applied, and then the run closed alike.
        assert alone[-1][0] == history[-1][0]
        assert _without_time(alone[-1]) == _without_time(history[-1]), "another end"
    else:
        assert not rest, f"more with batches than one by one: {rest}"
    whole = Driver(Program)
    whole.write(whole.decide(inputs))
    whole.evict()
    assert_same("all in one apply", map(told, whole.history), alone)
    assert whole.closed == single.closed
    assert (whole.activities.keys(), whole.timers) == (single.activities.keys(), single.timers), "other tables"


def check_ids(trace: Trace) -> None:
    """No command is recorded twice, and the terminal event is the last one."""
    commands = [(one.kind, one.ref) for one in trace.history if isinstance(one, ev.Recorded)]
    assert len(set(commands)) == len(commands)
    executions = [one.execution_id for one in trace.history if isinstance(one, ev.ActivityScheduled)]
    assert len(set(executions)) == len(executions)
    ends = [position for position, one in enumerate(trace.history) if isinstance(one, ev.Terminal)]
    assert ends in ([], [len(trace.history) - 1])


def assert_same(what: str, found: Any, expected: Sequence[Any]) -> None:
    """Equal, or an AssertionError that shows the first difference only."""
    found = list(found)
    for position, (one, other) in enumerate(zip(found, expected, strict=False)):
        assert one == other, f"{what}: differs at {position}"
    assert len(found) == len(expected), f"{what}: {len(found)} instead of {len(expected)}"


def _without_time(shown: Any) -> Any:
    return [one for position, one in enumerate(shown) if position != 3]


def check_sibling(one: Block, other: Block) -> None:
    """A step put at the end or the beginning of one branch moves no address of the branch beside it."""
    expected = _addresses(one, other)
    for edited in ([*one, ["call", 0]], [["call", 0], *one]):
        assert _addresses(edited, other) == expected, "an edit moved another branch"


def _addresses(one: Block, other: Block) -> list[str]:
    """Addresses of the second of two branches, both run to their end."""
    driver = Driver(Program)
    driver.start([["gather", [one, other], False]])
    while driver.activities:
        ref, command = next(iter(driver.activities.items()))
        driver.complete(ref, "1" if command.activity == "plain" else 1)
    assert driver.closed == "completed"
    return [one.ref for one in driver.history if isinstance(one, ev.Recorded) and (one.ref or "").startswith("0/2")]
