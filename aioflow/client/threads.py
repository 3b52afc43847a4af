"""User code of a query runs here: in a thread of its own, never on the caller's event loop."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")


class Threads:
    """Runs functions in short-lived daemon threads, at most ``limit`` at a time.

    A thread that never comes back is abandoned by its caller, but keeps its place: code that hangs can take all
    places of this client, and nothing else of the process.
    """

    def __init__(self, limit: int = 4) -> None:
        self._places = asyncio.Semaphore(limit)

    async def run(self, fn: Callable[[], T], name: str) -> T:
        """The result of ``fn``, called in a thread; cancelling gives up waiting, the thread goes on."""
        await self._places.acquire()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def settle(value: T | None, error: BaseException | None) -> None:
            self._places.release()
            if future.cancelled():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(value)  # type: ignore[arg-type]  # the value is there when no error is

        def work() -> None:
            value, error = None, None
            try:
                value = fn()
            except BaseException as exc:
                error = RuntimeError(f"{exc!r} was raised") if isinstance(exc, StopIteration) else exc
            with suppress(RuntimeError):  # the loop is gone, and the caller with it
                loop.call_soon_threadsafe(settle, value, error)

        # An empty context: nothing of the caller's shows through in workflow code.
        thread = threading.Thread(target=contextvars.Context().run, args=(work,), name=name, daemon=True)
        thread.start()
        return await future
