"""Worker processes started by tests, and what is needed to look at them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support import eventually

ROOT = Path(__file__).parents[2]


class Workers:
    """Starts worker processes and looks at what their activities did."""

    def __init__(self, dsn: str, folder: Path) -> None:
        self.dsn, self.folder = dsn, folder
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, grace: float = 10.0, **variables: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.acceptance.worker_process", self.dsn, str(grace)],
            cwd=ROOT,
            env=os.environ | {"AIOFLOW_TEST_FOLDER": str(self.folder)} | variables,
        )
        self.processes.append(process)
        return process

    def open(self) -> None:
        (self.folder / "open").touch()

    def log(self) -> list[list[str]]:
        """Name, execution id and attempt id of each attempt."""
        path = self.folder / "log"
        return [line.split() for line in path.read_text().splitlines()] if path.exists() else []

    def attempts(self, name: str) -> list[list[str]]:
        return [line[1:] for line in self.log() if line[0] == name]

    def kill(self) -> None:
        """End all that still run."""
        for process in self.processes:
            process.kill()
            process.wait()


async def exit_code(process: subprocess.Popen[bytes]) -> int:
    await eventually(lambda: process.poll() is not None)
    assert process.returncode is not None
    return process.returncode
