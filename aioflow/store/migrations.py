"""Numbered, immutable migrations, applied in order under one lock, each in its own transaction."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import asyncpg

from aioflow.core.fault import fault
from aioflow.errors import (
    ConfigurationError,
    DatabaseUnavailable,
    MigrationError,
    SchemaNotMigrated,
    SchemaTooNew,
)
from aioflow.store.pool import Database, translated
from aioflow.store.queries import sql

#: Key of the advisory lock that serialises migrators ("aioflow" in ASCII).
_LOCK = int.from_bytes(b"aioflow", "big")


@dataclass(frozen=True, slots=True)
class Migration:
    """One migration file. ``breaking``: workers older than it must not run on the result."""

    number: int
    name: str
    text: str
    checksum: str
    breaking: bool


@cache
def known() -> tuple[Migration, ...]:
    """All migrations of this version, in order."""
    folder = files("aioflow.store") / "sql" / "migrations"
    found = []
    for entry in sorted(folder.iterdir(), key=lambda e: e.name):
        if entry.name.endswith(".sql"):
            text = entry.read_text(encoding="utf-8")
            number, _, name = entry.name.removesuffix(".sql").partition("_")
            breaking = text.startswith("-- breaking: yes")
            found.append(Migration(int(number), name, text, hashlib.sha256(text.encode()).hexdigest(), breaking))
    return tuple(found)


def sql_text() -> str:
    """Everything `migrate` would run on an empty database, for people who run it themselves."""
    parts = [sql("migration_schema") + ";", sql("migration_table") + ";"]
    note = sql("migration_note").strip()
    for migration in known():
        values = (str(migration.number), f"'{migration.name}'", f"'{migration.checksum}'", str(migration.breaking))
        title = f"-- migration {migration.number:04} {migration.name}"
        parts += [title, "begin;", migration.text, _filled(note, values), "commit;"]
    return "\n".join(parts)


def _filled(statement: str, values: tuple[str, ...]) -> str:
    """A statement with its values written in; they are our own file names and checksums."""
    return re.sub(r"[$](\d)(?=[,)])", lambda found: values[int(found[1]) - 1], statement) + ";"


async def migrate(dsn: str | None) -> list[Migration]:
    """Bring the schema up to date; returns what was applied now. Safe to run from many processes at once.

    Raises `MigrationError` (a statement failed, or an applied file has changed), `DatabaseUnavailable`.
    """
    connection = await _connect(dsn)
    try:
        applied = []
        for migration in known():
            if await _apply(connection, migration):
                applied.append(migration)
        return applied
    finally:
        await connection.close()


async def pending(dsn: str | None) -> list[Migration]:
    """Migrations that `migrate` would apply."""
    connection = await _connect(dsn)
    try:
        done = _verified(await _applied(connection))
        return [migration for migration in known() if migration.number not in done]
    finally:
        await connection.close()


async def check_schema(db: Database) -> None:
    """Raise `SchemaNotMigrated` or `SchemaTooNew` unless this version may work on the database."""
    rows = await db.fetch(sql("migrations_applied"), point="check_schema")
    done = {row["number"]: row for row in rows}
    ours = {migration.number for migration in known()}
    if missing := sorted(ours - done.keys()):
        raise SchemaNotMigrated(
            f"the database lacks {len(missing)} migration(s) of aioflow, from {missing[0]:04} on: run 'aioflow migrate'"
        )
    if newer := [number for number, row in done.items() if number not in ours and row["breaking"]]:
        raise SchemaTooNew(
            f"the database was migrated by a newer aioflow (migration {max(newer):04}); this version must "
            "not work on it: upgrade it"
        )


async def _connect(dsn: str | None) -> Any:
    try:
        return await asyncpg.connect(
            dsn,
            timeout=10,
            server_settings={"application_name": "aioflow migrate", "search_path": "pg_catalog"},
        )
    except (ValueError, asyncpg.ClientConfigurationError) as exc:
        raise ConfigurationError(f"not a usable database address: {exc}") from exc
    except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as exc:
        raise DatabaseUnavailable(str(translated(exc))) from exc


async def _apply(connection: Any, migration: Migration) -> bool:
    try:
        async with connection.transaction():
            await connection.execute(sql("migration_lock"), _LOCK)
            await connection.execute(sql("migration_schema"))
            await connection.execute(sql("migration_table"))
            if migration.number in _verified(await _applied(connection)):
                return False
            await fault("migrate.before_apply")
            await connection.execute(migration.text)
            await connection.execute(
                sql("migration_note"),
                migration.number,
                migration.name,
                migration.checksum,
                migration.breaking,
            )
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as exc:
        raise MigrationError(f"migration {migration.number:04} {migration.name}: {exc}") from exc
    return True


async def _applied(connection: Any) -> list[Any]:
    try:
        return list(await connection.fetch(sql("migrations_applied")))
    except (asyncpg.UndefinedTableError, asyncpg.InvalidSchemaNameError):
        return []


def _verified(rows: list[Any]) -> set[int]:
    ours = {migration.number: migration for migration in known()}
    for row in rows:
        mine = ours.get(row["number"])
        if mine is not None and mine.checksum != row["checksum"]:
            raise MigrationError(
                f"migration {mine.number:04} {mine.name} was applied with other contents than this version "
                "has; an applied migration is never changed"
            )
    return {row["number"] for row in rows}
