"""What workers put into the store and get out of it: plain data."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, NamedTuple
from uuid import UUID

from pydantic_core import to_json

from aioflow.core.commands import ScheduleActivity
from aioflow.core.events import Record
from aioflow.core.keys import InstanceKey


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRow:
    """A start of a worker process; ``lease`` in seconds."""

    worker_id: UUID
    identity: str
    namespace: str = "default"
    queues: tuple[str, ...] = ()
    workflows: tuple[str, ...] = ()
    activities: tuple[str, ...] = ()
    slots: int = 0
    build: str | None = None
    lease: float = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerInfo:
    """A worker process as others see it."""

    worker_id: UUID
    identity: str
    namespace: str
    queues: tuple[str, ...]
    workflows: tuple[str, ...]
    activities: tuple[str, ...]
    slots: int
    build: str | None
    live: bool
    dead: bool
    started_at: datetime
    seen_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedRun:
    """A run that a worker holds by ``token``. ``clock``: read before any load, judges which timers are due.

    ``attempt`` counts claims since the last commit, this one included.
    """

    key: InstanceKey
    run_id: UUID
    workflow: str
    queue: str
    build: str | None
    owner: UUID
    token: UUID
    next_seq: int
    head: UUID | None
    attempt: int
    blocked_reason: str | None
    clock: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """What a run has to consume: ``inbox`` in order, ``timers`` due (as ``TimerFired`` records) by due time.

    Whoever commits names ``gen``: it is what this snapshot held. ``gens`` has the generation of each record of the
    inbox: a commit that consumes only those up to one of them names that one.
    """

    run: ClaimedRun
    gen: int
    next_seq: int
    head: UUID | None
    sealed: bool
    refused: int
    inbox: list[Record]
    gens: list[int]
    timers: list[Record]


class HistoryRef(NamedTuple):
    """Part of a history: events after ``after`` up to ``upto``."""

    shard: int
    run_id: UUID
    upto: int
    after: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NewActivity:
    """An activity to schedule; durations in seconds, ``retry`` as JSON."""

    ref: str
    execution_id: UUID
    activity: str
    queue: str
    payload: bytes | None
    priority: int = 0
    retry: str | None = None
    start_to_close: float | None = None
    schedule_to_start: float | None = None
    schedule_to_close: float | None = None
    heartbeat: float | None = None

    @classmethod
    def of(cls, command: ScheduleActivity) -> NewActivity:
        """The row for a command."""
        return cls(
            ref=command.ref,
            execution_id=command.execution_id,
            activity=command.activity,
            queue=command.queue,
            payload=command.payload,
            priority=command.priority or 0,
            retry=to_json(command.retry).decode() if command.retry is not None else None,
            start_to_close=command.start_to_close,
            schedule_to_start=command.schedule_to_start,
            schedule_to_close=command.schedule_to_close,
            heartbeat=command.heartbeat,
        )


@dataclass(slots=True, kw_only=True)
class Commit:
    """The decision of a workflow task. ``records`` go to history from ``base_seq`` on, in order.

    ``token`` is spent, ``next_token`` installed. ``close`` is the terminal status, or None. ``keep``: stay the
    owner (the run must then be loaded again before anything new is applied, when the outcome's ``wake_gen``
    differs from ``gen``). A commit that schedules anything has at least one record. ``size``: about its bytes.
    """

    key: InstanceKey
    run_id: UUID
    owner: UUID
    token: UUID
    next_token: UUID
    base_seq: int
    gen: int
    records: list[Record] = field(default_factory=list)
    activities: list[NewActivity] = field(default_factory=list)
    cancelled_activities: list[str] = field(default_factory=list)
    timers: list[tuple[str, datetime]] = field(default_factory=list)
    gone_timers: list[str] = field(default_factory=list)
    next_due: datetime | None = None
    close: str | None = None
    keep: bool = False
    size: int = 0


class CommitOutcome(NamedTuple):
    """``ok``; ``refused`` (a close, and something new had arrived: nothing written, still held); ``fenced``.

    ``wake_gen`` and ``clock`` are those under the row lock (None: the run is closed). ``rearmed``: it is claimable
    again at once. ``held``: the run is still the committer's, by the commit's ``token`` when refused, by its
    ``next_token`` when kept.
    """

    status: Literal["ok", "refused", "fenced"]
    wake_gen: int | None
    clock: datetime | None
    rearmed: bool
    held: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseRun:
    """Give a run back, claimable after ``delay`` seconds. ``uncount``: the claim is not counted as an attempt.

    ``alive``: its code ran to an end, so it does not kill workers and crashes before are forgotten. ``harmful``: it
    held up the worker, which counts as one.
    """

    key: InstanceKey
    owner: UUID
    token: UUID
    delay: float = 0.0
    blocked_reason: str | None = None
    uncount: bool = False
    alive: bool = False
    harmful: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedActivity:
    """An attempt that a worker holds by ``token`` (the attempt id). ``attempt`` counts from 1 by the retry policy.

    ``deliveries`` counts claims, crashes included. Durations in seconds, ``retry`` as JSON.
    """

    key: InstanceKey
    run_id: UUID
    ref: str
    execution_id: UUID
    activity: str
    queue: str
    owner: UUID
    token: UUID
    attempt: int
    deliveries: int
    scheduled_at: datetime
    started_at: datetime
    start_to_close: float | None
    schedule_to_close: float | None
    heartbeat_timeout: float | None
    heartbeat: bytes | None
    retry: str | None
    last_failure: bytes | None
    payload: bytes | None
    workflow: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivityOutcome:
    """How an activity ended; ``record`` goes to the inbox and names the attempt token in its attributes.

    ``deadline``: set by whoever times it out; the outcome counts only while that deadline still stands.
    """

    key: InstanceKey
    run_id: UUID
    ref: str
    token: UUID | None
    record: Record
    deadline: datetime | None = None


class Recorded(NamedTuple):
    """Did an outcome count? ``queue``: wake it (None: the run's holder sees it anyway, or nothing was recorded)."""

    recorded: bool
    queue: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivityRetry:
    """A failed attempt that goes back to its queue, claimable after ``delay`` seconds."""

    key: InstanceKey
    run_id: UUID
    ref: str
    token: UUID
    delay: float
    failure: bytes | None
    deadline: datetime | None = None


class RetryOutcome(NamedTuple):
    """``retried``; ``expired`` (it would end after schedule-to-close: end it instead); ``late`` (not ours any more)."""

    status: Literal["retried", "expired", "late"]
    queue: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """A sign of life of an attempt. ``ask``: change nothing, only learn whether it is still ours."""

    shard: int
    run_id: UUID
    ref: str
    token: UUID
    details: bytes | None = None
    ask: bool = False


class HeldActivity(NamedTuple):
    """An attempt to give back."""

    shard: int
    run_id: UUID
    ref: str
    token: UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpiredActivity:
    """An activity whose time is over. ``timeout`` says which; ``token`` is None while it waits for a worker."""

    key: InstanceKey
    run_id: UUID
    ref: str
    execution_id: UUID
    activity: str
    queue: str
    token: UUID | None
    attempt: int
    deadline: datetime
    retry: str | None
    last_failure: bytes | None
    timeout: Literal["schedule_to_close", "schedule_to_start", "start_to_close", "heartbeat"]


class DueClose(NamedTuple):
    """A run to be closed by force; ``kind`` is the timer that ran out (``cancel_grace``, …)."""

    key: InstanceKey
    run_id: UUID
    kind: str
    due_at: datetime


class NextDue(NamedTuple):
    """Seconds until the earliest run and activity are due (0: now; None: nothing known)."""

    runs: float | None
    activities: float | None


class Suspects(NamedTuple):
    """Whether work is due that workers have died with, to be tried alone."""

    runs: bool
    activities: bool


class Quarantined(NamedTuple):
    """A run, or (``activity`` and ``ref`` given) an activity, that is not claimed until an operator releases it."""

    namespace: str
    instance_id: str
    run_id: UUID
    workflow: str | None
    activity: str | None
    ref: str | None
    crashes: int


class Backlog(NamedTuple):
    """Due work of a queue. ``oldest`` in seconds; ``workers`` are live ones that serve it."""

    queue: str
    runs: int
    activities: int
    oldest: float
    workers: int


class Violation(NamedTuple):
    """An invariant that does not hold: its name, the instance or run, what is wrong."""

    invariant: str
    subject: str
    detail: str
