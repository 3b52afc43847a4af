"""Other Pythons, and a process of each that drives and replays runs (`tests.core.replay_worker`)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Self

HOUSE = Path(__file__).parents[2]
SUPPORTED = ("3.11", "3.12", "3.13")
NONE_FOUND = (
    "no other Python with this project's dependencies: set AIOFLOW_TEST_PYTHONS to interpreters of virtual "
    "environments with the project in them, separated by colons"
)
_PROBE = "import sys, aioflow, pydantic, structlog; print('%d.%d' % sys.version_info[:2])"


def _candidates() -> Iterator[Path]:
    if given := os.environ.get("AIOFLOW_TEST_PYTHONS"):
        yield from (Path(one) for one in given.split(os.pathsep) if one)
        return
    places = [Path(sys.prefix).parent, HOUSE, Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"]
    for place in places:
        yield from sorted(place.glob("*/bin/python"))
        yield from sorted(place.glob(".venv*/bin/python"))


@cache
def other_pythons() -> dict[str, Path]:
    """Interpreters of the other supported versions that can import the project, by version."""
    found: dict[str, Path] = {}
    for path in _candidates():
        try:
            probe = subprocess.run(
                [path, "-c", _PROBE], cwd=HOUSE, capture_output=True, text=True, timeout=30, check=True
            )
        except (OSError, subprocess.SubprocessError):
            continue
        version = probe.stdout.strip()
        if version in SUPPORTED and version != "{}.{}".format(*sys.version_info):
            found.setdefault(version, path)
    return found


class ReplayProcess:
    """A process with another hash seed, and perhaps another Python; one JSON line in, one out."""

    def __init__(self, python: Path, hash_seed: int) -> None:
        environment = os.environ | {"PYTHONHASHSEED": str(hash_seed), "PYTHONPATH": str(HOUSE)}
        self._process = subprocess.Popen(
            [python, "-m", "tests.core.replay_worker"],
            cwd=HOUSE,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, **request: Any) -> Any:
        """The answer to a request; an AssertionError with what the process says it stumbled over."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the other process ended"
        answer = json.loads(line)
        assert "error" not in answer, answer["error"]
        return answer["answer"]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()


@contextmanager
def replay_processes() -> Iterator[dict[str, ReplayProcess]]:
    """One process of this Python with another hash seed, and one of each other Python."""
    with ExitStack() as stack:
        wanted = {"this Python": Path(sys.executable)} | other_pythons()
        yield {
            version: stack.enter_context(ReplayProcess(path, 17 + number))
            for number, (version, path) in enumerate(wanted.items())
        }
