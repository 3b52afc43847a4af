"""Migrations: concurrent, checksummed, known when they are missing or newer."""

from __future__ import annotations

import asyncio
import dataclasses

import asyncpg
import pytest

from aioflow.errors import (
    ConfigurationError,
    DatabaseUnavailable,
    MigrationError,
    SchemaNotMigrated,
    SchemaTooNew,
    StoreError,
)
from aioflow.store import migrations
from aioflow.store.pool import Database
from aioflow.store.store import Store
from tests.store.bench import Bench


async def test_many_migrate_at_once(empty_database: str) -> None:
    assert await migrations.pending(empty_database) == list(migrations.known())
    applied = await asyncio.gather(*(migrations.migrate(empty_database) for _ in range(6)))
    assert [m.number for part in applied for m in part] == [m.number for m in migrations.known()]
    assert await migrations.migrate(empty_database) == []
    assert await migrations.pending(empty_database) == []
    async with await Database.connect(empty_database) as db:
        await migrations.check_schema(db)


async def test_printed_text_does_the_same(empty_database: str) -> None:
    conn = await asyncpg.connect(empty_database)
    await conn.execute(migrations.sql_text())
    await conn.close()
    assert await migrations.pending(empty_database) == []


async def test_a_changed_migration_is_refused(database: str, conn: asyncpg.Connection) -> None:
    await conn.execute("update aioflow.migration set checksum = 'other' where number = 2")
    with pytest.raises(MigrationError, match="0002 messages"):
        await migrations.migrate(database)
    with pytest.raises(MigrationError):
        await migrations.pending(database)


async def test_a_failing_migration_leaves_nothing(empty_database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bad = dataclasses.replace(
        migrations.known()[0], number=9, name="bad", text="create table aioflow.half (x int); select 1/0;"
    )
    monkeypatch.setattr(migrations, "known", lambda: (bad,))
    with pytest.raises(MigrationError, match="0009 bad"):
        await migrations.migrate(empty_database)
    conn = await asyncpg.connect(empty_database)
    assert await conn.fetchval("select to_regclass('aioflow.half')") is None
    await conn.close()


async def test_the_schema_is_checked(empty_database: str) -> None:
    async with await Database.connect(empty_database) as db:
        with pytest.raises(SchemaNotMigrated, match="aioflow migrate"):
            await migrations.check_schema(db)
        bench = Bench(Store(db), None)  # type: ignore[arg-type]  # the connection is not used
        with pytest.raises(SchemaNotMigrated):
            await bench.start()
        await migrations.migrate(empty_database)
        conn = await asyncpg.connect(empty_database)
        await conn.execute("delete from aioflow.migration where number = 3")
        with pytest.raises(SchemaNotMigrated, match="0003"):
            await migrations.check_schema(db)
        note = "insert into aioflow.migration values (3, 'lifecycle', 'x', true), (900, 'soft', 'x', false)"
        await conn.execute(note)
        await migrations.check_schema(db)
        await conn.execute("insert into aioflow.migration values (901, 'hard', 'x', true)")
        with pytest.raises(SchemaTooNew, match="0901"):
            await migrations.check_schema(db)
        await conn.close()


async def test_a_database_that_cannot_be_used_says_so(database: str) -> None:
    for dsn in ("postgresql://nobody@127.0.0.1:9/none", database.rsplit("/", 1)[0] + "/no_such_database"):
        with pytest.raises(DatabaseUnavailable):
            await Database.connect(dsn)
        with pytest.raises(DatabaseUnavailable):
            await migrations.migrate(dsn)
    for bad in ("mysql://x/y", "postgresql://h:notaport/db"):
        with pytest.raises(ConfigurationError):
            await Database.connect(bad)
    with pytest.raises(ConfigurationError):
        await Database.connect(pool=object())


async def test_a_pool_of_the_caller_serves_calls(database: str) -> None:
    async with asyncpg.create_pool(database, min_size=1, max_size=2) as pool:
        db = await Database.connect(pool=pool)
        assert db.dsn is None
        bench = Bench(Store(db), None)  # type: ignore[arg-type]  # the connection is not used
        assert (await bench.start()).outcome == "started"
        with pytest.raises(StoreError):
            await db.fetch("select 1/0")
        await db.close()
        assert not pool.is_closing()
