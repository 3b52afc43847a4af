"""The lease of a worker, renewed by a thread with a loop and a connection of its own.

So neither a busy loop nor a pool in use loses it. A loop that has not run for very long does, on purpose: nobody
works there any more.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from uuid import UUID

import anyio

from aioflow.errors import StoreError
from aioflow.store.pool import Database
from aioflow.store.store import Store
from aioflow.telemetry import get_logger
from aioflow.worker.backoff import jittered

__all__ = ["Lease"]

log = get_logger("aioflow.worker")


class Lease:
    """Holds the lease of one worker id while it is entered; ``on_lost`` is called on the loop when it is lost."""

    def __init__(self, dsn: str, worker_id: UUID, *, ttl: float, stall: float, on_lost: Callable[[], None]) -> None:
        self._dsn, self._worker_id, self._ttl, self._stall, self._on_lost = dsn, worker_id, ttl, stall, on_lost
        self._ticked = time.monotonic()
        self._stopping = threading.Event()
        self._wake: Callable[[], None] = lambda: None
        self._thread = threading.Thread(target=self._main, name="aioflow-lease", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None

    async def __aenter__(self) -> Lease:
        self._loop = asyncio.get_running_loop()
        self._thread.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._wake()
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self._thread.join, 5.0)

    async def tick(self) -> None:
        """Show that the loop runs; never returns."""
        while True:
            self._ticked = time.monotonic()
            await anyio.sleep(min(1.0, self._stall / 4))

    # -- on the thread ----------------------------------------------------------------------------

    def _main(self) -> None:
        try:
            asyncio.run(self._renew_all())
        except Exception:  # without renewals others take the work: do not go on as if it were ours
            log.exception("lease_failed", worker_id=str(self._worker_id))
            self._lose()

    async def _renew_all(self) -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        self._wake = lambda: _call(loop, stop.set)
        pause = 0.0
        store: Store | None = None
        while not self._stopping.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), pause)
            if self._stopping.is_set():
                break
            try:
                if store is None:
                    store = Store(await self._connect())
                if not await self._renew(store):
                    break
                pause = jittered(self._ttl / 3, 0.1)
            except StoreError as exc:
                log.warning("lease_not_renewed", worker_id=str(self._worker_id), error=type(exc).__name__)
                pause = jittered(min(1.0, self._ttl / 10), 1.0)
        if store is not None:
            await store.db.close()

    async def _connect(self) -> Database:
        return await Database.connect(self._dsn, max_size=1, application_name="aioflow lease", patience=self._ttl / 3)

    async def _renew(self, store: Store) -> bool:
        stalled = time.monotonic() - self._ticked
        if stalled > self._stall:
            log.error("loop_stalled", worker_id=str(self._worker_id), seconds=round(stalled, 1))
            return True
        if await store.renew_lease(self._worker_id, self._ttl):
            return True
        self._lose()
        return False

    def _lose(self) -> None:
        if self._loop is not None:
            _call(self._loop, self._on_lost)


def _call(loop: asyncio.AbstractEventLoop, what: Callable[[], None]) -> None:
    with suppress(RuntimeError):  # the loop is closed: nobody is interested
        loop.call_soon_threadsafe(what)
