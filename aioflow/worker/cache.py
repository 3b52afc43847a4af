"""Suspended runs kept in memory, so that they go on without replay. Only an optimisation: it may lose anything."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple
from uuid import UUID

from aioflow.core.keys import InstanceKey
from aioflow.core.replay import Execution

__all__ = ["RunCache"]


class _Entry(NamedTuple):
    execution: Execution
    head: UUID
    size: int


class RunCache:
    """Least recently used runs go first, beyond ``runs`` entries or ``size`` bytes of history.

    ``discard`` takes what is thrown out: an execution has to be unwound where it was stepped.
    """

    def __init__(self, runs: int, size: int, discard: Callable[[Execution], None]) -> None:
        self._most, self._limit, self._discard = runs, size, discard
        self._entries: OrderedDict[InstanceKey, _Entry] = OrderedDict()
        self._size = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def take(self, key: InstanceKey, run_id: UUID, head: UUID | None, next_seq: int) -> Execution | None:
        """The suspended run at exactly this state, no longer cached; one at another state is thrown out."""
        entry = self._pop(key)
        if entry is None:
            return None
        execution = entry.execution
        if execution.run_id == run_id and entry.head == head and execution.seq + 1 == next_seq:
            return execution
        self._discard(execution)
        return None

    def put(self, execution: Execution, head: UUID) -> None:
        """Keep a run that was committed as ``head``."""
        self.drop(execution.key)
        size = execution.history_bytes
        self._entries[execution.key] = _Entry(execution, head, size)
        self._size += size
        while self._entries and (len(self._entries) > self._most or self._size > self._limit):
            self.drop(next(iter(self._entries)))

    def drop(self, key: InstanceKey) -> None:
        """Throw out whatever is kept of an instance."""
        entry = self._pop(key)
        if entry is not None:
            self._discard(entry.execution)

    def clear(self) -> None:
        """Throw out everything."""
        for key in list(self._entries):
            self.drop(key)

    def _pop(self, key: InstanceKey) -> _Entry | None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._size -= entry.size
        return entry
