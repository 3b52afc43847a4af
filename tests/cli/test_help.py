"""Every command tells what it does; what does not fit is a usage error before anything is opened."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from aioflow.cli import main
from tests.cli.shell import Shell


def tree(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from tree(found, (*path, name))


COMMANDS = dict(tree(main))


def test_the_tree_is_whole() -> None:
    assert {path[0] for path in COMMANDS if path} == {"demo", "dev", "worker", "workflow", "migrate", "doctor"}
    named = ["start", "list", "show", "history", "result", "signal", "query", "cancel", "terminate", "release"]
    assert {("workflow", name) for name in named} <= set(COMMANDS)


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_help(path: tuple[str, ...]) -> None:
    for flag in ("--help", "-h"):
        done = CliRunner().invoke(main, [*path, flag])
        assert done.exit_code == 0
        assert f"Usage: main {' '.join(path)}".rstrip() in done.stdout
        assert done.stderr == ""
    command = COMMANDS[path]
    for one in command.params:
        if isinstance(one, click.Option):
            assert one.help, f"{path}: {one.name} says nothing"


WRONG = [
    (["worker", "--concurrency", "many"], "many"),
    (["worker", "--concurrency", "0"], "--concurrency"),
    (["worker", "--drain-grace", "-1"], "--drain-grace"),
    (["worker", "--log-level", "loud"], "--log-level"),
    (["worker", "--database-url", "mysql://x"], "postgresql://"),
    (["worker"], "no code"),
    (["dev", "--port", "70000"], "70000"),
    (["migrate", "--print", "--check"], "exclude each other"),
    (["migrate", "--check", "now"], "now"),
    (["doctor", "--fix"], "--fix"),
    (["workflow", "start"], "WORKFLOW"),
    (["workflow", "start", "order", "--arg", "tea"], """--arg '"tea"'"""),
    (["workflow", "start", "order", "--arg", "1", "--args", "[]"], "exclude each other"),
    (["workflow", "start", "order", "--args", '{"item": 1}'], "--module"),
    (["workflow", "start", "order", "--conflict", "ignore"], "ignore"),
    (["workflow", "signal", "a"], "SIGNAL"),
    (["workflow", "query", "a", "state", "--run", "7"], "--run"),
    (["workflow", "list", "--limit", "0"], "--limit"),
    (["workflow", "result", "a", "--timeout", "soon"], "soon"),
    (["workflow", "cancel"], "INSTANCE"),
    (["workflow", "fly"], "fly"),
]


@pytest.mark.parametrize(("words", "hint"), WRONG, ids=[" ".join(one[0]) for one in WRONG])
def test_what_does_not_fit_is_a_usage_error(shell: Shell, words: list[str], hint: str) -> None:
    shell.write("pyproject.toml", "")
    done = shell.call(*words, AIOFLOW_DATABASE_URL="postgresql://nobody@127.0.0.1:1/x")
    assert (done.code, done.stdout) == (2, ""), done
    assert hint in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["worker"],
        ["migrate"],
        ["doctor"],
        ["workflow", "list"],
        ["workflow", "start", "order"],
        ["workflow", "result", "a"],
    ],
    ids=" ".join,
)
def test_without_a_database_all_ways_to_name_one_are_told(shell: Shell, words: list[str]) -> None:
    done = shell.call(*words)
    assert (done.code, done.stdout) == (2, "")
    for way in ("--database-url", "AIOFLOW_DATABASE_URL", "[tool.aioflow]", "aioflow dev"):
        assert way in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["migrate"],
        ["migrate", "--check"],
        ["worker"],
        ["workflow", "list"],
        ["workflow", "start", "order"],
        ["workflow", "result", "a"],
        ["workflow", "query", "a", "state"],
    ],
    ids=" ".join,
)
def test_a_database_that_is_down_is_code_6(shell: Shell, words: list[str]) -> None:
    call = shell.run if words == ["worker"] else shell.call  # it sets up the logs of its process
    done = call(*words, "--database-url", "postgresql://nobody@127.0.0.1:1/x")
    assert (done.code, done.stdout) == (6, "")
    assert "cannot be used" in done.stderr
