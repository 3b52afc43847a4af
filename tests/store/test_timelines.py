"""Connections are made to the newest timeline only, and never to a standby."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import pytest

from aioflow.errors import DatabaseUnavailable, OldTimeline
from aioflow.store import pool
from aioflow.store.pool import Database
from aioflow.store.timelines import Timelines, place
from tests.support import eventually


def test_an_older_timeline_is_refused_for_each_system() -> None:
    timelines = Timelines()
    for timeline in (2, 2, 3):
        timelines.see("a", timeline)
    timelines.see("b", 1)
    with pytest.raises(OldTimeline, match="timeline 2, and this process has seen 3"):
        timelines.see("a", 2)
    timelines.see("a", 3)


def test_watchers_learn_of_a_higher_one() -> None:
    class Watcher:
        def __init__(self) -> None:
            self.seen: list[tuple[str, int]] = []

        def moved(self, system: str, timeline: int) -> None:
            self.seen.append((system, timeline))

    timelines, watcher, gone = Timelines(), Watcher(), Watcher()
    timelines.watch(watcher.moved)
    timelines.watch(gone.moved)
    del gone
    for timeline in (1, 1, 4, 4):
        timelines.see("a", timeline)
    assert watcher.seen == [("a", 4)]


async def test_any_role_may_ask_where_it_is(conn: asyncpg.Connection[Any]) -> None:
    system = await conn.fetchval("select system_identifier::text from pg_control_system()")
    assert await place(conn, "dsn") == (system, 1)
    async with conn.transaction():
        await conn.execute("create role aioflow_plain in role pg_monitor")
        await conn.execute("revoke execute on function pg_control_system() from public, pg_monitor")
        await conn.execute("set local role aioflow_plain")
        assert await place(conn, "dsn") == ("dsn", 1)
        await conn.execute("reset role")
        await conn.execute("grant execute on function pg_control_system() to public")
        await conn.execute("drop role aioflow_plain")


class Network:
    """Says where the next connections end."""

    def __init__(self, timeline: int) -> None:
        self.timeline, self.asked = timeline, 0

    async def place(self, _: Any, __: str) -> tuple[str, int]:
        self.asked += 1
        if self.timeline == 0:
            raise ConnectionError("the server is a standby, where nothing can be written")
        return f"fake-{id(self)}", self.timeline


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> Network:
    made = Network(timeline=3)
    monkeypatch.setattr(pool, "place", made.place)
    return made


async def test_a_pool_of_the_caller_is_placed_by_its_connections(database: str, network: Network) -> None:
    backend, told = "select pg_backend_pid()", []
    async with asyncpg.create_pool(database, min_size=1, max_size=1) as given:
        db = await Database.connect(pool=given, patience=0.3)
        db.on_failover(lambda: told.append("db"))
        ((before,),) = await db.fetch(backend)
        assert (await db.fetch(backend), network.asked) == ([(before,)], 1)
        network.timeline = 4
        async with await Database.connect(database, max_size=1):  # somebody else sees it
            pass
        await eventually(lambda: told == ["db"])
        network.timeline = 3  # where the connection of the pool has stayed
        with pytest.raises(OldTimeline):
            await db.fetch(backend)
        network.timeline = 0
        with pytest.raises(DatabaseUnavailable, match="standby"):
            await db.fetch(backend)
        network.timeline = 4
        ((after,),) = await db.fetch(backend)
        assert before != after
        network.timeline = 5
        await given.expire_connections()
        await db.fetch(backend)
        await eventually(lambda: told == ["db", "db"])
        assert await given.fetchval("select 1") == 1  # it stays the caller's
        await db.close()
        assert await given.fetchval("select 1") == 1


async def test_all_pools_leave_a_server_that_was_left_behind(database: str, network: Network) -> None:
    told: list[str] = []
    backend = "select pg_backend_pid()"
    async with (
        await Database.connect(database, max_size=2, patience=0.3) as db,
        await Database.connect(database, max_size=1) as other,
    ):
        db.on_failover(lambda: told.append("db"))
        other.on_failover(lambda: told.append("other"))
        ((before,),) = await other.fetch(backend)
        network.timeline = 4
        async with await Database.connect(database, max_size=1):  # somebody sees it first
            pass
        await eventually(lambda: sorted(told) == ["db", "other"])
        ((after,),) = await other.fetch(backend)
        assert before != after
        ((mine,),) = await db.fetch(backend)
        await other.fetch(backend)
        network.timeline = 3
        await other.fetch("select pg_terminate_backend($1)", mine)
        with pytest.raises(OldTimeline):
            await db.fetch(backend)
        with pytest.raises(DatabaseUnavailable, match="timeline 3"):
            await Database.connect(database, patience=0.3)
        network.timeline = 0
        with pytest.raises(DatabaseUnavailable, match="standby"):
            await db.fetch(backend)
        with pytest.raises(DatabaseUnavailable, match="standby"):
            await Database.connect(database)
        asking = asyncio.ensure_future(db.fetch(backend))
        asked = network.asked
        await eventually(lambda: network.asked > asked)
        network.timeline = 4
        assert len(await asking) == 1
    assert sorted(told) == ["db", "other"]
