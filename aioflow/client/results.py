"""Waiting for results: one listener and one batched query for all waiters of a client.

Notifications only say that asking pays off now; they may be lost, so every waiter also asks on its own, with back-off
and jitter. Whoever is due asks together: at most one query is in flight, however many wait.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextvars import Context
from itertools import islice
from random import Random
from typing import Final
from uuid import UUID

from aioflow.core.events import RunContinuedAsNew
from aioflow.core.keys import InstanceKey
from aioflow.core.versions import decode
from aioflow.errors import ClientClosed, InstanceNotFound, StoreError
from aioflow.store.rows import InstanceRef, ResultRow
from aioflow.telemetry import get_logger

OPEN: Final = frozenset({"running", "reserved"})
_BATCH: Final = 500
_TICK: Final = 0.05
FIRST: Final = 0.25  # seconds until a waiter asks again, growing by the factor up to the last
FACTOR: Final = 1.7
_LAST: Final = 5.0
_LAST_DEAF: Final = 1.0

Read = Callable[[Sequence[InstanceRef]], Awaitable[list[ResultRow | None]]]

log = get_logger("aioflow.client")


class _Waiter:
    """One call that waits for the end of a chain of runs; ``run_id`` is the link it looks at."""

    __slots__ = ("delay", "future", "key", "poked", "run_id", "timer")

    def __init__(self, key: InstanceKey, run_id: UUID | None, future: asyncio.Future[ResultRow]) -> None:
        self.key, self.run_id, self.future = key, run_id, future
        self.delay = FIRST
        self.poked = False
        self.timer: asyncio.TimerHandle | None = None


class Results:
    """All waiters of a client. ``hearing`` tells whether notifications can be counted on just now.

    ``patience`` is how long, in seconds, the database may be away before waiters are told.
    """

    def __init__(
        self,
        read: Read,
        *,
        hearing: Callable[[], bool],
        random: Random,
        patience: float = 30.0,
    ) -> None:
        self._read, self._hearing, self._random, self._patience = read, hearing, random, patience
        self._waiters: dict[_Waiter, None] = {}
        self._by_run: dict[UUID | None, set[_Waiter]] = {}
        self._due: dict[_Waiter, None] = {}
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._away_since: float | None = None
        self._closed = False

    def __len__(self) -> int:
        return len(self._waiters)

    async def wait(self, key: InstanceKey, run_id: UUID | None) -> ResultRow:
        """The row of the run that ends the chain starting with ``run_id`` (None: the current run of the instance).

        Raises `InstanceNotFound`, `ClientClosed`, `StoreError` when the database stayed away.
        """
        if self._closed:
            raise ClientClosed("the client is closed")
        loop = asyncio.get_running_loop()
        waiter = _Waiter(key, run_id, loop.create_future())
        self._waiters[waiter] = None
        self._by_run.setdefault(run_id, set()).add(waiter)
        self._make_due(waiter)
        if self._task is None:
            # A context of its own: it outlives the call that happens to be the first.
            self._task = loop.create_task(self._run(), name="aioflow-results", context=Context())
        try:
            return await waiter.future
        finally:
            self._forget(waiter)

    async def look(self, key: InstanceKey, run_id: UUID | None) -> ResultRow | None:
        """What `wait` gives if it is there already, else None. Raises `InstanceNotFound`, `StoreError`."""
        while True:
            (row,) = await self._read([InstanceRef(key, run_id)])
            if row is None:
                raise _not_found(key, run_id)
            if row.status != "continued_as_new":
                return None if row.status in OPEN else row
            run_id = _next(row)

    def closed_runs(self, run_ids: Iterable[UUID]) -> None:
        """These runs are said to be closed: ask for them now, and for whoever does not know its run yet."""
        for run_id in (*run_ids, None):
            for waiter in self._by_run.get(run_id, ()):
                self._make_due(waiter)

    def rescan(self) -> None:
        """Notifications may have been missed: ask for all."""
        for waiter in self._waiters:
            self._make_due(waiter)

    async def close(self) -> None:
        """Wake every waiter with `ClientClosed`."""
        self._closed = True
        for waiter in list(self._waiters):
            _fail(waiter, ClientClosed("the client was closed while a result was awaited; the run goes on"))
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None

    # -- asking -----------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._due:
                await self._ask(self._take())

    def _take(self) -> list[_Waiter]:
        batch = list(islice(self._due, _BATCH))
        for waiter in batch:
            del self._due[waiter]
            waiter.poked = False
        return batch

    async def _ask(self, batch: list[_Waiter]) -> None:
        try:
            rows = await self._read([InstanceRef(one.key, one.run_id) for one in batch])
        except StoreError as exc:
            self._away(batch, exc)
            return
        except Exception as exc:
            for waiter in batch:
                _fail(waiter, exc)
            return
        self._away_since = None
        for waiter, row in zip(batch, rows, strict=True):
            if waiter in self._waiters:
                try:
                    self._answer(waiter, row)
                except Exception as exc:
                    _fail(waiter, exc)

    def _answer(self, waiter: _Waiter, row: ResultRow | None) -> None:
        if row is None:
            _fail(waiter, _not_found(waiter.key, waiter.run_id))
        elif row.status == "continued_as_new":
            self._point(waiter, _next(row))
            self._make_due(waiter)
        elif row.status in OPEN:
            self._point(waiter, row.run_id)
            if not waiter.poked:
                self._later(waiter)
        elif not waiter.future.done():
            waiter.future.set_result(row)

    def _away(self, batch: list[_Waiter], error: StoreError) -> None:
        now = asyncio.get_running_loop().time()
        self._away_since = now if self._away_since is None else self._away_since
        over = now - self._away_since >= self._patience
        log.warning("results cannot be read", error=str(error), waiters=len(self._waiters), giving_up=over)
        for waiter in batch:
            if over:
                _fail(waiter, error)
            elif waiter in self._waiters and not waiter.poked:
                self._later(waiter)

    # -- who asks when ----------------------------------------------------------------------------

    def _make_due(self, waiter: _Waiter) -> None:
        if waiter.timer is not None:
            waiter.timer.cancel()
            waiter.timer = None
        waiter.poked = True
        self._due[waiter] = None
        self._wake.set()

    def _later(self, waiter: _Waiter) -> None:
        loop = asyncio.get_running_loop()
        when = loop.time() + waiter.delay * self._random.uniform(0.8, 1.2)
        waiter.delay = min(waiter.delay * FACTOR, _LAST if self._hearing() else _LAST_DEAF)
        # Whoever falls into the same tick asks in the same query.
        waiter.timer = loop.call_at(math.ceil(when / _TICK) * _TICK, self._make_due, waiter)

    def _point(self, waiter: _Waiter, run_id: UUID | None) -> None:
        if run_id != waiter.run_id:
            self._unlist(waiter)
            waiter.run_id = run_id
            self._by_run.setdefault(run_id, set()).add(waiter)

    def _unlist(self, waiter: _Waiter) -> None:
        if (found := self._by_run.get(waiter.run_id)) is not None:
            found.discard(waiter)
            if not found:
                del self._by_run[waiter.run_id]

    def _forget(self, waiter: _Waiter) -> None:
        self._waiters.pop(waiter, None)
        self._due.pop(waiter, None)
        self._unlist(waiter)
        if waiter.timer is not None:
            waiter.timer.cancel()


def _next(row: ResultRow) -> UUID:
    """The run that follows one that continued as new."""
    event = decode(row.record) if row.record is not None else None
    assert isinstance(event, RunContinuedAsNew)
    return event.next_run_id


def _not_found(key: InstanceKey, run_id: UUID | None) -> InstanceNotFound:
    what = f"run {run_id} of instance" if run_id else "instance"
    return InstanceNotFound(f"there is no {what} {key.instance_id!r}")


def _fail(waiter: _Waiter, error: BaseException) -> None:
    if not waiter.future.done():
        copy = type(error)(*error.args) if isinstance(error, StoreError) else error
        if copy is not error:
            copy.__cause__ = error
        waiter.future.set_exception(copy)
