"""What workflow code asks for, in the imperative. Each command is recorded as one event."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from aioflow.core import events as ev


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """Base of all commands; ``ref`` is its address in the branch tree."""

    ref: str

    def event(self, at: datetime) -> ev.Recorded:
        """The event that records this command."""
        raise NotImplementedError

    @property
    def name(self) -> str | None:
        """What must agree between history and code beside kind and address, None when nothing must."""
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleActivity(Command):
    """Run an activity; durations in seconds, ``retry`` as plain data."""

    activity: str
    execution_id: UUID
    queue: str
    payload: bytes
    retry: dict[str, Any] | None = None
    start_to_close: float | None = None
    schedule_to_start: float | None = None
    schedule_to_close: float | None = None
    heartbeat: float | None = None
    priority: int | None = None

    @property
    def name(self) -> str:
        """Name of the activity."""
        return self.activity

    def event(self, at: datetime) -> ev.ActivityScheduled:
        """Recorded as `ActivityScheduled`."""
        return ev.ActivityScheduled(
            at=at,
            ref=self.ref,
            payload=self.payload,
            activity=self.activity,
            execution_id=self.execution_id,
            queue=self.queue,
            retry=self.retry,
            start_to_close=self.start_to_close,
            schedule_to_start=self.schedule_to_start,
            schedule_to_close=self.schedule_to_close,
            heartbeat=self.heartbeat,
            priority=self.priority,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelActivity(Command):
    """Cancel an activity whose result nobody awaits any more."""

    def event(self, at: datetime) -> ev.ActivityCancelRequested:
        """Recorded as `ActivityCancelRequested`."""
        return ev.ActivityCancelRequested(at=at, ref=self.ref)


@dataclass(frozen=True, slots=True, kw_only=True)
class StartTimer(Command):
    """Wake the run at ``due_at``."""

    due_at: datetime

    def event(self, at: datetime) -> ev.TimerStarted:
        """Recorded as `TimerStarted`."""
        return ev.TimerStarted(at=at, ref=self.ref, due_at=self.due_at)


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelTimer(Command):
    """Forget a timer."""

    def event(self, at: datetime) -> ev.TimerCancelled:
        """Recorded as `TimerCancelled`."""
        return ev.TimerCancelled(at=at, ref=self.ref)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordSideEffect(Command):
    """Keep a value that was made outside of replay, or the failure to make one."""

    payload: bytes
    failed: bool = False

    def event(self, at: datetime) -> ev.SideEffectRecorded:
        """Recorded as `SideEffectRecorded`."""
        return ev.SideEffectRecorded(at=at, ref=self.ref, payload=self.payload, failed=self.failed)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompleteRun(Command):
    """``handle()`` returned."""

    payload: bytes

    def event(self, at: datetime) -> ev.RunCompleted:
        """Recorded as `RunCompleted`."""
        return ev.RunCompleted(at=at, payload=self.payload)


@dataclass(frozen=True, slots=True, kw_only=True)
class FailRun(Command):
    """``handle()`` raised."""

    payload: bytes
    limit: str | None = None

    def event(self, at: datetime) -> ev.RunFailed:
        """Recorded as `RunFailed`."""
        return ev.RunFailed(at=at, payload=self.payload, limit=self.limit)


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelRun(Command):
    """``handle()`` ended with ``CancelledError`` after a cancel request."""

    reason: str | None = None

    def event(self, at: datetime) -> ev.RunCancelled:
        """Recorded as `RunCancelled`."""
        return ev.RunCancelled(at=at, reason=self.reason)
