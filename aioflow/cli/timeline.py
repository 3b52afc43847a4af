"""Histories as people read them: when, what, where in the code, and with which values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from datetime import datetime
from typing import Any, NamedTuple

from aioflow.cli.output import cell, clip, json_text, span
from aioflow.client import HistoryEvent
from aioflow.core import events as ev
from aioflow.core.payload import decode_value
from aioflow.errors import DecodeError

__all__ = ["HEADERS", "Line", "event_data", "timeline"]

HEADERS = ("#", "time", "event", "address", "what")
_VALUE = 100
_COMMANDS = ("Activity", "LocalActivity", "Timer", "SideEffect", "Child")


class Line(NamedTuple):
    """One event of a timeline, ready to print."""

    seq: int
    time: str
    kind: str
    address: str
    what: str


def timeline(history: Sequence[HistoryEvent]) -> Iterator[Line]:
    """A line for each event; times count from the first."""
    scheduled: dict[str, ev.ActivityScheduled] = {}
    started: dict[str, ev.TimerStarted] = {}
    first = history[0].at if history else None
    for one in history:
        event = one.event
        if isinstance(event, ev.ActivityScheduled):
            scheduled[event.ref or ""] = event
        elif isinstance(event, ev.TimerStarted):
            started[event.ref or ""] = event
        teller = _TELLERS.get(one.kind, _other)
        before = scheduled.get(event.ref or "") or started.get(event.ref or "")
        address = (event.ref or "") if one.kind.startswith(_COMMANDS) else ""
        what = teller(one, _Before(before, first or one.at))
        yield Line(one.seq, _offset(one.at, first or one.at), one.kind, address, what)


def event_data(one: HistoryEvent) -> dict[str, Any]:
    """An event as plain data, for JSON: all its fields; the payload as ``value`` or ``failure``."""
    data: dict[str, Any] = {"seq": one.seq, "kind": one.kind, "at": one.at, "commit": one.commit}
    if one.event.ref is not None:
        data["ref"] = one.event.ref
    data |= _attributes(one.event)
    if one.event.payload is not None:
        try:
            if (failure := one.failure) is not None:
                data["failure"] = failure
            else:
                data["value"] = one.value()
        except DecodeError as error:
            data["undecodable"] = str(error)
    return data


class _Before(NamedTuple):
    """What an event answers, and when the run began."""

    command: ev.ActivityScheduled | ev.TimerStarted | None
    first: datetime


Teller = Callable[[HistoryEvent, _Before], str]


def _run_started(one: HistoryEvent, before: _Before) -> str:
    event = one.event
    assert isinstance(event, ev.RunStarted)
    number = f", run {event.number} ({event.origin})" if event.number > 1 else ""
    return f"{event.workflow}({_arguments(event)}) on queue {event.queue}{number}"


def _scheduled(one: HistoryEvent, before: _Before) -> str:
    event = one.event
    assert isinstance(event, ev.ActivityScheduled)
    return f"{event.activity}({_arguments(event)})"


def _activity_ended(one: HistoryEvent, before: _Before) -> str:
    event = one.event
    scheduled = before.command
    name = scheduled.activity if isinstance(scheduled, ev.ActivityScheduled) else "activity"
    attempt = getattr(event, "attempt", 1)
    took = f"{span((event.at - scheduled.at).total_seconds())}" if scheduled else ""
    told = ", ".join(filter(None, [took, f"attempt {attempt}" if attempt > 1 else ""]))
    behind = f"  ({told})" if told else ""
    if isinstance(event, ev.ActivityCompleted):
        return f"{name} → {_value(one)}{behind}"
    timeout = f"{event.timeout} timeout" if isinstance(event, ev.ActivityTimedOut) else ""
    return f"{name}: {', '.join(filter(None, [timeout, _failure(one)])) or 'cancelled'}{behind}"


def _timer_started(one: HistoryEvent, before: _Before) -> str:
    event = one.event
    assert isinstance(event, ev.TimerStarted)
    return f"for {span((event.due_at - event.at).total_seconds())}, due at {_offset(event.due_at, before.first)}"


def _signal(one: HistoryEvent, before: _Before) -> str:
    event = one.event
    assert isinstance(event, ev.SignalReceived)
    sender = f"  from {event.identity}" if event.identity else ""
    return f"{event.name}({_arguments(event)}){sender}"


def _side_effect(one: HistoryEvent, before: _Before) -> str:
    return _value(one)


def _run_ended(one: HistoryEvent, before: _Before) -> str:
    after = f"  (after {span((one.at - before.first).total_seconds())})"
    if isinstance(one.event, ev.RunCompleted):
        return f"→ {_value(one)}{after}"
    told = [_failure(one), getattr(one.event, "reason", None), getattr(one.event, "timeout", None)]
    return ", ".join(map(str, filter(None, told))) + after


def _nothing(one: HistoryEvent, before: _Before) -> str:
    return ""


def _other(one: HistoryEvent, before: _Before) -> str:
    told = [f"{name}={value}" for name, value in _attributes(one.event).items()]
    if one.event.payload is not None:
        told.append(_failure(one) or _value(one))
    return clip(" ".join(told), _VALUE * 2)


_TELLERS: dict[str, Teller] = {
    "RunStarted": _run_started,
    "ActivityScheduled": _scheduled,
    "ActivityCompleted": _activity_ended,
    "ActivityFailed": _activity_ended,
    "ActivityTimedOut": _activity_ended,
    "ActivityCancelled": _activity_ended,
    "TimerStarted": _timer_started,
    "TimerFired": _nothing,
    "TimerCancelled": _nothing,
    "SignalReceived": _signal,
    "SideEffectRecorded": _side_effect,
    "RunCompleted": _run_ended,
    "RunFailed": _run_ended,
    "RunCancelled": _run_ended,
    "RunTerminated": _run_ended,
    "RunTimedOut": _run_ended,
}


def _attributes(event: ev.Event) -> dict[str, Any]:
    """The fields of a kind that differ from their default."""
    shared = ("at", "ref", "payload")
    values = ((one, getattr(event, one.name)) for one in fields(event) if one.name not in shared)
    return {one.name: value for one, value in values if value is not None and value != one.default}


def _arguments(event: ev.Event) -> str:
    """The arguments in a payload, as they would stand between parentheses."""
    if event.payload is None:
        return ""
    try:
        given = decode_value(event.payload)
    except DecodeError as error:
        return f"<{error}>"
    named: dict[str, Any] = {}
    if isinstance(given, dict):
        given, named = given.get("args", []), given.get("kwargs", {})
    told = [json_text(value) for value in given] + [f"{name}={json_text(value)}" for name, value in named.items()]
    return clip(cell(", ".join(told)), _VALUE)


def _value(one: HistoryEvent) -> str:
    try:
        return clip(cell(json_text(one.value())), _VALUE)
    except DecodeError as error:
        return f"<{error}>"


def _failure(one: HistoryEvent) -> str:
    try:
        return clip(cell(one.failure), _VALUE) if one.failure else ""
    except DecodeError as error:
        return f"<{error}>"


def _offset(at: datetime, first: datetime) -> str:
    seconds = (at - first).total_seconds()
    return f"+{seconds:.3f} s" if seconds < 600 else f"+{span(seconds)}"
