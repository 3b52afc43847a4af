"""Workflows whose right result can be told from what callers did, and activities that leave a trace of each attempt."""

from __future__ import annotations

import asyncio
import os
import random
import time
from pathlib import Path

from aioflow import RetryPolicy, Workflow, activity, await_condition, query, signal
from tests.faults.chaos.ledger import Effect, note_effect

FOLDER = Path(os.environ.get("AIOFLOW_CHAOS_FOLDER", "."))
QUICK = RetryPolicy(initial_interval=0.05, max_interval=0.2)
TRIES = 3
STAMPED_WITHIN = 1.0  # seconds until another attempt begins


def note(value: str) -> None:
    """Leave the trace of this attempt."""
    info = activity.info()
    effect = Effect(str(info.execution_id), str(info.attempt_id), os.getpid(), time.time(), info.activity, value)
    note_effect(FOLDER, effect)


@activity.defn(retry=QUICK, start_to_close=STAMPED_WITHIN)
async def stamp(item: str) -> str:
    """Short work."""
    note(item)
    await asyncio.sleep(random.choice((0.0, 0.0, 0.01, 0.05)))
    return f"{item}!"


@activity.defn
async def work(name: str, seconds: float) -> str:
    """Work about as long as a lease."""
    note(name)
    await asyncio.sleep(seconds)
    return f"{name}!"


@activity.defn
def press(name: str, seconds: float) -> str:
    """The same in a thread."""
    note(name)
    time.sleep(seconds)
    return f"{name}!"


@activity.defn(retry=RetryPolicy(initial_interval=0.05, max_interval=0.2, max_attempts=TRIES))
async def flaky(name: str) -> str:
    """Fails as often as it may: one attempt lost to a crash too many, and it could not succeed."""
    note(name)
    if activity.info().attempt < TRIES:
        raise RuntimeError("not yet")
    return f"{name}!"


@activity.defn(heartbeat=30.0)
async def hold(name: str) -> str:
    """Goes on until it is cancelled, or its file appears."""
    note(name)
    while not (FOLDER / "let-go" / name).exists():
        activity.heartbeat()
        await asyncio.sleep(0.05)
    return f"{name}!"


class Tally(Workflow):
    """Stamps what is added, one after the other, until it is told to finish."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.finished = False

    @signal
    def add(self, item: str) -> None:
        """One more."""
        self.seen.append(item)

    @signal
    def finish(self) -> None:
        """No more."""
        self.finished = True

    @query
    def items(self) -> list[str]:
        """What was added."""
        return self.seen

    async def handle(self) -> list[str]:
        """Stamp in order."""
        done: list[str] = []
        while True:
            await await_condition(lambda: self.finished or len(done) < len(self.seen))
            if len(done) == len(self.seen):
                return done
            done.append(await stamp(self.seen[len(done)]))


class Bell(Workflow):
    """Ends while it is rung and rung again."""

    def __init__(self) -> None:
        self.rung: list[str] = []
        self.finished = False

    @signal
    def ring(self, item: str) -> None:
        """Once more."""
        self.rung.append(item)

    @signal
    def finish(self) -> None:
        """Wait no longer."""
        self.finished = True

    async def handle(self, wanted: int) -> list[str]:
        """Wait for so many."""
        await await_condition(lambda: self.finished or len(self.rung) >= wanted)
        return self.rung


class Pipeline(Workflow):
    """Work side by side, a pause, work that fails at first, work in a thread."""

    async def handle(self, name: str, spans: list[float]) -> list[str]:
        """Everything, in this order."""
        found = await asyncio.gather(*(work(f"{name}.{n}", span) for n, span in enumerate(spans)))
        await asyncio.sleep(0.05)
        found.append(await flaky(f"{name}.flaky"))
        found.append(await activity(press, f"{name}.press", 0.02))
        return found

    @staticmethod
    def result_of(name: str, spans: list[float]) -> list[str]:
        """What a run gives to which nothing happens."""
        return [*(f"{name}.{n}!" for n in range(len(spans))), f"{name}.flaky!", f"{name}.press!"]


class Victim(Workflow):
    """Goes on until somebody ends it."""

    async def handle(self, name: str) -> str:
        """Hold, and tidy up when cancelled."""
        try:
            return await hold(name)
        except asyncio.CancelledError:
            await stamp(f"{name}.tidy")
            raise


WORKFLOWS: tuple[type[Workflow], ...] = (Tally, Bell, Pipeline, Victim)
ACTIVITIES = (stamp, work, press, flaky, hold)
