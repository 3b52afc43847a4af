"""What follows from the end of an attempt: an outcome or another attempt."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest

from aioflow.core.failure import Failure
from aioflow.core.keys import InstanceKey
from aioflow.core.versions import decode
from aioflow.store.rows import ClaimedActivity, ExpiredActivity
from aioflow.worker.outcome import completed, expired, failed, timed_out

NOW = datetime(2030, 1, 1, tzinfo=UTC)
ROW = ClaimedActivity(
    key=InstanceKey.of("default", "i"),
    run_id=uuid4(),
    ref="0:a1",
    execution_id=uuid4(),
    activity="charge",
    queue="default",
    owner=uuid4(),
    token=uuid4(),
    attempt=2,
    deliveries=2,
    scheduled_at=NOW,
    started_at=NOW,
    start_to_close=1.0,
    schedule_to_close=None,
    heartbeat_timeout=None,
    heartbeat=None,
    retry='{"max_attempts": 3, "initial_interval": 4, "jitter": 0.5}',
    last_failure=b"before",
    payload=b"",
    workflow="W",
)


def half() -> float:
    return 0.5


def test_a_result_is_final() -> None:
    ending = completed(ROW, b"payload")
    event: Any = decode(ending.final.record)
    assert ending.retry is None
    assert (event.kind, event.payload, event.attempt_id, event.attempt) == (
        "ActivityCompleted",
        b"payload",
        ROW.token,
        2,
    )


def test_a_failure_is_retried_by_the_policy() -> None:
    ending = failed(ROW, Failure(type="OSError"), half)
    assert ending.retry is not None
    assert ending.retry.delay == 8 * 0.75
    last = failed(replace(ROW, attempt=3), Failure(type="OSError"), half)
    assert last.retry is None
    assert last.final.record.kind == "ActivityFailed"
    asked = failed(ROW, Failure(type="OSError", next_retry_delay=0.5), half)
    assert asked.retry is not None
    assert asked.retry.delay == 0.5


@pytest.mark.parametrize("retry", [None, "{", '{"backoff": 0}'])
def test_without_a_readable_policy_the_usual_one_holds(retry: str | None) -> None:
    ending = failed(replace(ROW, attempt=50, retry=retry), Failure(type="OSError"), half)
    assert ending.retry is not None
    assert ending.retry.delay == 100 * 0.95


def test_timeouts_of_an_attempt_are_retried_those_of_the_whole_are_not() -> None:
    assert timed_out(ROW, "start_to_close", half).retry is not None
    assert timed_out(ROW, "schedule_to_close", half).retry is None
    final: Any = decode(timed_out(replace(ROW, attempt=3), "heartbeat", half).final.record)
    assert (final.kind, final.timeout, final.payload) == ("ActivityTimedOut", "heartbeat", b"before")


def test_a_sweep_names_the_deadline_it_saw() -> None:
    row = ExpiredActivity(
        key=ROW.key,
        run_id=ROW.run_id,
        ref=ROW.ref,
        execution_id=ROW.execution_id,
        activity="charge",
        queue="default",
        token=ROW.token,
        attempt=1,
        deadline=NOW,
        retry=None,
        last_failure=None,
        timeout="start_to_close",
    )
    ending = expired(row, half)
    assert ending.retry is not None
    assert ending.retry.deadline == ending.final.deadline == NOW
    waiting = expired(replace(row, token=None, timeout="schedule_to_start"), half)
    assert waiting.retry is None
    assert waiting.final.token is None
