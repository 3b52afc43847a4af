"""The pieces of a step: a thread lent to one run, and the conditions tried when the run is quiet."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextvars import Context
from threading import get_ident
from types import TracebackType
from typing import TYPE_CHECKING, final

from aioflow.core.branch import Branch
from aioflow.core.private import get_running_loop_or_none, set_running_loop
from aioflow.core.tasks import Future, Sealed

if TYPE_CHECKING:
    from aioflow.core.loop import WorkflowLoop

__all__ = ["Condition", "Entered"]


class Condition:
    """A predicate somebody waits for, with the branch and context it is tried in."""

    __slots__ = ("branch", "context", "future", "predicate")

    def __init__(self, predicate: Callable[[], bool], future: Future[bool], branch: Branch, context: Context) -> None:
        self.predicate = predicate
        self.future = future
        self.branch = branch
        self.context = context

    def settle(self) -> bool:
        """Try the predicate once; whether the future is done after it."""
        try:
            holds = bool(self.context.run(self.predicate))
        except Sealed:
            raise
        except BaseException as error:
            self.future.set_exception(error)
            return True
        if holds and not self.future.done():
            self.future.set_result(True)
        return self.future.done()


@final
class Entered:
    """A thread while a run is stepped on it; its state is put back on exit, whatever happened inside."""

    __slots__ = ("_hooks", "_loop", "_previous", "_thread")

    def __init__(self, loop: WorkflowLoop) -> None:
        self._loop = loop

    def __enter__(self) -> WorkflowLoop:
        loop, here = self._loop, get_ident()
        self._thread = loop.entered_by
        if self._thread not in (None, here):
            raise RuntimeError(f"{loop!r} is being stepped by another thread")
        self._previous = get_running_loop_or_none()
        self._hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(firstiter=loop.generators.hold, finalizer=_leave_to_eviction)
        set_running_loop(loop)
        loop.entered_by = here
        return loop

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.entered_by = self._thread
        set_running_loop(self._previous)
        sys.set_asyncgen_hooks(*self._hooks)
        self._previous = None


def _leave_to_eviction(_agen: object) -> None:
    """Finalizer of async generators; without one, the collector would run their ``finally`` blocks."""
