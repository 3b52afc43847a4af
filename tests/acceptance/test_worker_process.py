"""Worker processes that are killed and stopped, seen from outside."""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from aioflow.client import Client
from aioflow.store.pool import Database
from aioflow.store.store import Store
from tests.acceptance.processes import Workers, exit_code
from tests.acceptance.worker_process import Chain
from tests.support import eventually

RUNS, KILLS = 1_000, 10


@pytest.fixture
def workers(database: str, tmp_path: Path) -> Iterator[Workers]:
    made = Workers(database, tmp_path)
    yield made
    made.kill()


async def test_a_killed_worker_is_survived(client: Client, workers: Workers) -> None:
    first = workers.start()
    instance = await client.start(Chain, ["a", "slow", "b"])
    await eventually(lambda: workers.attempts("slow"))
    first.send_signal(signal.SIGKILL)
    first.wait()
    workers.open()
    workers.start()
    assert await instance.result(timeout=30) == ["a", "slow", "b"]
    (finished,) = workers.attempts("a")  # not executed again
    before, after = workers.attempts("slow")
    assert before[0] == after[0]
    assert before[1] != after[1]
    assert finished[0] != before[0]
    history = await instance.history()
    kinds = [event.kind for event in history]
    assert kinds == ["RunStarted", *["ActivityScheduled", "ActivityCompleted"] * 3, "RunCompleted"]


async def test_sigterm_lets_work_end(client: Client, workers: Workers) -> None:
    process = workers.start()
    instance = await client.start(Chain, ["slow", "b"])
    await eventually(lambda: workers.attempts("slow"))
    process.send_signal(signal.SIGTERM)
    workers.open()
    assert await exit_code(process) == 0
    assert workers.attempts("b") == []
    workers.start()
    assert await instance.result(timeout=30) == ["slow", "b"]
    assert len(workers.attempts("slow")) == 1


async def test_sigterm_gives_back_what_does_not_end(client: Client, workers: Workers, database: str) -> None:
    process = workers.start(grace=0.2)
    await client.start(Chain, ["slow"])
    await eventually(lambda: workers.attempts("slow"))
    process.send_signal(signal.SIGTERM)
    assert await exit_code(process) == 0
    connection = await asyncpg.connect(database)
    try:
        rows = await connection.fetch(
            "select owner, attempt, visible_at <= aioflow.clock() as ready from aioflow.activity"
        )
        assert [tuple(row) for row in rows] == [(None, 1, True)]
        assert await connection.fetchval("select bool_and(released) from aioflow.worker")
    finally:
        await connection.close()


async def test_a_second_sigterm_ends_it_at_once(client: Client, workers: Workers) -> None:
    process = workers.start(grace=600)
    instance = await client.start(Chain, ["slow"])
    await eventually(lambda: workers.attempts("slow"))

    def ended() -> bool:
        process.send_signal(signal.SIGTERM)  # two that come at once are one for the kernel
        return process.poll() is not None

    await eventually(ended)
    assert process.returncode == 143
    workers.open()
    workers.start()
    assert await instance.result(timeout=30) == ["slow"]


async def test_sigterm_while_it_starts(workers: Workers) -> None:
    process = workers.start()
    process.send_signal(signal.SIGTERM)
    assert await exit_code(process) in (0, -signal.SIGTERM)


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_three_workers_killed_at_random_lose_nothing(client: Client, workers: Workers, database: str) -> None:
    chance = random.Random(7)  # repeatable chaos
    workers.open()
    living = [workers.start() for _ in range(3)]
    names = [f"step-{n}" for n in range(3)]
    instances = await asyncio.gather(*(client.start(Chain.options(id=f"i{n}"), names) for n in range(RUNS)))
    closed = "select count(*) from aioflow.run where status = 'completed'"
    connection = await asyncpg.connect(database)
    try:
        for kill in range(KILLS):
            # Spread over the whole time: the n-th kill comes after the n-th part of the runs is done.
            share = RUNS * kill // KILLS
            await eventually(lambda: _reached(connection, closed, share), within=120)  # noqa: B023  # called at once
            victim = chance.randrange(len(living))
            living[victim].kill()
            living[victim].wait()
            living[victim] = workers.start()
        results = await asyncio.gather(*(one.result(timeout=120) for one in instances))
        assert results == [names] * RUNS
        outcomes = "select count(*) from aioflow.history where kind = 'ActivityCompleted'"
        assert await connection.fetchval(outcomes) == 3 * RUNS
    finally:
        await connection.close()
    async with await Database.connect(database, max_size=1) as db:
        assert await Store(db).invariants() == []


async def _reached(connection: asyncpg.Connection[Any], statement: str, count: int) -> bool:
    return bool(await connection.fetchval(statement) >= count)
