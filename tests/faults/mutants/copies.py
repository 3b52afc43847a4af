"""A copy of the project in a folder of its own, whose code and tests are those that run."""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.faults.mutants.patches import Patch

__all__ = ["Copy", "NotUsable", "apply", "copied", "resolved"]

HOUSE = Path(__file__).parents[3]


class NotUsable(Exception):
    """A patch or a copy that says nothing about the product."""


class Copy:
    """A copy of the project in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def environment(self) -> dict[str, str]:
        """Of a process that is to import this copy."""
        return {
            **os.environ,
            "PYTHONPATH": str(self.folder),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONUNBUFFERED": "1",
        }

    def check(self) -> None:
        """Raises `NotUsable` unless ``import aioflow`` gives the code of this copy."""
        script = "import aioflow, aioflow.store.store, aioflow.worker, aioflow.client; print(aioflow.__file__)"
        done = subprocess.run(
            [sys.executable, "-c", script],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise NotUsable(f"the copy does not import: {done.stderr.strip()[-2000:]}")
        found = Path(done.stdout.strip()).resolve()
        if not found.is_relative_to(self.folder.resolve()):
            raise NotUsable(f"another aioflow is imported, not the copy's: {found}")

    def digest(self) -> str:
        """Of all that can decide how a ring ends: code, tests and settings, without the mutants."""
        made = hashlib.sha256(sys.version.encode())
        roots = [self.folder / "aioflow", self.folder / "tests", self.folder / "pyproject.toml"]
        files = [file for root in roots for file in (sorted(root.rglob("*")) if root.is_dir() else [root])]
        for file in files:
            name = file.relative_to(self.folder).as_posix()
            if file.is_file() and not name.startswith("tests/faults/mutants/") and "__pycache__" not in name:
                made.update(f"{name}\0".encode() + file.read_bytes() + b"\0")
        return made.hexdigest()[:24]


@contextmanager
def copied(revision: str | None) -> Iterator[Copy]:
    """A copy of a commit, or of the tracked files as they are now (None); gone at the end."""
    with TemporaryDirectory(prefix="aioflow-mutant-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o755)  # a server that runs as another user reads from it
        if revision is None:
            _take_work_tree(folder)
        else:
            archive = subprocess.run(["git", "archive", revision], cwd=HOUSE, capture_output=True, check=True)
            with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tar:
                tar.extractall(folder, filter="data")
        yield Copy(folder)


def resolved(revision: str | None) -> str:
    """What is copied, for people."""
    if revision is None:
        return "the work tree"
    done = subprocess.run(
        ["git", "rev-parse", "--short", revision], cwd=HOUSE, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def apply(patch: Patch, copy: Copy) -> None:
    """Plant a mistake. Raises `NotUsable` when the patch does not fit any more."""
    before = copy.digest()
    done = subprocess.run(
        ["git", "apply", "-C1", "--whitespace=nowarn", "-"],
        input=patch.diff,
        cwd=copy.folder,
        env={**os.environ, "GIT_CEILING_DIRECTORIES": str(copy.folder.parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise NotUsable(f"{patch.name} does not apply: {done.stderr.strip()}")
    if copy.digest() == before:
        raise NotUsable(f"{patch.name} changes nothing")


def _take_work_tree(folder: Path) -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=HOUSE, capture_output=True, text=True, check=True)
    for name in filter(None, listed.stdout.split("\0")):
        if (source := HOUSE / name).is_file():
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
