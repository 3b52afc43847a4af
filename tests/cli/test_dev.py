"""`aioflow dev`: a database of its own that outlives it, until it is thrown away."""

from __future__ import annotations

import re
import signal

from tests.cli.shell import Process, Shell


def begin(shell: Shell, *words: str) -> Process:
    """Start it, and use the database as the line says that it prints."""
    process = shell.begin("dev", "--data-dir", "data", *words)
    process.says("worker_registered")
    line = re.search(r"^ *export AIOFLOW_DATABASE_URL='([^']+)'$", process.stderr, re.MULTILINE)
    assert line is not None, process.stderr
    shell.environ["AIOFLOW_DATABASE_URL"] = line[1]
    return process


def test_dev_keeps_its_data_until_reset(shell: Shell) -> None:
    first = begin(shell)
    assert "workflow start order" in first.stderr
    shell.ok("workflow", "start", "order", "--id", "a", "--arg", '"tea"')

    busy = shell.run("dev", "--data-dir", "data", "--reset")  # somebody uses it: nothing is thrown away
    assert busy.code == 2
    assert "in use" in busy.stderr

    assert first.ends(signal.SIGINT) == 0
    assert first.stdout == ""
    assert shell.call("workflow", "list").code == 6

    second = begin(shell)
    shell.ok("workflow", "signal", "a", "approve", "--arg", '"ann"')
    assert shell.ok("workflow", "result", "a", "--timeout", "30").data["by"] == "ann"
    assert second.ends(signal.SIGTERM) == 0

    third = begin(shell, "--reset")
    assert shell.ok("workflow", "list", "--json").data == []
    assert third.ends(signal.SIGINT) == 0


def test_dev_needs_code_that_is_there_before_it_starts_anything(shell: Shell) -> None:
    done = shell.run("dev", "missing", "--data-dir", "data")
    assert done.code == 2
    assert "'missing'" in done.stderr
    assert not (shell.folder / "data").exists()
