"""``aioflow migrate``: bring the database up to date, or tell what that would do."""

from __future__ import annotations

import asyncio
import sys

import click

from aioflow.cli.exits import ExitCode
from aioflow.cli.options import database_url_option, settings_of
from aioflow.cli.output import note

__all__ = ["command"]


@click.command("migrate")
@database_url_option
@click.option("--print", "show", is_flag=True, help="Only print the SQL, for whoever runs it by hand.")
@click.option("--check", is_flag=True, help="Only tell whether the database is up to date: exit code 0, else 7.")
def command(database_url: str | None, show: bool, check: bool) -> None:
    """Bring the database's schema up to date.

    Safe to run at any time and from many places at once; what was applied before is left alone.
    """
    from aioflow.store import migrations

    if show and check:
        raise click.UsageError("--print and --check exclude each other")
    if show:
        click.echo(migrations.sql_text())
        return
    dsn = settings_of(database_url=database_url).require_database_url()
    if not check:
        applied = asyncio.run(migrations.migrate(dsn))
        for one in applied:
            click.echo(f"applied {one.number:04} {one.name}")
        if not applied:
            note("nothing to do: the schema is up to date")
        return
    if missing := asyncio.run(_missing(dsn)):
        click.echo("\n".join(missing))
        note("the database needs `aioflow migrate`")
        sys.exit(ExitCode.SCHEMA)
    note("the schema is up to date")


async def _missing(dsn: str) -> list[str]:
    """What is not applied yet; raises `SchemaTooNew` when a newer version must do the work."""
    from aioflow.store import migrations
    from aioflow.store.pool import Database

    if pending := await migrations.pending(dsn):
        return [f"pending {one.number:04} {one.name}" for one in pending]
    async with await Database.connect(dsn, max_size=1) as database:
        await migrations.check_schema(database)
    return []
