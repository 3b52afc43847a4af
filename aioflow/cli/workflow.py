"""``aioflow workflow``: start instances, talk to them, look at them."""

from __future__ import annotations

import click

from aioflow.cli import workflow_read, workflow_write

__all__ = ["command"]


@click.group("workflow")
def command() -> None:
    """Start workflows, talk to their instances, look at them.

    Values are JSON in both directions. Code of the workflows is named by --module or by modules under [tool.aioflow];
    with it, arguments are checked against its signatures before anything is sent. Queries need it.
    """


for one in (*workflow_write.COMMANDS, *workflow_read.COMMANDS):
    command.add_command(one)
