"""Workflows a second: client and worker in one process, callers that each start a run and await its result.

``…_burst`` is the other way that peers were measured: all runs are started first, then a worker drains them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from aioflow.client import Client
from aioflow.store.migrations import migrate
from aioflow.worker import Worker
from benchmarks.flows import ACTIVITIES, THROUGHPUT, WORKFLOWS
from benchmarks.meter import Measured, Meter
from benchmarks.server import Bench


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """How hard to try. ``in_flight`` callers at once, reps of about ``seconds`` each."""

    reps: int = 3
    seconds: float = 2.0
    in_flight: int = 200
    concurrency: int = 200
    most: int = 20_000


@asynccontextmanager
async def client_of(bench: Bench, name: str = "bench_aioflow") -> AsyncIterator[Client]:
    """A client on a fresh, migrated database."""
    dsn = await bench.fresh(name)
    await migrate(dsn)
    async with Client.connect(dsn) as client:
        yield client


def worker_of(client: Client, concurrency: int = 200) -> Worker:
    return Worker(client, workflows=WORKFLOWS, activities=ACTIVITIES, concurrency=concurrency)


async def closed_loop(do: Callable[[int], Awaitable[object]], n: int, callers: int) -> None:
    """Do ``n`` things, ``callers`` at a time."""
    numbers = iter(range(n))

    async def caller() -> None:
        for i in numbers:
            await do(i)

    async with asyncio.TaskGroup() as group:
        for _ in range(min(n, callers)):
            group.create_task(caller())


async def measure(client: Client, meter: Meter, load: Load, name: str) -> Measured:
    """All reps of one workload. A worker must be running, except for a burst."""
    name, _, kind = name.partition("_")
    return await (_burst if kind == "burst" else _closed)(client, meter, load, THROUGHPUT[name])


async def _closed(client: Client, meter: Meter, load: Load, flow: Any) -> Measured:
    async def one(i: int) -> None:
        await (await client.start(flow, i)).result()

    n = 0
    for guess in (load.in_flight, 2 * load.in_flight):  # the first one also warms up
        guess = min(guess, load.most)
        began = asyncio.get_running_loop().time()
        await closed_loop(one, guess, load.in_flight)
        n = round(guess * load.seconds / (asyncio.get_running_loop().time() - began))
    n = max(10, min(n, load.most))
    found = Measured()
    for _ in range(load.reps):
        found.reps.append(await meter.rep(n, lambda: closed_loop(one, n, load.in_flight)))
    return found


async def _burst(client: Client, meter: Meter, load: Load, flow: Any) -> Measured:
    n = min(1_500, load.most)
    found = Measured()
    for _ in range(load.reps):
        instances: list[Any] = []

        async def start(i: int, started: list[Any] = instances) -> None:
            started.append(await client.start(flow, i))

        async def work(started: list[Any] = instances) -> None:
            await closed_loop(start, n, 8)
            async with worker_of(client, load.concurrency):
                await asyncio.gather(*(one.result() for one in started))

        found.reps.append(await meter.rep(n, work))
    return found
