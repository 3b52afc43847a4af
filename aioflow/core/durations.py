"""Durations as users give them: a `timedelta`, or a number of seconds."""

from __future__ import annotations

from datetime import timedelta
from math import isfinite

Duration = timedelta | float | int
"""A span of time: `timedelta`, or seconds as a number."""

MAX_SECONDS = 100 * 366 * 86_400.0
"""About a century: beyond it the database's clock arithmetic is not worth trusting."""


def seconds(value: Duration, what: str = "a duration", *, positive: bool = False) -> float:
    """A duration in seconds, zero or more (more than zero if ``positive``).

    ``what`` names the place in the message. Raises `TypeError` for another type (bool included) and
    `ValueError` for a negative, non-finite or absurdly long one.
    """
    if isinstance(value, timedelta):
        number = value.total_seconds()
    elif isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{what} is a timedelta or a number of seconds, not {type(value).__name__}")
    else:
        try:
            number = float(value)
        except OverflowError:
            raise ValueError(f"{what} is longer than a century") from None
    if not isfinite(number):
        raise ValueError(f"{what} must be finite, not {number}")
    if number < 0 or (positive and number == 0):
        raise ValueError(f"{what} must be {'more than zero' if positive else 'zero or more'}, not {number:g} s")
    if number > MAX_SECONDS:
        raise ValueError(f"{what} is longer than a century ({number:g} s)")
    return number


def optional_seconds(value: Duration | None, what: str, *, positive: bool = True) -> float | None:
    """`seconds` of a duration that may be left out."""
    return None if value is None else seconds(value, what, positive=positive)
