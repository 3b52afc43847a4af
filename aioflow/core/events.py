"""Every event a history can hold: its kind, version and fields.

An event is what happened, in the past tense. *Inputs* reach a run from outside (inbox or timer) and are applied
to its code one at a time; *recorded* events note what the code decided while the input before them was applied;
*terminal* events close the run. Kinds that later features fill have their shape already, so that histories
written today and tomorrow agree.

Shapes only grow: a field is never renamed, retyped or removed, its default never changes. A change that old readers
cannot bear is a new ``VERSION`` together with an upcaster (`aioflow.core.versions`). Fields that hold their default are
not stored.

Shared fields: ``at`` (aware UTC; the time the event was accepted or decided), ``ref`` (the address of the command it
belongs to, or the id of a message), ``payload`` (at most one value of the user, as an encoded frame).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from aioflow.core.event import KINDS, Event, Forced, Input, Record, Recorded, Terminal

__all__ = ["KINDS", "Event", "Forced", "Input", "Record", "Recorded", "Terminal"]

# -- the run --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted(Input):
    """First event of every run; ``payload`` holds the arguments.

    ``seed`` feeds all randomness of the run and is copied by a reset; ``origin`` says why the run exists:
    ``start``, ``continue_as_new``, ``retry``, ``reset``, ``schedule``, ``child``. Timeouts and delays in seconds.
    """

    workflow: str
    queue: str
    seed: str
    number: int = 1
    origin: str = "start"
    build: str | None = None
    identity: str | None = None
    headers: dict[str, str] | None = None
    previous_run_id: UUID | None = None
    parent_instance_id: str | None = None
    parent_run_id: UUID | None = None
    parent_ref: str | None = None
    schedule_id: str | None = None
    nominal_at: datetime | None = None
    execution_deadline: datetime | None = None
    run_timeout: float | None = None
    start_delay: float | None = None
    retry: dict[str, Any] | None = None
    attempt: int = 1
    memo: str | None = None
    search_attributes: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCompleted(Terminal):
    """``handle()`` returned; ``payload`` is its result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFailed(Terminal):
    """``handle()`` raised; ``payload`` is the failure. ``limit`` names a structural limit that was broken."""

    limit: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCancelled(Terminal):
    """``handle()`` ended with ``CancelledError`` after a cancel request."""

    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContinuedAsNew(Terminal):
    """The instance goes on in another run; ``payload`` holds the new arguments."""

    next_run_id: UUID
    workflow: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTerminated(Forced):
    """Closed by ``origin``: ``terminate``, ``cancel_grace``, ``terminate_existing``, ``parent``, ``reset``."""

    reason: str | None = None
    origin: str = "terminate"
    identity: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTimedOut(Forced):
    """Closed by a timeout; ``timeout`` is ``run`` or ``execution``."""

    timeout: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReset(Recorded):
    """Ends the prefix that a reset copied from another run."""

    source_run_id: UUID
    source_seq: int
    reason: str | None = None
    identity: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelRequested(Input):
    """Cancellation was asked for; reaches ``handle()`` as ``CancelledError``. ``grace`` in seconds."""

    reason: str | None = None
    identity: str | None = None
    grace: float | None = None
    deadline: datetime | None = None
    lineage: list[str] | None = None


# -- activities -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivityScheduled(Recorded):
    """An activity was asked for; ``ref`` is its address, ``payload`` its arguments. Durations in seconds."""

    activity: str
    execution_id: UUID
    queue: str
    retry: dict[str, Any] | None = None
    start_to_close: float | None = None
    schedule_to_start: float | None = None
    schedule_to_close: float | None = None
    heartbeat: float | None = None
    priority: int | None = None
    headers: dict[str, str] | None = None
    session: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivityCompleted(Input):
    """The activity returned; ``payload`` is its result, ``attempt_id`` the attempt that got through."""

    attempt_id: UUID | None = None
    attempt: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivityFailed(Input):
    """The last attempt raised; ``payload`` is the failure."""

    attempt_id: UUID | None = None
    attempt: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivityTimedOut(Input):
    """A timeout ran out for good; ``payload`` is the last failure, if there was one."""

    timeout: str
    attempt_id: UUID | None = None
    attempt: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivityCancelled(Input):
    """The activity confirmed its cancellation."""

    attempt_id: UUID | None = None
    attempt: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivityCancelRequested(Recorded):
    """The awaiting branch was cancelled; ``policy``: ``try``, ``wait`` or ``abandon``."""

    policy: str = "try"


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalActivityRecorded(Recorded):
    """A local activity ran inside the workflow task; ``payload`` is its result or failure."""

    activity: str
    execution_id: UUID
    failed: bool = False
    attempt: int = 1


# -- timers ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerStarted(Recorded):
    """A timer was set; ``due_at`` is never early, to the microsecond."""

    due_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerFired(Input):
    """The timer's time came; ``at`` is the time it was due."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerCancelled(Recorded):
    """The timer is no longer wanted."""


# -- messages -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalReceived(Input):
    """A signal was accepted; ``ref`` is the signal's id, ``payload`` its arguments."""

    name: str
    identity: str | None = None
    headers: dict[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateAccepted(Input):
    """An update was accepted; ``ref`` is the update's id, ``payload`` its arguments."""

    name: str
    identity: str | None = None
    headers: dict[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateCompleted(Recorded):
    """The update's handler ended; ``payload`` is its result, or the failure when ``failed``."""

    failed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateRejected(Recorded):
    """The update's validator refused it before anything changed; ``payload`` is the failure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalExternalRequested(Recorded):
    """A signal to another instance; ``payload`` holds its arguments."""

    instance_id: str
    name: str
    namespace: str | None = None
    key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalExternalResolved(Input):
    """The outcome of a signal to another instance; ``error`` is None when it was accepted."""

    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelExternalRequested(Recorded):
    """A cancel request to another instance."""

    instance_id: str
    namespace: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelExternalResolved(Input):
    """The outcome of a cancel request to another instance."""

    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageEmitted(Recorded):
    """An item was appended to an output stream of the run."""

    stream: str
    offset: int


# -- children -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildScheduled(Recorded):
    """A child was asked for; ``payload`` holds its arguments."""

    workflow: str
    instance_id: str
    run_id: UUID
    queue: str | None = None
    conflict: str | None = None
    reuse: str | None = None
    parent_close: str = "request_cancel"
    cancellation: str = "try"
    retry: dict[str, Any] | None = None
    execution_timeout: float | None = None
    run_timeout: float | None = None
    headers: dict[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildStarted(Input):
    """The child exists; ``error`` says why not otherwise."""

    run_id: UUID | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildCompleted(Input):
    """The child returned; ``payload`` is its result."""

    run_id: UUID | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildFailed(Input):
    """The child ended without a result; ``status`` as in the run table, ``payload`` its failure if any."""

    status: str
    run_id: UUID | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildCancelRequested(Recorded):
    """The branch awaiting the child was cancelled."""

    policy: str = "try"
    reason: str | None = None


# -- recorded values ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class SideEffectRecorded(Recorded):
    """The value of ``side_effect()``, or its failure when ``failed``; resolved at once, live and on replay."""

    failed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionMarked(Recorded):
    """The version of a change the run was given; ``change`` is its id."""

    change: str
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoUpserted(Recorded):
    """Notes for people; ``payload`` holds the changed entries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchAttributesUpserted(Recorded):
    """Search attributes changed; None deletes."""

    attributes: dict[str, Any]
