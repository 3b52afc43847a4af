"""Ids made outside the database: UUIDv7, so that keys sort by time and stay index-friendly."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID


def uuid7(millis: int, randomness: bytes) -> UUID:
    """UUID version 7 (RFC 9562) of a time in milliseconds and ten bytes of randomness."""
    value = (millis & (1 << 48) - 1) << 80 | int.from_bytes(randomness[:10], "big")
    value = value & ~(0xF000 << 64) | 0x7000 << 64
    value = value & ~(0xC000 << 48) | 0x8000 << 48
    return UUID(int=value)


class IdSource:
    """Hands out UUIDv7s, monotonic within the process; clock and randomness are passed in."""

    def __init__(self, clock: Callable[[], float], randomness: Callable[[int], bytes]) -> None:
        self._clock, self._randomness, self._last = clock, randomness, 0

    def __call__(self) -> UUID:
        """The next id."""
        self._last = max(self._last, int(self._clock() * 1000))
        return uuid7(self._last, self._randomness(10))
