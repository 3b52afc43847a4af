"""What wakes the claimers: this process itself, notifications of others, due times. Polling behind it suffices."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final
from uuid import UUID

import anyio

from aioflow.store.notify import DONE, WAKE, Notifier, activity_queue, done_run, run_queue
from aioflow.worker.slots import Slots

__all__ = ["Wake", "Waker"]

_FLOOD: Final = 0.005  # seconds between two wake-ups by hints


class Wake:
    """Wakes one sleeper; a wake-up that comes while it is awake is kept until it clears it."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._quiet_until = 0.0
        self._when = 0.0

    def set(self) -> None:
        """Wake now."""
        self._event.set()

    def hint(self) -> None:
        """Wake because somebody said so: hints that follow closely wake once, so that a flood of them costs little."""
        now = asyncio.get_running_loop().time()
        if now >= self._quiet_until:
            self._quiet_until = now + _FLOOD
            self.set()
        else:
            self.due(self._quiet_until - now)

    def clear(self) -> None:
        """Forget wake-ups so far: the sleeper is about to look."""
        self._event.clear()

    def due(self, seconds: float) -> None:
        """Wake in so many seconds, or earlier."""
        if seconds <= 0:
            self.set()
            return
        loop = asyncio.get_running_loop()
        now = loop.time()
        if self._timer is not None:
            if now < self._when <= now + seconds:
                return
            self._timer.cancel()
        self._when = now + seconds  # kept here: the handles of other loops do not always tell
        self._timer = loop.call_later(seconds, self._event.set)

    async def wait(self, at_most: float) -> bool:
        """Sleep until woken, at most so many seconds; whether it was woken."""
        with anyio.move_on_after(at_most):
            await self._event.wait()
        return self._event.is_set()


class Waker:
    """Tells whoever can do new work that it is there: this process when it can, else the others, by a hint.

    ``queues``, ``workflows`` and ``activities`` are what this process serves.
    """

    def __init__(
        self,
        notifier: Notifier,
        *,
        queues: Iterable[str],
        workflows: Iterable[str],
        activities: Iterable[str],
        run_slots: Slots,
        activity_slots: Slots,
    ) -> None:
        self.runs, self.activities = Wake(), Wake()
        self._notifier = notifier
        self._queues, self._workflows, self._names = set(queues), set(workflows), set(activities)
        self._run_slots, self._activity_slots = run_slots, activity_slots

    def run_ready(self, queue: str, *, ours: bool) -> None:
        """A run may be claimed; ``ours``: this process knows its type, and has it at hand."""
        served = queue in self._queues and bool(self._workflows)
        if served:
            self.runs.set()
        if not (served and ours and self._run_slots.free > 0):
            self._notifier.notify(WAKE, [run_queue(queue)])

    def run_due(self, queue: str, seconds: float) -> None:
        """A run may be claimed in so many seconds; others find that out by themselves."""
        if queue in self._queues:
            self.runs.due(seconds)

    def activities_ready(self, queue: str, name: str | None, count: int = 1) -> None:
        """Activities may be claimed; ``name`` None: of types that are not told."""
        served = queue in self._queues and (name in self._names if name else bool(self._names))
        if served:
            self.activities.set()
        if not (served and name and self._activity_slots.free >= count):
            self._notifier.notify(WAKE, [activity_queue(queue)])

    def activity_due(self, queue: str, seconds: float) -> None:
        """An activity may be claimed in so many seconds."""
        if queue in self._queues:
            self.activities.due(seconds)

    def run_closed(self, run_id: UUID) -> None:
        """Whoever waits for the result may look."""
        self._notifier.notify(DONE, [done_run(run_id)])

    def released(self, run_queues: Iterable[str], activity_queues: Iterable[str]) -> None:
        """Work of somebody else became claimable."""
        for queue in run_queues:
            self.run_ready(queue, ours=False)
        for queue in activity_queues:
            self.activities_ready(queue, None)

    # -- hints of others --------------------------------------------------------------------------

    def heard(self, channel: str, items: list[str]) -> None:
        """A hint of the wake channel came."""
        for item in items:
            kind, _, queue = item.partition(":")
            if queue in self._queues and kind in ("w", "a"):
                (self.runs if kind == "w" else self.activities).hint()

    def rescan(self) -> None:
        """Hints may have been missed."""
        self.runs.set()
        self.activities.set()
