"""Absurd (the package ``absurd-sdk`` and its SQL): runs are spawned first, then drained by two workers of fifty.

That is the way its numbers came out best. Needs ``pip install absurd-sdk`` and ``AIOFLOW_BENCH_ABSURD_SQL``, the path
of ``sql/absurd.sql`` of github.com/earendil-works/absurd.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
from functools import partial
from pathlib import Path
from typing import Any

import asyncpg

from benchmarks.meter import Measured, Meter
from benchmarks.server import Bench
from benchmarks.throughput import Load, closed_loop

SIZES = {"w0": 1500, "w1": 1500, "w3": 800, "p10": 300}
_VARIABLE = "AIOFLOW_BENCH_ABSURD_SQL"
_WORKERS, _EACH, _POLL = 2, 50, 0.01
_UNDONE = "select count(*) from absurd.t_default where state not in ('completed', 'failed', 'cancelled')"


def missing() -> str | None:
    """What is needed first, or None."""
    if importlib.util.find_spec("absurd_sdk") is None:
        return "not measured: pip install absurd-sdk"
    if not Path(os.environ.get(_VARIABLE, "")).is_file():
        return f"not measured: {_VARIABLE} must name sql/absurd.sql of a checkout of github.com/earendil-works/absurd"
    return None


def _register(engine: Any) -> Any:
    async def step() -> int:
        return 1

    @engine.register_task("w0")
    async def w0(params: Any, context: Any) -> Any:
        return params

    @engine.register_task("w1")
    async def w1(params: Any, context: Any) -> Any:
        return await context.step("s", step)

    @engine.register_task("w3")
    async def w3(params: Any, context: Any) -> Any:
        for i in range(3):
            await context.step(f"s{i}", step)
        return 1

    @engine.register_task("p10")
    async def p10(params: Any, context: Any) -> Any:
        await asyncio.gather(*(context.step(f"s{i}", step) for i in range(10)))
        return 1

    return engine


async def measure(bench: Bench, meter: Meter, load: Load, names: list[str]) -> dict[str, Any] | str:
    """A row per workload, or why there is none."""
    if (why := missing()) is not None:
        return why
    from absurd_sdk import AsyncAbsurd

    dsn = await bench.fresh("bench_absurd")
    sql: asyncpg.Connection[Any] = await asyncpg.connect(dsn)
    await sql.execute(await asyncio.to_thread(Path(os.environ[_VARIABLE]).read_text))
    spawners = [_register(AsyncAbsurd(dsn, queue_name="default")) for _ in range(8)]
    await spawners[0].create_queue()
    found: dict[str, Any] = {}
    try:
        await _burst(dsn, sql, spawners, "w1", min(100, load.most))
        for name in [name for name in names if name in SIZES]:
            measured, n = Measured(), min(SIZES[name], load.most)
            work = partial(_burst, dsn, sql, spawners, name, n)
            for _ in range(load.reps):
                measured.reps.append(await meter.rep(n, work))
            found[name] = measured.summary()
    finally:
        await sql.close()
        for one in spawners:
            await one.close()
    return found


async def _burst(dsn: str, sql: asyncpg.Connection[Any], spawners: list[Any], name: str, n: int) -> None:
    from absurd_sdk import AsyncAbsurd

    free = asyncio.Queue[Any]()
    for one in spawners:
        free.put_nowait(one)

    async def spawn(i: int) -> None:
        spawner = await free.get()
        await spawner.spawn(name, i)
        free.put_nowait(spawner)

    await closed_loop(spawn, n, len(spawners))
    workers = [_register(AsyncAbsurd(dsn, queue_name="default")) for _ in range(_WORKERS)]
    tasks = [
        asyncio.create_task(
            one.start_worker(worker_id=f"w{i}", concurrency=_EACH, batch_size=_EACH, poll_interval=_POLL)
        )
        for i, one in enumerate(workers)
    ]
    while await sql.fetchval(_UNDONE):  # noqa: ASYNC110 (another system's state: there is no event)
        await asyncio.sleep(0.05)
    for one in workers:
        one.stop_worker()
    await asyncio.gather(*tasks)
    for one in workers:
        await one.close()
