"""The ``aioflow`` command. Data goes to stdout, everything else to stderr; the exit code tells the rest."""

from __future__ import annotations

import importlib
import importlib.util
import io
import sys
from typing import Any

import click

from aioflow.cli.exits import exit_code
from aioflow.errors import AioflowError

__all__ = ["main"]


class _Commands(click.Group):
    """A group whose commands are imported when they are used: `aioflow --help` stays quick.

    The command ``x-y`` is the attribute ``command`` of the module ``aioflow.cli.x_y``.
    """

    _names = ("demo", "dev", "worker", "workflow", "migrate", "doctor")

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name in self._names if importlib.util.find_spec(_module(name)) is not None]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        command = importlib.import_module(_module(cmd_name)).command
        assert isinstance(command, click.Command)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        _print_anything()
        try:
            return super().invoke(ctx)
        except AioflowError as error:
            click.echo(f"aioflow: {error}", err=True)
            sys.exit(exit_code(error))
        except KeyboardInterrupt as interrupt:
            sys.exit(exit_code(interrupt))


def _print_anything() -> None:
    """Values of users may hold what the terminal's encoding lacks: it is escaped, never an error."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _module(name: str) -> str:
    return f"aioflow.cli.{name.replace('-', '_')}"


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="aioflow", prog_name="aioflow")
def main() -> None:
    """Durable workflows on PostgreSQL.

    Settings come from flags, then AIOFLOW_* variables, then [tool.aioflow] in pyproject.toml, then defaults.
    """
