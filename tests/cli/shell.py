"""A folder with a user's project, and the `aioflow` command run in it: as a process of its own, or in this one."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from contextlib import chdir
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import asyncpg
from click.testing import CliRunner

from aioflow.cli import main
from tests.support import eventually_sync

__all__ = ["SHOP", "Done", "Process", "Shell", "execute"]

SHOP = """
import asyncio
from datetime import timedelta

from aioflow import ApplicationError, Workflow, activity, await_condition, query, signal


@activity.defn
async def charge(item: str, count: int) -> str:
    return f"charged {count} {item}"


@activity.defn
async def dawdle(mark: str) -> None:
    open(mark, "w").close()
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            pass


class Order(Workflow, name="order", queue="shop"):
    def __init__(self) -> None:
        self.approved_by: str | None = None

    @signal
    def approve(self, by: str) -> None:
        self.approved_by = by

    @query
    def state(self) -> str:
        return "waits" if self.approved_by is None else f"approved by {self.approved_by}"

    async def handle(self, item: str, count: int = 1) -> dict[str, str | None]:
        charged = await charge(item, count)
        await await_condition(lambda: self.approved_by is not None, timeout=timedelta(days=1))
        return {"charged": charged, "by": self.approved_by}


class Refusing(Workflow, name="refusing", queue="shop"):
    async def handle(self, why: str) -> None:
        try:
            raise KeyError("stock")
        except KeyError as missing:
            raise ApplicationError(why, type="OutOfStock", details={"left": 0}) from missing


class Dawdling(Workflow, name="dawdling", queue="shop"):
    async def handle(self, mark: str) -> None:
        await dawdle(mark)
"""


class Done(NamedTuple):
    """How a command ended."""

    code: int
    stdout: str
    stderr: str

    @property
    def data(self) -> Any:
        return json.loads(self.stdout)


class Process:
    """A command that runs on, with what it has printed so far."""

    def __init__(self, popen: subprocess.Popen[bytes], stdout: Path, stderr: Path) -> None:
        self.popen, self._stdout, self._stderr = popen, stdout, stderr

    @property
    def stdout(self) -> str:
        return self._stdout.read_text(encoding="utf-8")

    @property
    def stderr(self) -> str:
        return self._stderr.read_text(encoding="utf-8")

    def says(self, text: str) -> None:
        """Wait until it has printed this on stderr."""

        def said() -> bool:
            over = self.popen.poll() is not None  # before reading: what it said last counts
            found = text in self.stderr
            assert found or not over, self.stderr
            return found

        eventually_sync(said, within=50)

    def ends(self, number: int | None = None) -> int:
        """Send it a signal, if one is given, and wait for its exit code."""
        if number is not None:
            self.popen.send_signal(number)
        return self.popen.wait(50)


class Shell:
    """Runs `aioflow` in ``folder``, with no settings but those given here and in the folder's pyproject.toml."""

    def __init__(self, folder: Path, **environ: str) -> None:
        self.folder = folder
        given = {name: value for name, value in os.environ.items() if not name.startswith(("AIOFLOW_", "DATABASE_"))}
        self.environ = given | {"PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1"} | environ
        self._processes: list[Process] = []

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text, encoding="utf-8")

    def run(self, *words: str, stdin: str = "", **environ: str) -> Done:
        done = subprocess.run(
            [sys.executable, "-m", "aioflow", *words],
            cwd=self.folder,
            env=self.environ | environ,
            input=stdin,
            capture_output=True,
            encoding="utf-8",
            check=False,
            timeout=50,
        )
        assert not done.stderr.startswith("Traceback"), done.stderr
        return Done(done.returncode, done.stdout, done.stderr)

    def call(self, *words: str, stdin: str = "", **environ: str) -> Done:
        """The same as `run` in this process: quicker, with the code of the folder imported anew."""
        with (
            chdir(self.folder),
            mock.patch.dict(os.environ, self.environ | environ, clear=True),
            mock.patch.object(sys, "path", list(sys.path)),
        ):
            sys.modules.pop("shop", None)  # that of another folder
            done = CliRunner().invoke(main, list(words), input=stdin)
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        return Done(done.exit_code, done.stdout, done.stderr)

    def ok(self, *words: str, stdin: str = "") -> Done:
        """Call a command that has to succeed."""
        done = self.call(*words, stdin=stdin)
        assert done.code == 0, done
        return done

    def begin(self, *words: str, **environ: str) -> Process:
        """Start a command that runs on; `end` ends it."""
        number = len(self._processes)
        stdout, stderr = self.folder / f"{number}.out", self.folder / f"{number}.err"
        with stdout.open("wb") as out, stderr.open("wb") as err:
            popen = subprocess.Popen(
                [sys.executable, "-m", "aioflow", *words],
                cwd=self.folder,
                env=self.environ | environ,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
            )
        self._processes.append(Process(popen, stdout, stderr))
        return self._processes[-1]

    def end(self) -> None:
        """End what still runs."""
        for one in self._processes:
            if one.popen.poll() is None:
                one.popen.terminate()
                try:
                    one.popen.wait(10)
                except subprocess.TimeoutExpired:
                    one.popen.kill()
                    one.popen.wait()


def execute(dsn: str, statement: str, *values: object) -> None:
    """Run SQL on a database, behind aioflow's back."""

    async def run() -> None:
        connection = await asyncpg.connect(dsn)
        await connection.execute(statement, *values)
        await connection.close()

    asyncio.run(run())
