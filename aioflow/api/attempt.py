"""What code of an activity may know and say about the attempt it runs in."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from threading import Event
from typing import TYPE_CHECKING, Any
from uuid import UUID

from aioflow.errors import NotInActivity

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivityInfo:
    """Facts about the attempt at hand.

    ``execution_id`` is stable over retries and crashes: hand it to remote systems as the idempotency key.
    ``attempt_id`` is new for every attempt, ``attempt`` counts them from 1. ``heartbeat_details`` are those
    the last attempt left. Times are aware UTC by the database's clock.
    """

    execution_id: UUID
    attempt_id: UUID
    attempt: int
    activity: str
    instance_id: str
    run_id: UUID
    workflow: str
    queue: str
    namespace: str = "default"
    heartbeat_details: tuple[Any, ...] = ()
    scheduled_at: datetime | None = None
    started_at: datetime | None = None
    start_to_close: float | None = None
    heartbeat_timeout: float | None = None


@dataclass(slots=True)
class ActivityContext:
    """What a worker sets around an attempt, in the context variable `ATTEMPT`.

    ``heartbeat`` takes the details of one heartbeat, from any thread, and does not wait. ``cancelled`` is set
    when the attempt shall stop; async activities get ``CancelledError`` beside.
    """

    info: ActivityInfo
    heartbeat: Callable[[tuple[Any, ...]], None]
    cancelled: Event = field(default_factory=Event)
    logger: FilteringBoundLogger | None = None


ATTEMPT: ContextVar[ActivityContext] = ContextVar("aioflow_attempt")


def attempt(what: str) -> ActivityContext:
    """The attempt this code runs in; raises `NotInActivity` naming ``what`` outside of one."""
    context = ATTEMPT.get(None)
    if context is None:
        raise NotInActivity(f"{what} works only inside a running activity")
    return context
