"""Retry policies: when a failed activity is tried again, if ever."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from math import isfinite
from typing import Any

from aioflow.core.durations import Duration, seconds
from aioflow.core.failure import Failure
from aioflow.errors import DecodeError

ErrorType = type[BaseException] | str


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """When a failed activity is tried again.

    The delay before attempt ``n + 1`` is ``initial_interval * backoff ** (n - 1)``, at most ``max_interval``,
    less a random part of up to ``jitter`` of it. Durations are seconds or ``timedelta``. ``max_attempts``
    counts the first one; 0 means no limit. ``non_retryable`` names exception types, as classes or by class
    name (or the ``type`` of an `ApplicationError`), that end the retries; subclasses count, and so do
    exceptions raised ``from`` them.

    Raises `ValueError` or `TypeError` for values that make no sense.
    """

    initial_interval: Duration = 1.0
    backoff: float = 2.0
    max_interval: Duration = 100.0
    max_attempts: int = 0
    jitter: float = 0.1
    non_retryable: tuple[ErrorType, ...] = ()

    def __post_init__(self) -> None:
        for name in ("initial_interval", "max_interval"):
            _set(self, name, seconds(getattr(self, name), f"RetryPolicy({name}=)"))
        _set(self, "backoff", _number(self.backoff, "backoff", 1.0, float("inf")))
        _set(self, "jitter", _number(self.jitter, "jitter", 0.0, 1.0))
        if isinstance(self.max_attempts, bool) or not isinstance(self.max_attempts, int):
            raise TypeError("RetryPolicy(max_attempts=) is an integer")
        if self.max_attempts < 0:
            raise ValueError("RetryPolicy(max_attempts=) is 0 (no limit) or more")
        given: object = self.non_retryable
        if isinstance(given, str | type):
            raise TypeError("RetryPolicy(non_retryable=) is a tuple of exception classes or names")
        _set(self, "non_retryable", tuple(map(_name, self.non_retryable)))

    def retries(self, failure: Failure, attempt: int) -> bool:
        """Whether a failure of attempt ``attempt`` (from 1) is followed by another attempt."""
        if failure.non_retryable or (self.max_attempts and attempt >= self.max_attempts):
            return False
        return not any(self._ends(one) for one in _explicit(failure))

    def next_delay(self, attempt: int, failure: Failure, random: Callable[[], float]) -> float | None:
        """Seconds until the attempt after ``attempt`` (from 1), None when there is none.

        ``random`` gives a number from 0 to 1 (not included). A delay that the failure asks for is taken as it
        is.
        """
        if not self.retries(failure, attempt):
            return None
        if failure.next_retry_delay is not None:
            return failure.next_retry_delay
        return self.delay(attempt) * (1.0 - self.jitter * random())

    def delay(self, attempt: int) -> float:
        """Seconds after attempt ``attempt`` (from 1), without jitter."""
        first, most = seconds(self.initial_interval), seconds(self.max_interval)
        try:
            return min(most, first * self.backoff ** (max(attempt, 1) - 1))
        except OverflowError:
            return most if first else 0.0

    def _ends(self, failure: Failure) -> bool:
        return any(name == failure.type or name in failure.bases for name in self.non_retryable)

    def to_data(self) -> dict[str, Any]:
        """The policy as plain data, as history keeps it."""
        data = {field.name: getattr(self, field.name) for field in fields(self)}
        return data | {"non_retryable": list(self.non_retryable)}

    @classmethod
    def from_data(cls, data: dict[str, Any] | None) -> RetryPolicy:
        """The policy of plain data, the default one of None; raises `DecodeError`."""
        known = {field.name for field in fields(cls)}
        try:
            values = {name: value for name, value in (data or {}).items() if name in known}
            return cls(**values | {"non_retryable": tuple(values.get("non_retryable", ()))})
        except (TypeError, ValueError) as exc:
            raise DecodeError(f"a stored retry policy cannot be read: {exc}") from exc


def _explicit(failure: Failure) -> list[Failure]:
    """A failure with what it was raised from and the members of groups."""
    found = []
    for node in failure.chain():
        found.append(node)
        for member in node.errors:
            found += _explicit(member)
    return found


def _set(policy: RetryPolicy, name: str, value: Any) -> None:
    object.__setattr__(policy, name, value)


def _number(value: Any, name: str, least: float, most: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"RetryPolicy({name}=) is a number")
    number = float(value)
    if not isfinite(number) or not least <= number <= most:
        bound = f"between {least:g} and {most:g}" if isfinite(most) else f"{least:g} or more"
        raise ValueError(f"RetryPolicy({name}=) must be {bound}, not {number:g}")
    return number


def _name(kind: Any) -> str:
    if isinstance(kind, str) and kind:
        return kind
    if isinstance(kind, type) and issubclass(kind, BaseException):
        return kind.__name__
    raise TypeError("RetryPolicy(non_retryable=) takes exception classes and their names")
