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
        # Names out of the catalogue, quoted by the server.
        one = "select string_agg(format('select %L as name, count(*) as n from aioflow.%I', tablename, tablename),"
        one += " ' union all ') from pg_tables where schemaname = 'aioflow' and tablename <> all ($1::text[])"
        rows = {row["name"]: row["n"] for row in await sql.fetch(await sql.fetchval(one, list(_OF_WORKERS)))}
        assert rows.keys() >= {"instance", "instance_hot", "run", "inbox", "history", "request"}
        return rows

    return look
