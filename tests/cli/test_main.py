"""The command itself: quick help, commands on demand, errors as one line and an exit code."""

from __future__ import annotations

import subprocess
import sys
import types

import click
import pytest
from click.testing import CliRunner

from aioflow import cli, errors
from aioflow.cli.exits import ExitCode, exit_code


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "aioflow.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_help_and_version() -> None:
    shown = run("--help")
    assert shown.returncode == 0
    assert "Usage: " in shown.stdout
    assert run("--version").stdout.startswith("aioflow")


def test_an_unknown_command_is_a_usage_error() -> None:
    done = run("nonsense")
    assert done.returncode == ExitCode.USAGE
    assert "nonsense" in done.stderr


def test_help_imports_neither_driver_nor_worker() -> None:
    script = (
        "import sys\nfrom aioflow.cli import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        "heavy = ('asyncpg', 'rich', 'aioflow.worker', 'pydantic')\n"
        "sys.exit(' '.join(name for name in heavy if name in sys.modules) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_an_error_of_ours_is_one_line_and_a_code(monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command()
    def command() -> None:
        raise errors.DatabaseUnavailable("nobody answers")

    module = types.ModuleType("aioflow.cli.doctor")
    module.__dict__["command"] = command
    module.__spec__ = types.SimpleNamespace()  # type: ignore[assignment]
    monkeypatch.setitem(sys.modules, "aioflow.cli.doctor", module)
    done = CliRunner().invoke(cli.main, ["doctor"])
    assert done.exit_code == ExitCode.UNREACHABLE
    assert done.stderr == "aioflow: nobody answers\n"
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (errors.EmbeddedPostgresError, 2),
        (errors.ArgumentError, 2),
        (errors.InstanceNotFound, 3),
        (errors.InstanceAlreadyExists, 4),
        (errors.ResultTimeout, 5),
        (errors.DatabaseUnavailable, 6),
        (errors.SchemaNotMigrated, 7),
        (errors.SchemaTooNew, 7),
        (errors.NondeterminismError, 8),
        (errors.WorkflowFailed, 1),
        (KeyboardInterrupt, 130),
    ],
)
def test_exit_codes(kind: type[BaseException], code: int) -> None:
    assert exit_code(kind.__new__(kind)) == code
