"""The real side: the store on Postgres, its clock in a table, its tables as they are, and answers that get lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import datetime
from typing import Any, TypeVar

import asyncpg

from aioflow.core.fault import set_fault_hook
from aioflow.store.pool import Database
from aioflow.store.store import Store
from tests.faults.stateful.oracle_tables import BEGINNING, FOREVER, MOST_SIGNALS, Row, parsed

T = TypeVar("T")

TABLES = ("instance", "run", "instance_hot", "activity", "timer", "request", "worker", "history", "inbox")

EVERYTHING = """select array(select x from aioflow.instance x) as instance, array(select x from aioflow.run x) as run,
array(select x from aioflow.instance_hot x) as instance_hot, array(select x from aioflow.activity x) as activity,
array(select x from aioflow.timer x) as timer, array(select x from aioflow.request x) as request,
array(select x from aioflow.worker x) as worker, array(select x from aioflow.history x) as history,
array(select x from aioflow.inbox x) as inbox"""

#: Stable as the product's own; every statement sees the time that was set before it.
CLOCK = """create table public.clock (at timestamptz not null);
create or replace function aioflow.clock() returns timestamptz language plpgsql stable parallel safe
as 'begin return (select c.at from public.clock c); end';"""
FEW_SIGNALS = """create or replace function aioflow.most_signals() returns integer language sql immutable parallel safe
return {}"""


class Killed(Exception):
    """The process of the caller is gone in the middle of an operation."""


class World:
    """A database with a clock that stands still until it is moved."""

    def __init__(self, dsn: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._point, self._error = "", Exception()
        self.struck = 0
        self.run(self._open(dsn))

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(work)

    async def _open(self, dsn: str) -> None:
        self._conn = await asyncpg.connect(dsn)
        await self._conn.execute(CLOCK)
        await self._conn.execute(FEW_SIGNALS.format(MOST_SIGNALS))
        await self._conn.execute("insert into public.clock values ($1)", BEGINNING)
        await self._conn.execute("insert into aioflow.namespace (name) values ('other') on conflict do nothing")
        self._db = await Database.connect(dsn, max_size=1)
        self.store = Store(self._db)
        set_fault_hook(self._fault)

    def close(self) -> None:
        set_fault_hook(None)
        self.run(self._close())
        self._loop.close()

    async def _close(self) -> None:
        await self._db.close()
        await self._conn.close()

    async def change_function(self, name: str, change: Callable[[str], str]) -> None:
        """Another text for a function of the schema."""
        text = await self._conn.fetchval("select pg_get_functiondef(to_regproc($1))", name)
        await self._conn.execute(change(text))

    async def empty(self) -> None:
        """As a fresh database; the clock begins again."""
        for name in TABLES:
            await self._conn.execute(" ".join(("delete from", f"aioflow.{name}")))
        await self.set_clock(BEGINNING)

    async def set_clock(self, at: datetime) -> None:
        await self._conn.execute("update public.clock set at = $1", at)

    async def tables(self) -> dict[str, list[Row]]:
        """All rows, without their shards."""
        found = await self._conn.fetchrow(EVERYTHING)
        return {name: [_row(record) for record in found[name]] for name in TABLES}

    # -- faults -------------------------------------------------------------------------------------

    def strike(self, point: str, error: Exception) -> None:
        """The next time that a step comes to this point, it fails."""
        self._point, self._error, self.struck = point, error, 0

    def lose(self, point: str) -> None:
        """The connection breaks there."""
        self.strike(point, ConnectionResetError(point))

    async def _fault(self, point: str) -> None:
        if point == self._point:
            self._point, self.struck = "", 1
            raise self._error


def _row(record: Any) -> Row:
    row = dict(record)
    row.pop("shard", None)
    if row.get("visible_at") == datetime.max:  # the driver reads infinity without a zone
        row["visible_at"] = FOREVER
    if "attrs" in row:
        row["attrs"] = parsed(row["attrs"])
    return row
