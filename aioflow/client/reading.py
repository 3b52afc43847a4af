"""What a client can see: descriptions, lists and histories, as plain data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from aioflow.core.events import Event
from aioflow.core.failure import Failure
from aioflow.core.keys import InstanceKey
from aioflow.core.payload import decode_value
from aioflow.core.versions import decode
from aioflow.errors import InstanceNotFound
from aioflow.store import rows
from aioflow.store.store import Store

_PAGE = 1000
_SHOWN = 100  # pending activities in a description
_FAILURES = frozenset(
    {"RunFailed", "ActivityFailed", "ActivityTimedOut", "ChildFailed", "UpdateRejected"}
)  # events whose payload is a failure


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingActivity:
    """An activity of an open run that has no outcome yet. ``attempt`` counts from 1.

    ``running`` tells whether a worker has it; else it waits until ``next_attempt_at`` or later. ``crashes``: workers
    that died with it in a row; ``quarantined``: too many, it waits until it is released.
    """

    name: str
    ref: str
    execution_id: UUID
    queue: str
    attempt: int
    running: bool
    worker: str | None
    scheduled_at: datetime
    started_at: datetime | None
    next_attempt_at: datetime
    heartbeat_at: datetime | None
    last_failure: Failure | None
    crashes: int
    quarantined: bool

    @classmethod
    def of(cls, row: rows.PendingActivity) -> PendingActivity:
        """From a row of the store."""
        return cls(
            name=row.activity,
            ref=row.ref,
            execution_id=row.execution_id,
            queue=row.queue,
            attempt=row.attempt,
            running=row.token is not None,
            worker=row.worker,
            scheduled_at=row.scheduled_at,
            started_at=row.started_at,
            next_attempt_at=row.visible_at,
            heartbeat_at=row.heartbeat_at,
            last_failure=Failure.from_payload(row.last_failure) if row.last_failure else None,
            crashes=row.crashes,
            quarantined=row.quarantined,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """How an instance stands. All times are aware UTC.

    ``status``: ``reserved``, ``running``, ``completed``, ``failed``, ``cancelled``, ``terminated``, ``timed_out`` or
    ``continued_as_new``. ``waiting_for`` says in words what an open run waits for, ``blocked_reason`` why its code
    cannot go on just now. ``crashes``: workers that died in a row while they ran its code; ``quarantined``: too many,
    it waits until it is released. ``served``: a live worker serves its queue. ``run_id`` is None while only reserved;
    ``number`` counts the runs of the instance, from 1.
    """

    instance_id: str
    namespace: str
    workflow: str
    queue: str
    status: str
    run_id: UUID | None
    number: int | None
    run_count: int
    build: str | None
    created_at: datetime
    started_at: datetime | None
    closed_at: datetime | None
    cancel_requested_at: datetime | None
    history_length: int
    open: bool
    unconsumed: int
    timers: int
    activities: int
    pending: tuple[PendingActivity, ...]
    next_wake_at: datetime | None
    worker: str | None
    served: bool
    attempt: int
    blocked_reason: str | None
    crashes: int
    quarantined: bool
    waiting_for: str | None

    @classmethod
    def of(cls, row: rows.Description, pending: Sequence[rows.PendingActivity]) -> Description:
        """From rows of the store; ``pending`` may hold only the first of many."""
        activities = tuple(map(PendingActivity.of, pending))
        return cls(
            instance_id=row.key.instance_id,
            namespace=row.key.namespace,
            workflow=row.workflow,
            queue=row.queue,
            status=row.status,
            run_id=row.run_id,
            number=row.number,
            run_count=row.run_count,
            build=row.build,
            created_at=row.created_at,
            started_at=row.started_at,
            closed_at=row.closed_at,
            cancel_requested_at=row.cancel_requested_at,
            history_length=row.history_length,
            open=row.open,
            unconsumed=row.inbox,
            timers=row.timers,
            activities=row.activities,
            pending=activities,
            next_wake_at=row.visible_at,
            worker=row.worker,
            served=row.served,
            attempt=row.attempt,
            blocked_reason=row.blocked_reason,
            crashes=row.crashes,
            quarantined=row.quarantined,
            waiting_for=_waiting_for(row, activities),
        )


def _waiting_for(row: rows.Description, pending: Sequence[PendingActivity]) -> str | None:
    if not row.open:
        return None
    if row.run_id is None:
        return "its start"
    if row.paused:
        return "being resumed"
    if row.quarantined:
        return f"being released: {row.blocked_reason}"
    if row.worker is not None:
        return f"nothing: worker {row.worker} runs its code"
    if not row.served and (row.inbox or row.blocked_reason):
        return f"a worker: none serves queue {row.queue!r}"
    if row.blocked_reason is not None:
        return f"code that fits: {row.blocked_reason}"
    if row.inbox:
        return f"a worker of queue {row.queue!r}"
    things = [_activity_text(one) for one in pending[:3]]
    if row.activities > 3:
        things.append(f"{row.activities - 3} more activities")
    if row.timers:
        until = f" until {row.visible_at.isoformat(timespec='seconds')}" if row.visible_at else ""
        things.append(f"{row.timers} timers{until}" if row.timers > 1 else f"a timer{until}")
    return ", ".join(things) or "a signal or a condition"


def _activity_text(one: PendingActivity) -> str:
    attempt = f", attempt {one.attempt}" if one.attempt > 1 else ""
    state = "running" if one.running else "in quarantine" if one.quarantined else "waiting"
    return f"activity {one.name} ({state}{attempt})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """One line of a list of instances; fields as in `Description`."""

    instance_id: str
    namespace: str
    workflow: str
    queue: str
    status: str
    run_id: UUID | None
    number: int | None
    started_at: datetime
    closed_at: datetime | None
    blocked_reason: str | None

    @classmethod
    def of(cls, row: rows.Summary) -> Summary:
        """From a row of the store."""
        return cls(
            instance_id=row.key.instance_id,
            namespace=row.key.namespace,
            workflow=row.workflow,
            queue=row.queue,
            status=row.status,
            run_id=row.run_id,
            number=row.number,
            started_at=row.started_at,
            closed_at=row.closed_at,
            blocked_reason=row.blocked_reason,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryEvent:
    """One event of a history: its place from 1, and the event. ``commit`` is shared by what was written together."""

    seq: int
    commit: UUID
    event: Event

    @classmethod
    def of(cls, stored: rows.StoredEvent) -> HistoryEvent:
        """From a row of the store; raises `DecodeError` for an event of a newer aioflow."""
        return cls(seq=stored.seq, commit=stored.commit, event=decode(stored.record))

    @property
    def kind(self) -> str:
        """Name of the event kind, such as ``ActivityScheduled``."""
        return self.event.kind

    @property
    def at(self) -> datetime:
        """When it was accepted or decided."""
        return self.event.at

    @property
    def failure(self) -> Failure | None:
        """The failure this event carries, if its kind carries one."""
        payload = self.event.payload
        failed = self.kind in _FAILURES or getattr(self.event, "failed", False)
        return Failure.from_payload(payload) if failed and payload else None

    def value(self, hint: Any = Any) -> Any:
        """The event's payload as plain data, or as the type ``hint`` names; None without one."""
        payload = self.event.payload
        return None if payload is None else decode_value(payload, hint)


# -- asking the store -----------------------------------------------------------------------------


async def describe(store: Store, key: InstanceKey, run_id: UUID | None) -> Description:
    """How an instance (or one run of it) stands; raises `InstanceNotFound`."""
    row = await store.describe(key, run_id)
    if row is None:
        raise _missing(key, run_id)
    busy = row.open and row.activities and row.run_id is not None
    pending = await store.pending_activities(key.shard, row.run_id, _SHOWN) if busy and row.run_id else []
    return Description.of(row, pending)


async def history(store: Store, key: InstanceKey, run_id: UUID | None) -> list[HistoryEvent]:
    """All events of a run, of the current one by default; raises `InstanceNotFound`, `DecodeError`."""
    row = await store.describe(key, run_id)
    if row is None:
        raise _missing(key, run_id)
    if row.run_id is None:
        return []
    return [HistoryEvent.of(one) for one in await read_all(store, key, row.run_id)]


async def read_all(store: Store, key: InstanceKey, run_id: UUID) -> list[rows.StoredEvent]:
    """A whole history as stored. It ends at a commit: a short page is the last, and a page is one snapshot."""
    events: list[rows.StoredEvent] = []
    while True:
        page = await store.read_history(key, run_id, events[-1].seq if events else 0, _PAGE)
        events += page
        if len(page) < _PAGE:
            return events


def _missing(key: InstanceKey, run_id: UUID | None) -> InstanceNotFound:
    what = f"run {run_id} of instance" if run_id else "instance"
    return InstanceNotFound(f"there is no {what} {key.instance_id!r} in namespace {key.namespace!r}")
