"""Plain values of callers, kept or looked for as they are: checked where they are given, not by the database."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from aioflow.errors import ArgumentError

__all__ = ["MAX_REASON", "check_count", "check_filter", "check_reason", "check_run_id"]

MAX_REASON: Final = 4_000
"""Characters of a reason that is kept in a history."""


def check_reason(reason: object, what: str) -> str | None:
    """A reason for people, of at most `MAX_REASON` characters; raises `ArgumentError`."""
    if reason is None:
        return None
    text = _text(reason, what)
    if len(text) > MAX_REASON:
        raise ArgumentError(f"{what} has at most {MAX_REASON:,} characters, this one {len(text):,}")
    return text


def check_filter(value: object, what: str) -> str | None:
    """Text to look for; raises `ArgumentError` for what no name or id can hold."""
    if value is None:
        return None
    text = _text(value, what)
    if "\x00" in text:
        raise ArgumentError(f"{what} cannot hold NUL")
    return text


def check_count(value: object, what: str) -> int | None:
    """A whole number from 0; raises `ArgumentError`."""
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 0):
        return value
    raise ArgumentError(f"{what} is a whole number from 0, not {value!r}")


def check_run_id(run_id: object) -> UUID | None:
    """The id of a run; raises `ArgumentError`."""
    if run_id is None or isinstance(run_id, UUID):
        return run_id
    raise ArgumentError(f"run_id= is a UUID, not {type(run_id).__name__}")


def _text(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise ArgumentError(f"{what} is text, not {type(value).__name__}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ArgumentError(f"{what} must be valid Unicode (it holds a lone surrogate)") from None
    return value
