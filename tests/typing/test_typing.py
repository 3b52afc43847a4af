"""Both type checkers accept the typed examples and refuse every planted mistake.

In a ``*_bad.py`` each planted line ends in a suppression. A checker that misses the mistake complains of a suppression
without need, and one that finds more complains as well: so silence of both is the proof.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SOURCES = sorted(path.name for path in HERE.glob("*.py") if not path.name.startswith("test_"))
PLANTED = {"authoring_bad.py": 68, "client_bad.py": 33}


def run(*command: str, cwd: Path) -> str:
    done = subprocess.run([sys.executable, "-m", *command], cwd=cwd, capture_output=True, text=True, timeout=300)
    return f"{done.stdout}{done.stderr}" if done.returncode else ""


def test_mypy() -> None:
    config = str(ROOT / "pyproject.toml")
    assert run("mypy", "--config-file", config, "--strict", *SOURCES, cwd=HERE) == ""


def test_pyright() -> None:
    found = run("pyright", "--pythonpath", sys.executable, "--warnings", cwd=ROOT)
    if "nodeenv" in found:  # pyright brings its own node, which may be out of reach
        pytest.skip(f"pyright cannot run here: {found[:200]}")
    assert found == ""


@pytest.mark.parametrize("name", [name for name in SOURCES if name.endswith("_bad.py")])
def test_every_mistake_counts(name: str) -> None:
    lines = (HERE / name).read_text().splitlines()
    planted = [line for line in lines if re.search(r"# type: ignore\[[\w,-]+\]$", line)]
    assert len(planted) >= PLANTED[name]


def test_a_missed_mistake_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "fine.py").write_text("x: int = 1  # type: ignore[assignment]\n")
    assert "unused" in run("mypy", "--strict", "fine.py", cwd=tmp_path).lower()
    (tmp_path / "pyproject.toml").write_text(
        '[tool.pyright]\ntypeCheckingMode = "strict"\nreportUnnecessaryTypeIgnoreComment = true\n'
    )
    assert "nnecessary" in run("pyright", "fine.py", cwd=tmp_path)
