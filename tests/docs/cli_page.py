"""The page on the command line, made of click's own tree of commands."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import click

from aioflow.cli import main
from aioflow.cli.exits import ExitCode

Table = Callable[[tuple[str, ...], list[tuple[str, ...]]], str]

_CODES: dict[ExitCode, str] = {
    ExitCode.OK: "done",
    ExitCode.FAILED: "an error; the workflow whose result was asked for did not complete; `doctor` found an error",
    ExitCode.USAGE: "a flag, argument or setting does not fit; the code cannot be imported",
    ExitCode.NOT_FOUND: "no such instance, run, workflow, signal, query or namespace",
    ExitCode.CONFLICT: "it exists already, is closed, or the request key was used for something else",
    ExitCode.TIMEOUT: "the time to wait was over; the workflow goes on",
    ExitCode.UNREACHABLE: "the database does not answer",
    ExitCode.SCHEMA: "the database needs `aioflow migrate`, or a newer aioflow",
    ExitCode.NONDETERMINISM: "the code at hand does not fit the history it was replayed against",
    ExitCode.INTERRUPTED: "ended by Ctrl-C before there was anything to drain, or by a second one",
}
_FORCED = ("143", "`worker` and `dev`: ended by a second SIGTERM")


def commands(command: click.Command = main, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    """Every command that is not a group, by its full name."""
    if not isinstance(command, click.Group):
        yield " ".join(path), command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None
        yield from commands(found, (*path, name))


def _prose(text: str) -> str:
    """Words of a help text as Markdown: paragraphs kept, placeholders as code."""
    paragraphs = [" ".join(one.split()) for one in text.strip().split("\n\n")]
    return re.sub(r"\b(?!SIGTERM)[A-Z]{5,}\b", r"`\g<0>`", "\n\n".join(paragraphs))


def _option(one: click.Option, context: click.Context) -> tuple[str, ...]:
    spelling = ", ".join(f"`{name}`" for name in one.opts)
    if not one.is_flag:
        spelling += f" `{one.make_metavar(context)}`"
    told = " ".join((one.help or "").split())
    if one.show_default and one.default is not None:
        told += f" [default: {one.default}]"
    return spelling, re.sub(r"\s*\[default: (.+)\]$", r" Default: \1.", told)


def _section(name: str, command: click.Command, table: Table) -> str:
    context = click.Context(command, info_name=f"aioflow {name}")
    usage = " ".join(command.collect_usage_pieces(context))
    options = [_option(one, context) for one in command.params if isinstance(one, click.Option)]
    part = f"## `aioflow {name}`\n\n```text\naioflow {name} {usage}\n```\n\n{_prose(command.help or '')}\n"
    return part + ("\n" + table(("option", "meaning"), options) if options else "")


def cli_page(made: str, table: Table) -> str:
    codes = [(str(int(code)), _CODES[code]) for code in ExitCode]
    parts = [
        f"{made}# Commands\n\n"
        "Data goes to stdout, notes and logs go to stderr. Commands that read print tables or lines for people, and\n"
        "with `--json` one document for scripts. `-h` and `--help` tell about every command. What a flag does not\n"
        "give comes from `AIOFLOW_*` variables, then from `[tool.aioflow]` in pyproject.toml: see\n"
        "[settings](settings.md). Values are JSON: a text is written with its quotes, `--arg '\"tea\"'`.\n\n"
        "## Exit codes\n\n" + table(("code", "meaning"), [*codes, _FORCED]),
        *(_section(name, command, table) for name, command in commands()),
    ]
    return "\n".join(parts)
