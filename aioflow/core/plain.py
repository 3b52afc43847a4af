"""Anything as plain JSON values, for people to read: lossy, bounded, and never failing."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Set
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

MAX_TEXT = 4_000
MAX_ITEMS = 100
MAX_LEVELS = 8
MAX_NODES = 2_000
_MAX_INT = 10**300
_SINGLE = (bool, int, float, str, Enum, UUID, Decimal, date, time, timedelta)


def clip(text: str, limit: int = MAX_TEXT) -> str:
    """Text that can be stored: lone surrogates escaped, the middle left out beyond ``limit`` characters."""
    if len(text) > limit:
        head, tail = limit * 2 // 3, limit // 3
        text = f"{text[:head]} […{len(text) - head - tail:,} characters…] {text[-tail:]}"
    return text.encode("utf-8", "backslashreplace").decode()


def say(value: object, limit: int = MAX_TEXT) -> str:
    """``repr`` of a value, whatever its ``__repr__`` does."""
    try:
        return clip(repr(value), limit)
    except Exception:
        return f"<{type(value).__name__} that cannot be printed>"


def plain(value: Any) -> Any:
    """A value as plain JSON: models and dataclasses as objects, dates and ids as text, others by ``repr``."""
    return _Plain().take(value, 0)


def plain_attributes(exc: BaseException) -> dict[str, Any] | None:
    """What an exception carries in public attributes that are plain data, None when there are none.

    Connections, requests and the like are left out, with whatever secrets they hold.
    """
    found = {}
    for name, value in list(getattr(exc, "__dict__", {}).items())[:MAX_ITEMS]:
        if isinstance(name, str) and not name.startswith("_") and _is_plain(value, 0):
            found[clip(name, 200)] = plain(value)
    return found or None


def _is_plain(value: Any, level: int) -> bool:
    if _single(value):
        return True
    if level > MAX_LEVELS:
        return False
    if type(value) in (list, tuple, set, frozenset):
        return all(_is_plain(item, level + 1) for item in value)
    return type(value) is dict and all(_is_plain(item, level + 1) for item in value.values())


class _Plain:
    """One conversion, with its budget."""

    def __init__(self) -> None:
        self.left = MAX_NODES

    def take(self, value: Any, level: int) -> Any:
        self.left -= 1
        if self.left < 0 or level > MAX_LEVELS:
            return "…"
        try:
            return self._scalar(value) if _single(value) else self._compound(value, level + 1)
        except Exception:
            return say(value)

    def _scalar(self, value: Any) -> Any:
        if isinstance(value, Enum):
            return self.take(value.value, MAX_LEVELS)
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, int):
            return int(value) if abs(value) < _MAX_INT else "an integer of more than 300 digits"
        if isinstance(value, float):
            return float(value)
        return clip(str(value))

    def _compound(self, value: Any, level: int) -> Any:
        if isinstance(value, Mapping):
            pairs = list(value.items())[:MAX_ITEMS]
            return {clip(str(key), 200): self.take(item, level) for key, item in pairs}
        if isinstance(value, list | tuple):
            return [self.take(item, level) for item in value[:MAX_ITEMS]]
        if isinstance(value, Set):
            return sorted((self.take(item, level) for item in list(value)[:MAX_ITEMS]), key=repr)
        fields = getattr(type(value), "__pydantic_fields__", None)
        if isinstance(fields, dict):
            return {name: self.take(getattr(value, name), level) for name in list(fields)[:MAX_ITEMS]}
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return {f.name: self.take(getattr(value, f.name), level) for f in dataclasses.fields(value)}
        return say(value)


def _single(value: Any) -> bool:
    return value is None or isinstance(value, _SINGLE)
