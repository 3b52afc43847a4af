"""One loop for both kinds of work: reserve places, claim as much as fits, hand it on, sleep when there is no more."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import anyio

from aioflow.core.fault import fault
from aioflow.errors import StoreError
from aioflow.telemetry import get_logger
from aioflow.worker.backoff import backoff, jittered
from aioflow.worker.slots import Slots
from aioflow.worker.wakeup import Wake

__all__ = ["Claimer", "Work"]

_LEAST: Final = 8
_LULL: Final = 0.005  # seconds: what was claimed just now mostly leads to more, so asking for due times can wait

log = get_logger("aioflow.worker")
T = TypeVar("T")


@dataclass(kw_only=True)
class Work(Generic[T]):
    """A kind of work, as its claimer sees it.

    ``claim(limit)`` takes what is due; when its answer is lost, ``recover()`` gives back what it may have taken.
    ``start(items)`` takes them over, with a place for each that it has to give back. ``next_due()`` is the time in
    seconds until something is due, None when nothing is.
    """

    name: str
    slots: Slots
    wake: Wake
    claim: Callable[[int], Awaitable[Sequence[T]]]
    start: Callable[[Sequence[T]], None]
    next_due: Callable[[], Awaitable[float | None]]
    recover: Callable[[], Awaitable[None]]


class Claimer(Generic[T]):
    """Claims one kind of work until it is stopped."""

    def __init__(self, work: Work[T], *, poll_interval: float, batch: int) -> None:
        self._work, self._poll, self._most = work, poll_interval, batch
        self._batch = min(_LEAST, batch)
        self._stopped = False
        self._failures = 0
        self._overdue = self._unasked = False

    def stop(self) -> None:
        """Claim nothing more; a claim that is under way is still handed on."""
        self._stopped = True
        self._work.wake.set()

    async def run(self) -> None:
        """Claim until stopped."""
        work = self._work
        while True:
            places = await work.slots.reserve(self._batch)
            work.wake.clear()
            items: Sequence[T] = ()
            try:
                if not self._stopped:
                    items = await self._claim(places)
            finally:
                work.slots.release(places - len(items))
            if items:
                self._overdue = False
                if self._unasked:
                    log.debug("poll_found", work=work.name, items=len(items))
                    self._unasked = False
                await fault(f"claim.{work.name}.before_start")
                work.start(items)
            # As much as there was last time, and room for more: asking for much costs even when there is little.
            self._batch = min(self._most, max(_LEAST, 2 * len(items)))
            if self._stopped:
                return
            if not (len(items) == places or (items and await work.wake.wait(_LULL))):
                await self._sleep()

    async def _claim(self, places: int) -> Sequence[T]:
        try:
            items = await self._work.claim(places)
        except StoreError as exc:
            self._failures += 1
            if self._failures & (self._failures - 1) == 0:  # the first, second, fourth, … in a row
                log.warning("claim_failed", work=self._work.name, reason=str(exc), failures=self._failures)
            await self._work.recover()
            return ()
        self._failures = 0
        return items

    async def _sleep(self) -> None:
        """Until woken, until the next thing is due, or for a while. ``_unasked``: for a while, and nobody woke it."""
        pause = jittered(self._poll)
        self._unasked = False
        if self._failures:
            await anyio.sleep(backoff(self._failures, 0.1, self._poll))
            return
        try:
            due = await self._work.next_due()
        except StoreError:
            due = None
        if due is not None and due <= 0:
            # It became due just now, or it is of a type that is not known here: one more look tells.
            self._overdue, again = True, not self._overdue
            if again:
                return
        elif due is not None:
            self._overdue = False
        nothing_due = due is None or due > pause
        if due is not None and due > 0:
            pause = min(pause, due)
        self._unasked = not await self._work.wake.wait(pause) and nothing_due
