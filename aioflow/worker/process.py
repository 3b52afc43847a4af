"""A process that is a worker: its event loop, its signals, its exit code."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Final

import anyio

from aioflow.telemetry import get_logger
from aioflow.worker.worker import Worker

__all__ = ["run", "serve"]

log = get_logger("aioflow.worker")
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
_LINGER: Final = 1.0  # seconds


def run(make: Callable[[], Worker]) -> int:
    """Run the worker that ``make()`` gives, called on the loop, until a signal comes; gives the exit code.

    SIGTERM or SIGINT drains and gives 0. A second one ends the process at once, with 128 and the signal's number.
    Errors of the worker are raised. Uses uvloop when it is installed.
    """
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(serve(make))
    if _threads_left():
        # Threads of activities that did not end in time: their work was given back, nobody waits for them.
        _leave(0)
    return 0


def _threads_left() -> bool:
    """Whether threads would keep the interpreter from ending; idle ones of a pool get a moment to end by themselves."""
    deadline = time.monotonic() + _LINGER
    for one in threading.enumerate():
        if not one.daemon and one is not threading.main_thread():
            one.join(max(0.0, deadline - time.monotonic()))
            if one.is_alive():
                return True
    return False


async def serve(make: Callable[[], Worker]) -> None:
    """The same on a loop that runs already, in the main thread; returns when drained."""
    worker = make()
    loop = asyncio.get_running_loop()
    with anyio.CancelScope() as starting:

        def asked(number: signal.Signals) -> None:
            log.info("signal_received", signal=number.name)
            for one in _SIGNALS:
                loop.remove_signal_handler(one)
                signal.signal(one, _force)
            worker.request_drain()
            if not worker.started:
                starting.cancel()

        before = [signal.getsignal(one) for one in _SIGNALS]
        for one in _SIGNALS:
            loop.add_signal_handler(one, asked, one)
        try:
            await worker.run()
        finally:
            for one, handler in zip(_SIGNALS, before, strict=True):
                loop.remove_signal_handler(one)
                if signal.getsignal(one) is not _force:  # that one has to outlive the loop, which may hang
                    signal.signal(one, handler)


def _force(number: int, frame: FrameType | None) -> None:
    log.warning("forced_exit", signal=signal.Signals(number).name)
    _leave(128 + number)


def _leave(code: int) -> None:
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop
