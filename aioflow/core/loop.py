"""The event loop of one run: ordinary asyncio on top, nothing but history below.

Callbacks run first in, first out; time is the time of the event being applied; a timer is a command; there
is no I/O. The replay layer enters the loop, resolves what the event resolves, drains until quiet, and takes
the commands::

    with loop.entered():
        loop.advance(event.at)
        loop.fire_timer(event.ref)
        loop.drain()
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Mapping
from contextvars import Context, copy_context
from hashlib import blake2b
from traceback import FrameSummary
from typing import Any, Final, Protocol, TypeVar, TypeVarTuple, cast, final

from aioflow.core.branch import Branch
from aioflow.core.generators import Generators
from aioflow.core.handles import Handle
from aioflow.core.parking import Parking
from aioflow.core.private import get_running_loop_or_none
from aioflow.core.refusals import RefusingLoop, refuse_the_rest
from aioflow.core.stepping import Condition, Entered
from aioflow.core.tasks import DurableFuture, Future, Sealed, Task, await_chain, frame_summary
from aioflow.core.unwind import unwind_task
from aioflow.errors import NotDurable, WorkflowLivelock

__all__ = ["MAX_STEPS", "LoopHost", "Sealed", "WorkflowLoop"]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

MAX_STEPS: Final = 200_000
"""Callbacks after one event before a workflow counts as livelocked; about a third of a second."""

_SWEEP: Final = 64
# Suspended runs are held until they are evicted: the collector would close their coroutines inside another
# run.
_HELD: Final[set[WorkflowLoop]] = set()


class LoopHost(Protocol):
    """What a loop reports to the run it belongs to. Called while the loop is entered, except as noted."""

    def timer_started(self, ref: str, when: float) -> None:
        """A timer at address ``ref`` is due at ``when``, in seconds of the loop's time."""

    def timer_cancelled(self, ref: str) -> None:
        """A timer that was started and has not fired is not wanted any more."""

    def callback_failed(self, context: dict[str, Any]) -> None:
        """Something to log, in the shape asyncio's handlers get. May come from the garbage collector."""


@final
class WorkflowLoop(RefusingLoop):
    """Deterministic loop of one run. Not thread safe; it may move between threads while it is not entered.

    ``run_key`` seeds the hashes of tasks and futures, so that they are equal in every process and differ
    between runs. ``host`` is the run that it belongs to.
    """

    def __init__(self, run_key: bytes, host: LoopHost) -> None:
        self.root = Branch("0")
        self.active: Task[Any] | None = None
        self.progress = 0
        self.unguarded = 0
        self.host = host
        self._now = 0.0
        self._sequence = int.from_bytes(blake2b(run_key, digest_size=7).digest(), "big")
        self._branch = self.root
        self._ready: deque[Handle] = deque()
        self._timers: dict[str, Handle] = {}
        self._conditions: list[Condition] = []
        self._tasks: list[Task[Any]] = []
        self._sweep_at = _SWEEP
        self.generators = Generators()
        self._parking = Parking()
        self._misuse: NotDurable | None = None
        self.entered_by: int | None = None
        self._draining = self._sealed = self._evicted = False

    def __repr__(self) -> str:
        state = "evicted" if self._evicted else "sealed" if self._sealed else "open"
        return f"<WorkflowLoop {state} now={self._now!r} branches={len(self._tasks)}>"

    # -- time and identity --------------------------------------------------------------------

    @property
    def now(self) -> float:
        """Time of the event being applied, in seconds since the epoch."""
        return self._now

    def advance(self, to: float) -> None:
        """Move time forward; an earlier time changes nothing."""
        if to > self._now:
            self._now = to

    def time(self) -> float:
        """The same as ``now``, under asyncio's name."""
        return self._now

    def next_sequence(self) -> int:
        """The next hash of this run."""
        self._sequence += 1
        return self._sequence

    def current_branch(self) -> Branch:
        """The branch that is running: the task's, else that of the callback. ``Sealed`` when unwinding."""
        if self._sealed:
            raise Sealed
        return self._branch if self.active is None else self.active.branch

    # -- the durable part of asyncio's protocol -----------------------------------------------

    def get_debug(self) -> bool:
        """Never: asyncio's debug mode takes tracebacks and wall time."""
        return False

    def queued(self) -> int:
        """Number of callbacks waiting to run; none between events."""
        return len(self._ready)

    def is_running(self) -> bool:
        """Whether some thread is inside ``entered()``."""
        return self.entered_by is not None

    def is_closed(self) -> bool:
        """Whether the run was evicted."""
        return self._evicted

    def get_task_factory(self) -> None:
        """There is none."""

    def get_exception_handler(self) -> None:
        """There is none."""

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Hand the context to the host to log; silent once sealed."""
        if not self._sealed:
            self.host.callback_failed(context)

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        """The same as ``call_exception_handler``."""
        self.call_exception_handler(context)

    def create_future(self) -> Future[Any]:
        """A future of this run."""
        return Future(loop=self)

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: str | None = None,
        context: Context | None = None,
        eager_start: bool | None = None,
    ) -> Task[T]:
        """Start a child branch of the current one. ``Sealed`` when unwinding; eager starts are refused."""
        coro = cast("Coroutine[Any, Any, T]", coro)
        if self._sealed or eager_start:
            coro.close()
            if self._sealed:
                raise Sealed
            raise NotDurable("eager tasks change the order of branches; in a workflow leave out eager_start")
        return self._start(coro, self.current_branch().child(), copy_context() if context is None else context, name)

    def spawn(self, coro: Coroutine[Any, Any, T], branch: Branch, context: Context | None = None) -> Task[T]:
        """Start a branch of the run: ``handle()`` or a message handler, in an empty context by default.

        Inside ``entered()``; the branch runs with the next ``drain()``.
        """
        if self._sealed:
            coro.close()
            raise Sealed
        return self._start(coro, branch, Context() if context is None else context, None)

    def _start(self, coro: Coroutine[Any, Any, T], branch: Branch, context: Context, name: str | None) -> Task[T]:
        task = Task(coro, loop=self, branch=branch, name=name, context=context)
        self.progress += 1
        if len(self._tasks) >= self._sweep_at:
            self._tasks = [one for one in self._tasks if not one.done()]
            self._sweep_at = max(_SWEEP, 2 * len(self._tasks))
        self._tasks.append(task)
        _HELD.add(self)
        return task

    def tasks(self) -> list[Task[Any]]:
        """The tasks that are not done, oldest first."""
        return [task for task in self._tasks if not task.done()]

    def call_soon(self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None) -> Handle:
        """Queue a callback. ``NotDurable`` unless this loop is the one running: something is shared."""
        branch = self._branch if self.active is None else self.active.branch
        handle = Handle(callback, args, context, branch, self._now)
        if self._sealed:
            return handle
        if get_running_loop_or_none() is not self:
            self._misuse = NotDurable(
                f"{callback!r} of one workflow was triggered from outside of it; locks, events, queues, "
                "futures and tasks cannot be shared between workflows or with other code: use a signal"
            )
            raise self._misuse
        self._ready.append(handle)
        return handle

    def call_later(
        self,
        delay: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> Handle:
        """A timer ``delay`` seconds from ``now``; see ``call_at``."""
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> Handle:
        """A timer: a command of the current branch, unless ``when`` has come or never will (infinity)."""
        if self._sealed:
            raise Sealed
        when = float(when)
        if math.isnan(when):
            raise ValueError("Invalid delay: NaN (not a number)")
        if when <= self._now:
            return self.call_soon(callback, *args, context=context)
        branch = self.current_branch()
        handle = Handle(callback, args, context, branch, when)
        if when != math.inf:
            ref = branch.command_id("t")
            self.host.timer_started(ref, when)  # may refuse
            handle.ref = ref
            handle.release = self._release_timer
            self._timers[ref] = handle
            self.progress += 1
        return handle

    async def shutdown_asyncgens(self) -> None:
        """Close the async generators left open, in the order they were begun; failures are reported."""
        await self.generators.close(self.call_exception_handler)

    # -- what history resolves ----------------------------------------------------------------

    def durable_future(self, ref: str, on_cancel: Callable[[str], None]) -> DurableFuture:
        """A future for the command at ``ref``; ``on_cancel(ref)`` runs if it is cancelled while pending."""
        if self._sealed:
            raise Sealed
        self.progress += 1
        return DurableFuture(loop=self, ref=ref, on_cancel=on_cancel)

    def fire_timer(self, ref: str) -> bool:
        """Queue the callback of a timer, moving time to its due time; ``False`` if it is not pending."""
        handle = self._timers.pop(ref, None)
        if handle is None:
            return False
        handle.release = None
        self.advance(handle.due)
        self._ready.append(handle)
        return True

    def retime(self, ref: str, due: float) -> None:
        """Give a pending timer another due time."""
        self._timers[ref].due = due

    def pending_timers(self) -> Mapping[str, float]:
        """Due time of each pending timer by address, oldest first."""
        return {ref: handle.due for ref, handle in self._timers.items()}

    def _release_timer(self, ref: str) -> None:
        if self._timers.pop(ref, None) is not None and not self._sealed:
            self.progress += 1
            self.host.timer_cancelled(ref)

    def add_condition(self, predicate: Callable[[], bool]) -> Future[bool]:
        """A future that turns true when the predicate does, looked at whenever the run is quiet.

        They are tried in the order they were added, one success at a time, each in its own context.
        What a predicate raises goes to the future.
        """
        branch = self.current_branch()
        future: Future[bool] = Future(loop=self)
        self._conditions.append(Condition(predicate, future, branch, copy_context()))
        return future

    # -- stepping -----------------------------------------------------------------------------

    def entered(self) -> Entered:
        """Context manager: make this the running loop of the current thread."""
        return Entered(self)

    def drain(self) -> None:
        """Run until quiet. After any error the run has to be evicted.

        ``WorkflowLivelock`` after 200,000 callbacks; ``NotDurable`` when an object of this run was used from
        outside of it, which left the run in a state that no history gives.
        """
        if get_running_loop_or_none() is not self or self._draining:
            raise RuntimeError("drain() is for the driver of the run, inside entered()")
        if (misuse := self._misuse) is not None:
            self._misuse = None
            raise misuse
        self._draining = True
        self._parking.release(self._ready)
        try:
            steps = self._run_ready(0)
            while self._try_conditions():
                steps = self._run_ready(steps + 1)
        finally:
            self._draining = False
            self._branch = self.root

    def _run_ready(self, steps: int) -> int:
        ready, parking = self._ready, self._parking
        while ready and not self._sealed:
            handle = ready.popleft()
            callback = handle.callback
            if callback is None:
                continue
            steps += 1
            if steps > MAX_STEPS:
                raise WorkflowLivelock(f"{MAX_STEPS} callbacks after one event, and still not quiet; now at {handle!r}")
            if steps > parking.after and parking.parks(handle, self.progress):
                continue
            self._branch = handle.branch
            try:
                handle.context.run(callback, *handle.args)
            except Sealed:
                raise
            except BaseException as error:  # whatever it is, workflow code does not end its worker
                message = f"Exception in callback {handle!r}"
                self.call_exception_handler({"message": message, "exception": error, "handle": handle})
        self._branch = self.root
        return steps

    def _try_conditions(self) -> bool:
        position = 0
        while position < len(self._conditions) and not self._sealed:
            condition = self._conditions[position]
            if condition.future.done():
                del self._conditions[position]
                continue
            self._branch = condition.branch
            if condition.settle():
                self._conditions.remove(condition)
                return True
            position += 1
        return False

    # -- the end ------------------------------------------------------------------------------

    @property
    def sealed(self) -> bool:
        """Whether the decision is taken: no command may come out any more."""
        return self._sealed

    def seal(self) -> None:
        """Let no command out any more; durable helpers raise ``Sealed`` from now on. Safe from any thread."""
        self._sealed = True

    def evict(self) -> None:
        """Seal, then unwind every branch, newest first, and forget them. Does nothing the second time."""
        self.seal()
        if self._evicted:
            return
        with self.entered():
            for task in reversed(self._tasks):
                if not task.done():
                    unwind_task(self, task)
            self.generators.unwind()
        self._evicted = True
        for held in (self._ready, self._timers, self._conditions, self._tasks):
            held.clear()
        self._parking.clear()
        _HELD.discard(self)

    def parked(self) -> list[Handle]:
        """Callbacks that wait for another event; a run with no event to come is stuck on them."""
        return self._parking.parked()

    def stacks(self) -> list[tuple[str, list[FrameSummary]]]:
        """Branch path and frames, outermost first, of every task that is not done. Reads no source."""
        return [
            (task.branch.path, [frame_summary(frame) for _, frame in await_chain(task.get_coro())])
            for task in self.tasks()
        ]


refuse_the_rest(WorkflowLoop)
