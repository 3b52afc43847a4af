"""What a doctor asks that no engine process needs: facts about the server, and whether hints arrive."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import asyncpg

from aioflow.errors import ConfigurationError
from aioflow.store.notify import WAKE, Listener
from aioflow.store.pool import translated
from aioflow.store.queries import sql

__all__ = ["OLDEST_SERVER", "ServerFacts", "hints_arrive", "server_facts"]

OLDEST_SERVER = 15
"""The oldest major version of Postgres that is supported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFacts:
    """A server as any session without settings of ours finds it; the settings as Postgres writes them."""

    version: str
    version_number: int
    standby: bool
    fsync: str
    full_page_writes: str
    synchronous_commit: str
    max_connections: int
    connections: int


async def server_facts(dsn: str | None) -> ServerFacts:
    """Ask a server; raises `DatabaseUnavailable`, `ConfigurationError`."""
    try:
        connection = await asyncpg.connect(dsn, timeout=10, server_settings={"application_name": "aioflow doctor"})
        try:
            return ServerFacts(**dict(await connection.fetchrow(sql("server"))))
        finally:
            await connection.close()
    except (ValueError, asyncpg.ClientConfigurationError) as exc:
        raise ConfigurationError(f"not a usable database address: {exc}") from exc
    except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as exc:
        raise translated(exc) from exc


async def hints_arrive(dsn: str | None, *, within: float = 3.0) -> str | None:
    """None when a notification sent to oneself arrives, else what is in the way; ``within`` in seconds."""
    answer: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()

    def told(listening: bool, why: str) -> None:
        if not answer.done():
            answer.set_result(None if listening else why)

    listener = Listener(dsn, [WAKE], lambda *_: None, lambda: None, probe_within=within, on_state=told)
    async with listener:
        try:
            return await asyncio.wait_for(answer, within + 10.0)
        except TimeoutError:
            return "no connection to listen on within the time"
