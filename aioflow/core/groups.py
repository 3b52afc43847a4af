"""``asyncio.TaskGroup`` and ``asyncio.Timeout`` inside workflows: CPython 3.13's behaviour on every Python.

They run on the stock objects, so subclasses and the methods not named here stay as they are. Before 3.13 a
parent's cancellation that meets a failing child is swallowed, and a group cancels its members in the order
of their hashes.
"""

from __future__ import annotations

import asyncio
from asyncio import CancelledError, timeouts
from collections.abc import Coroutine
from contextvars import Context
from types import TracebackType
from typing import Any

from aioflow.core.ordered import OrderedSet

__all__ = ["group_create_task", "group_enter", "group_exit", "timeout_enter", "timeout_exit"]


async def group_enter(self: Any) -> Any:
    """``TaskGroup.__aenter__``."""
    if self._entered:
        raise RuntimeError(f"TaskGroup {self!r} has already been entered")
    if self._loop is None:
        self._loop = asyncio.get_running_loop()
    self._parent_task = asyncio.current_task(self._loop)
    if self._parent_task is None:
        raise RuntimeError(f"TaskGroup {self!r} cannot determine the parent task")
    self._entered = True
    self._tasks = OrderedSet()
    return self


def group_create_task(
    self: Any, coro: Coroutine[Any, Any, Any], *, name: str | None = None, context: Context | None = None
) -> Any:
    """``TaskGroup.create_task``; a coroutine that is refused is closed."""
    problem = (
        "has not been entered"
        if not self._entered
        else "is finished"
        if self._exiting and not self._tasks
        else "is shutting down"
        if self._aborting
        else None
    )
    if problem:
        coro.close()
        raise RuntimeError(f"TaskGroup {self!r} {problem}")
    task = self._loop.create_task(coro, name=name, context=context)
    self._tasks.add(task)
    task.add_done_callback(self._on_task_done)
    return task


async def group_exit(
    self: Any, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
) -> None:
    """``TaskGroup.__aexit__``."""
    self._exiting = True
    if error is not None and self._is_base_error(error) and self._base_error is None:
        self._base_error = error
    cancellation: BaseException | None = error if isinstance(error, CancelledError) else None
    if kind is not None and not self._aborting:
        self._abort()
    cancellation = await _group_members(self, cancellation)
    try:
        if self._base_error is not None:
            raise self._base_error
        # If this flag is set, uncancel() must be called; with no request left nothing is propagated.
        if self._parent_cancel_requested and self._parent_task.uncancel() == 0:
            cancellation = None
        # Errors of members have priority over a cancellation.
        if cancellation is not None and not self._errors:
            raise cancellation
        if error is not None and not isinstance(error, CancelledError):
            self._errors.append(error)
        if self._errors:
            # Cancelled from outside as well: keep the count, and let the next await deliver it.
            if self._parent_task.cancelling():
                self._parent_task.uncancel()
                self._parent_task.cancel()
            raise BaseExceptionGroup("unhandled errors in a TaskGroup", self._errors) from None
    finally:
        self._errors = None
        del error, cancellation, trace


async def _group_members(group: Any, cancellation: BaseException | None) -> BaseException | None:
    """Wait for every member; the cancellation of the parent that arrived meanwhile, or the one before."""
    # A loop: the parent may be cancelled again, or while the group is aborting already.
    while group._tasks:
        if group._on_completed_fut is None:
            group._on_completed_fut = group._loop.create_future()
        try:
            await group._on_completed_fut
        except CancelledError as again:
            if not group._aborting:
                cancellation = again
                group._abort()
        group._on_completed_fut = None
    return cancellation


async def timeout_enter(self: Any) -> Any:
    """``Timeout.__aenter__``; the first releases of 3.11 do not note how often the task was cancelled before."""
    state = timeouts._State  # type: ignore[attr-defined]  # typeshed hides it; verify_private_names() looks for it
    if self._state is not state.CREATED:
        raise RuntimeError("Timeout has already been entered")
    task = asyncio.current_task()
    if task is None:
        raise RuntimeError("Timeout should be used inside a task")
    self._state = state.ENTERED
    self._task = task
    self._cancelling = task.cancelling()
    self.reschedule(self._when)
    return self


async def timeout_exit(
    self: Any, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
) -> None:
    """``Timeout.__aexit__``."""
    state = timeouts._State  # type: ignore[attr-defined]  # typeshed hides it; verify_private_names() looks for it
    if self._timeout_handler is not None:
        self._timeout_handler.cancel()
        self._timeout_handler = None
    if self._state is not state.EXPIRING:
        self._state = state.EXITED
        return
    self._state = state.EXPIRED
    if self._task.uncancel() <= self._cancelling and error is not None:
        if isinstance(error, CancelledError):
            raise TimeoutError from error
        _insert_timeout_error(error)
        if isinstance(error, ExceptionGroup):
            for one in error.exceptions:
                _insert_timeout_error(one)


def _insert_timeout_error(error: BaseException) -> None:
    """Let what was raised while handling the cancellation tell of the timeout behind it."""
    while (context := error.__context__) is not None:
        if isinstance(context, CancelledError):
            timeout = TimeoutError()
            timeout.__context__ = timeout.__cause__ = context
            error.__context__ = timeout
            break
        error = context
