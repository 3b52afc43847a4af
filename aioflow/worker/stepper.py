"""The thread on which the code of workflows is stepped, one hop per batch.

It keeps blocking code off the worker's loop. A step that runs too long is named by its line, its thread is
abandoned and ends when the step does, and the steps behind it move to a fresh thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import sysconfig
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from types import FrameType
from typing import Final

import anyio

from aioflow.errors import AioflowError
from aioflow.telemetry import get_logger

__all__ = ["StepTooLong", "Stepper", "Unit"]

log = get_logger("aioflow.worker")
_OURS: Final = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_LIBRARY: Final = tuple({path + os.sep for path in sysconfig.get_paths().values() if path})


class StepTooLong(AioflowError):
    """Code of a workflow held its thread for too long; ``where`` is the file and line it was at."""

    def __init__(self, where: str, limit: float) -> None:
        self.where = where
        super().__init__(
            f"workflow code did not come to an await within {limit:g} s, it was at {where}: "
            "move long or blocking work into an activity"
        )


class Unit:
    """One piece of work on the thread.

    ``call`` does it. ``progress`` changes whenever it gets on (the next event of a long replay, the next of many
    activities), which starts the time anew. ``dispose`` is called on the abandoned thread when the step ends after all.
    """

    __slots__ = ("call", "dispose", "error", "progress")

    def __init__(
        self,
        call: Callable[[], object],
        progress: Callable[[], object] = lambda: None,
        dispose: Callable[[], object] = lambda: None,
    ) -> None:
        self.call, self.progress, self.dispose = call, progress, dispose
        self.error: BaseException | None = None


class _Hop:
    """Units that travel together, and who waits for them."""

    __slots__ = ("done", "loop", "units")

    def __init__(self, units: Sequence[Unit], loop: asyncio.AbstractEventLoop) -> None:
        self.units, self.loop = deque(units), loop
        self.done: asyncio.Future[None] = loop.create_future()

    def finish(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is gone, nobody waits
            self.loop.call_soon_threadsafe(self._tell)

    def _tell(self) -> None:
        if not self.done.done():
            self.done.set_result(None)


class _Thread:
    """One thread, the hop it is at, and the unit that it runs."""

    def __init__(self, queue: SimpleQueue[_Hop | None], number: int) -> None:
        self.queue, self.lock = queue, threading.Lock()
        self.hop: _Hop | None = None
        self.unit: Unit | None = None
        self.abandoned = False
        self.thread = threading.Thread(target=self._main, name=f"aioflow-steps-{number}", daemon=True)
        self.thread.start()

    def _main(self) -> None:
        while (hop := self.queue.get()) is not None:
            self.hop = hop
            if not self._run(hop):
                return
            self.hop = None
            hop.finish()

    def _is_abandoned(self) -> bool:
        return self.abandoned

    def _run(self, hop: _Hop) -> bool:
        while True:
            with self.lock:
                if self.abandoned or not hop.units:
                    return not self.abandoned
                unit = self.unit = hop.units.popleft()
            error: BaseException | None = None
            try:
                unit.call()
            except BaseException as exc:  # told to whoever waits for the hop
                error = exc
            with self.lock:
                self.unit = None
                if not self._is_abandoned():
                    unit.error = error
                    continue
            with contextlib.suppress(BaseException):
                unit.dispose()
            return False


class Stepper:
    """Runs units on its thread. ``watch`` has to run beside it; ``close`` ends the thread."""

    def __init__(self, limit: float, most_abandoned: int, on_exhausted: Callable[[], None]) -> None:
        self._limit, self._most, self._on_exhausted = limit, most_abandoned, on_exhausted
        self._queue: SimpleQueue[_Hop | None] = SimpleQueue()
        self._lost: list[_Thread] = []
        self._started = 1
        self._thread = _Thread(self._queue, 1)

    async def run(self, units: Sequence[Unit]) -> None:
        """Run all units, in order; each holds its error then, if it raised."""
        hop = _Hop(units, asyncio.get_running_loop())
        self._queue.put(hop)
        await hop.done

    def post(self, call: Callable[[], object]) -> None:
        """Have something done on the thread, some time soon."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return
        self._queue.put(_Hop([Unit(call)], loop))

    def close(self) -> None:
        """End the thread after what is queued."""
        self._queue.put(None)

    async def watch(self) -> None:
        """Look after the thread; never returns."""
        seen: tuple[Unit | None, object] = (None, None)
        held, looked = 0.0, time.monotonic()
        while True:
            await anyio.sleep(self._limit / 8)
            before, looked = looked, time.monotonic()
            unit = self._thread.unit
            now = (unit, None if unit is None else unit.progress())
            if unit is None or now[0] is not seen[0] or now[1] != seen[1]:
                seen, held = now, 0.0
                continue
            # Time that the whole process stood still, as one does that is stopped or suspended, is not the step's.
            held += min(looked - before, self._limit / 4)
            if held >= self._limit:
                self._abandon(unit)

    def _abandon(self, unit: Unit) -> None:
        stuck = self._thread
        with stuck.lock:
            if stuck.unit is not unit or (hop := stuck.hop) is None:
                return  # it ended just now
            stuck.abandoned = True
        where = _place(stuck.thread.ident)
        unit.error = StepTooLong(where, self._limit)
        self._lost = [one for one in self._lost if one.thread.is_alive()] + [stuck]
        log.error("workflow_step_too_long", at=where, threads_abandoned=len(self._lost))
        self._started += 1
        self._thread = _Thread(self._queue, self._started)
        if hop.units:
            self._queue.put(hop)
        else:
            hop.finish()
        if len(self._lost) > self._most:
            self._on_exhausted()


def _place(ident: int | None) -> str:
    """File, line and function of the code a thread is in: the innermost frame that is neither ours nor a library's."""
    innermost = frame = sys._current_frames().get(ident or 0)
    while frame is not None:
        if not _is_library(frame.f_code.co_filename):
            return _say(frame)
        frame = frame.f_back
    return _say(innermost) if innermost is not None else "an unknown place"


def _is_library(path: str) -> bool:
    return path.startswith((_OURS, "<frozen", *_LIBRARY))


def _say(frame: FrameType) -> str:
    return f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_qualname}"
