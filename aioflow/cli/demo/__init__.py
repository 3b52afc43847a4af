"""``aioflow demo``: an order that survives the death of its worker, on a database of its own."""

from __future__ import annotations

import click

__all__ = ["command"]


@click.command("demo")
def command() -> None:
    """Show what durable means: kill a worker in the middle of an order, and watch another finish it.

    Needs nothing but this installation: it starts a Postgres of its own in a temporary folder and removes it.
    """
    import asyncio
    import tempfile
    from pathlib import Path

    from aioflow.cli.demo.story import tell
    from aioflow.store.embedded import EmbeddedPostgres

    with tempfile.TemporaryDirectory(prefix="aioflow-demo-", ignore_cleanup_errors=True) as folder:
        click.echo("Starting a Postgres of our own in a temporary folder ...")
        with EmbeddedPostgres(Path(folder) / "pg") as server:
            asyncio.run(tell(server.dsn, Path(folder)))
