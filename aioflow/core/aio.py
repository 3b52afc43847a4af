"""asyncio's helpers inside workflows, with one behaviour on every Python.

The stock ones differ between versions in the tasks they make and the passes they take, so a history
recorded on one Python would not replay on another, and ``as_completed`` orders by hash. ``install()``
diverts the names of the standard library; they keep their own behaviour wherever no workflow loop is
running.
"""

from __future__ import annotations

import asyncio
import inspect
import warnings
from asyncio import CancelledError, Queue, ensure_future, mixins, tasks
from collections.abc import Awaitable, Coroutine, Iterable
from typing import Any, Final, TypeVar, cast, final

from aioflow.core.divert import Diversion
from aioflow.core.groups import group_create_task, group_enter, group_exit, timeout_enter, timeout_exit
from aioflow.core.locks import condition_notify, condition_wait, semaphore_acquire, semaphore_release
from aioflow.core.loop import WorkflowLoop
from aioflow.core.private import get_running_loop_or_none, verify_private_names
from aioflow.core.tasks import Future, Task
from aioflow.errors import NotDurable

__all__ = ["AsCompleted", "all_tasks", "as_completed", "gather", "install", "uninstall", "wait_for"]

T = TypeVar("T")


def _workflow_loop() -> WorkflowLoop:
    loop = get_running_loop_or_none()
    assert isinstance(loop, WorkflowLoop)
    return loop


# -- gather -----------------------------------------------------------------------------------------


class _Gathering(Future[list[Any]]):
    """The future of a gather: cancelling it cancels the children."""

    __slots__ = ("_cancel_requested", "_children", "_pending", "_return_exceptions")

    def __init__(self, children: list[asyncio.Future[Any]], return_exceptions: bool, *, loop: WorkflowLoop) -> None:
        super().__init__(loop=loop)
        self._children = children
        self._return_exceptions = return_exceptions
        self._cancel_requested = False
        members = dict.fromkeys(children)
        self._pending = len(members)
        done = [child for child in members if child.done()]
        for child in members:
            if not child.done():
                child.add_done_callback(self._child_done)
        for child in done:
            self._child_done(child)

    def cancel(self, msg: Any | None = None) -> bool:
        """Cancel the children; the gather itself ends when they did."""
        if self.done():
            return False
        asked = [child.cancel(msg=msg) for child in self._children]
        self._cancel_requested = self._cancel_requested or any(asked)
        return any(asked)

    def _child_done(self, child: asyncio.Future[Any]) -> None:
        self._pending -= 1
        if self.done():
            if not child.cancelled():
                child.exception()  # seen, or it is reported as never retrieved
            return
        if not self._return_exceptions and (error := _raised(child)) is not None:
            self.set_exception(error)
        elif self._pending == 0:
            self._finish()

    def _finish(self) -> None:
        if self._cancel_requested:
            # Whatever return_exceptions says: the caller asked for the cancellation.
            last = self._children[-1]
            self.set_exception((_raised(last) if last.cancelled() else None) or CancelledError())
            return
        results: list[Any] = []
        for child in self._children:
            if child.cancelled():
                # Not the error of the child itself, which can be taken only once.
                results.append(CancelledError(getattr(child, "_cancel_message", None) or ""))
            else:
                error = child.exception()
                results.append(child.result() if error is None else error)
        self.set_result(results)


def _raised(child: asyncio.Future[Any]) -> BaseException | None:
    """What a child that is done raised, its cancellation included."""
    if not child.cancelled():
        return child.exception()
    try:
        child.result()
    except CancelledError as cancelled:
        return cancelled
    return None


def gather(*awaitables: Awaitable[Any], return_exceptions: bool = False) -> asyncio.Future[list[Any]]:
    """``asyncio.gather`` as of Python 3.13."""
    loop = _workflow_loop()
    members: dict[Awaitable[Any], asyncio.Future[Any]] = {}
    for awaitable in awaitables:
        if awaitable not in members:
            members[awaitable] = _future_of(awaitable, loop)
    gathering = _Gathering([members[awaitable] for awaitable in awaitables], return_exceptions, loop=loop)
    if not awaitables:
        gathering.set_result([])
    return gathering


def _future_of(awaitable: Awaitable[Any], loop: WorkflowLoop) -> asyncio.Future[Any]:
    if asyncio.isfuture(awaitable) and awaitable.get_loop() is not loop:
        raise NotDurable(f"{awaitable!r} belongs to another workflow or to other code: use a signal")
    return ensure_future(awaitable, loop=loop)


# -- wait_for ---------------------------------------------------------------------------------------


async def wait_for(awaitable: Awaitable[T], timeout: float | None) -> T:
    """``asyncio.wait_for`` as of Python 3.13: awaits in the current branch, and makes none of its own."""
    if timeout is not None and timeout <= 0:
        future = ensure_future(awaitable)
        if future.done():
            return future.result()
        await _cancel_and_wait(future)
        try:
            return future.result()
        except CancelledError as error:
            raise TimeoutError from error
    async with asyncio.timeout(timeout):
        return await awaitable


async def _cancel_and_wait(future: asyncio.Future[Any]) -> None:
    waiter = _workflow_loop().create_future()

    def release(_: object) -> None:
        if not waiter.done():
            waiter.set_result(None)

    future.add_done_callback(release)
    try:
        future.cancel()
        # Not on the future itself: this wait has to stay cancellable.
        await waiter
    finally:
        future.remove_done_callback(release)


# -- as_completed -----------------------------------------------------------------------------------


@final
class AsCompleted:
    """What ``as_completed`` gives: an iterator of coroutines, or with ``async for`` of the futures."""

    def __init__(self, awaitables: Iterable[Awaitable[Any]], timeout: float | None) -> None:
        loop = _workflow_loop()
        self._done: Queue[asyncio.Future[Any] | None] = Queue()
        self._timer: asyncio.TimerHandle | None = None
        # In the order given; the stock one goes through a set of coroutines, hashed by address.
        self._todo: dict[asyncio.Future[Any], None] = dict.fromkeys(
            _future_of(one, loop) for one in dict.fromkeys(awaitables)
        )
        self._left = len(self._todo)
        for future in self._todo:
            future.add_done_callback(self._completed)
        if self._todo and timeout is not None:
            self._timer = loop.call_later(timeout, self._timed_out)

    def __aiter__(self) -> AsCompleted:
        return self

    def __iter__(self) -> AsCompleted:
        return self

    async def __anext__(self) -> asyncio.Future[Any]:
        if not self._left:
            raise StopAsyncIteration
        self._left -= 1
        return await self._next()

    def __next__(self) -> Coroutine[Any, Any, Any]:
        if not self._left:
            raise StopIteration
        self._left -= 1
        return self._next_result()

    async def _next(self) -> asyncio.Future[Any]:
        future = await self._done.get()
        if future is None:
            raise TimeoutError
        return future

    async def _next_result(self) -> Any:
        return (await self._next()).result()

    def _timed_out(self) -> None:
        for future in self._todo:
            future.remove_done_callback(self._completed)
            self._done.put_nowait(None)
        self._todo.clear()

    def _completed(self, future: asyncio.Future[Any]) -> None:
        if not self._todo:
            return  # timed out before
        del self._todo[future]
        self._done.put_nowait(future)
        if not self._todo and self._timer is not None:
            self._timer.cancel()


def as_completed(fs: Iterable[Awaitable[Any]], *, timeout: float | None = None) -> AsCompleted:
    """``asyncio.as_completed`` as of Python 3.13, in the order given."""
    if inspect.isawaitable(fs):
        raise TypeError(f"expects an iterable of awaitables, not {type(fs).__name__}")
    return AsCompleted(fs, timeout)


# -- the rest ---------------------------------------------------------------------------------------


def all_tasks(loop: object = None) -> set[Task[Any]]:
    """``asyncio.all_tasks`` of the run; tasks of a run are in no registry of asyncio."""
    here = _workflow_loop()
    if loop is None or loop is here:
        return set(here.tasks())
    return cast("set[Task[Any]]", _all_tasks.saved(loop))


def _bound_loop(self: Any) -> Any:
    """The loop a lock, event or queue belongs to; the stock one raises an untyped error when it is shared."""
    here = _workflow_loop()
    if self._loop is None:
        self._loop = here
    if self._loop is not here:
        raise NotDurable(
            f"{self!r} belongs to another workflow or to other code; locks, events and queues cannot be "
            "shared: create it in the workflow, or use a signal"
        )
    return here


def _warn_unawaited(coro: object) -> None:
    """A run that is unwound drops coroutines it did not come to await; that is no mistake of its author."""
    if not _workflow_loop().sealed:
        _unawaited.saved(coro)


_all_tasks: Final = Diversion(tasks, "all_tasks", all_tasks)
_unawaited: Final = Diversion(warnings, "_warn_unawaited_coroutine", _warn_unawaited)
_DIVERSIONS: Final = (
    Diversion(tasks, "gather", gather),
    Diversion(tasks, "wait_for", wait_for),
    Diversion(tasks, "as_completed", as_completed),
    Diversion(asyncio.TaskGroup, "__aenter__", group_enter),
    Diversion(asyncio.TaskGroup, "__aexit__", group_exit),
    Diversion(asyncio.TaskGroup, "create_task", group_create_task),
    Diversion(asyncio.Timeout, "__aenter__", timeout_enter),
    Diversion(asyncio.Timeout, "__aexit__", timeout_exit),
    Diversion(asyncio.Condition, "wait", condition_wait),
    Diversion(asyncio.Condition, "notify", condition_notify),
    Diversion(asyncio.Semaphore, "acquire", semaphore_acquire),
    Diversion(asyncio.Semaphore, "release", semaphore_release),
    Diversion(vars(mixins)["_LoopBoundMixin"], "_get_loop", _bound_loop),
    _all_tasks,
    _unawaited,
)


def install() -> None:
    """Divert asyncio's names while a workflow loop runs; does nothing the second time.

    ``ConfigurationError`` on a Python whose asyncio lacks a private name this needs.
    """
    verify_private_names()
    for diversion in _DIVERSIONS:
        diversion.install()


def uninstall() -> None:
    """Give the standard library its own code back; for tests."""
    for diversion in _DIVERSIONS:
        diversion.uninstall()
