"""Making connections: servers that are starting, away, or refuse for good; and what the driver says meanwhile."""

from __future__ import annotations

import asyncio
import gc
import logging
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest
from structlog.testing import capture_logs

from aioflow.errors import DatabaseUnavailable
from aioflow.store import pool
from aioflow.store.pool import Database
from tests.support import eventually
from tests.worker.link import Link


class Starting(Link):
    """A link to a server that says it is starting up, so many times."""

    refusals = 0

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refusals <= 0:
            return await super()._forward(reader, writer)
        self.refusals -= 1
        (size,) = struct.unpack("!I", await reader.readexactly(4))
        await reader.readexactly(size - 4)
        body = b"SFATAL\0VFATAL\0C57P03\0Mthe database system is starting up\0\0"
        writer.write(b"E" + struct.pack("!I", len(body) + 4) + body)
        writer.close()


@asynccontextmanager
async def starting(database: str, folder: Path, refusals: int) -> AsyncIterator[str]:
    async with Starting(database, folder) as link:
        link.refusals = refusals
        yield link.dsn


async def test_a_server_that_is_starting_is_waited_for(database: str, short_tmp: Path) -> None:
    async with starting(database, short_tmp, 2) as dsn:
        with capture_logs() as logs:
            db = await Database.connect(dsn, wait=30.0)
        assert await db.fetch("select 1 as one") == [(1,)]
        await db.close()
    told = [(one["event"], one["error"], one["tries"]) for one in logs]
    assert told == [("database_not_ready", "CannotConnectNowError", n) for n in (1, 2)]


async def test_the_wait_has_an_end(database: str, short_tmp: Path) -> None:
    async with starting(database, short_tmp, 1_000) as dsn:
        for wait in (0.0, 0.2):
            with pytest.raises(DatabaseUnavailable, match="starting up"):
                await Database.connect(dsn, wait=wait)


@pytest.mark.parametrize(
    "error", [asyncpg.InternalClientError("cannot switch to state 12"), asyncio.IncompleteReadError(b"", 1)]
)
async def test_a_connection_that_breaks_at_once_is_an_error_of_ours(
    database: str, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    broken = [error] * 2

    async def place(*_: object) -> None:
        if broken:
            raise broken.pop()

    monkeypatch.setattr(pool, "place", place)
    with pytest.raises(DatabaseUnavailable):
        await Database.connect(database)
    async with await Database.connect(database, wait=10.0) as db:  # the second one, and then a good one
        assert await db.fetch("select 1 as one") == [(1,)]


async def test_nobody_waits_for_a_database_that_does_not_exist(database: str) -> None:
    with capture_logs() as logs, pytest.raises(DatabaseUnavailable, match="does not exist"):
        await Database.connect(urlunsplit(urlsplit(database)._replace(path="/not_there")), wait=3_600.0)
    assert logs == []


async def test_a_connection_that_is_lost_makes_no_noise(
    database: str, short_tmp: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with Link(database, short_tmp) as link, await Database.connect(link.dsn, patience=0.2) as db:
        asked = asyncio.create_task(db.fetch("select pg_sleep(3600)", resend=False))
        await eventually(lambda: busy(database))
        await link.cut()
        with pytest.raises(DatabaseUnavailable) as caught:
            await asked
        assert "terminate()" not in str(caught.value)  # what happened, and not what came of it
        with pytest.raises(DatabaseUnavailable):
            await db.fetch("select 1")
    assert [one for one in caplog.records if one.levelno >= logging.WARNING] == []


class Unstoppable(Link):
    """A link that swallows what comes by new connections, such as a request to cancel a statement."""

    swallowing = False

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self.swallowing:
            return await super()._forward(reader, writer)
        while await reader.read(1_000):
            pass
        writer.close()


async def test_a_cancellation_counts_though_the_server_does_not_hear_of_it(
    database: str, short_tmp: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with Unstoppable(database, short_tmp) as link, await Database.connect(link.dsn) as db:
        for cancellations in (1, 2):  # the second one comes while the connection is given back
            link.swallowing = False
            asked = asyncio.create_task(db.fetch("select pg_sleep(3600)"))
            await eventually(lambda: busy(database))
            link.swallowing = True
            for _ in range(cancellations):
                asked.cancel()
                await asyncio.sleep(0)
                await asyncio.sleep(0)
            with pytest.raises(asyncio.CancelledError):
                await asked
    gc.collect()
    assert caplog.records == []


async def busy(database: str) -> Any:
    connection = await asyncpg.connect(database)
    try:
        return await connection.fetchval(
            "select count(*) from pg_stat_activity where query like '%sleep(3600)' and datname = current_database() "
            "and pid <> pg_backend_pid()"
        )
    finally:
        await connection.close()
