"""A Postgres of one's own for measurements: durable, and large enough that checkpoints stay out of short reps."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg

from aioflow.store.embedded import EmbeddedPostgres

SETTINGS = {
    "shared_buffers": "1GB",
    "max_wal_size": "8GB",
    "min_wal_size": "2GB",
    "checkpoint_timeout": "15min",
    "max_connections": 200,
}
SHOWN = ("fsync", "full_page_writes", "synchronous_commit", "wal_sync_method", *SETTINGS)


@dataclass(slots=True)
class Bench:
    """The server of a session. ``sql`` is a connection to look at it with, ``pid`` its first process."""

    server: EmbeddedPostgres
    sql: asyncpg.Connection[Any]
    pid: int
    version: int

    async def fresh(self, name: str) -> str:
        """A new, empty database; gives its address. ``name`` is one of ours."""
        await self.sql.execute(" ".join(("drop database if exists", name, "with (force)")))
        await self.sql.execute(" ".join(("create database", name)))
        return self.server.dsn_of(name)

    async def shown(self) -> dict[str, str]:
        """Version and settings, for the report."""
        found = {"version": await self.sql.fetchval("show server_version")}
        for name in SHOWN:
            found[name] = await self.sql.fetchval("select current_setting($1)", name)
        return found


@asynccontextmanager
async def serving(folder: Path | None, settings: dict[str, str]) -> AsyncIterator[Bench]:
    """A durable server in a new folder below ``folder`` (the system's temporary one by default)."""
    root = Path(tempfile.mkdtemp(prefix="aioflow-bench-", dir=folder))
    await asyncio.to_thread(root.chmod, 0o755)
    try:
        async with EmbeddedPostgres(root, settings={**SETTINGS, **settings}) as server:
            sql = await asyncpg.connect(server.dsn)
            try:
                version = int(await sql.fetchval("show server_version_num"))
                pid = _postmaster(server.data)
                yield Bench(server, sql, pid, version)
            finally:
                await sql.close()
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _postmaster(data: Path) -> int:
    """Id of the first process of a server."""
    return int((data / "postmaster.pid").read_text().splitlines()[0])
