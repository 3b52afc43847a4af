"""Futures and tasks of a run: one behaviour on every Python, one order in every process.

``Task`` has the semantics of CPython 3.13's and is the same Python code everywhere; the interpreter's own
differ between versions and between their C and Python forms in which cancellation wins. Both classes hash
by a number that the run counts up, never by address, so sets of them (``asyncio.wait``, anyio's scopes)
iterate alike everywhere.
"""

from __future__ import annotations

import asyncio
import inspect
import traceback
from asyncio import CancelledError, InvalidStateError
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, copy_context
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, TextIO, TypeVar, cast, final

from aioflow.core.branch import Branch
from aioflow.core.private import enter_task, leave_task, verify_private_names
from aioflow.errors import NotDurable

if TYPE_CHECKING:
    from aioflow.core.loop import WorkflowLoop

__all__ = [
    "DurableFuture",
    "Future",
    "Sealed",
    "Task",
    "await_chain",
    "frame_summary",
    "verify_private_names",
]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

_FOREIGN: Final = (
    "{task} awaits {future!r}, which is attached to a different loop; locks, events, futures and tasks "
    "cannot be shared between workflows or with other code: use a signal"
)


class Sealed(BaseException):
    """The decision of this run is taken: it is only unwound, and nothing may come out of it."""


class Future(asyncio.Future[T]):
    """``asyncio.Future`` of a run, hashed by the run's own sequence."""

    __slots__ = ("_sequence",)

    def __init__(self, *, loop: WorkflowLoop) -> None:
        self._sequence = loop.next_sequence()
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self._sequence

    def __eq__(self, other: object) -> bool:
        return self is other

    def set_exception(self, exception: type | BaseException, /) -> None:
        """As asyncio's; ``StopIteration`` becomes ``RuntimeError`` on every Python, not only from 3.12."""
        if isinstance(exception, type):
            exception = exception()
        if isinstance(exception, StopIteration):
            stop = exception
            exception = RuntimeError("StopIteration interacts badly with generators and cannot be raised into a Future")
            exception.__cause__ = exception.__context__ = stop
        super().set_exception(exception)


@final
class DurableFuture(Future[Any]):
    """A future that history resolves; cancelling it while it is pending tells the run so, once."""

    __slots__ = ("_on_cancel", "_owner", "ref")

    def __init__(self, *, loop: WorkflowLoop, ref: str, on_cancel: Callable[[str], None]) -> None:
        super().__init__(loop=loop)
        self._owner = loop
        self._on_cancel: Callable[[str], None] | None = on_cancel
        self.ref = ref

    def cancel(self, msg: Any | None = None) -> bool:
        """Cancel; ``on_cancel(ref)`` runs first, unless the future is done or the run is sealed."""
        on_cancel = self._on_cancel
        if on_cancel is not None and not self.done() and not self._owner.sealed:
            self._on_cancel = None
            on_cancel(self.ref)
        return super().cancel(msg)


# A task of ours is no C task, which would schedule and register itself; for the type checker, and for
# isinstance() through __class__, it is one.
if TYPE_CHECKING:
    from asyncio import Task as _TaskBase
else:
    _TaskBase = Future


@final
class Task(_TaskBase[T_co]):
    """A branch that runs: CPython 3.13's task, outside asyncio's registry, knowing its branch.

    One deliberate difference: ``SystemExit`` and ``KeyboardInterrupt`` are kept as the outcome of the task and do
    not leave the loop, because workflow code has no say in when a worker exits.
    """

    __slots__ = (
        "_cancel_text",
        "_cancelled_exc",
        "_context",
        "_coro",
        "_fut_waiter",
        "_must_cancel",
        "_name",
        "_num_cancels_requested",
        "_owner",
        "branch",
    )

    def __init__(
        self,
        coro: Coroutine[Any, Any, T_co],
        *,
        loop: WorkflowLoop,
        branch: Branch,
        name: str | None = None,
        context: Context | None = None,
    ) -> None:
        if not asyncio.iscoroutine(coro):
            raise TypeError(f"a coroutine was expected, got {coro!r}")
        Future.__init__(cast("Future[T_co]", self), loop=loop)
        self.branch = branch
        self._owner = loop
        self._coro: Coroutine[Any, Any, T_co] = coro
        self._name = branch.path if name is None else str(name)
        self._context = copy_context() if context is None else context
        self._num_cancels_requested = 0
        self._must_cancel = False
        self._cancel_text: Any | None = None
        self._cancelled_exc: CancelledError | None = None
        self._fut_waiter: asyncio.Future[Any] | None = None
        loop.call_soon(self._step, context=self._context)

    @property
    def __class__(self) -> Any:
        return asyncio.Task

    @__class__.setter
    def __class__(self, value: Any) -> None:
        raise TypeError("the class of a task cannot be changed")

    def __repr__(self) -> str:
        state = "cancelled" if self.cancelled() else "finished" if self.done() else "pending"
        return f"<Task {self._name!r} {state} branch={self.branch.path}>"

    # -- what it is ---------------------------------------------------------------------------

    def get_coro(self) -> Coroutine[Any, Any, T_co]:
        """The coroutine this task runs."""
        return self._coro

    def get_context(self) -> Context:
        """The context the coroutine runs in."""
        return self._context

    def get_name(self) -> str:
        """The name; the path of the branch unless one was given."""
        return self._name

    def set_name(self, value: object, /) -> None:
        """Name the task; no address comes from it."""
        self._name = str(value)

    def get_stack(self, *, limit: int | None = None) -> list[FrameType]:
        """The frames of the coroutine and what it awaits, outermost first; the innermost ``limit``."""
        frames = [] if self.done() else [frame for _, frame in await_chain(self._coro)]
        return frames if limit is None else frames[-limit:]

    def print_stack(self, *, limit: int | None = None, file: TextIO | None = None) -> None:
        """Print ``get_stack()``."""
        summary = traceback.StackSummary.extract((frame, frame.f_lineno) for frame in self.get_stack(limit=limit))
        print(f"Stack for {self!r} (most recent call last):", file=file)
        print("".join(summary.format()), end="", file=file)

    # -- outcome ------------------------------------------------------------------------------

    def set_result(self, result: object, /) -> None:
        """Refused, as by asyncio."""
        raise RuntimeError("Task does not support set_result operation")

    def set_exception(self, exception: object, /) -> None:
        """Refused, as by asyncio."""
        raise RuntimeError("Task does not support set_exception operation")

    def result(self) -> T_co:
        """The result, or the exception raised; a cancelled task raises its own ``CancelledError`` once."""
        if self.cancelled():
            raise self._make_cancelled_error()
        return super().result()

    def exception(self) -> BaseException | None:
        """The exception, or ``None``; raises ``CancelledError`` for a cancelled task."""
        if self.cancelled():
            raise self._make_cancelled_error()
        return super().exception()

    def __await__(self) -> Generator[Any, None, T_co]:
        if not self.done():
            self._asyncio_future_blocking = True
            yield self
        if not self.done():
            raise RuntimeError("await wasn't used with future")
        return self.result()

    __iter__ = __await__

    def _make_cancelled_error(self) -> CancelledError:
        if (exc := self._cancelled_exc) is not None:
            self._cancelled_exc = None
            return exc
        return CancelledError() if self._cancel_text is None else CancelledError(self._cancel_text)

    # -- cancellation -------------------------------------------------------------------------

    def cancel(self, msg: Any | None = None) -> bool:
        """Ask for a ``CancelledError`` at the next await; ``False`` when the task is done."""
        if self.done():
            self._log_traceback = False
            return False
        self._num_cancels_requested += 1
        if self._fut_waiter is not None and self._fut_waiter.cancel(msg=msg):
            # Left in place: it may be a task that swallows the cancellation and has to be asked again.
            return True
        self._must_cancel = True
        self._cancel_text = msg
        return True

    def cancelling(self) -> int:
        """How many cancellations were asked for and not taken back."""
        return self._num_cancels_requested

    def uncancel(self) -> int:
        """Take one request back; with the last one a cancellation not yet delivered is gone too (3.13)."""
        if self._num_cancels_requested > 0:
            self._num_cancels_requested -= 1
            if self._num_cancels_requested == 0:
                self._must_cancel = False
        return self._num_cancels_requested

    def drop(self) -> None:
        """Mark the task as cancelled without running it again; for the eviction of a run."""
        Future.cancel(cast("Future[T_co]", self))

    # -- running ------------------------------------------------------------------------------

    def _step(self, exc: BaseException | None = None) -> None:
        if self.done():
            raise InvalidStateError(f"_step(): already done: {self!r}, {exc!r}")
        if self._must_cancel:
            if not isinstance(exc, CancelledError):
                exc = self._make_cancelled_error()
            self._must_cancel = False
        self._fut_waiter = None
        loop = self._owner
        enter_task(loop, self)
        loop.active = self
        try:
            self._run(exc)
        finally:
            loop.active = None
            leave_task(loop, self)
            del self, exc  # or a failing task keeps itself alive through its traceback

    def _run(self, exc: BaseException | None) -> None:
        base = cast("Future[T_co]", super())
        try:
            yielded = self._coro.send(None) if exc is None else self._coro.throw(exc)
        except StopIteration as stop:
            if self._must_cancel:
                self._must_cancel = False
                base.cancel(msg=self._cancel_text)
            else:
                base.set_result(stop.value)
        except CancelledError as cancelled:
            self._cancelled_exc = cancelled
            base.cancel()
        except BaseException as error:
            base.set_exception(error)
        else:
            self._suspend(yielded)
        finally:
            del self, base, exc

    def _suspend(self, yielded: Any) -> None:
        problem: Exception
        blocking = getattr(yielded, "_asyncio_future_blocking", None)
        if blocking is None:
            if yielded is None:
                self._owner.call_soon(self._step, context=self._context)
                return
            kind = "yield was used instead of yield from for generator in task" if inspect.isgenerator(yielded) else ""
            problem = RuntimeError(f"{kind} {self!r} with {yielded!r}" if kind else f"Task got bad yield: {yielded!r}")
        elif yielded.get_loop() is not self._owner:
            problem = NotDurable(_FOREIGN.format(task=self, future=yielded))
        elif not blocking:
            problem = RuntimeError(f"yield was used instead of yield from in task {self!r} with {yielded!r}")
        elif yielded is self:
            problem = RuntimeError(f"Task cannot await on itself: {self!r}")
        else:
            yielded._asyncio_future_blocking = False
            yielded.add_done_callback(self._wakeup, context=self._context)
            self._fut_waiter = yielded
            if self._must_cancel and yielded.cancel(msg=self._cancel_text):
                self._must_cancel = False
            return
        self._owner.call_soon(self._step, problem, context=self._context)

    def _wakeup(self, future: asyncio.Future[Any]) -> None:
        try:
            future.result()
        except BaseException as exc:
            self._step(exc)
        else:
            self._step()
        del self, future


def await_chain(awaited: object) -> list[tuple[object, FrameType]]:
    """A suspended coroutine and the coroutines it awaits, each with its frame, outermost first."""
    chain: list[tuple[object, FrameType]] = []
    while awaited is not None:
        frame = _first(awaited, "cr_frame", "gi_frame", "ag_frame")
        if not isinstance(frame, FrameType):
            break
        chain.append((awaited, frame))
        awaited = _first(awaited, "cr_await", "gi_yieldfrom", "ag_await")
    return chain


def _first(owner: object, *names: str) -> object:
    for name in names:
        if (value := getattr(owner, name, None)) is not None:
            return cast("object", value)
    return None


def frame_summary(frame: FrameType) -> traceback.FrameSummary:
    """File, line and qualified name of a frame; reads no source."""
    code = frame.f_code
    return traceback.FrameSummary(code.co_filename, frame.f_lineno, code.co_qualname, lookup_line=False)
