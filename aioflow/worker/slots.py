"""Places for work: they are taken before anything is claimed, so that nothing is claimed that cannot begin."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

__all__ = ["Slots"]


class Slots:
    """A number of places; ``free`` of them are not taken."""

    def __init__(self, total: int) -> None:
        self.total = self.free = total
        self._freed = anyio.Event()

    async def reserve(self, most: int) -> int:
        """Take as many places as are free, up to ``most``; waits for the first one."""
        while self.free <= 0:
            await self._freed.wait()
        taken = min(self.free, most)
        self.free -= taken
        return taken

    def release(self, count: int = 1) -> None:
        """Give places back."""
        self.free += count
        freed, self._freed = self._freed, anyio.Event()
        freed.set()  # everyone who waits

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """For the holder of one place: take all others. Only one at a time may ask."""
        taken = 0
        try:
            while taken < self.total - 1:
                taken += await self.reserve(self.total)
            yield
        finally:
            if taken:
                self.release(taken)

    async def empty(self) -> None:
        """Wait until no place is taken."""
        while self.free < self.total:
            await self._freed.wait()
