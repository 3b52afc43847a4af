"""Runs and activities that kill their worker process: alone in quarantine, and none of their neighbours with them."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from aioflow.client import Client
from aioflow.store.pool import Database
from aioflow.store.store import Store
from tests.acceptance.processes import Workers, exit_code
from tests.acceptance.worker_process import BYSTANDERS, Bystander, Chain, Deadly, DeadlyStep
from tests.support import eventually


@pytest.fixture
async def store(database: str) -> Any:
    async with await Database.connect(database, max_size=2) as db:
        yield Store(db)


@pytest.fixture
def workers(database: str, tmp_path: Path) -> Iterator[Workers]:
    made = Workers(database, tmp_path)
    yield made
    made.kill()


async def supervise(workers: Workers, done: Callable[[], Awaitable[bool]]) -> tuple[int, subprocess.Popen[bytes]]:
    """Restart the worker whenever it dies, until ``done``; how often it died, and the one that lives."""
    deaths, process = 0, workers.start(AIOFLOW_TEST_QUARANTINE_AFTER="3")

    async def check() -> bool:
        nonlocal deaths, process
        if process.poll() is not None:
            deaths, process = deaths + 1, workers.start(AIOFLOW_TEST_QUARANTINE_AFTER="3")
        return await done()

    await eventually(check, within=90)
    return deaths, process


@pytest.mark.timeout(150)
async def test_an_activity_that_kills_workers_is_found_among_its_neighbours(
    client: Client,
    workers: Workers,
    store: Store,
    tmp_path: Path,
) -> None:
    good = [await client.start(Bystander.options(id=f"good-{n}"), str(n)) for n in range(BYSTANDERS)]
    bad = await client.start(DeadlyStep.options(id="bad"))

    async def settled() -> bool:
        closed = [await one.describe() for one in good]
        return bool(await store.quarantined()) and all(one.closed_at is not None for one in closed)

    deaths, process = await supervise(workers, settled)
    assert deaths == 3
    assert await asyncio.gather(*(one.result(timeout=5) for one in good)) == [str(n) for n in range(BYSTANDERS)]
    (found,) = await store.quarantined()
    assert (found.instance_id, found.activity, found.crashes) == ("bad", "deadly", 3)
    told = await bad.describe()
    assert told.blocked_reason == "activity deadly is quarantined: 3 workers in a row died while they ran it"
    (pending,) = told.pending
    assert (pending.quarantined, pending.attempt, pending.crashes) == (True, 1, 3)

    # The third time it was alone: whatever had begun in a process that lived to the third death had ended.
    lines = (tmp_path / "log").read_text().splitlines()
    third = [n for n, line in enumerate(lines) if line == "deadly"][2]
    begun = [line.partition("-")[2] for line in lines[:third] if line.startswith("begun-")]
    last = begun[2 * BYSTANDERS :]
    assert [line.partition("-")[2] for line in lines[:third] if line.startswith("ended-")] == last

    process.terminate()
    assert await exit_code(process) == 0
    await client.release("bad")
    workers.start(AIOFLOW_TEST_MENDED="1")
    assert await bad.result(timeout=30) == "mended"
    assert await store.invariants() == []


@pytest.mark.timeout(150)
async def test_a_run_that_kills_workers_is_found_among_its_neighbours(
    client: Client,
    workers: Workers,
    store: Store,
) -> None:
    workers.open()
    bad = await client.start(Deadly.options(id="bad"))
    good = [await client.start(Chain.options(id=f"good-{n}"), ["a"]) for n in range(BYSTANDERS)]

    async def settled() -> bool:
        return bool(await store.quarantined())

    deaths, process = await supervise(workers, settled)
    assert deaths == 3
    assert await asyncio.gather(*(one.result(timeout=30) for one in good)) == [["a"]] * BYSTANDERS
    assert [(one.instance_id, one.activity) for one in await store.quarantined()] == [("bad", None)]
    told = await bad.describe()
    assert told.status == "running"
    assert told.blocked_reason == "quarantined: 3 workers in a row died while they ran it"
    process.terminate()
    assert await exit_code(process) == 0
    await client.release("bad")
    workers.start(AIOFLOW_TEST_MENDED="1")
    assert await bad.result(timeout=30) == "mended"
    assert await store.invariants() == []
