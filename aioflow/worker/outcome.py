"""What follows from the end of an attempt: the activity's outcome, or another attempt. Pure."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from pydantic_core import from_json

from aioflow.core import events as ev
from aioflow.core.failure import Failure
from aioflow.core.retry import RetryPolicy
from aioflow.core.versions import encode
from aioflow.errors import DecodeError
from aioflow.store.rows import ActivityOutcome, ActivityRetry, ClaimedActivity, ExpiredActivity

__all__ = ["Ending", "completed", "expired", "failed", "timed_out"]

Random = Callable[[], float]
FINAL = ("schedule_to_close", "schedule_to_start")


class Ending(NamedTuple):
    """``retry`` if there is time for it; else, or when the retry comes too late to run, ``final``."""

    retry: ActivityRetry | None
    final: ActivityOutcome


def policy_of(text: str | None) -> RetryPolicy:
    """The stored retry policy; the default one when it cannot be read, since a broken one must not end anything."""
    try:
        return RetryPolicy.from_data(from_json(text)) if text else RetryPolicy()
    except (DecodeError, ValueError):
        return RetryPolicy()


def completed(row: ClaimedActivity, payload: bytes) -> Ending:
    """The activity returned."""
    event = ev.ActivityCompleted(
        at=row.started_at, ref=row.ref, payload=payload, attempt_id=row.token, attempt=row.attempt
    )
    return Ending(None, _outcome(row, event))


def failed(row: ClaimedActivity, failure: Failure, random: Random) -> Ending:
    """The attempt raised."""
    payload = failure.to_payload()
    event = ev.ActivityFailed(
        at=row.started_at, ref=row.ref, payload=payload, attempt_id=row.token, attempt=row.attempt
    )
    delay = policy_of(row.retry).next_delay(row.attempt, failure, random)
    return Ending(_retry(row, row.token, delay, payload, None), _outcome(row, event))


def timed_out(row: ClaimedActivity, timeout: str, random: Random) -> Ending:
    """The attempt ran into ``timeout`` in this process."""
    return _late(row, timeout, row.started_at, None, random)


def expired(row: ExpiredActivity, random: Random) -> Ending:
    """The time of an activity ran out, whoever held it."""
    return _late(row, row.timeout, row.deadline, row.deadline, random)


def _late(
    row: ClaimedActivity | ExpiredActivity,
    timeout: str,
    at: datetime,
    deadline: datetime | None,
    random: Random,
) -> Ending:
    event = ev.ActivityTimedOut(
        at=at,
        ref=row.ref,
        payload=row.last_failure,
        timeout=timeout,
        attempt_id=row.token,
        attempt=row.attempt,
    )
    final = _outcome(row, event, deadline)
    if timeout in FINAL or row.token is None:
        return Ending(None, final)
    failure = Failure(
        type="ActivityTimedOut",
        message=f"attempt {row.attempt} ran into its {timeout} timeout",
        bases=("ActivityTimedOut", "TimeoutError"),
    )
    delay = policy_of(row.retry).next_delay(row.attempt, failure, random)
    return Ending(_retry(row, row.token, delay, failure.to_payload(), deadline), final)


def _outcome(
    row: ClaimedActivity | ExpiredActivity, event: ev.Input, deadline: datetime | None = None
) -> ActivityOutcome:
    return ActivityOutcome(
        key=row.key, run_id=row.run_id, ref=row.ref, token=row.token, record=encode(event), deadline=deadline
    )


def _retry(
    row: ClaimedActivity | ExpiredActivity,
    token: UUID,
    delay: float | None,
    failure: bytes,
    deadline: datetime | None,
) -> ActivityRetry | None:
    if delay is None:
        return None
    return ActivityRetry(
        key=row.key,
        run_id=row.run_id,
        ref=row.ref,
        token=token,
        delay=delay,
        failure=failure,
        deadline=deadline,
    )
