"""Signs of life of running attempts, and the question whether they are still ours: one statement for all."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from uuid import UUID

from aioflow.core.fault import fault
from aioflow.errors import StoreError
from aioflow.store.store import Store
from aioflow.telemetry import get_logger
from aioflow.worker.attempt import Attempt
from aioflow.worker.wakeup import Wake

__all__ = ["Heartbeats"]

log = get_logger("aioflow.worker")


class Heartbeats:
    """Writes heartbeats once per ``interval``, sooner for attempts with a short heartbeat timeout.

    An attempt without a heartbeat is only asked about: that tells it of its cancellation.
    """

    def __init__(self, store: Store, running: Mapping[UUID, Attempt], interval: float) -> None:
        self._store, self._running, self._interval = store, running, interval
        self._wake = Wake()
        self._idle = asyncio.Event()  # no batch is on its way
        self._idle.set()
        self._pace = interval

    def begun(self, attempt: Attempt) -> None:
        """An attempt began; it may need a quicker pace."""
        timeout = attempt.row.heartbeat_timeout
        if timeout is not None and timeout / 3 < self._pace:
            self._wake.set()

    async def run(self) -> None:
        """Never returns."""
        loop = asyncio.get_running_loop()
        while True:
            self._wake.clear()
            self._pace = self._shortest()
            await self._wake.wait(self._pace)
            late = loop.time() - 0.9 * self._interval
            await self._send([one for one in self._running.values() if one.dirty or one.asked <= late])

    async def flush(self, attempt: Attempt) -> None:
        """Write what the attempt said last; a batch on its way may hold it and come too late. Raises `StoreError`."""
        while not self._idle.is_set():
            await self._idle.wait()
        if attempt.dirty:
            await self._store.heartbeat([attempt.beat(ask=False)])
            attempt.dirty = False

    def _shortest(self) -> float:
        timeouts = [one.row.heartbeat_timeout for one in self._running.values()]
        return max(0.02, min((t / 3 for t in timeouts if t is not None), default=self._interval))

    async def _send(self, attempts: Sequence[Attempt]) -> None:
        if not attempts:
            return
        now = asyncio.get_running_loop().time()
        beats = []
        for one in attempts:
            beats.append(one.beat(ask=not one.dirty))
            one.asked = now
        dirty: Collection[Attempt] = [one for one in attempts if one.dirty]
        for one in dirty:
            one.dirty = False
        self._idle.clear()
        try:
            await fault("heartbeat.before_batch")
            mine = await self._store.heartbeat(beats)
        except StoreError as exc:
            log.warning("heartbeats_failed", error=type(exc).__name__, attempts=len(attempts))
            for one in dirty:
                one.dirty = True
            return
        finally:
            self._idle.set()
        for one, ours in zip(attempts, mine, strict=True):
            if not ours:
                one.gone()
