"""Places for work: they are taken before anything is claimed, so that nothing is claimed that cannot begin."""

from __future__ import annotations

import anyio

__all__ = ["Slots"]


class Slots:
    """A number of places; ``free`` of them are not taken."""

    def __init__(self, total: int) -> None:
        self.total = self.free = total
        self._freed = anyio.Event()
        self._shut = False

    async def reserve(self, most: int) -> int:
        """Take as many places as are free, up to ``most``; waits for the first one, and while they are shut."""
        while self.free <= 0 or self._shut:
            await self._freed.wait()
        taken = min(self.free, most)
        self.free -= taken
        return taken

    def release(self, count: int = 1) -> None:
        """Give places back."""
        self.free += count
        freed, self._freed = self._freed, anyio.Event()
        freed.set()  # everyone who waits

    @property
    def busy(self) -> int:
        """Places that are taken."""
        return self.total - self.free

    def take(self) -> None:
        """Take a place though they are shut, or none is free."""
        self.free -= 1

    def shut(self) -> None:
        """Let nobody reserve places until `open`; those taken stay taken."""
        self._shut = True

    def open(self) -> None:
        """Places may be reserved again."""
        self._shut = False
        self.release(0)

    async def empty(self) -> None:
        """Wait until no place is taken."""
        while self.free < self.total:
            await self._freed.wait()
