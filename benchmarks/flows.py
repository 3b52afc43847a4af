"""The workflows that are measured. Names as in the peers' benchmarks: steps in sequence (w), in parallel (p)."""

from __future__ import annotations

import time
from datetime import timedelta

from aioflow import Workflow, activity, all_, await_signal, now, timer
from aioflow.core.guard import allowed


class Board:
    """Where code notes when it was run, by the wall clock; workflows have no such clock of their own."""

    def __init__(self) -> None:
        self.times: dict[str, float] = {}
        self.samples: list[float] = []

    def note(self, what: str) -> None:
        """It is being done."""
        with allowed():
            self.times[what] = time.time()

    def since(self, moment: float) -> None:
        """So much time has passed since ``moment``, in seconds since the epoch."""
        with allowed():
            self.samples.append(time.time() - moment)


board = Board()


@activity.defn
async def step(x: int) -> int:
    return x + 1


@activity.defn
async def picked_up(x: str) -> None:
    board.since(board.times.pop(x))


class W0(Workflow, queue="bench"):
    async def handle(self, x: int) -> int:
        return x


class W1(Workflow, queue="bench"):
    async def handle(self, x: int) -> int:
        return await activity(step, x)


class W3(Workflow, queue="bench"):
    async def handle(self, x: int) -> int:
        for _ in range(3):
            x = await activity(step, x)
        return x


class P10(Workflow, queue="bench"):
    async def handle(self, x: int) -> int:
        return sum(await all_([activity(step, x) for _ in range(10)]))


class Sleeper(Workflow, queue="bench"):
    """Notes by how much a timer of a second was late."""

    async def handle(self) -> None:
        due = now() + timedelta(seconds=1)
        await timer(1)
        board.since(due.timestamp())


class Mailbox(Workflow, queue="bench"):
    """Notes how long after it was sent each signal is seen."""

    async def handle(self, n: int) -> None:
        for _ in range(n):
            board.since(await await_signal("sent", type=float))


class Pickup(Workflow, queue="bench"):
    """Notes the time from the call of an activity to its first line."""

    async def handle(self, x: str) -> None:
        board.note(x)
        await activity(picked_up, x)


WORKFLOWS = (W0, W1, W3, P10, Sleeper, Mailbox, Pickup)
ACTIVITIES = (step, picked_up)
THROUGHPUT = {"w0": W0, "w1": W1, "w3": W3, "p10": P10}
