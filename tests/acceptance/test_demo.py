"""`aioflow demo`, as somebody runs it who has just installed it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.timeout(180)
def test_the_demonstration_ends_well(tmp_path: Path) -> None:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("AIOFLOW_")}
    done = subprocess.run(
        [sys.executable, "-m", "aioflow", "demo"],
        capture_output=True,
        text=True,
        timeout=150,
        cwd=tmp_path,
        env=environ | {"TMPDIR": "/tmp"},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    told = done.stdout
    for part in ("kill -9", "Worker 2 replayed", "RunCompleted", "SignalReceived", "TimerFired", "attempt 2"):
        assert part in told, told
    assert list(tmp_path.iterdir()) == [], "it leaves nothing behind"
