"""When a failed activity is tried again."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioflow.core.durations import optional_seconds, seconds
from aioflow.core.failure import Failure
from aioflow.core.retry import RetryPolicy
from aioflow.errors import ApplicationError, DecodeError

FAILURE = Failure.of(ValueError("x"))


def delays(policy: RetryPolicy, count: int, jitter: float = 0.0) -> list[float | None]:
    return [policy.next_delay(n, FAILURE, lambda: jitter) for n in range(1, count + 1)]


def test_the_default_backs_off_for_ever() -> None:
    assert delays(RetryPolicy(), 9) == [1, 2, 4, 8, 16, 32, 64, 100, 100]
    assert RetryPolicy().next_delay(10**6, FAILURE, lambda: 0.0) == 100


def test_jitter_only_shortens() -> None:
    assert delays(RetryPolicy(jitter=0.5), 3, 0.5) == [0.75, 1.5, 3.0]
    assert delays(RetryPolicy(jitter=0.0), 3, 0.9) == [1, 2, 4]


def test_the_number_of_attempts() -> None:
    assert delays(RetryPolicy(max_attempts=3), 4) == [1, 2, None, None]
    assert delays(RetryPolicy(max_attempts=1), 1) == [None]


def test_intervals() -> None:
    policy = RetryPolicy(initial_interval=timedelta(milliseconds=100), max_interval=0.3, backoff=3)
    assert delays(policy, 3) == [0.1, pytest.approx(0.3), 0.3]
    assert delays(RetryPolicy(initial_interval=0), 2) == [0, 0]
    assert RetryPolicy(initial_interval=0).next_delay(10**6, FAILURE, lambda: 0.0) == 0.0
    assert delays(RetryPolicy(initial_interval=500), 1) == [100]


class Declined(Exception):
    pass


class Worse(Declined):
    pass


def raised(exc: BaseException, cause: BaseException | None = None) -> Failure:
    exc.__cause__ = cause
    return Failure.of(exc)


@pytest.mark.parametrize(
    ("kinds", "failure", "again"),
    [
        ((Declined,), raised(Declined()), False),
        ((Declined,), raised(Worse()), False),
        ((Worse,), raised(Declined()), True),
        (("Declined",), raised(Worse()), False),
        (("Refused",), raised(ApplicationError("x", type="Refused")), False),
        ((ApplicationError,), raised(ApplicationError("x", type="Refused")), False),
        ((Declined,), raised(RuntimeError(), Worse()), False),
        ((Declined,), raised(ExceptionGroup("g", [ValueError(), Worse()])), False),
        ((Exception,), raised(ValueError()), False),
        ((), raised(ApplicationError("x", non_retryable=True)), False),
        ((KeyError, "Other"), raised(ValueError()), True),
    ],
)
def test_types_that_end_the_retries(kinds: tuple[Any, ...], failure: Failure, again: bool) -> None:
    policy = RetryPolicy(non_retryable=kinds)
    stored = RetryPolicy.from_data(json.loads(json.dumps(policy.to_data())))
    back = Failure.from_payload(failure.to_payload())
    assert policy.retries(failure, 1) is again
    assert stored.retries(back, 1) is again
    assert (stored.next_delay(1, back, lambda: 0.0) is not None) is again


def test_what_was_handled_does_not_count() -> None:
    exc = ValueError()
    exc.__context__ = Declined()
    assert RetryPolicy(non_retryable=(Declined,)).retries(Failure.of(exc), 1)


def test_a_failure_may_ask_for_its_own_delay() -> None:
    failure = Failure.of(ApplicationError("later", next_retry_delay=7))
    assert RetryPolicy(max_attempts=2).next_delay(1, failure, lambda: 0.9) == 7.0
    assert RetryPolicy(max_attempts=2).next_delay(2, failure, lambda: 0.9) is None


@pytest.mark.parametrize(
    ("given_", "error"),
    [
        ({"initial_interval": -1}, ValueError),
        ({"initial_interval": "1s"}, TypeError),
        ({"max_interval": float("nan")}, ValueError),
        ({"backoff": 0.5}, ValueError),
        ({"backoff": float("inf")}, ValueError),
        ({"backoff": True}, TypeError),
        ({"jitter": 1.1}, ValueError),
        ({"jitter": -0.1}, ValueError),
        ({"max_attempts": -1}, ValueError),
        ({"max_attempts": 1.0}, TypeError),
        ({"max_attempts": True}, TypeError),
        ({"non_retryable": "Declined"}, TypeError),
        ({"non_retryable": Declined}, TypeError),
        ({"non_retryable": (3,)}, TypeError),
        ({"non_retryable": (int,)}, TypeError),
        ({"non_retryable": ("",)}, TypeError),
    ],
)
def test_values_that_make_no_sense(given_: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error, match=next(iter(given_))):
        RetryPolicy(**given_)
    if "max_attempts" not in given_ and error is ValueError:
        with pytest.raises(DecodeError):
            RetryPolicy.from_data(given_)


policies = st.builds(
    RetryPolicy,
    initial_interval=st.floats(0, 1e4) | st.integers(0, 10**4) | st.timedeltas(timedelta(0), timedelta(days=9)),
    backoff=st.floats(1, 1e3),
    max_interval=st.floats(0, 1e6),
    max_attempts=st.integers(0, 50),
    jitter=st.floats(0, 1),
    non_retryable=st.lists(st.sampled_from([KeyError, "Refused"]), max_size=3).map(tuple),
)


@settings(max_examples=200, deadline=None)
@given(policies, st.integers(1, 10**6), st.floats(0, 1, exclude_max=True))
def test_delays_are_within_bounds(policy: RetryPolicy, attempt: int, chance: float) -> None:
    assert RetryPolicy.from_data(json.loads(json.dumps(policy.to_data()))) == policy
    delay = policy.next_delay(attempt, FAILURE, lambda: chance)
    if delay is None:
        assert 0 < policy.max_attempts <= attempt
    else:
        assert 0 <= delay <= seconds(policy.max_interval)


def test_stored_policies() -> None:
    assert RetryPolicy.from_data(None) == RetryPolicy()
    assert RetryPolicy.from_data({"max_attempts": 2, "later": 1}) == RetryPolicy(max_attempts=2)
    assert hash(RetryPolicy()) == hash(RetryPolicy())
    with pytest.raises(DecodeError):
        RetryPolicy.from_data({"non_retryable": 3})


def test_durations() -> None:
    assert seconds(timedelta(minutes=1.5)) == 90.0
    assert seconds(3) == 3.0
    assert seconds(0.25) == 0.25
    assert seconds(0) == 0.0
    assert optional_seconds(None, "x") is None
    for value in (True, "3", None, 3j):
        with pytest.raises(TypeError, match="the wait is a timedelta or a number"):
            seconds(value, "the wait")  # type: ignore[arg-type]
    for number in (-1, float("nan"), float("inf"), 10**400, timedelta.max, timedelta(microseconds=-1)):
        with pytest.raises(ValueError, match="the wait"):
            seconds(number, "the wait")
    with pytest.raises(ValueError, match="more than zero"):
        optional_seconds(0, "x")
