"""The only door to the driver: connections, their settings, and what happens when one is lost.

Every statement of the store may be sent again: it names its keys and tokens, so that a second try either finds
the first one done or does it. A statement is sent again only whole, only after errors that leave its fate
open, and only on another connection; after ``patience`` seconds the caller gets `DatabaseUnavailable`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

import anyio
import asyncpg

from aioflow.core.fault import fault
from aioflow.errors import ConfigurationError, DatabaseUnavailable, OldTimeline, SchemaNotMigrated, StoreError
from aioflow.store.timelines import TIMELINES, place
from aioflow.telemetry import get_logger

log = get_logger("aioflow.store")
T = TypeVar("T")
Rows = list[Any]

#: Errors of the server after which a whole call is sent again: connection and shutdown (08, 57P0x), resources
#: (53), conflicts and locks (40001, 40P01, 55P03), a statement timeout (57014), a standby (25006).
_AGAIN = ("08", "57P0", "53", "40001", "40P01", "55P03", "57014", "25006")
_NOT_MIGRATED = ("3F000", "42P01", "42883")
_REFUSED = ("28", "3D000", "42501")

#: Everything by which the driver tells that something is wrong with a connection or a statement.
_TOLD = (OSError, EOFError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)

SESSION_SETTINGS = {
    "statement_timeout": "15s",
    "lock_timeout": "3s",
    "idle_in_transaction_session_timeout": "10s",
    # A network that goes dark between a statement and the message that commits it leaves its locks behind: no timeout
    # of the server ends that, only that it finds its peer gone, after two hours by default.
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
    "default_transaction_isolation": "read committed",
    "synchronous_commit": "on",
    "TimeZone": "UTC",
    "search_path": "pg_catalog",
    "jit": "off",
    # Every statement has an index for what it reads; plans made while a table was still empty must use it too.
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
}


_MET = 1_000  # connections of a caller's pool whose server is remembered


class _Closed(Exception):
    """The pool was closed while a call waited."""


def lost(exc: BaseException) -> bool:
    """Does this error leave open whether the statement took effect, so that it must be sent again?"""
    if isinstance(exc, asyncpg.PostgresError):
        return str(exc.sqlstate or "").startswith(_AGAIN)
    if isinstance(exc, asyncpg.InternalClientError):
        return True
    if isinstance(exc, asyncpg.InterfaceError):
        return "closed" in str(exc) or "closing" in str(exc) or "released" in str(exc)
    return isinstance(exc, (OSError, TimeoutError, asyncio.IncompleteReadError, OldTimeline))


def translated(exc: BaseException) -> StoreError:
    """The error of ours for an error that is final."""
    if isinstance(exc, OldTimeline):
        return OldTimeline(*exc.args)
    state = str(getattr(exc, "sqlstate", None) or "")
    if state.startswith(_NOT_MIGRATED):
        return SchemaNotMigrated(f"the database lacks something of aioflow's schema ({exc}): run 'aioflow migrate'")
    if state.startswith(_REFUSED) or lost(exc):
        return DatabaseUnavailable(f"the database cannot be used: {type(exc).__name__}: {exc}")
    return StoreError(f"the database refused a statement: {type(exc).__name__}: {exc}")


def unconnected(exc: BaseException) -> DatabaseUnavailable:
    """The error of ours for one of connecting: whatever it says, nothing was sent."""
    return DatabaseUnavailable(f"the database cannot be used: {type(exc).__name__}: {exc}")


async def shielded(work: Coroutine[Any, Any, T]) -> T:
    """Await ``work`` to its end whatever happens to the caller; a cancellation is raised again after it."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    with anyio.CancelScope(shield=True):
        while not task.done():
            try:
                await asyncio.shield(task)
            except asyncio.CancelledError as exc:
                if not task.cancelled():  # the caller's, also when the task ended in the same moment
                    cancelled = exc
            except Exception:
                break
    if cancelled is not None:
        if not task.cancelled():
            task.exception()
        raise cancelled
    return task.result()


async def _keep_session(_: Any) -> None:
    """Connections never change their session, so that giving one back costs no round trip."""


class Database:
    """Pool of connections with the settings and the retries that the protocol asks for."""

    def __init__(self, pool: Any, dsn: str | None, *, patience: float, foreign: bool) -> None:
        self._pool, self.dsn, self._patience, self._foreign = pool, dsn, patience, foreign
        self._loop = asyncio.get_running_loop()
        self._system = ""
        self._timeline: int | None = None
        self._on_failover: Callable[[], None] = lambda: None
        self._expiring: asyncio.Future[None] | None = None
        self._met: dict[int, object] = {}
        TIMELINES.watch(self._moved)

    @classmethod
    async def connect(
        cls,
        dsn: str | None = None,
        *,
        pool: object | None = None,
        max_size: int = 8,
        application_name: str = "aioflow",
        patience: float = 10.0,
        connect_timeout: float = 10.0,
        wait: float = 0.0,
    ) -> Database:
        """Open a pool for ``dsn``, or use the caller's asyncpg pool (its settings are the caller's).

        ``patience`` is how many seconds one call may try, ``wait`` how many are granted to a server that is not there
        yet. Connections to a standby are not used, nor those to a server that a failover has left behind; those of a
        caller's pool are looked at when they are first used.
        Raises `DatabaseUnavailable`, `OldTimeline`, `ConfigurationError`.
        """
        if pool is not None:
            if not isinstance(pool, asyncpg.Pool):
                raise ConfigurationError(f"expected an asyncpg pool, got {type(pool).__name__}")
            return cls(pool, None, patience=patience, foreign=True)
        database = cls(None, dsn, patience=patience, foreign=False)
        try:
            database._pool = await asyncpg.create_pool(
                dsn,
                min_size=0,  # the driver would log a traceback whenever it cannot keep the others up
                max_size=max_size,
                timeout=connect_timeout,
                command_timeout=20.0,
                max_cached_statement_lifetime=0,
                init=database._meet,
                reset=_keep_session,
                server_settings={**SESSION_SETTINGS, "application_name": application_name},
            )
            await database._arrive(wait)
        except (ValueError, asyncpg.ClientConfigurationError) as exc:
            raise ConfigurationError(f"not a usable database address: {exc}") from exc
        except _TOLD as exc:
            raise unconnected(exc) from exc
        return database

    async def _arrive(self, wait: float) -> None:
        """Make the first connection, within ``wait`` seconds if the server is away or still starting."""
        loop = asyncio.get_running_loop()
        deadline, tries = loop.time() + wait, 0
        try:
            while True:
                try:
                    await self._pool.release(await self._pool.acquire())
                    return
                except (*_TOLD, OldTimeline) as exc:
                    pause = min(1.0, 0.05 * 2**tries) * (0.5 + random.random())
                    if not lost(exc) or loop.time() + pause > deadline:
                        raise
                    log.warning("database_not_ready", error=type(exc).__name__, reason=str(exc), tries=tries + 1)
                tries += 1
                await asyncio.sleep(pause)
        except BaseException:
            self._pool.terminate()
            raise

    def on_failover(self, call: Callable[[], None]) -> None:
        """Call this when the system has gone to another timeline: what is known of its rows may be undone."""
        self._on_failover = call

    async def _meet(self, connection: Any) -> None:
        """Look where a new connection has ended."""
        found = await place(connection, self.dsn or f"pool {id(self._pool)}")
        if found is not None:
            TIMELINES.see(*found)
            self._system, self._timeline = found

    async def _meet_foreign(self, connection: Any) -> None:
        """The same for a connection of the caller's pool, which has told nobody that it made one."""
        # Nothing public is the connection itself: what a pool hands out is another wrapper each time.
        pid, settings = connection.get_server_pid(), connection.get_settings()
        if self._met.get(pid) is not settings:
            await self._meet(connection)
            if len(self._met) >= _MET:
                self._met.clear()
            self._met[pid] = settings

    def _moved(self, system: str, timeline: int) -> None:
        if self._timeline is not None and system == self._system and timeline > self._timeline:
            self._timeline = timeline
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._leave)

    def _leave(self) -> None:
        """Connections that are left may still lead to the old server."""
        self._met.clear()
        if self._pool is not None and not self._foreign and not self._pool.is_closing():
            self._expiring = asyncio.ensure_future(self._pool.expire_connections())
        self._on_failover()

    async def close(self) -> None:
        """Close the pool (not one that the caller brought); connections that hang are cut after two seconds."""
        if self._foreign:
            return
        try:
            await asyncio.wait_for(self._pool.close(), 2.0)
        except (TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
            self._pool.terminate()

    async def __aenter__(self) -> Database:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def fetch(
        self, statement: str, *args: Any, point: str = "read", resend: bool = True, shield: bool = False
    ) -> Rows:
        """Rows of one statement. ``resend=False``: a lost answer is told at once. ``shield``: runs to its end."""
        rows, _ = await self.fetch_told(statement, *args, point=point, resend=resend, shield=shield)
        return rows

    async def fetch_told(
        self, statement: str, *args: Any, point: str, resend: bool = True, shield: bool = True
    ) -> tuple[Rows, bool]:
        """Like `fetch`, and whether the statement had to be sent more than once."""
        work = self._persist(lambda c: c.fetch(statement, *args), point, resend)
        return await (shielded(work) if shield else work)

    async def _persist(self, call: Callable[[Any], Awaitable[Rows]], point: str, resend: bool) -> tuple[Rows, bool]:
        loop = asyncio.get_running_loop()
        deadline, tries = loop.time() + self._patience, 0
        while True:
            try:
                return await self._once(call, point), tries > 0
            except (*_TOLD, OldTimeline, BufferError) as exc:  # the last: more than the wire protocol's gigabyte
                wait = min(1.0, 0.02 * 2**tries) * (0.5 + random.random())
                if not lost(exc) or not resend or loop.time() + wait > deadline or self._pool.is_closing():
                    raise translated(exc) from exc
            tries += 1
            await asyncio.sleep(wait)

    async def _once(self, call: Callable[[Any], Awaitable[Rows]], point: str) -> Rows:
        try:
            connection = await self._pool.acquire(timeout=self._patience)
        except asyncpg.PostgresError as exc:
            if lost(exc):
                raise
            raise unconnected(exc) from exc
        try:
            if self._foreign:
                await self._meet_foreign(connection)
            await fault(f"{point}.before_send")
            rows = await call(connection)
            await fault(f"{point}.after_send")
        except BaseException as exc:
            if lost(exc):
                with suppress(asyncpg.InterfaceError):  # the pool has dropped it already
                    connection.terminate()
            await self._take_back(connection)
            raise
        await self._pool.release(connection, timeout=2.0)
        return rows

    async def _take_back(self, connection: Any) -> None:
        """Release after an error, which counts: what releasing raises may replace it least of all when it cancels."""
        releasing = asyncio.ensure_future(self._pool.release(connection, timeout=2.0))
        releasing.add_done_callback(lambda done: done.cancelled() or done.exception())
        with suppress(Exception):
            await asyncio.shield(releasing)
