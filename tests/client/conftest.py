"""A client on a fresh database, and runs that go on only when a test says so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import asyncpg
import pytest

from aioflow.client import Client
from aioflow.core.fault import set_fault_hook
from aioflow.store.pool import Database
from aioflow.store.store import Store
from tests.client import flows
from tests.support_runs import Runs

TARGETS = (flows.Double, flows.Orders, flows.Mailbox, flows.Failing, flows.Patient, flows.charge)


@pytest.fixture
async def client(database: str) -> AsyncIterator[Client]:
    async with Client.connect(database, patience=5.0) as made:
        yield made


@pytest.fixture
async def store(database: str) -> AsyncIterator[Store]:
    async with await Database.connect(database, max_size=4) as db:
        yield Store(db)


@pytest.fixture
async def runs(store: Store) -> Runs:
    """A worker that steps when told to."""
    return await Runs(store, *TARGETS).register()


@pytest.fixture
async def serving(runs: Runs) -> AsyncIterator[Runs]:
    """The same, at work all the time."""
    task = asyncio.create_task(runs.serve())
    yield runs
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled(), task.exception()


@pytest.fixture
async def sql(database: str) -> AsyncIterator[asyncpg.Connection]:
    """A plain connection to look at tables with."""
    connection = await asyncpg.connect(database)
    yield connection
    await connection.close()


@pytest.fixture
def faults() -> Iterator[list[str]]:
    """Points at which the next answer is lost, each once; put names in."""
    points: list[str] = []

    async def hook(point: str) -> None:
        if point in points:
            points.remove(point)
            raise ConnectionResetError(f"lost at {point}")

    set_fault_hook(hook)
    yield points
    set_fault_hook(None)
