"""What chaos is made of: a server that keeps its promises, and processes that reach it through gates."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from aioflow.store.embedded import EmbeddedPostgres
from aioflow.store.migrations import migrate
from tests.faults.chaos.proxy import Gate, Tally
from tests.support import eventually

ROOT: Final = Path(__file__).parents[3]
AWAY: Final = (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError)
SETTINGS: Final[dict[str, str | int]] = {
    "log_lock_waits": "on",
    "deadlock_timeout": "1s",
    "log_line_prefix": "%m [%p] %a ",
    "max_connections": 100,
    "shared_buffers": "64MB",
}


def free_port() -> int:
    """A port that nobody uses just now."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class Server:
    """An embedded Postgres with fsync on, reached by TCP; migrated when entered."""

    def __init__(self, root: Path, settings: dict[str, str | int] | None = None) -> None:
        self._postgres = EmbeddedPostgres(root, port=free_port(), settings={**SETTINGS, **(settings or {})})

    async def __aenter__(self) -> Self:
        await self._postgres.start()
        await migrate(self.dsn)
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._postgres.stop()

    @property
    def dsn(self) -> str:
        """The address past all gates."""
        return self._postgres.dsn

    @property
    def address(self) -> tuple[str, int]:
        """Where the gates lead to."""
        parts = urlsplit(self._postgres.tcp_dsn or "")
        return "127.0.0.1", parts.port or 0

    def dsn_at(self, port: int) -> str:
        """The address by a gate."""
        parts = urlsplit(self._postgres.tcp_dsn or "")
        user = parts.netloc.rpartition("@")[0]
        return urlunsplit(parts._replace(netloc=f"{user}@127.0.0.1:{port}", query="sslmode=disable"))

    async def crash(self, away: float = 0.0) -> None:
        """What ``pg_ctl restart -m immediate`` does; returns when it accepts connections again.

        ``away``: it is killed instead, and started again only after so many seconds.
        """
        if away:
            await self._postgres.kill()
            await asyncio.sleep(away)
        await self._postgres.restart(immediate=True)

    def log(self) -> str:
        """Everything the server said."""
        return self._postgres.log.read_text(errors="replace")

    async def ask(self, statement: str, *args: Any) -> Any:
        """One value, from a connection that only this needs."""
        connection = await asyncpg.connect(self.dsn, timeout=5)
        try:
            return await connection.fetchval(statement, *args)
        finally:
            await connection.close(timeout=2)


@dataclass
class Slot:
    """A place for a process, whichever fills it just now; its gate stays."""

    name: str
    gate: Gate
    command: Callable[[str, int], Sequence[str]]
    process: subprocess.Popen[bytes] | None = None
    lives: int = 0
    busy: bool = False
    since: float = 0.0

    @property
    def alive(self) -> bool:
        """Whether the process runs, or stands still."""
        return self.process is not None and self.process.poll() is None


class Fleet:
    """The processes of a rig. What they say goes to a file for each life."""

    def __init__(self, server: Server, folder: Path, chance: random.Random) -> None:
        self.server, self.folder, self.chance, self.tally = server, folder, chance, Tally()
        self.workers: list[Slot] = []
        self.clients: list[Slot] = []
        self._stack = AsyncExitStack()
        self._died: list[str] = []
        (folder / "logs").mkdir(exist_ok=True)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        for slot in self.slots:
            if slot.alive and slot.process is not None:
                slot.process.kill()
                slot.process.wait()
        await self._stack.aclose()

    @property
    def slots(self) -> list[Slot]:
        """All of them."""
        return [*self.workers, *self.clients]

    async def add_worker(self) -> Slot:
        """A worker."""

        def command(dsn: str, life: int) -> Sequence[str]:
            grace = self.chance.choice(("0.1", "0.3", "2.0"))
            return ["-m", "tests.faults.chaos.worker_process", dsn, grace]

        return await self._add(self.workers, f"worker-{len(self.workers)}", command)

    async def add_client(self) -> Slot:
        """A process with callers."""
        name = f"client-{len(self.clients)}"

        def command(dsn: str, life: int) -> Sequence[str]:
            seed = str(self.chance.randrange(2**32))
            return ["-m", "tests.faults.chaos.client_process", dsn, str(self.folder), f"{name}.{life}", seed]

        return await self._add(self.clients, name, command)

    async def _add(self, group: list[Slot], name: str, command: Callable[[str, int], Sequence[str]]) -> Slot:
        gate = await self._stack.enter_async_context(Gate(self.server.address, self.tally, self.chance))
        slot = Slot(name, gate, command)
        group.append(slot)
        self.begin(slot)
        return slot

    def begin(self, slot: Slot) -> None:
        """Fill a slot."""
        slot.lives += 1
        slot.since = time.monotonic()
        command = [sys.executable, *slot.command(self.server.dsn_at(slot.gate.port), slot.lives)]
        with (self.folder / "logs" / f"{slot.name}.{slot.lives}").open("ab") as log:
            slot.process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=os.environ | {"AIOFLOW_CHAOS_FOLDER": str(self.folder)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def send(self, slot: Slot, number: signal.Signals) -> None:
        """A signal, if somebody is there."""
        if slot.alive and slot.process is not None:
            slot.process.send_signal(number)

    async def end(self, slot: Slot, number: signal.Signals, within: float) -> int | None:
        """Send a signal and wait for the end; None when it does not come in time."""
        self.send(slot, number)
        return await self.ended(slot, within)

    async def ended(self, slot: Slot, within: float) -> int | None:
        """The exit code, None when the process goes on."""

        async def gone() -> bool:
            return not slot.alive

        if slot.process is None or not await until(gone, within):
            return None
        return slot.process.returncode

    def fallen(self) -> list[str]:
        """Those that ended though nobody had asked them to; they are replaced."""
        found = []
        for slot in self.slots:
            if not slot.busy and not slot.alive and slot.process is not None:
                found.append(f"{slot.name}.{slot.lives} ended with {slot.process.returncode}")
                self.begin(slot)
        return found


async def until(check: Callable[[], Awaitable[bool]], within: float) -> bool:
    """Whether it became true in time; a database that is away makes it false for now."""

    async def true() -> bool:
        try:
            return await check()
        except AWAY:
            return False

    try:
        return await eventually(true, within=within)
    except AssertionError:
        return False
