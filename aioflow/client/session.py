"""What a client and everything it hands out share: the store, batches, hints, waiting results."""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections.abc import Iterable
from random import SystemRandom
from typing import Final
from uuid import UUID

from aioflow.client.known import Known
from aioflow.client.querying import Queries
from aioflow.client.results import Results
from aioflow.core.ids import IdSource
from aioflow.core.keys import InstanceKey
from aioflow.core.limits import Limits
from aioflow.errors import ClientClosed
from aioflow.store.batching import Batcher
from aioflow.store.notify import DONE, WAKE, Listener, Notifier, done_run, run_queue
from aioflow.store.pool import Database
from aioflow.store.rows import DeliveryOutcome, ResultRow, SignalRequest, StartOutcome, StartRequest
from aioflow.store.store import Store
from aioflow.telemetry import get_logger

RETRY_KEY_KEPT: Final = 86_400.0
"""Seconds for which a key that only guards against a lost answer is remembered."""


log = get_logger("aioflow.client")


def default_identity() -> str:
    """Who calls: ``pid@host``, kept in histories for people."""
    return f"{os.getpid()}@{socket.gethostname()}"


class Session:
    """One open client. ``listen_dsn`` is a direct address for notifications; None: polling alone."""

    def __init__(
        self,
        database: Database,
        *,
        namespace: str,
        identity: str,
        workflows: Iterable[type],
        listen_dsn: str | None,
        limits: Limits,
    ) -> None:
        self.database, self.namespace, self.identity, self.limits = database, namespace, identity, limits
        self.store = Store(database)
        self.ids = IdSource(time.time, secrets.token_bytes)
        self.known = Known(self.store, namespace, workflows, payload_limit=limits.payload)
        self.queries = Queries(self.store, limits=limits)
        self._results = Results(self.store.results, hearing=self._hearing, random=SystemRandom())
        self._notifier = Notifier(database, on_lost=_hint_lost)
        self._listen_dsn = listen_dsn
        self._listener: Listener | None = None
        self._starts = Batcher[StartRequest, StartOutcome](self.store.start, bytes=lambda one: one.record.size)
        # One lane, so that signals that follow each other arrive in that order.
        self._signals = Batcher[SignalRequest, DeliveryOutcome](
            self.store.signal, lanes=1, bytes=lambda one: one.record.size
        )
        self._closed = False
        database.on_failover(self._fail_over)

    def _fail_over(self) -> None:
        """The database went to another timeline: what it told before may never have happened there."""
        log.warning("database_failed_over", identity=self.identity)
        self.known.forget()
        self._results.rescan()

    def require_open(self) -> None:
        """Raise `ClientClosed` after the client was closed."""
        if self._closed:
            raise ClientClosed("the client is closed")

    async def close(self) -> None:
        """Finish what is under way, wake waiters with `ClientClosed`, and let go of the database."""
        if self._closed:
            return
        self._closed = True
        await self._results.close()
        if self._listener is not None:
            await self._listener.close()
        await self._starts.close()
        await self._signals.close()
        await self._notifier.close()
        await self.database.close()

    # -- writing ----------------------------------------------------------------------------------

    async def start(self, request: StartRequest) -> StartOutcome:
        """Send one start; those with generated ids share a transaction."""
        if request.alone:
            return (await self.store.start([request]))[0]
        self.require_open()  # again: names may have been looked up since
        return await self._starts(request)

    async def signal(self, request: SignalRequest) -> DeliveryOutcome:
        """Send one signal; those without a key of the caller share a transaction."""
        if request.alone:
            return (await self.store.signal([request]))[0]
        self.require_open()
        return await self._signals(request)

    def wake(self, queue: str) -> None:
        """Tell workers that a run of this queue may be claimed."""
        self._notifier.notify(WAKE, [run_queue(queue)])

    def done(self, run_id: UUID) -> None:
        """Tell whoever waits for the result of this run."""
        self._results.closed_runs([run_id])
        self._notifier.notify(DONE, [done_run(run_id)])

    # -- waiting ----------------------------------------------------------------------------------

    async def result(self, key: InstanceKey, run_id: UUID | None) -> ResultRow:
        """Wait for the end of a chain of runs; the first call starts the listener."""
        if self._listener is None and self._listen_dsn is not None and not self._closed:
            self._listener = Listener(self._listen_dsn, [DONE], self._heard, self._results.rescan)
            await self._listener.__aenter__()
        return await self._results.wait(key, run_id)

    async def result_so_far(self, key: InstanceKey, run_id: UUID | None) -> ResultRow | None:
        """The end of a chain of runs if it has come, else None; asks and does not wait."""
        return await self._results.look(key, run_id)

    def _hearing(self) -> bool:
        return self._listener is not None and self._listener.listening

    def _heard(self, channel: str, items: list[str]) -> None:
        self._results.closed_runs(run for item in items if (run := _run_id(item)) is not None)


def _hint_lost(error: Exception) -> None:
    log.warning("workers could not be notified; they poll", error=str(error))


def _run_id(text: str) -> UUID | None:
    try:
        return UUID(hex=text)
    except ValueError:
        return None  # a hint of a newer version
