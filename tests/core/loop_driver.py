"""A small driver for runs of the workflow loop: events in, a log of commands out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from aioflow.core import aio
from aioflow.core.loop import WorkflowLoop
from aioflow.core.tasks import DurableFuture, Task

T = TypeVar("T")

aio.install()


class Driven:
    """One run. ``log`` holds commands as text, with start and cancel within one event elided."""

    def __init__(self, main: Callable[..., Coroutine[Any, Any, Any]], *args: Any, key: bytes = b"run") -> None:
        self.loop = WorkflowLoop(key, self)
        self.log: list[str] = []
        self.notes: list[Any] = []
        self.failures: list[dict[str, Any]] = []
        self.pending: dict[str, DurableFuture] = {}
        self._event: dict[str, str] = {}
        self.task: Task[Any]
        with self.loop.entered():
            self.task = self.loop.spawn(main(*args), self.loop.root)
        self.event()

    # -- what the loop reports ----------------------------------------------------------------

    def timer_started(self, ref: str, when: float) -> None:
        self._event[ref] = f"timer {ref} {when:g}"

    def timer_cancelled(self, ref: str) -> None:
        self._gone(ref)

    def callback_failed(self, context: dict[str, Any]) -> None:
        self.failures.append(context)

    def _gone(self, ref: str) -> None:
        if self._event.pop(ref, None) is None:
            self._event["-" + ref] = f"cancel {ref}"

    # -- events -------------------------------------------------------------------------------

    def event(self, apply: Callable[[], object] | None = None, at: float | None = None) -> list[str]:
        try:
            with self.loop.entered():
                self.loop.advance(self.loop.now if at is None else at)
                if apply is not None:
                    apply()
                self.loop.drain()
        except BaseException:
            self.loop.evict()
            raise
        commands = list(self._event.values())
        self._event.clear()
        self.log += commands
        return commands

    def complete(self, ref: str, value: Any = None, at: float | None = None) -> list[str]:
        return self.event(lambda: self.pending.pop(ref).set_result(value), at)

    def fail(self, ref: str, error: BaseException, at: float | None = None) -> list[str]:
        return self.event(lambda: self.pending.pop(ref).set_exception(error), at)

    def fire(self, ref: str, at: float | None = None) -> list[str]:
        return self.event(lambda: self.loop.fire_timer(ref), at)

    def cancel(self, at: float | None = None) -> list[str]:
        return self.event(self.task.cancel, at)

    def finish(self, limit: int = 10_000) -> Any:
        """Complete the oldest activity, else fire the earliest timer, until done; the result."""
        for _ in range(limit):
            if self.task.done():
                break
            timers = self.loop.pending_timers()
            if self.pending:
                self.complete(next(iter(self.pending)), self.loop.now)
            elif timers:
                self.fire(min(timers, key=lambda ref: (timers[ref], ref)))
            else:
                raise AssertionError(f"stuck: {self.loop.stacks()}")
        return self.task.result()

    def close(self) -> None:
        self.loop.evict()
        assert not self._event


def current() -> Driven:
    host = asyncio.get_running_loop().host  # type: ignore[attr-defined]  # the loop is ours
    assert isinstance(host, Driven)
    return host


async def activity(name: str) -> Any:
    """A stand-in for the durable helper."""
    run = current()
    ref = run.loop.current_branch().command_id("a")
    future = run.loop.durable_future(ref, lambda gone: (run.pending.pop(gone), run._gone(gone)))
    run.pending[ref] = future
    run._event[ref] = f"activity {ref} {name}"
    return await future


def note(what: Any) -> None:
    current().notes.append(what)


def outcome(main: Callable[..., Coroutine[Any, Any, Any]], *args: Any) -> Any:
    """Result of a workflow that needs nothing but timers and activities that give the time."""
    run = Driven(main, *args)
    try:
        return run.finish()
    finally:
        run.close()
        assert not run.failures
