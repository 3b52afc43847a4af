"""``asyncio.Condition`` and ``asyncio.Semaphore`` inside workflows: CPython 3.13's behaviour on every Python.

Before 3.13 a waiter that is notified and cancelled at once takes the notification with it, and a semaphore that is
released wakes others than today. They run on the stock objects, as the task groups do.
"""

from __future__ import annotations

import asyncio
from asyncio import CancelledError
from collections import deque
from typing import Any

__all__ = ["condition_notify", "condition_wait", "semaphore_acquire", "semaphore_release"]


async def condition_wait(self: Any) -> bool:
    """``Condition.wait``."""
    if not self.locked():
        raise RuntimeError("cannot wait on un-acquired lock")
    future = self._get_loop().create_future()
    self.release()
    try:
        try:
            self._waiters.append(future)
            try:
                await future
                return True
            finally:
                self._waiters.remove(future)
        finally:
            await _acquire_whatever_comes(self)
    except BaseException:
        # This task may have been notified before it got here: let another one have it.
        _notify(self, 1)
        raise


async def _acquire_whatever_comes(condition: Any) -> None:
    """Take the lock again, also when that wait is cancelled; the last cancellation is raised afterwards."""
    cancelled: CancelledError | None = None
    while True:
        try:
            await condition.acquire()
            break
        except CancelledError as again:
            cancelled = again
    if cancelled is not None:
        try:
            raise cancelled
        finally:
            cancelled = None


def condition_notify(self: Any, n: int = 1) -> None:
    """``Condition.notify``."""
    if not self.locked():
        raise RuntimeError("cannot notify on un-acquired lock")
    _notify(self, n)


def _notify(condition: Any, n: int) -> None:
    pending: list[asyncio.Future[bool]] = [one for one in condition._waiters if not one.done()]
    for future in pending[:n] if n > 0 else ():
        future.set_result(False)


async def semaphore_acquire(self: Any) -> bool:
    """``Semaphore.acquire``."""
    # First come, first served: others may stand in line although the value is not zero.
    if self._value > 0 and all(one.cancelled() for one in self._waiters or ()):
        self._value -= 1
        return True
    if self._waiters is None:
        self._waiters = deque()
    future = self._get_loop().create_future()
    self._waiters.append(future)
    try:
        try:
            await future
        finally:
            self._waiters.remove(future)
    except CancelledError:
        if future.done() and not future.cancelled():
            self._value += 1  # it was given to us, and we do not take it
        raise
    finally:
        while self._value > 0 and _wake_next(self):
            pass
    return True


def semaphore_release(self: Any) -> None:
    """``Semaphore.release``."""
    self._value += 1
    _wake_next(self)


def _wake_next(semaphore: Any) -> bool:
    for future in semaphore._waiters or ():
        if not future.done():
            semaphore._value -= 1
            future.set_result(True)
            return True
    return False
