"""Natural batching: whatever arrives while a flush is in flight makes up the next one; no timers."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Final, Generic, TypeVar

from aioflow.errors import AioflowError, DatabaseUnavailable

_HEAVY: Final = 16 * 1024 * 1024

I = TypeVar("I")  # noqa: E741 (item)
O = TypeVar("O")  # noqa: E741 (outcome)


class Batcher(Generic[I, O]):
    """Collects single items into calls of ``flush``, which answers one outcome per item, in order.

    At most ``lanes`` calls are in flight, each of at most ``size`` items, and of fewer when their ``bytes`` grow past
    16 MiB: what is sent at once is held in memory several times over. Two items with the same ``key``
    are never in flight together (a later one waits for the earlier one), so their order is kept. When a
    call fails for another reason than the database being away, its items are tried one by one, so that a
    poisoned one fails alone; ``flush`` must be safe to call again with the same items.
    """

    def __init__(
        self,
        flush: Callable[[Sequence[I]], Awaitable[Sequence[O]]],
        *,
        size: int = 256,
        lanes: int = 2,
        key: Callable[[I], Hashable] | None = None,
        bytes: Callable[[I], int] = lambda _: 0,
    ) -> None:
        self._flush, self._size, self._lanes, self._key, self._bytes = flush, size, lanes, key, bytes
        self._waiting: deque[tuple[I, asyncio.Future[O]]] = deque()
        self._busy: set[Hashable] = set()
        self._running: set[asyncio.Task[None]] = set()
        self._closed = False

    async def __call__(self, item: I) -> O:
        """The outcome of one item. Cancelling the caller does not take the item out of a flush in flight."""
        return await self.submit([item])[0]

    def submit(self, items: Sequence[I]) -> list[asyncio.Future[O]]:
        """Futures of the outcomes of several items, which travel together as far as they fit. No task for each."""
        if self._closed:
            raise RuntimeError("the batcher is closed")
        loop = asyncio.get_running_loop()
        futures: list[asyncio.Future[O]] = [loop.create_future() for _ in items]
        self._waiting.extend(zip(items, futures, strict=True))
        self._pump()
        return futures

    async def close(self) -> None:
        """Take nothing more and wait until everything waiting has been flushed."""
        self._closed = True
        await self.settle()

    async def settle(self) -> None:
        """Wait until everything waiting has been flushed; more may come."""
        while self._running:
            await asyncio.wait(self._running)

    def __len__(self) -> int:
        """Items that wait for a flush."""
        return len(self._waiting)

    def _pump(self) -> None:
        while self._waiting and len(self._running) < self._lanes and (batch := self._take()):
            task = asyncio.ensure_future(self._run(batch))
            self._running.add(task)
            task.add_done_callback(self._done)

    def _take(self) -> list[tuple[I, asyncio.Future[O]]]:
        """The next batch: items in order, leaving those whose key is in flight or in this batch already."""
        batch: list[tuple[I, asyncio.Future[O]]] = []
        left: list[tuple[I, asyncio.Future[O]]] = []
        weight = 0
        while self._waiting and len(batch) < self._size and weight < _HEAVY:
            entry = self._waiting.popleft()
            if entry[1].cancelled():
                continue
            if self._key is not None:
                if (key := self._key(entry[0])) in self._busy:
                    left.append(entry)
                    continue
                self._busy.add(key)
            batch.append(entry)
            weight += self._bytes(entry[0])
        self._waiting.extendleft(reversed(left))
        return batch

    def _done(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._pump()

    async def _run(self, batch: list[tuple[I, asyncio.Future[O]]]) -> None:
        try:
            await self._settle(batch)
        except asyncio.CancelledError:
            for _, future in batch:
                future.cancel()
            raise
        finally:
            if self._key is not None:
                self._busy.difference_update([self._key(item) for item, _ in batch])

    async def _settle(self, batch: list[tuple[I, asyncio.Future[O]]]) -> None:
        try:
            outcomes = await self._flush([item for item, _ in batch])
            if len(outcomes) != len(batch):
                raise AioflowError(f"{len(batch)} items were flushed, {len(outcomes)} outcomes came back")
        except Exception as exc:
            if len(batch) == 1 or isinstance(exc, DatabaseUnavailable):
                for _, future in batch:
                    if not future.done():
                        future.set_exception(exc)
                return
            for entry in batch:
                await self._settle([entry])
            return
        for (_, future), outcome in zip(batch, outcomes, strict=True):
            if not future.done():
                future.set_result(outcome)
