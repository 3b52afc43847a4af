"""A store on a fresh database, and a second one for races."""

from __future__ import annotations

from collections.abc import AsyncIterator

import asyncpg
import pytest

from aioflow.store.pool import Database
from aioflow.store.store import Store
from tests.store.bench import Bench


@pytest.fixture
async def store(database: str) -> AsyncIterator[Store]:
    async with await Database.connect(database, max_size=4) as db:
        yield Store(db)


@pytest.fixture
async def conn(database: str) -> AsyncIterator[asyncpg.Connection]:
    """A plain connection for looking and for holding locks."""
    connection = await asyncpg.connect(database)
    yield connection
    await connection.close()


@pytest.fixture
async def bench(store: Store, conn: asyncpg.Connection) -> Bench:
    """A store with a registered worker and short ways to do the usual things."""
    made = Bench(store, conn)
    await made.add_worker()
    return made


@pytest.fixture
async def other(database: str) -> AsyncIterator[asyncpg.Connection]:
    """A connection whose transaction a test holds open."""
    connection = await asyncpg.connect(database)
    yield connection
    await connection.close()
