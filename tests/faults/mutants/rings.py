"""The rings that are run against a copy, each as a process of its own with a time limit."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Literal

from tests.faults.mutants.copies import Copy, NotUsable

__all__ = ["RINGS", "Result", "Ring", "run"]

Status = Literal["killed", "hang", "survived", "absent", "unclear"]


@dataclass(frozen=True, slots=True)
class Ring:
    """Tests that may kill. ``limit``: seconds after which it hangs; sound code needs at most half of it."""

    name: str
    what: str
    tests: tuple[str, ...]
    limit: float


@dataclass(frozen=True, slots=True)
class Result:
    """How a ring ended. ``by``: the first test that failed."""

    ring: str
    status: Status
    seconds: float
    by: str = ""
    output: str = ""

    @property
    def dead(self) -> bool:
        """Whether the mistake was found."""
        return self.status in ("killed", "hang")


_STORE = [
    "statements",
    "guards",
    "batching",
    "races",
    "lost_answers",
    "cycle",
    "workers",
    "activities",
    "starts",
    "poison",
    "invariants",
    "lock_order",
    "chaos",
]
_CORE = ["decision", "replay_outcomes", "replay_messages", "replay_cancel", "replay_effects"]

#: In the order in which they are run: the quick ones first.
RINGS = {
    ring.name: ring
    for ring in (
        Ring("core", "tests of decisions and replay", tuple(f"tests/core/test_{name}.py" for name in _CORE), 240),
        Ring("model", "model checker", ("tests/faults/model/test_models.py",), 300),
        Ring("store", "tests of the store", tuple(f"tests/store/test_{name}.py" for name in _STORE), 420),
        Ring(
            "stateful",
            "stateful test of the store against a dictionary",
            ("tests/faults/stateful/test_stateful.py",),
            600,
        ),
        Ring("interleave", "statement interleaver", ("tests/faults/interleave/test_interleave.py",), 600),
        Ring("worker", "tests of the worker", ("tests/worker/test_guards.py", "tests/worker"), 420),
        Ring("chaos", "processes under faults", ("tests/faults/chaos/test_chaos.py",), 600),
    )
}


def run(ring: Ring, copy: Copy) -> Result:
    """Run a ring until its first failure. Raises `NotUsable` when it could not be run at all."""
    there = [name for name in ring.tests if (copy.folder / name).exists()]
    if not there:
        return Result(ring.name, "absent", 0.0)
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--tb=short", "-p", "no:cacheprovider", *there]
    begun = time.monotonic()
    log = copy.folder / f"{ring.name}.log"
    with log.open("w", encoding="utf-8") as out:
        process = subprocess.Popen(
            command, cwd=copy.folder, env=copy.environment, stdout=out, stderr=out, start_new_session=True
        )
        try:
            code: int | None = process.wait(ring.limit)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    seconds = round(time.monotonic() - begun, 1)
    output = log.read_text(encoding="utf-8", errors="replace")
    if code is None:
        return Result(ring.name, "hang", seconds, _failed(output), output)
    if code not in (0, 1):
        raise NotUsable(f"the ring {ring.name} could not be run ({code}): {output[-3000:]}")
    return Result(ring.name, "killed" if code else "survived", seconds, _failed(output), output)


def _failed(output: str) -> str:
    found = re.findall(r"^(?:FAILED|ERROR) (\S+)", output, re.MULTILINE)
    return found[0].rpartition("/")[2] if found else ""
