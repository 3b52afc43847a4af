"""Callbacks that reschedule themselves until something changes, parked when nothing does.

anyio's cancel scopes deliver a cancellation again on every pass of the loop until the task is out. On a
loop whose time stands still that never ends: after 16 passes without a new command or branch the callback
waits for the next event instead.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final

from aioflow.core.handles import Handle

__all__ = ["Parking", "park_repeats_of"]

_ROUNDS: Final = 16
_repeating: set[Callable[..., Any]] = set()


def park_repeats_of(method: Callable[..., Any]) -> None:
    """Declare a method whose callbacks reschedule themselves until something changes."""
    _repeating.add(method)


class Parking:
    """The parked callbacks of one run."""

    __slots__ = ("_parked", "_rounds", "after")

    def __init__(self) -> None:
        self.after = _ROUNDS
        """Callbacks after an event before looking for repeats is worth its cost."""
        self._parked: list[Handle] = []
        self._rounds: dict[int, tuple[int, int]] = {}

    def release(self, ready: deque[Handle]) -> None:
        """An event was applied: let the parked callbacks try again."""
        if self._rounds:
            self._rounds.clear()
        if self._parked:
            ready.extend(self._parked)
            self._parked.clear()

    def parks(self, handle: Handle, progress: int) -> bool:
        """Set the callback aside until the next event if it ran 16 times while ``progress`` stood still."""
        if not _repeating or getattr(handle.callback, "__func__", None) not in _repeating:
            return False
        who = id(getattr(handle.callback, "__self__", None))
        seen, rounds = self._rounds.get(who, (progress, 0))
        rounds = rounds + 1 if seen == progress else 1
        self._rounds[who] = (progress, rounds)
        if rounds <= _ROUNDS:
            return False
        self._parked.append(handle)
        return True

    def parked(self) -> list[Handle]:
        """The callbacks waiting for another event."""
        return list(self._parked)

    def clear(self) -> None:
        """Forget everything; the run is over."""
        self._parked.clear()
        self._rounds.clear()
