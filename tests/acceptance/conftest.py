"""A client on a fresh database, and a look at everything that is stored."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import asyncpg
import pytest

from aioflow.client import Client

Stored = Callable[[], Awaitable[dict[str, int]]]
_OF_WORKERS = ("worker", "definition", "migration", "namespace")


@pytest.fixture
async def client(database: str) -> AsyncIterator[Client]:
    async with Client.connect(database, patience=5.0) as made:
        yield made


@pytest.fixture
async def sql(database: str) -> AsyncIterator[asyncpg.Connection[Any]]:
    """A plain connection to look at tables with."""
    connection = await asyncpg.connect(database)
    yield connection
    await connection.close()


@pytest.fixture
def stored(sql: asyncpg.Connection[Any]) -> Stored:
    """How many rows each table has that callers can fill."""

    async def look() -> dict[str, int]:
        tables = "select tablename from pg_tables where schemaname = 'aioflow' order by 1"
        names = [name for (name,) in await sql.fetch(tables) if name not in _OF_WORKERS]
        assert {"instance", "instance_hot", "run", "inbox", "history", "request"} <= set(names)
        # Names out of the catalogue, quoted by the server.
        count = "select (xpath('/row/n/text()', query_to_xml(format('select count(*) as n from aioflow.%I',"
        count += " $1::text), false, true, '')))[1]::text::int"
        return {name: await sql.fetchval(count, name) for name in names}

    return look
