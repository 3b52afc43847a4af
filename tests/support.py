"""Small helpers shared by the tests."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

__all__ = ["eventually", "eventually_sync"]

T = TypeVar("T")
_STEP = 0.01


async def eventually(check: Callable[[], T | Awaitable[T]], *, within: float = 20.0) -> T:
    """Ask ``check`` until it gives something true, and return that; fail after ``within`` seconds."""
    deadline = time.monotonic() + within
    while True:
        found = check()
        value = await found if inspect.isawaitable(found) else found
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not true within {within} s: {check}; last value {value!r}")
        await asyncio.sleep(_STEP)


def eventually_sync(check: Callable[[], T], *, within: float = 20.0) -> T:
    """`eventually` for tests without an event loop."""
    deadline = time.monotonic() + within
    while not (value := check()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not true within {within} s: {check}; last value {value!r}")
        time.sleep(_STEP)
    return value
