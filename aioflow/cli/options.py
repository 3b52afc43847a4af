"""Options that several commands share, and the settings made of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from aioflow.cli.settings import Settings

__all__ = [
    "arguments_options",
    "database_options",
    "database_url_option",
    "instance_argument",
    "json_option",
    "log_options",
    "modules_option",
    "run_option",
    "settings_of",
    "worker_options",
]

F = TypeVar("F", bound=Callable[..., Any])


def _all(*decorators: Callable[[F], F]) -> Callable[[F], F]:
    def decorate(fn: F) -> F:
        for decorator in reversed(decorators):
            fn = decorator(fn)
        return fn

    return decorate


database_url_option = click.option(
    "--database-url", metavar="URL", help="Postgres to use, as in postgresql://user@host/database."
)

database_options = _all(
    database_url_option,
    click.option("--namespace", metavar="NAME", help="Namespace of the instances.  [default: default]"),
)
"""Where the instances are."""

json_option = click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout, for scripts.")

modules_option = click.option(
    "-m",
    "--module",
    "modules",
    multiple=True,
    metavar="MODULE",
    help="Code of the workflows: pkg.mod or pkg.mod:name. May be given several times.",
)

arguments_options = _all(
    click.option("--arg", "arg", multiple=True, metavar="JSON", help="One argument; once for each, in order."),
    click.option(
        "--args",
        "args",
        metavar="JSON",
        help="All arguments: an array, or an object of parameters by name; - reads them from stdin.",
    ),
)

run_option = click.option("--run", "run_id", type=click.UUID, metavar="ID", help="This run; else the current one.")

instance_argument = click.argument("instance_id", metavar="INSTANCE")

log_options = _all(
    click.option("--log-level", metavar="LEVEL", help="debug, info, warning, error or critical.  [default: info]"),
    click.option(
        "--log-format", metavar="FORMAT", help="json or console.  [default: console on a terminal, else json]"
    ),
)

worker_options = _all(
    click.option(
        "-q",
        "--queue",
        "queues",
        multiple=True,
        metavar="NAME",
        help="Queue to serve, several times for several.  [default: those the modules name]",
    ),
    click.option("--concurrency", type=int, metavar="N", help="Activities that run at once.  [default: 200]"),
    click.option("--pool-size", type=int, metavar="N", help="Connections to the database.  [default: 10]"),
    click.option(
        "--drain-grace",
        type=float,
        metavar="SECONDS",
        help="Time for running activities to end after SIGTERM.  [default: 30]",
    ),
    log_options,
)
"""How a worker runs."""


def settings_of(**flags: Any) -> Settings:
    """The settings behind a command's flags; raises `ConfigurationError`."""
    from aioflow.cli.settings import load_settings

    return load_settings(flags)
