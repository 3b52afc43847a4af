"""Durable helpers: what ``handle()`` awaits, beside activities and ordinary asyncio.

Each helper belongs to the running workflow and raises `NotInWorkflow` outside of one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime
from random import Random
from typing import Any, TypeVar, overload
from uuid import UUID

from aioflow.core import ids
from aioflow.core.context import Context, WorkflowInfo
from aioflow.core.current import require
from aioflow.core.durations import Duration, seconds
from aioflow.telemetry import workflow_logger as logger

__all__ = [
    "all_",
    "any_",
    "await_condition",
    "await_signal",
    "logger",
    "now",
    "rng",
    "side_effect",
    "timer",
    "uuid4",
    "uuid7",
    "workflow_info",
]

T = TypeVar("T")
T1 = TypeVar("T1")
T2 = TypeVar("T2")
T3 = TypeVar("T3")
T4 = TypeVar("T4")
T5 = TypeVar("T5")
A = Awaitable


async def timer(duration: Duration, /) -> None:
    """Sleep durably, for seconds or a ``timedelta``: never early, over crashes and deploys, from seconds to years.

    The time counts from the event that is being applied (see `now`). The same as ``asyncio.sleep`` in a workflow.
    """
    require("timer()")
    await asyncio.sleep(seconds(duration, "timer()"))


async def await_condition(fn: Callable[[], bool], /, *, timeout: Duration | None = None) -> bool:
    """Wait until ``fn()`` is true; False when ``timeout`` (seconds or ``timedelta``) ran out first.

    The condition is tried after every event of the run, so it should look at the workflow's own state only. What it
    raises is raised here.
    """
    context = require("await_condition()")
    context.check_open()
    if fn():
        return True
    limit = None if timeout is None else seconds(timeout, "await_condition(timeout=)")
    future = context.loop.add_condition(fn)
    try:
        async with asyncio.timeout(limit):
            return await future
    except TimeoutError:
        if not future.cancelled():
            raise  # the condition's own
        return False


@overload
async def await_signal(name: str, /, *, timeout: Duration | None = None) -> Any: ...
@overload
async def await_signal(name: str, /, *, type: type[T], timeout: Duration | None = None) -> T: ...
async def await_signal(name: str, /, *, type: Any = None, timeout: Duration | None = None) -> Any:
    """Next signal of this name that has no handler, oldest first; also one that came before the wait.

    A signal sent without arguments gives None, with one argument that value (read as ``type`` when given), with more a
    list. Raises ``TimeoutError`` when ``timeout`` (seconds or ``timedelta``) runs out first.
    """
    context = require("await_signal()")
    limit = None if timeout is None else seconds(timeout, "await_signal(timeout=)")
    async with asyncio.timeout(limit):
        payload = await context.receive(name)
    return _arguments(context, payload, type)


def _arguments(context: Context, payload: bytes, hint: Any) -> Any:
    values: list[Any] = context.read(payload, list[Any])
    if hint is not None and len(values) == 1:
        return context.read(payload, tuple[hint])[0]
    return values if len(values) > 1 else values[0] if values else None


async def side_effect(fn: Callable[[], T], /, *, type: Any = None) -> T:
    """Call ``fn`` once in the life of the run and keep its value; replay takes it from history.

    For short things that cannot be replayed, like reading a flag or an environment variable. The value is stored under
    ``type``, or ``fn``'s return annotation. When the commit is lost, ``fn`` is called again; for effects on other
    systems use an activity. What ``fn`` raises is kept as well, and raised as `RemoteError`; `EncodeError` and
    `PayloadTooLarge` tell of a value that cannot be stored.
    """
    context = require("side_effect()")
    hint = type if type is not None else getattr(fn, "__annotations__", {}).get("return", Any)
    value: T = context.side_effect(fn, hint)
    return value


def now() -> datetime:
    """Time of the event being applied, aware UTC: the workflow's clock, the same on every replay."""
    return require("now()").now()


def rng() -> Random:
    """Random generator of the current branch, seeded by the run: the same numbers on every replay."""
    return require("rng()").random()


def uuid4() -> UUID:
    """Random UUID from the run's own randomness, the same on every replay."""
    return UUID(int=require("uuid4()").random().getrandbits(128), version=4)


def uuid7() -> UUID:
    """UUID version 7 of the workflow's time, the same on every replay."""
    context = require("uuid7()")
    return ids.uuid7(int(context.loop.now * 1000), context.random().randbytes(10))


def workflow_info() -> WorkflowInfo:
    """Facts about the run at hand: ids, type, queue, start time, length of history."""
    return require("workflow_info()").info()


@overload
async def all_(  # type: ignore[overload-overlap]  # a tuple is an Iterable too
    aws: tuple[A[T1], A[T2]], /
) -> tuple[T1, T2]: ...
@overload
async def all_(  # type: ignore[overload-overlap]  # a tuple is an Iterable too
    aws: tuple[A[T1], A[T2], A[T3]], /
) -> tuple[T1, T2, T3]: ...
@overload
async def all_(  # type: ignore[overload-overlap]  # a tuple is an Iterable too
    aws: tuple[A[T1], A[T2], A[T3], A[T4]], /
) -> tuple[T1, T2, T3, T4]: ...
@overload
async def all_(  # type: ignore[overload-overlap]  # a tuple is an Iterable too
    aws: tuple[A[T1], A[T2], A[T3], A[T4], A[T5]], /
) -> tuple[T1, T2, T3, T4, T5]: ...
@overload
async def all_(aws: Iterable[A[T]], /) -> list[T]: ...
async def all_(aws: Iterable[A[Any]], /) -> Any:
    """Run all at once and give their results in order: a tuple for a tuple, else a list.

    The first failure is raised at once, and the others go on in the background, as with ``asyncio.gather``; use
    ``asyncio.TaskGroup`` to cancel them instead.
    """
    require("all_()")
    members = tuple(aws)
    results = await asyncio.gather(*members)
    return tuple(results) if isinstance(aws, tuple) else results


@overload
async def any_(aws: tuple[A[T1], A[T2]], /) -> T1 | T2: ...
@overload
async def any_(aws: tuple[A[T1], A[T2], A[T3]], /) -> T1 | T2 | T3: ...
@overload
async def any_(aws: tuple[A[T1], A[T2], A[T3], A[T4]], /) -> T1 | T2 | T3 | T4: ...
@overload
async def any_(aws: Iterable[A[T]], /) -> T: ...
async def any_(aws: Iterable[A[Any]], /) -> Any:
    """Run all at once and give the first result; the others are cancelled.

    A failure counts only when all have failed: then they are raised as one ``ExceptionGroup``, in order.
    """
    require("any_()")
    tasks = [asyncio.ensure_future(one) for one in aws]
    if not tasks:
        raise ValueError("any_() needs at least one awaitable")
    pending = set(tasks)
    try:
        while pending:
            _, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                if task.done() and not task.cancelled() and task.exception() is None:
                    return task.result()
    finally:
        for task in tasks:
            task.cancel()
    errors = [asyncio.CancelledError() if one.cancelled() else one.exception() for one in tasks]
    raise BaseExceptionGroup("all of any_() failed", [one for one in errors if one is not None])
