"""A client and workers on a fresh database, with settings that make tests quick."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import asyncpg
import pytest

from aioflow.client import Client
from aioflow.core.fault import set_fault_hook
from aioflow.store.pool import Database
from aioflow.store.store import Store
from aioflow.worker import Worker, WorkerSettings

QUICK = WorkerSettings(
    poll_interval=0.2,
    heartbeat_interval=0.1,
    maintenance_interval=0.1,
    backoff_first=0.05,
    backoff_max=0.3,
    drain_grace=5.0,
    cancel_grace=1.0,
    connections=4,
)


@pytest.fixture
async def client(database: str) -> AsyncIterator[Client]:
    async with Client.connect(database, patience=5.0) as made:
        yield made


@pytest.fixture
async def store(database: str) -> AsyncIterator[Store]:
    async with await Database.connect(database, max_size=2) as db:
        yield Store(db)


@pytest.fixture
async def sql(database: str) -> AsyncIterator[asyncpg.Connection[Any]]:
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


def worker(client: Client, *targets: Any, settings: WorkerSettings = QUICK, **options: Any) -> Worker:
    """A worker for workflow classes and activities."""
    return Worker(
        client,
        workflows=[one for one in targets if isinstance(one, type)],
        activities=[one for one in targets if not isinstance(one, type)],
        settings=settings,
        **options,
    )
