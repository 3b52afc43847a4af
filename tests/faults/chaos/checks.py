"""What has to be true when all faults are over: rows, histories, results and ledgers against each other."""

from __future__ import annotations

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import asyncpg
from pydantic_core import from_json

from aioflow.core.payload import unframe
from aioflow.store.pool import Database
from aioflow.store.store import Store
from tests.faults.chaos.flows import Pipeline
from tests.faults.chaos.ledger import Effect, Effects, Operation, read_calls

ENDS: Final = ("ActivityCompleted", "ActivityFailed", "ActivityTimedOut", "ActivityCancelled")


@dataclass
class Event:
    """An event of a history."""

    kind: str
    ref: str | None
    attrs: dict[str, Any]
    value: Any


@dataclass
class Run:
    """A run with its history."""

    run_id: str
    instance: str
    workflow: str
    status: str
    events: list[Event] = field(default_factory=list)

    def of(self, kind: str) -> list[Event]:
        """Its events of a kind."""
        return [one for one in self.events if one.kind == kind]

    def items(self, name: str) -> list[tuple[str, str | None]]:
        """Argument and reference of each signal of a name, in order."""
        found = [one for one in self.of("SignalReceived") if one.attrs.get("name") == name]
        return [(one.value[0], one.ref) for one in found]


@dataclass
class Evidence:
    """Everything there is to look at."""

    runs: list[Run]
    calls: list[Operation]
    effects: list[Effect]


async def gather(dsn: str, folder: Path) -> Evidence:
    """Read all of it."""
    connection = await asyncpg.connect(dsn)
    try:
        rows = await connection.fetch("select run_id, instance_id, workflow, status from aioflow.run")
        runs = {r["run_id"]: Run(str(r["run_id"]), r["instance_id"], r["workflow"], r["status"]) for r in rows}
        for r in await connection.fetch("select * from aioflow.history order by run_id, seq"):
            value = None
            if r["payload"] is not None and r["kind"] in ("SignalReceived", "RunCompleted", "ActivityCompleted"):
                value = from_json(unframe(r["payload"]))
            event = Event(r["kind"], r["ref"], from_json(r["attrs"]) if r["attrs"] else {}, value)
            runs[r["run_id"]].events.append(event)
    finally:
        await connection.close()
    return Evidence(list(runs.values()), read_calls(folder), Effects(folder).read())


async def broken_rows(dsn: str) -> list[str]:
    """What a doctor would find."""
    async with await Database.connect(dsn, max_size=1) as db:
        return [f"invariant {one.invariant}: {one.subject}: {one.detail}" for one in await Store(db).invariants()]


def judge(found: Evidence) -> list[str]:
    """Everything that contradicts what was promised to callers."""
    wrong = [f"{run.instance} is still {run.status}" for run in found.runs if run.status == "running"]
    by_instance: dict[str, list[Operation]] = defaultdict(list)
    runs_of: dict[str, list[Run]] = defaultdict(list)
    for run in found.runs:
        runs_of[run.instance].append(run)
    for call in found.calls:
        by_instance[call.instance].append(call)
    for instance, calls in by_instance.items():
        wrong += _starts(instance, calls, runs_of[instance])
        for run in runs_of[instance]:
            wrong += _signals(run, calls)
            wrong += _ends(run, calls)
            wrong += _results(run, calls)
    wrong += _activities(found)
    return wrong


# -- what callers asked for -----------------------------------------------------------------------


def _starts(instance: str, calls: Sequence[Operation], runs: Sequence[Run]) -> Iterable[str]:
    starts = [one for one in calls if one.name == "start"]
    if len(runs) > 1:
        yield f"{instance} was started {len(runs)} times"
    for one in starts:
        if one.fate == "ok" and [run.run_id for run in runs] != [one.told]:
            yield f"{instance}: the start said {one.told}, there is {[run.run_id for run in runs]}"
        if one.fate == "fail":
            yield f"{instance}: a start with its own key was refused: {one.told}"
    if any(one.fate == "ok" for one in calls) and not runs:
        yield f"{instance} is known to a caller and not to the database"


def _signals(run: Run, calls: Sequence[Operation]) -> Iterable[str]:
    name = {"Tally": "add", "Bell": "ring"}.get(run.workflow)
    if name is None:
        return
    received = [item for item, _ in run.items(name)]
    times = Counter(received)
    sent: dict[str, list[Operation]] = defaultdict(list)
    for one in calls:
        if one.name == "signal":
            sent[one.facts["item"]].append(one)
    for item, tries in sent.items():
        fates = {one.fate for one in tries}
        if "ok" in fates and times[item] != 1:
            yield f"{run.instance}: the acknowledged signal {item} is there {times[item]} times"
        elif fates == {"fail"} and times[item] != 0:
            yield f"{run.instance}: the refused signal {item} is there {times[item]} times"
        elif times[item] > 1:
            yield f"{run.instance}: the signal {item} of unknown fate is there {times[item]} times"
    for item in times.keys() - sent.keys():
        yield f"{run.instance}: nobody has sent {item}"
    yield from _order(run, received, sent)


def _order(run: Run, received: list[str], sent: dict[str, list[Operation]]) -> Iterable[str]:
    """Whoever sends the next one after the answer to the last finds them in that order."""
    place = {item: n for n, item in enumerate(received)}
    known = sorted(
        (min(one.end for one in tries if one.fate == "ok"), min(one.at for one in tries), item)
        for item, tries in sent.items()
        if any(one.fate == "ok" for one in tries)
    )
    senders: dict[str, list[tuple[float, float, str]]] = defaultdict(list)
    for end, at, item in known:
        senders[item.split(":")[0]].append((end, at, item))
    for mine in senders.values():
        for (end, _, first), (_, at, second) in itertools.pairwise(mine):
            if end <= at and place.get(first, -1) > place.get(second, len(place)):
                yield f"{run.instance}: {first} was acknowledged before {second} was sent, and comes after it"


def _ends(run: Run, calls: Sequence[Operation]) -> Iterable[str]:
    for name, kind in (("cancel", "CancelRequested"), ("terminate", "RunTerminated")):
        fates = {one.fate for one in calls if one.name == name}
        times = len(run.of(kind))
        if ("ok" in fates and times != 1) or times > 1:
            yield f"{run.instance}: {name} was {sorted(fates)}, and {kind} is there {times} times"
        if fates and fates <= {"fail"} and times:
            yield f"{run.instance}: every {name} was refused, and {kind} is there"
        if not fates and times and kind == "RunTerminated":
            yield f"{run.instance}: nobody has terminated it"


def _results(run: Run, calls: Sequence[Operation]) -> Iterable[str]:
    completed = run.of("RunCompleted")
    for one in calls:
        if one.name == "result" and one.fate == "ok":
            status, value = one.told
            if status != run.status or (completed and value != completed[0].value):
                yield f"{run.instance}: a caller got {one.told}, the history says {run.status}"
        elif one.name == "query" and one.fate == "ok":
            items = [item for item, _ in run.items("add")]
            if one.told != items[: len(one.told)]:
                yield f"{run.instance}: a query answered {one.told}, and the history has {items}"
    if completed:
        yield from _right(run, completed[0].value, calls)
    elif run.status not in ("cancelled", "terminated", "running"):
        yield f"{run.instance} ended as {run.status}: {run.events[-1].attrs}"


def _right(run: Run, value: Any, calls: Sequence[Operation]) -> Iterable[str]:
    """The result is the one of a run to which nothing happens, with the same messages in the same order."""
    items = [item for item, _ in run.items({"Tally": "add", "Bell": "ring"}.get(run.workflow, ""))]
    if run.workflow == "Pipeline":
        starts = [one for one in calls if one.name == "start"]
        right = bool(starts) and value == Pipeline.result_of(*starts[0].facts["args"])
    elif run.workflow == "Tally":
        signals = [one.attrs.get("name") for one in run.of("SignalReceived")]
        before = signals.index("finish") if "finish" in signals else 0
        right = value == [f"{item}!" for item in items][: len(value)] and len(value) >= before
    elif run.workflow == "Bell":
        right = value == items[: len(value)]
    else:
        right = value == f"{run.instance}!"
    if not right:
        yield f"{run.instance}: the result {value} does not follow from its messages {items}"


# -- activities -----------------------------------------------------------------------------------


def _activities(found: Evidence) -> Iterable[str]:
    attempts: dict[str, set[str]] = defaultdict(set)
    for effect in found.effects:
        attempts[effect.execution].add(effect.attempt)
    for run in found.runs:
        scheduled = {one.ref: one.attrs["execution_id"] for one in run.of("ActivityScheduled")}
        ended = Counter(one.ref for one in run.events if one.kind in ENDS)
        for ref, times in ended.items():
            if times > 1:
                yield f"{run.instance}: activity {ref} has {times} outcomes"
        for one in run.of("ActivityCompleted"):
            execution = scheduled.get(one.ref, "")
            if one.attrs["attempt_id"] not in attempts[execution]:
                yield f"{run.instance}: activity {one.ref} has the outcome of an attempt that nobody has seen"
        if run.status == "completed" and ended.keys() != scheduled.keys() and run.workflow != "Bell":
            yield f"{run.instance} completed, and {scheduled.keys() - ended.keys()} have no outcome"


# -- the server -----------------------------------------------------------------------------------

_BAD: Final = re.compile(r"deadlock detected|still waiting for|lock timeout|PANIC|invalid page|could not read")
_EXPECTED: Final = re.compile(
    r"terminating connection|canceling statement due to user request|connection to client lost|unexpected EOF"
)


def server_errors(log: str) -> list[str]:
    """Lines of the server's log that should not be there."""
    lines = log.splitlines()
    bad = [line for line in lines if _BAD.search(line)]
    return bad + [line for line in lines if " ERROR: " in line and not _BAD.search(line) and not _EXPECTED.search(line)]
