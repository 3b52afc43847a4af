"""One Postgres server process: started, watched, ended; and one that a dead owner left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from aioflow.errors import EmbeddedPostgresError

__all__ = ["Postmaster", "end_leftover", "tail"]

_POLL = 0.005
_GRACE = {signal.SIGINT: 30.0, signal.SIGQUIT: 10.0, signal.SIGKILL: 10.0}
"""Seconds granted to each way of ending a server before the next, harder one."""


class Postmaster:
    """A running server, held by a thread that lives exactly as long.

    The kernel's "signal me when my parent dies" is bound to the thread that spawned the process, not to the
    whole program: a server spawned from a pool's thread would go down when the pool drops that thread.
    """

    def __init__(self, command: Sequence[str], *, log: Path, environ: Mapping[str, str]) -> None:
        self._command = list(command)
        self._log = log
        self._environ = dict(environ)
        self._process: subprocess.Popen[bytes] | None = None
        self._failure: BaseException | None = None
        self._spawned = threading.Event()
        self._exited = threading.Event()
        threading.Thread(target=self._hold, name="aioflow-postgres", daemon=True).start()
        self._spawned.wait()
        if self._failure is not None:
            raise EmbeddedPostgresError(f"cannot start {command[0]}: {self._failure}") from self._failure

    def _hold(self) -> None:
        try:
            with self._log.open("ab") as log:
                # A session of its own: Ctrl-C at the owner's terminal must reach the owner only.
                self._process = subprocess.Popen(
                    self._command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=self._environ,
                    start_new_session=True,
                )
        except BaseException as failure:  # handed to the thread that waits for the spawn
            self._failure = failure
            return
        finally:
            self._spawned.set()
        self._process.wait()
        self._exited.set()

    @property
    def pid(self) -> int:
        """Process id."""
        assert self._process is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process is still there."""
        return not self._exited.is_set()

    def wait_ready(self, data: Path, deadline: float) -> bool:
        """Wait until the server accepts connections; False when it ended instead.

        ``deadline`` is a value of `time.monotonic`; past it `EmbeddedPostgresError` is raised.
        """
        while not self._exited.wait(_POLL):
            lines = _read_pid_file(data)
            if len(lines) >= 8 and lines[0].strip() == str(self.pid) and lines[7].strip() == "ready":
                return True
            if time.monotonic() > deadline:
                raise EmbeddedPostgresError(f"Postgres did not become ready in time; its log ends:\n{tail(self._log)}")
        return False

    def end(self, first: signal.Signals = signal.SIGINT) -> None:
        """End the server: SIGINT closes it cleanly, SIGQUIT at once (recovery follows), SIGKILL is a crash.

        A way that does not end it within its grace is followed by the next harder one.
        """
        for step in (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL):
            if _hardness(step) >= _hardness(first) and self.running:
                _send(self.pid, step)
                if self._exited.wait(_GRACE[step]):
                    return
        if self.running:
            raise EmbeddedPostgresError(f"the Postgres process {self.pid} cannot be ended")


def _hardness(way: signal.Signals) -> int:
    return (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL).index(way)


def _send(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def end_leftover(data: Path) -> None:
    """End a server of a dead owner on this data folder, and clear a pid file that names a foreign process.

    Call it only while holding the folder's lock: then a live server has no owner. After a reboot, or in a
    container, the pid in the file may belong to any program; Postgres would refuse to start.
    """
    lines = _read_pid_file(data)
    if not lines or not lines[0].strip().isdigit():
        return
    pid = int(lines[0])
    if not _alive(pid):
        return
    whose = _serves(pid, data)
    if whose is False:
        (data / "postmaster.pid").unlink(missing_ok=True)
    elif whose:
        for step, grace in _GRACE.items():
            _send(pid, step)
            end = time.monotonic() + grace
            while not _gone(pid, data):
                if time.monotonic() > end:
                    break
                time.sleep(_POLL)
            else:
                return
        raise EmbeddedPostgresError(f"a Postgres server left behind (process {pid}) cannot be ended")


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _gone(pid: int, data: Path) -> bool:
    return not _alive(pid) or _serves(pid, data) is False  # the latter: ended, but nobody collected it yet


def _serves(pid: int, data: Path) -> bool | None:
    """Whether the process is a Postgres on this data folder; None when that cannot be told."""
    return _serves_by_proc(pid, data) if sys.platform == "linux" else _serves_by_ps(pid, data)


def _serves_by_proc(pid: int, data: Path) -> bool | None:
    try:  # a postmaster's working directory is its data folder
        return Path(f"/proc/{pid}/cwd").samefile(data)
    except FileNotFoundError:
        return False
    except OSError:
        return None


def _serves_by_ps(pid: int, data: Path) -> bool | None:
    command = ["ps", "-ww", "-o", "command=", "-p", str(pid)]
    try:
        shown = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    except OSError:
        return None
    return "postgres" in shown and str(data) in shown


def _read_pid_file(data: Path) -> list[str]:
    try:
        return (data / "postmaster.pid").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


def tail(log: Path, size: int = 3000) -> str:
    """The last ``size`` bytes of a log, as text; empty when there is none."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - size))
            return file.read().decode(errors="replace").strip()
    except OSError:
        return ""
