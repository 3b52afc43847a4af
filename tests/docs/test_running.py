"""The programs of README and tutorial, run as a reader would: a worker process, commands, a script, kill -9."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.docs.snippets import HOUSE, write_modules
from tests.support import eventually_sync

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


class Reader:
    """Does what a page says, in a folder of its own, with a database."""

    def __init__(self, folder: Path, dsn: str) -> None:
        self.folder = folder
        given = {name: value for name, value in os.environ.items() if not name.startswith("AIOFLOW_")}
        self.environment = given | {"AIOFLOW_DATABASE_URL": dsn, "PYTHONUNBUFFERED": "1"}
        self.workers: list[subprocess.Popen[bytes]] = []

    def worker(self) -> subprocess.Popen[bytes]:
        with (self.folder / "worker.log").open("ab") as log:
            command = [sys.executable, "-m", "aioflow", "worker", "flows"]
            started = subprocess.Popen(command, cwd=self.folder, env=self.environment, stdout=log, stderr=log)
        self.workers.append(started)
        return started

    def log(self) -> str:
        return (self.folder / "worker.log").read_text(encoding="utf-8")

    def does(self, *command: str) -> str:
        done = subprocess.run(
            [sys.executable, *command],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=90,
        )
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}\n{self.log()}"[-6000:]
        return done.stdout

    def aioflow(self, *words: str) -> str:
        return self.does("-m", "aioflow", *words)


@pytest.fixture
def reader(database: str, tmp_path: Path) -> Iterator[Callable[[str], Reader]]:
    made: list[Reader] = []

    def of(page: str) -> Reader:
        write_modules(HOUSE / page, tmp_path)
        made.append(Reader(tmp_path, database))
        return made[-1]

    yield of
    for worker in [one for each in made for one in each.workers]:
        worker.kill()
        worker.wait()


def test_the_readme(reader: Callable[[str], Reader]) -> None:
    me = reader("README.md")
    worker = me.worker()
    assert me.does("buy.py").split("\n")[:2] == ["True", "['charge-42', 'parcel-42']"]

    me.aioflow("workflow", "start", "order", "--id", "order-43", "--arg", '{"id": "43", "cents": 990}')
    me.aioflow("workflow", "signal", "order-43", "approve", "--arg", '"ann"')
    assert "charge-43" in me.aioflow("workflow", "result", "order-43")
    assert "TimerFired" in me.aioflow("workflow", "history", "order-43", "--json")
    worker.terminate()
    assert worker.wait(30) == 0


def test_the_tutorial(reader: Callable[[str], Reader]) -> None:
    me = reader("docs/tutorial.md")
    worker = me.worker()
    start = ("workflow", "start", "order", "--module", "flows", "--id")
    me.aioflow(*start, "order-7", "--arg", '{"id": "7", "cents": 1250}')
    eventually_sync(lambda: "a timer until" in me.aioflow("workflow", "show", "order-7"))
    me.aioflow("workflow", "signal", "order-7", "approve", "--arg", '"ann"', "--module", "flows")
    assert "parcel-7" in me.aioflow("workflow", "result", "order-7")

    me.aioflow(*start, "order-8", "--arg", '{"id": "8", "cents": 990}')
    me.aioflow("workflow", "signal", "order-8", "approve", "--arg", '"bob"', "--module", "flows")
    eventually_sync(lambda: "ActivityCompleted" in me.aioflow("workflow", "history", "order-8", "--json"))
    assert "charging 990" in me.log()
    worker.kill()
    worker.wait()
    me.worker()
    assert "charge-8" in me.aioflow("workflow", "result", "order-8")
    keys = [line.rpartition("key ")[2] for line in me.log().splitlines() if line.startswith("charging 990")]
    assert len(keys) == 2
    assert keys[0] == keys[1]
    assert me.log().count("packing 8") == 1

    assert "approved: True" in me.does("buy.py")
