"""The seam: what the store takes for its pool is one connection that waits to be told before each thing it sends.

An actor is an operation of the store that runs as ever, on such a pool. Before a statement goes to the server it
waits for its turn; a statement that takes locks is sent inside a transaction, and its COMMIT waits for a turn of its
own, so that others meet the locks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import cache
from typing import Any, Final, NamedTuple

import asyncpg

from aioflow.errors import DatabaseUnavailable
from aioflow.store.pool import SESSION_SETTINGS, Database
from aioflow.store.queries import names, sql
from aioflow.store.store import Store

__all__ = ["Actor", "Grant", "Slot", "Statements", "locks"]

DEADLOCK: Final = "40P01"
#: What stands between the store and its connection: name, arguments, and how to send them.
Statements = Callable[[str, Any, Callable[..., Awaitable[list[Any]]]], Awaitable[list[Any]]]


class Grant(NamedTuple):
    """Leave to go on. ``pause``: stop at that call of the clock; ``lose``: do it, and lose the answer."""

    pause: int = 0
    lose: bool = False


@cache
def _names() -> dict[str, str]:
    return {sql(name): name for name in names()}


@cache
def locks(statement: str) -> bool:
    """Whether a statement takes locks, by its own account."""
    return "Locks: none" not in statement


class Slot:
    """A backend for actors, kept over schedules; a new one when it was killed."""

    def __init__(self, dsn: str, number: int) -> None:
        self.dsn, self.number = dsn, number
        self.connection: Any = None

    async def connect(self) -> Any:
        if self.connection is None or self.connection.is_closed():
            settings = {**SESSION_SETTINGS, "deadlock_timeout": "100ms", "application_name": "interleave"}
            self.connection = await asyncpg.connect(
                self.dsn, server_settings={**settings, "il.slot": str(self.number), "il.pause": "0"}
            )
        return self.connection

    @property
    def pid(self) -> int:
        return 0 if self.connection is None else int(self.connection.get_server_pid())

    def drop(self) -> None:
        """Forget the backend, so that its successor has nothing of its session."""
        if self.connection is not None:
            self.connection.terminate()
            self.connection = None


class Actor:
    """One operation under way. States: running, ready (waits for its turn), blocked, paused, done."""

    def __init__(self, name: str, slot: Slot, changed: asyncio.Event, mutant: Statements | None) -> None:
        self.name, self.slot, self._changed, self._mutant = name, slot, changed, mutant
        self.state, self.want, self.armed, self.turns = "running", "", False, 0
        self.errors: list[str] = []
        self.sent: set[str] = set()
        self.failed: Exception | None = None
        self._go: asyncio.Future[Grant] | None = None
        self._task: asyncio.Task[None] | None = None
        self.store = Store(Database(_Pool(self), None, patience=20.0, foreign=False))

    @property
    def unexpected(self) -> bool:
        return self.failed is not None and not isinstance(self.failed, DatabaseUnavailable)

    def begin(self, operation: Awaitable[None]) -> None:
        self._task = asyncio.ensure_future(self._run(operation))

    async def _run(self, operation: Awaitable[None]) -> None:
        try:
            await operation
        except Exception as exc:  # told by whoever looks at the schedule
            self.failed = exc
        self.state = "done"
        self._changed.set()

    async def turn(self, want: str) -> Grant:
        self.want, self.state, self.turns = want, "ready", self.turns + 1
        self._go = asyncio.get_running_loop().create_future()
        self._changed.set()
        return await self._go

    def grant(self, grant: Grant) -> None:
        assert self._go is not None
        self.state = "running"
        self._go.set_result(grant)

    async def stop(self) -> None:
        self.slot.drop()
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task])

    async def send(self, statement: str, *args: Any) -> list[Any]:
        """One statement of the store, in two steps if it takes locks."""
        name = _names()[statement]
        try:
            if self._mutant is not None:
                return await self._mutant(name, args, lambda *a, text=statement, of=name: self._steps(of, text, *a))
            return await self._steps(name, statement, *args)
        except asyncpg.PostgresError as exc:
            if exc.sqlstate == DEADLOCK:
                self.errors.append(f"deadlock in {name}: {exc.args[0]} {exc.detail or ''}")
            raise

    async def _steps(self, name: str, statement: str, *args: Any) -> list[Any]:
        grant = await self.turn(name)
        self.sent.add(name)
        connection = await self.slot.connect()
        if grant.pause:
            await connection.execute("select set_config('il.pause', '" + str(int(grant.pause)) + "', false)")
        if not locks(statement):
            return list(await connection.fetch(statement, *args))
        await connection.execute("begin")
        try:
            rows = await connection.fetch(statement, *args)
            grant = await self.turn(f"{name}: commit")
        except BaseException:
            if not connection.is_closed():
                await connection.execute("rollback")
            raise
        await connection.execute("commit")
        if grant.lose:
            self.slot.drop()
            raise asyncpg.ConnectionDoesNotExistError("the answer was lost")
        return list(rows)


class _Pool:
    """What `Database` asks of a pool."""

    def __init__(self, actor: Actor) -> None:
        self._actor = actor

    async def acquire(self, *, timeout: float) -> _Leased:
        return _Leased(self._actor)

    async def release(self, connection: _Leased, *, timeout: float) -> None: ...

    def is_closing(self) -> bool:
        return False


class _Leased:
    def __init__(self, actor: Actor) -> None:
        self.fetch = actor.send
        self.terminate = actor.slot.drop
