"""The checks of chaos see what they are there for."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from tests.faults.chaos.checks import Event, Evidence, Run, judge, server_errors
from tests.faults.chaos.ledger import Effect, Operation


def call(name: str, instance: str, at: float, fate: Any = "ok", told: Any = None, **facts: Any) -> Operation:
    return Operation("c", int(at), name, instance, facts, fate, told, 1, at, at + 0.5)


def signal(item: str, name: str = "add") -> Event:
    return Event("SignalReceived", item, {"name": name}, [item])


def evidence() -> Evidence:
    """Two runs to which nothing happened."""
    tally = Run(
        "r1",
        "t",
        "Tally",
        "completed",
        [
            signal("s0:0"),
            Event("ActivityScheduled", "1", {"execution_id": "e1"}, None),
            Event("ActivityCompleted", "1", {"attempt_id": "a1"}, "s0:0!"),
            signal("s0:1"),
            Event("ActivityScheduled", "2", {"execution_id": "e2"}, None),
            Event("ActivityCompleted", "2", {"attempt_id": "a2"}, "s0:1!"),
            signal("", "finish"),
            Event("RunCompleted", None, {}, ["s0:0!", "s0:1!"]),
        ],
    )
    victim = Run("r2", "v", "Victim", "cancelled", [Event("CancelRequested", "k", {}, None)])
    calls = [
        call("start", "t", 1, told="r1"),
        call("signal", "t", 2, item="s0:0"),
        call("signal", "t", 3, item="s0:1"),
        call("query", "t", 4, told=["s0:0"]),
        call("result", "t", 5, told=["completed", ["s0:0!", "s0:1!"]]),
        call("start", "v", 1, told="r2"),
        call("cancel", "v", 2),
        call("terminate", "v", 3, fate="info"),
    ]
    effects = [Effect("e1", "a1", 1, 0.0, "stamp", "s0:0"), Effect("e2", "a2", 1, 0.0, "stamp", "s0:1")]
    return Evidence([tally, victim], calls, effects)


def test_nothing_is_wrong_with_what_is_right() -> None:
    assert judge(evidence()) == []


def events(found: Evidence, *order: int) -> None:
    run = found.runs[0]
    run.events = [copy.deepcopy(run.events[n]) for n in order]


def fate(number: int, fate: Any) -> Callable[[Evidence], None]:
    def change(found: Evidence) -> None:
        found.calls[number].fate = fate

    return change


CHANGES: list[tuple[str, Callable[[Evidence], Any]]] = [
    ("acknowledged signal s0:1 is there 0 times", lambda found: events(found, 0, 1, 2, 6, 7)),
    ("acknowledged signal s0:0 is there 2 times", lambda found: events(found, 0, 1, 2, 0, 3, 4, 5, 6, 7)),
    ("was acknowledged before s0:1 was sent", lambda found: events(found, 3, 4, 5, 0, 1, 2, 6, 7)),
    ("refused signal s0:0 is there 1 times", fate(1, "fail")),
    ("nobody has sent s0:1", lambda found: found.calls.pop(2)),
    ("is still running", lambda found: setattr(found.runs[1], "status", "running")),
    ("is known to a caller and not to the database", lambda found: found.runs.pop()),
    ("the start said r1", lambda found: setattr(found.runs[0], "run_id", "r9")),
    ("was started 2 times", lambda found: found.runs.append(Run("r3", "v", "Victim", "cancelled"))),
    ("a query answered", lambda found: setattr(found.calls[3], "told", ["s0:1"])),
    ("a caller got", lambda found: setattr(found.calls[4], "told", ["completed", ["s0:0!"]])),
    ("does not follow from its messages", lambda found: setattr(found.runs[0].events[7], "value", ["s0:1!"])),
    ("does not follow from its messages", lambda found: setattr(found.runs[0].events[7], "value", ["s0:0!"])),
    ("every cancel was refused", fate(6, "fail")),
    ("CancelRequested is there 0 times", lambda found: found.runs[1].events.clear()),
    ("the outcome of an attempt that nobody has seen", lambda found: found.effects.pop()),
    ("activity 1 has 2 outcomes", lambda found: events(found, 0, 1, 2, 2, 3, 4, 5, 6, 7)),
    ("have no outcome", lambda found: events(found, 0, 1, 2, 3, 4, 6, 7)),
    ("ended as failed", lambda found: setattr(found.runs[1], "status", "failed")),
]


@pytest.mark.parametrize(("told", "change"), CHANGES, ids=[told for told, _ in CHANGES])
def test_what_is_wrong_is_seen(told: str, change: Callable[[Evidence], Any]) -> None:
    found = evidence()
    change(found)
    assert any(told in one for one in judge(found)), judge(found)


def test_what_the_server_should_not_say() -> None:
    fine = "x [1] aioflow FATAL:  terminating connection due to administrator command"
    bad = [
        "x [1] aioflow ERROR:  deadlock detected",
        "x [1] a LOG:  process 1 still waiting for ShareLock",
        "x ERROR:  y",
    ]
    assert server_errors("\n".join([fine, *bad])) == bad
