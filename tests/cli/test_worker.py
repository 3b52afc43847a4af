"""`aioflow worker` as a process: where its settings come from, and how it ends."""

from __future__ import annotations

import json
import signal

import pytest

from tests.cli.shell import SHOP, Shell
from tests.support import eventually_sync


@pytest.fixture
def project(shell: Shell, database: str) -> Shell:
    """A project whose pyproject.toml names modules and database."""
    settings = {"modules": ["shop"], "database_url": database, "log-format": "json"}
    lines = [f"{name} = {json.dumps(value)}" for name, value in settings.items()]
    shell.write("pyproject.toml", "[tool.aioflow]\n" + "\n".join(lines) + "\n")
    return shell


def test_modules_of_the_project_and_sigterm(project: Shell) -> None:
    worker = project.begin("worker", "--concurrency", "200")
    worker.says("worker_registered")
    project.ok("workflow", "start", "refusing", "--id", "a", "--arg", '"no"')
    assert project.call("workflow", "result", "a", "--timeout", "30").code == 1
    assert worker.ends(signal.SIGTERM) == 0
    assert worker.stdout == ""
    events = [json.loads(line)["event"] for line in worker.stderr.splitlines()]
    assert events[-2:] == ["worker_draining", "worker_drained"]
    (gone,) = [one for one in project.ok("doctor", "--json").data["checks"] if one["name"] == "workers"]
    assert gone["detail"].startswith("none live")


def test_flags_win_over_the_environment_and_that_over_the_project(project: Shell) -> None:
    project.write("other.py", SHOP.replace('name="order"', 'name="other"'))
    worker = project.begin(
        "worker", "other", "--queue", "one", "-q", "two", AIOFLOW_QUEUES="three", AIOFLOW_LOG_FORMAT="console"
    )
    worker.says("worker_registered")
    assert "queues=['one', 'two']" in worker.stderr.replace('"', "'")  # and as the environment has it: not JSON
    known = project.call("workflow", "start", "nothing", AIOFLOW_MODULES="aioflow.cli.demo.flows").stderr
    assert "other" in known
    assert worker.ends(signal.SIGINT) == 0


def test_a_second_signal_ends_it_at_once(project: Shell) -> None:
    worker = project.begin("worker", "--drain-grace", "600")
    mark = project.folder / "began"
    project.ok("workflow", "start", "dawdling", "--arg", f'"{mark}"')
    eventually_sync(mark.exists)
    worker.popen.send_signal(signal.SIGTERM)
    worker.says("worker_draining")
    assert worker.ends(signal.SIGTERM) == 143
    assert "forced_exit" in worker.stderr


def test_a_module_that_is_not_there_is_code_2_with_a_hint(shell: Shell) -> None:
    done = shell.run("worker", "missing", "--database-url", "postgresql://nobody@127.0.0.1:1/x")
    assert (done.code, done.stdout) == (2, "")
    assert done.stderr.startswith("aioflow: there is no module 'missing': looked in ")


WRONG = [
    ("missing", "there is no module 'missing': looked in"),
    ("shop.py", "write it like shop"),
    ("./shop.py", "write it like shop"),
    ("shop:Nothing", "there is no Nothing in shop"),
    ("broken", "ZeroDivisionError"),
    ("lacking", "No module named 'not_installed'"),
    ("nothing_in_it", "no workflow and no activity"),
]


@pytest.mark.parametrize(("module", "hint"), WRONG, ids=[one[0] for one in WRONG])
def test_code_that_cannot_be_had_is_code_2_with_a_hint(shell: Shell, module: str, hint: str) -> None:
    shell.write("broken.py", "1 / 0\n")
    shell.write("lacking.py", "import not_installed\n")
    shell.write("nothing_in_it.py", "")
    done = shell.call("workflow", "start", "order", "-m", module, "--database-url", "postgresql://127.0.0.1:1/x")
    assert (done.code, done.stdout) == (2, "")
    assert hint in done.stderr


def test_settings_that_do_not_fit_name_their_source(shell: Shell) -> None:
    assert "AIOFLOW_CONCURRENCY" in shell.call("worker", AIOFLOW_CONCURRENCY="x").stderr
    shell.write("pyproject.toml", "[tool.aioflow]\nconcurency = 3\n")
    done = shell.call("worker")
    assert done.code == 2
    assert "has no 'concurency'" in done.stderr
