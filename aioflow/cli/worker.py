"""``aioflow worker``: serve queues until told to stop."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from aioflow.cli.options import database_options, settings_of, worker_options

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioflow.cli.settings import Settings
    from aioflow.core.registry import Registry
    from aioflow.worker import Worker

__all__ = ["command", "worker_of"]


@click.command("worker")
@click.argument("modules", nargs=-1, metavar="[MODULE]...")
@worker_options
@click.option("--identity", metavar="TEXT", help="Name of this process in logs and lists.  [default: host:pid]")
@database_options
def command(modules: tuple[str, ...], identity: str | None, **flags: Any) -> None:
    """Run the workflows and activities of MODULE (pkg.mod or pkg.mod:name), or of the modules in the settings.

    SIGTERM or Ctrl-C drains: nothing more is claimed, what runs is finished or given back, exit code 0. A second
    signal ends the process at once (exit code 143, or 130 after Ctrl-C); its work is taken over by others.
    """
    settings = settings_of(modules=modules, **flags)
    dsn = settings.require_database_url()

    from aioflow import telemetry
    from aioflow.cli.modules import load_modules
    from aioflow.worker import process

    telemetry.configure(settings.log_level, settings.log_format)
    registry = load_modules(settings.require_modules())
    sys.exit(process.run(worker_of(settings, registry, dsn, identity)))


def worker_of(settings: Settings, registry: Registry, dsn: str, identity: str | None = None) -> Callable[[], Worker]:
    """How the worker is made that the settings describe."""
    from aioflow.worker import Endpoint, Worker, WorkerSettings

    def make() -> Worker:
        return Worker(
            Endpoint(dsn, settings.namespace, settings.listen_url),
            workflows=[one.cls for one in registry.workflows.values()],
            activities=registry.activities.values(),
            queues=settings.queues or None,
            identity=identity,
            settings=WorkerSettings(
                concurrency=settings.concurrency,
                connections=settings.pool_size,
                drain_grace=settings.drain_grace,
            ),
        )

    return make
