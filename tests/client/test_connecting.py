"""Opening a client: what is wrong with the database or the arguments is said at once, in a typed error."""

from __future__ import annotations

import asyncio
import socket
from contextlib import AsyncExitStack
from typing import Any

import asyncpg
import pytest

from aioflow.client import Client
from aioflow.errors import (
    ClientClosed,
    ConfigurationError,
    DatabaseUnavailable,
    DefinitionError,
    SchemaNotMigrated,
    SchemaTooNew,
    UnknownWorkflow,
)
from aioflow.store import pool
from tests.client.flows import Double, Order, Orders
from tests.support import eventually
from tests.support_runs import Runs

anything: Any = None


async def test_a_database_that_is_down() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(DatabaseUnavailable):
        await Client.open(f"postgresql://nobody@127.0.0.1:{port}/x", patience=0.2)
    with pytest.raises(DatabaseUnavailable):
        async with Client.connect("postgresql:///x?host=/nowhere"):
            pass


async def test_a_database_that_goes_away(database: str, sql: asyncpg.Connection, faults: list[str]) -> None:
    async with Client.connect(database, patience=0.3) as client:
        faults += ["start.before_send"] * 50
        with pytest.raises(DatabaseUnavailable):
            await client.start(Double, 1)
        faults.clear()
        assert await sql.fetchval("select count(*) from aioflow.run") == 0
        assert (await client.start(Double, 1)).run_id is not None


async def test_connections_that_are_cut_are_replaced(database: str, sql: asyncpg.Connection) -> None:
    async with Client.connect(database) as client:
        for n in range(3):
            await sql.fetch(
                "select pg_terminate_backend(pid) from pg_stat_activity "
                "where application_name = 'aioflow client' and datname = current_database()"
            )
            instance = await client.start(Double.options(id=f"{n}"), n)
            assert (await instance.describe()).status == "running"


@pytest.mark.parametrize("given", ["address", "pool"])
async def test_what_the_database_told_is_forgotten_after_a_failover(
    database: str, runs: Runs, sql: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    timeline = 1

    async def place(_: Any, __: str) -> tuple[str, int]:
        return f"failover-{given}", timeline

    monkeypatch.setattr(pool, "place", place)
    asked: list[str] = []
    async with AsyncExitStack() as stack:
        target: Any = database
        if given == "pool":
            target = await stack.enter_async_context(asyncpg.create_pool(database, min_size=1, max_size=2))
        client = await stack.enter_async_context(Client.connect(target))
        await client.start("Double", 1)
        instance = await client.start(Orders.options(id="a"), Order("o"))
        waiting = asyncio.create_task(instance.result())
        await sql.execute("delete from aioflow.definition")
        await client.start("Double", 1)  # that there is one is remembered
        monkeypatch.setattr(client._session._results, "rescan", lambda: asked.append("again"))
        timeline = 2
        async with Client.connect(database):
            pass
        await eventually(lambda: asked == ["again"])
        with pytest.raises(UnknownWorkflow):
            await client.start("Double", 1)
        waiting.cancel()


async def test_a_database_that_is_not_migrated(empty_database: str) -> None:
    with pytest.raises(SchemaNotMigrated, match="aioflow migrate"):
        await Client.open(empty_database)


async def test_a_database_newer_than_the_code(database: str, sql: asyncpg.Connection) -> None:
    newer = "insert into aioflow.migration (number, name, checksum, breaking) values (9000, 'later', 'x', $1)"
    await sql.execute(newer, True)
    with pytest.raises(SchemaTooNew, match="9000"):
        await Client.open(database)
    await sql.execute("update aioflow.migration set breaking = false where number = 9000")
    async with Client.connect(database):
        pass


@pytest.mark.parametrize("target", [7, b"postgresql://", object(), asyncio.Queue])
async def test_what_is_no_database(target: object) -> None:
    with pytest.raises(ConfigurationError, match="address or an asyncpg pool"):
        await Client.open(target)


async def test_the_wrong_kind_of_pool(database: str) -> None:
    class Pool:
        def acquire(self) -> None: ...
        def release(self) -> None: ...

    with pytest.raises(ConfigurationError, match="asyncpg pool"):
        await Client.open(Pool())
    connection = await asyncpg.connect(database)
    with pytest.raises(ConfigurationError):
        await Client.open(connection)
    await connection.close()
    with pytest.raises(ConfigurationError):
        await Client.open("mysql://x")


async def test_what_is_no_workflow(database: str) -> None:
    with pytest.raises(DefinitionError):
        await Client.open(database, workflows=[int])


async def test_nothing_is_left_open_after_a_failure(database: str, sql: asyncpg.Connection) -> None:
    with pytest.raises(DefinitionError):
        await Client.open(database, workflows=[int])
    left = "select count(*) from pg_stat_activity where application_name like $1 and datname = current_database()"

    async def none_left() -> bool:
        return int(await sql.fetchval(left, "aioflow%")) == 0

    await eventually(none_left)


async def test_a_closed_client_says_so(database: str) -> None:
    client = await Client.open(database)
    instance = client.instance("a", Orders)
    reserved = await client.reserve(Double)
    await client.close()
    calls: list[Any] = [
        client.start(Double, 1),
        client.reserve(Double),
        client.signal("a", Orders.approve, "x"),
        client.query("a", Orders.state),
        client.cancel("a"),
        client.terminate("a"),
        client.describe("a"),
        client.history("a"),
        instance.result(),
        reserved.start(1),
    ]
    for call in calls:
        with pytest.raises(ClientClosed):
            await call
    with pytest.raises(ClientClosed):
        client.list()


async def test_what_is_under_way_is_finished_at_close(database: str, sql: asyncpg.Connection) -> None:
    client = await Client.open(database)
    starts = [asyncio.create_task(client.start(Double, n)) for n in range(50)]
    await asyncio.sleep(0)
    await client.close()
    await asyncio.gather(*starts)
    assert await sql.fetchval("select count(*) from aioflow.run") == 50


async def test_workers_are_told_and_a_lost_hint_is_no_error(
    database: str, sql: asyncpg.Connection, faults: list[str]
) -> None:
    heard: asyncio.Queue[str] = asyncio.Queue()
    await sql.add_listener("aioflow_wake", lambda *given: heard.put_nowait(given[-1]))
    async with Client.connect(database) as client:
        faults.append("notify.before_send")
        await client.start(Orders.options(id="a"), anything or _order())
        await client.start(Double.options(queue="q1"), 1)
        assert "w:q1" in await asyncio.wait_for(heard.get(), 10)
        await client.signal("a", Orders.approve, "ann")
        assert "w:default" in await asyncio.wait_for(heard.get(), 10)


def _order() -> Any:
    from tests.client.flows import Order

    return Order("o")


async def test_two_namespaces_do_not_meet(database: str, runs: Runs, sql: asyncpg.Connection) -> None:
    await sql.execute("insert into aioflow.namespace (name) values ('two')")
    async with Client.connect(database) as one, Client.connect(database, namespace="two") as two:
        first = await one.start(Double.options(id="same"), 1)
        second = await two.start(Double.options(id="same"), 2)
        assert first.run_id != second.run_id
        assert [i.run_id async for i in one.list()] == [first.run_id]
        assert [i.run_id async for i in two.list()] == [second.run_id]
