"""How quickly an idle system answers: one thing at a time, a pause between."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from aioflow.client import Client
from benchmarks.flows import THROUGHPUT, Mailbox, Pickup, Sleeper, board
from benchmarks.meter import middle_of, spread

PAUSE = 0.01
SLEEPERS = 20


async def start_to_result(client: Client, flow: Any, n: int) -> list[float]:
    """From the call of `Client.start` to the result in the caller's hands."""
    found = []
    for i in range(n):
        began = time.perf_counter()
        await (await client.start(flow, i)).result()
        found.append(time.perf_counter() - began)
        await asyncio.sleep(PAUSE)
    return found


async def start_to_stored(client: Client, n: int) -> list[float]:
    """The call of `Client.start` alone."""
    found = []
    for i in range(n):
        began = time.perf_counter()
        instance = await client.start(THROUGHPUT["w0"], i)
        found.append(time.perf_counter() - began)
        await instance.result()
        await asyncio.sleep(PAUSE)
    return found


async def signal_to_seen(client: Client, n: int) -> list[float]:
    """From the call of `Client.signal` to the line behind the workflow's ``await_signal``."""
    board.samples.clear()
    instance = await client.start(Mailbox, n)
    await asyncio.sleep(0.1)
    for _ in range(n):
        await instance.signal("sent", time.time())
        await asyncio.sleep(0.03)
    await instance.result()
    return board.samples[:]


async def call_to_pickup(client: Client, n: int) -> list[float]:
    """From a workflow's call of an activity to the activity's first line: decision, commit, claim."""
    board.samples.clear()
    for i in range(n):
        await (await client.start(Pickup, f"p{i}")).result()
        await asyncio.sleep(PAUSE)
    return board.samples[:]


async def timer_overshoot(client: Client, sleepers: int = SLEEPERS) -> list[float]:
    """By how much timers of a second are late, many at once."""
    board.samples.clear()
    instances = await asyncio.gather(*(client.start(Sleeper) for _ in range(sleepers)))
    await asyncio.gather(*(one.result() for one in instances))
    return board.samples[:]


async def measure(client: Client, name: str, *, reps: int, n: int) -> dict[str, Any]:
    """Median over reps of one latency. A worker must be running."""
    flows = {"lat_w0": "w0", "lat_w1": "w1", "lat_w3": "w3"}
    ways: dict[str, Callable[[], Awaitable[list[float]]]] = {
        "lat_start": lambda: start_to_stored(client, n),
        "lat_signal": lambda: signal_to_seen(client, max(5, n // 2)),
        "lat_pickup": lambda: call_to_pickup(client, n),
        "timer_overshoot": lambda: timer_overshoot(client, min(SLEEPERS, n)),
    }
    spreads = []
    for _ in range(reps):
        way = ways.get(name)
        samples = await (way() if way else start_to_result(client, THROUGHPUT[flows[name]], n))
        spreads.append(spread(samples))
    return middle_of(spreads)


LATENCIES = ("lat_w0", "lat_w1", "lat_w3", "lat_start", "lat_signal", "lat_pickup", "timer_overshoot")
