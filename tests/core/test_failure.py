"""Exceptions as data: nothing an exception does keeps it from being told."""

from __future__ import annotations

import asyncio
import dataclasses
import decimal
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, TypeAdapter

from aioflow.core.failure import MAX_DEPTH, MAX_MESSAGE, MAX_NODES, Failure
from aioflow.core.plain import plain
from aioflow.errors import (
    ActivityFailed,
    ApplicationError,
    DecodeError,
    PayloadTooLarge,
    RemoteError,
    WorkflowFailed,
)


class Declined(Exception):
    def __init__(self, *, code: int, reason: str) -> None:
        self.code, self.reason = code, reason
        self.connection = object()
        self._secret = "hunter2"


class Worse(Declined, LookupError):
    pass


class BrokenText(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


class BrokenAll(ApplicationError):
    def __getattribute__(self, name: str) -> Any:
        if name in ("type", "details", "message", "non_retryable", "next_retry_delay", "__dict__", "errors"):
            raise RuntimeError(name)
        return super().__getattribute__(name)


def caught(fn: Callable[[], Any]) -> BaseException:
    try:
        fn()
    except BaseException as exc:
        return exc
    raise AssertionError("nothing was raised")


def told(exc: BaseException) -> Failure:
    """A failure after its way through the store."""
    failure = Failure.of(exc)
    back = Failure.from_payload(failure.to_payload())
    assert back == failure
    return back


def declined() -> None:
    raise Worse(code=5, reason="limit")


def wrapped() -> None:
    try:
        declined()
    except Exception as exc:
        raise ValueError("payment") from exc


def test_required_keyword_arguments() -> None:
    failure = told(caught(declined))
    assert (failure.type, failure.message) == ("Worse", "")
    assert failure.details == {"code": 5, "reason": "limit"}
    assert failure.bases == ("Worse", "Declined", "LookupError", "Exception")
    assert "raise Worse(code=5" in failure.traceback
    assert str(failure) == "Worse"


def test_a_chain_of_causes() -> None:
    def outer() -> None:
        try:
            wrapped()
        except ValueError as exc:
            raise RuntimeError("order") from exc

    failure = told(caught(outer))
    assert [str(one) for one in failure.chain()] == ["RuntimeError: order", "ValueError: payment", "Worse"]
    error = failure.to_error()
    assert isinstance(error, RemoteError)
    assert str(error) == "RuntimeError: order"
    cause = error.__cause__
    assert isinstance(cause, RemoteError)
    assert isinstance(cause.__cause__, RemoteError)
    assert cause.__cause__.details == {"code": 5, "reason": "limit"}
    assert "in wrapped" in cause.traceback


def test_what_was_handled_is_not_a_cause() -> None:
    def implicit() -> None:
        try:
            declined()
        except Exception:
            raise KeyError("k")  # noqa: B904  # the point

    def hidden() -> None:
        try:
            declined()
        except Exception:
            raise KeyError("k") from None

    failure = told(caught(implicit))
    assert failure.cause is None
    assert failure.context is not None
    assert failure.context.type == "Worse"
    error = failure.to_error()
    assert error.__cause__ is None
    assert isinstance(error.__context__, RemoteError)
    clean = told(caught(hidden))
    assert clean.cause is None
    assert clean.context is None


def test_exception_groups() -> None:
    inner = ExceptionGroup("inner", [KeyError("k")])
    failure = told(ExceptionGroup("three", [caught(declined), caught(wrapped), inner]))
    assert (failure.type, failure.message) == ("ExceptionGroup", "three")
    assert [str(one) for one in failure.errors] == ["Worse", "ValueError: payment", "ExceptionGroup: inner"]
    error = failure.to_error()
    assert error.errors[0].details == {"code": 5, "reason": "limit"}
    assert isinstance(error.errors[1].__cause__, RemoteError)
    assert str(error.errors[2].errors[0]) == "KeyError: 'k'"


def test_application_errors_say_more() -> None:
    failure = told(
        ApplicationError("no", type="Refused", details={"a": [1, None]}, non_retryable=True, next_retry_delay=3)
    )
    assert (failure.type, failure.message, failure.details) == ("Refused", "no", {"a": [1, None]})
    assert failure.non_retryable
    assert failure.next_retry_delay == 3.0
    error = failure.to_error()
    assert (error.type, error.details, error.non_retryable) == ("Refused", {"a": [1, None]}, True)
    assert told(ApplicationError("no")).type == "ApplicationError"
    for delay in (-1, float("nan"), float("inf"), "soon", True):
        assert told(ApplicationError("no", next_retry_delay=delay)).next_retry_delay is None  # type: ignore[arg-type]


def test_a_verdict_survives_being_wrapped() -> None:
    def wrap(exc: BaseException, *, explicit: bool) -> BaseException:
        def run() -> None:
            try:
                raise exc
            except BaseException as inner:
                if explicit:
                    raise RuntimeError("outer") from inner
                raise RuntimeError("outer")  # noqa: B904  # the point

        return caught(run)

    final = ApplicationError("no", non_retryable=True, next_retry_delay=2)
    assert told(wrap(wrap(final, explicit=True), explicit=True)).non_retryable
    assert told(wrap(final, explicit=True)).next_retry_delay == 2.0
    assert not told(wrap(ApplicationError("no", non_retryable=True), explicit=False)).non_retryable
    assert told(ExceptionGroup("g", [ValueError(), final])).non_retryable
    assert told(PayloadTooLarge("x")).non_retryable
    assert not told(ValueError("x")).non_retryable


def test_remote_errors_stay_what_they_were() -> None:
    remote = told(caught(wrapped)).to_error()
    failed = ActivityFailed("activity charge failed: ValueError: payment", cause=remote, activity="charge")

    def handle() -> None:
        raise failed

    failure = told(caught(handle))
    assert [one.type for one in failure.chain()] == ["ActivityFailed", "ValueError", "Worse"]
    assert failure.message == "activity charge failed: ValueError: payment"
    assert failure.details == {"activity": "charge", "execution_id": None}
    assert failure.cause is not None
    assert "in wrapped" in failure.cause.traceback
    error = WorkflowFailed("run failed", cause=failure.to_error())
    assert error.type == "ActivityFailed"
    assert isinstance(error.__cause__, RemoteError)
    assert str(error.__cause__.__cause__) == "ValueError: payment"


def cycle() -> BaseException:
    first, second = ValueError("a"), ValueError("b")
    first.__cause__, second.__cause__ = second, first
    first.__context__ = first
    return first


def endless() -> BaseException:
    exc: BaseException = ValueError("end")
    for n in range(3_000):
        outer = ValueError(f"{n} " + "m" * 100_000 if n > 2_990 else str(n))
        outer.__cause__, exc = exc, outer
    return exc


@pytest.mark.parametrize(
    "exc",
    [
        BrokenText(),
        BrokenAll("x"),
        cycle(),
        endless(),
        ValueError("\ud800\x00" * 10),
        ValueError("x" * 5_000_000),
        ValueError("\x01" * 5_000_000),
        ExceptionGroup("many", [ValueError("y" * 9_000) for _ in range(5_000)]),
        ApplicationError("d", details=object()),
        ApplicationError("d", details={"k" * 9_000: ["v" * 99_999] * 999}),
        ApplicationError("d", details={1: {2, 3}, "nan": float("nan"), "big": 10**5_000}),
        ApplicationError(5),  # type: ignore[arg-type]
        KeyboardInterrupt(),
        asyncio.CancelledError("reason"),
        OSError(2, "gone", "/tmp/x"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"),
        type("Odd" * 999, (Exception,), {})("x"),
    ],
    ids=lambda exc: type(exc).__name__.encode("ascii", "replace").decode(),
)
def test_whatever_it_does_it_is_told(exc: BaseException) -> None:
    failure = Failure.of(exc)
    assert failure.type
    payload = failure.to_payload()
    assert len(payload) <= 2 * 1024 * 1024
    back = Failure.from_payload(payload)
    assert back.type == failure.type
    assert len(back.message) <= MAX_MESSAGE + 100
    back.to_error()
    assert len(list(back.chain())) <= MAX_DEPTH + 1
    assert len(back.errors) <= MAX_NODES


def test_pydantic_errors() -> None:
    class Order(BaseModel):
        id: int

    exc = caught(lambda: TypeAdapter(Order).validate_python({"id": "hunter2"}))
    failure = told(exc)
    assert failure.type == "ValidationError"
    assert failure.details[0]["loc"] == ["id"]
    assert "input" not in failure.details[0]


def test_what_does_not_fit_gets_smaller() -> None:
    failure = Failure.of(caught(wrapped))
    whole = len(failure.to_payload())
    smaller = Failure.from_payload(failure.to_payload(limit=whole - 1))
    assert smaller.traceback == ""
    assert smaller.cause is not None
    assert smaller.cause.details == {"code": 5, "reason": "limit"}
    least = Failure.from_payload(failure.to_payload(limit=10))
    assert (least.type, least.message, least.cause) == ("ValueError", "payment", None)


@pytest.mark.parametrize(
    "payload",
    [b"", b"\x01", b"\x01[]", b"\x01{}", b'\x01{"type":1}', b'\x01{"type":"T","cause":[]}', b"\x02{}", b'\x01"x"'],
)
def test_bytes_that_are_no_failure(payload: bytes) -> None:
    with pytest.raises(DecodeError):
        Failure.from_payload(payload)


def test_fields_of_a_newer_version_are_passed_over() -> None:
    assert Failure.from_payload(b'\x01{"type":"T","later":1}') == Failure(type="T")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
failures = st.recursive(
    st.builds(
        Failure,
        type=st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=5),
        message=st.text(st.characters(exclude_categories=["Cs"]), max_size=9),
        non_retryable=st.booleans(),
        next_retry_delay=st.none() | st.floats(0, 1e6),
        bases=st.lists(st.sampled_from(["A", "B"]), max_size=2).map(tuple),
        details=st.none() | st.integers() | st.just([]) | st.just({"a": 0.5}),
    ),
    lambda inner: st.builds(
        Failure, type=st.just("T"), cause=inner | st.none(), context=inner | st.none(), errors=st.tuples(inner)
    ),
    max_leaves=6,
)


@settings(max_examples=200, deadline=None)
@given(failures)
def test_failures_come_back_equal(failure: Failure) -> None:
    assert Failure.from_payload(failure.to_payload()) == failure
    again = Failure.of(failure.to_error())
    assert [one.type for one in again.chain()] == [one.type for one in failure.chain()]


@settings(max_examples=200, deadline=None)
@given(json_values)
def test_plain_values_stay_as_they_are(value: Any) -> None:
    clean = plain(value)
    try:
        f"{value}".encode()
    except UnicodeEncodeError:
        return
    assert clean == value


def test_other_values_become_plain() -> None:
    @dataclasses.dataclass
    class Point:
        x: int
        why: object

    class Model(BaseModel):
        at: uuid.UUID

    class Unprintable:
        def __repr__(self) -> str:
            raise RuntimeError

    assert plain(Model(at=uuid.UUID(int=1))) == {"at": str(uuid.UUID(int=1))}
    assert plain({"p": Point(1, Unprintable())}) == {"p": {"x": 1, "why": "<Unprintable that cannot be printed>"}}
    assert plain({3, 1, 2}) == [1, 2, 3]
    assert plain((decimal.Decimal("1.10"), b"\xff")) == ["1.10", "b'\\xff'"]
    loop: list[Any] = []
    loop.append(loop)
    assert "…" in str(plain(loop))
    assert len(str(plain([[[["x" * 99] * 99] * 99] * 99]))) < 1_000_000
