"""Pauses between tries."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

from aioflow.errors import DatabaseUnavailable

__all__ = ["backoff", "jittered", "persist"]

T = TypeVar("T")


def jittered(seconds: float, part: float = 0.2) -> float:
    """A span made longer by a random part of it, so that processes do not move in step."""
    return seconds * (1.0 + part * random.random())  # spread, not secrecy


def backoff(attempt: int, first: float, most: float) -> float:
    """Pause after the ``attempt``-th try (from 1): doubled each time, at most ``most``, less up to a third."""
    return min(most, first * 2.0 ** min(max(attempt, 1) - 1, 32)) * (1.0 - random.random() / 3)  # ditto


async def persist(call: Callable[[], Awaitable[T]]) -> T:
    """The answer of a store call that names its keys and tokens: repeated until the database can be used again."""
    tries = 0
    while True:
        try:
            return await call()
        except DatabaseUnavailable:
            tries += 1
            await anyio.sleep(backoff(tries, 0.1, 2.0))
