"""A service in a task of its own, for the length of an ``async with`` block of somebody else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import anyio

__all__ = ["Beside"]


class Beside:
    """Runs ``live`` beside whoever entered; ``live`` calls its argument once it is up.

    Nothing of it is bound to the task that entered: services of one task may be left in any order, also by another
    task. When it fails by itself, the task that entered is cancelled, and finds the error where it leaves.
    """

    def __init__(self, live: Callable[[Callable[[], None]], Coroutine[Any, Any, None]], name: str) -> None:
        self._live, self._name = live, name
        self._task: asyncio.Task[None] | None = None
        self._host: asyncio.Task[Any] | None = None
        self._leaving = self._struck = False

    @property
    def entered(self) -> bool:
        """Whether it was begun."""
        return self._task is not None

    async def enter(self) -> None:
        """Begin, and return when it is up; raises what keeps it from that."""
        loop = asyncio.get_running_loop()
        up: asyncio.Future[None] = loop.create_future()
        self._host = asyncio.current_task()
        task = self._task = loop.create_task(self._live(lambda: up.set_result(None)), name=self._name)
        try:
            await asyncio.wait((task, up), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            task.cancel()
            with anyio.CancelScope(shield=True):
                await asyncio.wait((task,))
            raise
        if not up.done():
            task.result()
        task.add_done_callback(self._fell)

    async def leave(self) -> None:
        """Wait until it has ended, which somebody has told it to; raises its error.

        Cancelled meanwhile it is cancelled itself, and waited for all the same.
        """
        task, host = self._task, self._host
        assert task is not None
        self._leaving = True
        if self._struck and host is not None:
            with suppress(asyncio.CancelledError):  # if the block has ended before it got there
                await asyncio.sleep(0)
            host.uncancel()
        try:
            with anyio.CancelScope(shield=True):
                await _over(task)
        except asyncio.CancelledError:
            task.cancel()
            with anyio.CancelScope(shield=True):
                await _over(task)
            raise
        task.result()

    def _fell(self, task: asyncio.Task[None]) -> None:
        if self._leaving or task.cancelled() or task.exception() is None:
            return
        if self._host is not None and not self._host.done():
            self._struck = True
            self._host.cancel(f"{self._name} has failed")


async def _over(task: asyncio.Task[None]) -> None:
    if not task.done():
        await asyncio.wait((task,))
