"""Workers as users start them, with default settings, for measurements."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Self

from tests.faults.chaos.rig import ROOT


class Plain:
    """Processes of ``aioflow worker``; those that still run are killed at the end. What they say goes to a file."""

    def __init__(self, dsn: str, folder: Path, module: str) -> None:
        self._dsn, self._folder, self._module = dsn, folder, module
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        for process in self._processes:
            process.kill()
            process.wait()

    def begin(self, *flags: str) -> subprocess.Popen[bytes]:
        """Another one."""
        command = [sys.executable, "-m", "aioflow", "worker", self._module, "--database-url", self._dsn, *flags]
        with (self._folder / "log").open("ab") as log:
            process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=os.environ | {"AIOFLOW_CHAOS_FOLDER": str(self._folder), "AIOFLOW_LOG_FORMAT": "json"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self._processes.append(process)
        return process


def percentile(values: list[float], part: float) -> float:
    """The smallest value that so large a part of the values does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -(-int(len(ordered) * part * 1_000) // 1_000) - 1)]
