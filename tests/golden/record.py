"""Records the history of a golden workflow, once: ``python -m tests.golden.record FLOW SEED``.

A history that is there is never written again: what was stored once must replay for ever.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import anyio._backends._asyncio  # noqa: F401  # loads it, so that its scopes can be diverted

from aioflow.core import events as ev
from aioflow.core import scopes
from aioflow.core.failure import Failure
from aioflow.core.payload import encode_value
from tests.core.histories import to_json
from tests.core.world import START, Driver, started
from tests.golden.flows import FLOWS, Order

HISTORIES = Path(__file__).parent / "histories"
ARGUMENTS: dict[str, tuple[Any, ...]] = {"order": (Order(id="o-1", amount=5),), "decide": (5,)}
MESSAGES: dict[str, list[tuple[str, list[Any]]]] = {
    "order": [("note", ["first"]), ("approve", ["ann"]), ("gift", ["box"]), ("note", ["second"])],
    "cancel": [("!cancel", [])],
}


def play(name: str, seed: int) -> Driver:
    """Drive a flow to its end: activities and messages at random, a timer when nothing else is left or by chance."""
    driver, random = Driver(FLOWS[name]), Random(seed)
    time, messages = START, list(MESSAGES.get(name, ()))
    driver.apply(started(driver.definition, *ARGUMENTS.get(name, ()), seed=f"golden-{seed}"))
    while not driver.closed:
        time += timedelta(microseconds=random.randrange(1, 3_000_000))
        due = [ev.TimerFired(at=when, ref=ref) for ref, when in driver.timers.items() if when <= time]
        inputs: list[ev.Input] = sorted(due, key=lambda one: (one.at, one.ref or ""))
        choices = [*driver.activities] * 2 + ["!message"] * bool(messages)
        if choices and random.random() < 0.8:
            choice = random.choice(choices)
            inputs.append(
                message(*messages.pop(0), time) if choice == "!message" else end(driver, choice, time, random)
            )
        elif not inputs and driver.timers:
            time = min(driver.timers.values())
        if inputs:
            driver.apply(*inputs)
        if random.random() < 0.3:
            driver.evict()
    return driver


def message(name: str, args: list[Any], time: Any) -> ev.Input:
    if name == "!cancel":
        return ev.CancelRequested(at=time, reason="enough", grace=30.0)
    return ev.SignalReceived(at=time, ref=f"{name}-{len(args)}", name=name, payload=encode_value(args, list))


def end(driver: Driver, ref: str, time: Any, random: Random) -> ev.Input:
    activity = driver.activities.pop(ref).activity
    if driver.definition.name == "golden.fail":
        failure = Failure.of(random.choice([ValueError("no"), ExceptionGroup("many", [KeyError("k")])]))
        return ev.ActivityFailed(at=time, ref=ref, payload=failure.to_payload(), attempt=3)
    value = {"golden.charge": "paid", "golden.reserve": ["a", "b"]}.get(activity, random.randrange(100))
    return ev.ActivityCompleted(at=time, ref=ref, payload=encode_value(value))


def untraced(event: ev.Event) -> ev.Event:
    """An event without tracebacks, which hold the paths of one machine."""
    if isinstance(event, ev.RunFailed) or (isinstance(event, ev.SideEffectRecorded) and event.failed):
        failure = _untraced(Failure.from_payload(event.payload or b""))
        return replace(event, payload=failure.to_payload())
    return event


def _untraced(failure: Failure) -> Failure:
    cause, context = failure.cause and _untraced(failure.cause), failure.context and _untraced(failure.context)
    return replace(failure, traceback="", cause=cause, context=context, errors=tuple(map(_untraced, failure.errors)))


def main(name: str, seed: str) -> None:
    scopes.install()
    history = play(name, int(seed)).history
    with (HISTORIES / f"{name}-{seed}.json").open("x", encoding="utf-8") as file:
        file.write("[\n" + ",\n".join(json.dumps(row) for row in to_json(map(untraced, history))) + "\n]\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
