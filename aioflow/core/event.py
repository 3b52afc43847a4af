"""The shape all events share, and how one is stored. The kinds are in `aioflow.core.events`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar, NamedTuple

KINDS: dict[str, type[Event]] = {}
_ABSTRACT = frozenset({"Input", "Recorded", "Terminal", "Forced"})


class Record(NamedTuple):
    """An event as it is stored: what every reader and writer of histories exchanges.

    ``attrs`` is a JSON object with the fields that are not columns, None when there are none.
    """

    kind: str
    version: int
    ref: str | None
    at: datetime
    attrs: str | None
    payload: bytes | None

    @property
    def size(self) -> int:
        """Bytes of what may be large."""
        return len(self.payload or b"") + len(self.attrs or "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Base of all events."""

    VERSION: ClassVar[int] = 1

    at: datetime
    ref: str | None = None
    payload: bytes | None = None

    def __init_subclass__(cls) -> None:
        if cls.__name__ not in _ABSTRACT:
            KINDS[cls.__name__] = cls

    @property
    def kind(self) -> str:
        """Name of the event kind, as stored."""
        return type(self).__name__


@dataclass(frozen=True, slots=True, kw_only=True)
class Input(Event):
    """Reaches the run from outside, and is applied to its code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded(Event):
    """Notes a decision of the code; follows the input that was applied."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terminal(Recorded):
    """Closes the run; the last event of its history."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forced(Terminal):
    """Closes the run from outside, without its code."""
