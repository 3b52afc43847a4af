"""``aioflow dev``: a database of its own, a worker in this process, and how to talk to them."""

from __future__ import annotations

import asyncio
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aioflow.cli.options import settings_of, worker_options
from aioflow.cli.output import note

if TYPE_CHECKING:
    from aioflow.core.registry import Registry

__all__ = ["command"]

_DEMO = "aioflow.cli.demo.flows"


@click.command("dev")
@click.argument("modules", nargs=-1, metavar="[MODULE]...")
@click.option(
    "--port", type=click.IntRange(1, 65535), metavar="PORT", help="Listen on 127.0.0.1:PORT too, for other tools."
)
@click.option("--data-dir", metavar="DIR", help="Where the database is kept.  [default: the user's data folder]")
@click.option("--reset", is_flag=True, help="Throw the database away first.")
@click.option("--namespace", metavar="NAME", help="Namespace to serve.  [default: default]")
@worker_options
def command(modules: tuple[str, ...], port: int | None, data_dir: str | None, reset: bool, **flags: Any) -> None:
    """Develop without a database at hand: start one, migrate it, and run a worker until Ctrl-C.

    Serves MODULE (pkg.mod or pkg.mod:name), or the modules in the settings, else a small demonstration. What was
    started stays in the database until --reset.
    """
    from aioflow import telemetry
    from aioflow.cli.modules import load_modules
    from aioflow.cli.worker import worker_of
    from aioflow.store.embedded import EmbeddedPostgres
    from aioflow.store.migrations import migrate
    from aioflow.worker import process

    settings = settings_of(modules=modules, data_dir=data_dir, **flags)
    telemetry.configure(settings.log_level, settings.log_format)
    registry = load_modules(settings.modules or (_DEMO,))
    root = settings.data_dir / "dev"
    if reset:
        _reset(root)
    with EmbeddedPostgres(root, port=port) as server:
        asyncio.run(migrate(server.dsn))
        _explain(server.tcp_dsn or server.dsn, registry)
        code = process.run(worker_of(settings, registry, server.dsn))
    sys.exit(code)


def _reset(root: Path) -> None:
    """Remove the database, unless somebody uses it."""
    from aioflow.store.embedded import EmbeddedPostgres

    if root.exists():
        with EmbeddedPostgres(root):
            pass  # it starts for us, so nobody else has it
        shutil.rmtree(root)


def _explain(dsn: str, registry: Registry) -> None:
    workflow = next(iter(registry.workflows.values()), None)
    name = workflow.name if workflow else "WORKFLOW"
    parameters = list(workflow.signature.hints)[:-1] if workflow else ["x"]
    arguments = "".join(" --arg '…'" for name_ in parameters if name_ != "return")
    note("The database runs, and a worker serves it. In another terminal:")
    note()
    note(f"  export AIOFLOW_DATABASE_URL='{dsn}'")
    note(f"  aioflow workflow start {name} --id first{arguments}")
    note("  aioflow workflow list")
    note("  aioflow workflow show first")
    note("  aioflow workflow history first")
    note()
    note("Ctrl-C stops both; the database is kept.")
    note()
