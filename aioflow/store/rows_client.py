"""What callers put into the store and get out of it: plain data."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, NamedTuple
from uuid import UUID

from aioflow.core.events import Record
from aioflow.core.keys import InstanceKey

Conflict = Literal["fail", "use_existing", "terminate_existing"]
Reuse = Literal["allow", "allow_failed_only", "reject"]


def key_of(row: Any) -> InstanceKey:
    """The key in a row's columns shard, namespace, instance_id."""
    return InstanceKey(row["shard"], row["namespace"], row["instance_id"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Keyed:
    """A request with a key: the same key has one effect. ``keep``: seconds, None as long as the instance is kept.

    ``alone``: key or id were chosen by the caller; then inserting them may wait for somebody else, so the item
    goes in a transaction of its own. Items with generated ids and keys may share one.
    """

    namespace: str
    instance_id: str
    key: str | None = None
    digest: bytes | None = None
    keep: float | None = None
    alone: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRequest(Keyed):
    """Start a run; ``record`` is its ``RunStarted``."""

    run_id: UUID
    workflow: str
    queue: str
    record: Record
    build: str | None = None
    priority: int = 0
    conflict: Conflict = "fail"
    reuse: Reuse = "allow"


class StartOutcome(NamedTuple):
    """What became of a start. ``run_id``: the run started, used, or in the way (None: only reserved).

    ``started``, ``existing`` (use_existing found an open one), ``exists`` (refused, open), ``closed`` (refused by
    the reuse policy), ``conflict`` (request key with another body), ``unknown_namespace``. ``again``: an earlier
    call did it.
    """

    outcome: Literal["started", "existing", "exists", "closed", "conflict", "unknown_namespace"]
    run_id: UUID | None
    again: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ReserveRequest(Keyed):
    """Reserve an instance id; signals are taken from then on. Give a key, else a second try finds it taken."""

    workflow: str
    queue: str
    priority: int = 0
    reuse: Reuse = "allow"


class ReserveOutcome(NamedTuple):
    """What became of a reservation; ``run_id`` of what is in the way (None: another reservation)."""

    outcome: Literal["reserved", "exists", "closed", "conflict", "unknown_namespace"]
    run_id: UUID | None
    again: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalRequest(Keyed):
    """Deliver a signal; ``record`` is its ``SignalReceived`` (its time is set by the database)."""

    record: Record


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelRequest(Keyed):
    """Ask for cancellation; ``record`` is its ``CancelRequested``. After ``grace`` seconds the run is terminated."""

    record: Record
    grace: float | None = None


class DeliveryOutcome(NamedTuple):
    """What became of a delivery. ``ready``: the run may be claimed, so waking ``queue`` helps.

    ``accepted``, ``duplicate`` (the key, or the cancel request, was there before), ``conflict`` (key with another
    body), ``closing`` (come back soon), ``full`` (too many signals wait), ``closed``, ``unknown``,
    ``unknown_namespace``.
    """

    outcome: Literal["accepted", "duplicate", "conflict", "closing", "full", "closed", "unknown", "unknown_namespace"]
    run_id: UUID | None
    queue: str | None
    ready: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminateRequest(Keyed):
    """Close a run by force. ``record`` is the terminal event, ``commit`` a new id; ``run_id`` None: the current."""

    record: Record
    commit: UUID
    status: str = "terminated"
    run_id: UUID | None = None


class TerminateOutcome(NamedTuple):
    """``closed`` (done now), ``already`` (closed before), ``duplicate``, ``conflict``, ``unknown``, …"""

    outcome: Literal["closed", "already", "duplicate", "conflict", "unknown", "unknown_namespace"]
    run_id: UUID | None


class ReleaseOutcome(NamedTuple):
    """``released``; ``idle`` (nothing of it was in quarantine); ``closed``; ``unknown``. Queues may be woken."""

    outcome: Literal["released", "idle", "closed", "unknown"]
    run_id: UUID | None
    run_queue: str | None
    activity_queues: tuple[str, ...]


class InstanceRef(NamedTuple):
    """An instance, and one run of it (None: the current or last one)."""

    key: InstanceKey
    run_id: UUID | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """What is known of a run. ``status`` is ``reserved`` before it started; the open part is None when closed."""

    key: InstanceKey
    workflow: str
    queue: str
    status: str
    run_id: UUID | None
    current_run_id: UUID | None
    number: int | None
    run_count: int
    build: str | None
    created_at: datetime
    started_at: datetime | None
    closed_at: datetime | None
    cancel_requested_at: datetime | None
    history_length: int
    open: bool
    inbox: int = 0
    activities: int = 0
    timers: int = 0
    attempt: int = 0
    blocked_reason: str | None = None
    crashes: int = 0
    quarantined: bool = False
    sealed: bool = False
    paused: bool = False
    worker: str | None = None
    visible_at: datetime | None = None
    served: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingActivity:
    """An activity without an outcome. ``token`` is the running attempt, None while it waits.

    ``crashes``: workers that died with it in a row; ``quarantined``: too many, it waits to be released.
    """

    ref: str
    execution_id: UUID
    activity: str
    queue: str
    token: UUID | None
    attempt: int
    deliveries: int
    scheduled_at: datetime
    started_at: datetime | None
    visible_at: datetime
    deadline: datetime | None
    heartbeat_at: datetime | None
    last_failure: bytes | None
    worker: str | None
    crashes: int = 0
    quarantined: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """One line of a list of instances."""

    key: InstanceKey
    workflow: str
    queue: str
    run_id: UUID | None
    number: int | None
    status: str
    started_at: datetime
    closed_at: datetime | None
    blocked_reason: str | None
    attempt: int | None


class Page(NamedTuple):
    """Where the next page of a list begins: after this instance."""

    started_at: datetime
    instance_id: str


class StoredEvent(NamedTuple):
    """An event of a history with its place and the commit that wrote it."""

    seq: int
    commit: UUID
    record: Record


class ResultRow(NamedTuple):
    """How a run stands; ``record`` is its terminal event, None while it is open (or ``reserved``)."""

    run_id: UUID | None
    workflow: str | None
    status: str
    record: Record | None


class Generations(NamedTuple):
    """How far an open instance is: everything up to ``wake`` was accepted, up to ``ack`` consumed."""

    wake: int
    ack: int
    run_id: UUID | None
    next_seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DefinitionRow:
    """What workers tell of a workflow, for callers that only know names."""

    namespace: str
    workflow: str
    queue: str
    signals: tuple[str, ...] = ()
    queries: tuple[str, ...] = ()
    open_signals: bool = False
