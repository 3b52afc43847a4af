"""Waking by LISTEN and NOTIFY: hints only, which may be lost; whoever waits also polls.

Two channels: ``aioflow_wake`` carries queues, one a line, ``w:`` before those with runs to claim and ``a:``
before those with activities; ``aioflow_done`` carries the hexadecimal ids of runs that ended, separated by
commas.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from uuid import UUID

import asyncpg

from aioflow.core.fault import fault
from aioflow.store.pool import SESSION_SETTINGS, Database
from aioflow.store.queries import sql
from aioflow.store.timelines import TIMELINES, place

WAKE = "aioflow_wake"
DONE = "aioflow_done"
_SEPARATOR = {WAKE: "\n", DONE: ","}
_PROBE = "probe:"
_MOST_AWAY, _MOST_DEAF = 0.5, 10.0  # seconds between tries to connect, and to hear on connections that are made
_MAX_PAYLOAD = 7000  # bytes; the server's limit is 8000

OnNotify = Callable[[str, list[str]], None]


def run_queue(queue: str) -> str:
    """Item of the wake channel: runs on this queue may be claimed."""
    return f"w:{queue}"


def activity_queue(queue: str) -> str:
    """Item of the wake channel: activities on this queue may be claimed."""
    return f"a:{queue}"


def done_run(run_id: UUID) -> str:
    """Item of the done channel: this run ended."""
    return run_id.hex


class Notifier:
    """Sends hints after the commit that caused them, coalesced, each batch in a transaction of its own.

    A hint that cannot be sent is dropped, since a poll finds the work; ``on_lost`` is told why.
    """

    def __init__(self, db: Database, *, on_lost: Callable[[Exception], None] | None = None) -> None:
        self._db, self._on_lost = db, on_lost
        self._waiting: dict[str, set[str]] = {}
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    def notify(self, channel: str, items: Iterable[str]) -> None:
        """Send ``items`` on ``channel`` soon; returns at once, never fails."""
        if self._closed:
            return
        self._waiting.setdefault(channel, set()).update(items)
        if self._task is None or self._task.done():
            self._task = asyncio.ensure_future(self._send())

    async def close(self) -> None:
        """Send what waits, at most for a second."""
        self._closed = True
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=1.0)
            self._task.cancel()

    async def _send(self) -> None:
        while self._waiting:
            waiting, self._waiting = self._waiting, {}
            pairs = [(channel, part) for channel, items in waiting.items() for part in payloads(channel, items)]
            if not pairs:
                continue
            try:
                await self._db.fetch(
                    sql("notify"), [c for c, _ in pairs], [p for _, p in pairs], point="notify", resend=False
                )
            except Exception as exc:  # a lost hint costs a poll
                if self._on_lost is not None:
                    self._on_lost(exc)


def payloads(channel: str, items: Iterable[str]) -> Iterator[str]:
    """Items joined into as few payloads as the server's limit allows; what is too long alone is left out."""
    separator = _SEPARATOR.get(channel, "\n")
    parts: list[str] = []
    length = 0
    for item in sorted(items):
        size = len(item.encode()) + 1
        if size > _MAX_PAYLOAD:
            continue
        if length + size > _MAX_PAYLOAD:
            yield separator.join(parts)
            parts, length = [], 0
        parts.append(item)
        length += size
    if parts:
        yield separator.join(parts)


class Listener:
    """Listens on a connection of its own, which must be a direct one, and comes back when it is lost.

    ``on_notify(channel, items)`` is called for every hint, ``on_reset()`` after each (re)connect:
    everything may have been missed, so scan. ``listening`` tells whether hints arrive at all: a pooler may
    swallow LISTEN, a standby refuses it; then polling alone has to do, and the probe goes on.
    """

    def __init__(
        self,
        dsn: str | None,
        channels: Iterable[str],
        on_notify: OnNotify,
        on_reset: Callable[[], None],
        *,
        probe_every: float = 10.0,
        probe_within: float = 2.0,
        on_state: Callable[[bool, str], None] | None = None,
    ) -> None:
        self._dsn, self._channels = dsn, tuple(channels)
        self._on_notify, self._on_reset, self._on_state = on_notify, on_reset, on_state
        self._probe_every, self._probe_within = probe_every, probe_within
        self._probe = ""
        self._seen = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.listening = False

    async def __aenter__(self) -> Listener:
        self._task = asyncio.ensure_future(self._run())
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop listening."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _run(self) -> None:
        tries = 0
        while True:
            connection: Any = None
            try:
                await fault("listen.before_connect")
                connection = await self._connect()
                await self._watch(connection)
                why = "the listening connection was lost"
            except Exception as exc:  # whatever it is: say so and try again
                why = f"{type(exc).__name__}: {exc}"
            finally:
                was = self.listening
                self.listening = False
                if connection is not None:
                    connection.terminate()
            self._tell(False, why)
            tries = 0 if was else tries + 1
            await asyncio.sleep(_pause(tries, connection is not None) * (0.5 + secrets.randbelow(1000) / 1000))

    async def _connect(self) -> Any:
        settings = {**SESSION_SETTINGS, "application_name": "aioflow listener"}
        connection = await asyncpg.connect(
            self._dsn, timeout=10.0, command_timeout=5.0, statement_cache_size=0, server_settings=settings
        )
        try:
            if (found := await place(connection, self._dsn or "")) is not None:
                TIMELINES.see(*found)
            for channel in self._channels:
                await connection.add_listener(channel, self._receive)
        except BaseException:
            connection.terminate()
            raise
        return connection

    async def _watch(self, connection: Any) -> None:
        """Probe from time to time; returns when the connection is dead, raises when hints do not arrive."""
        gone = asyncio.Event()
        connection.add_termination_listener(lambda _: gone.set())
        first = True
        while not connection.is_closed():
            self._probe, arrived = _PROBE + secrets.token_hex(8), self._seen
            arrived.clear()
            await connection.execute(sql("notify"), [self._channels[0]], [self._probe])
            async with asyncio.timeout(self._probe_within):  # wait_for() of 3.11 may swallow a cancellation
                await arrived.wait()
            self.listening = True
            if first:
                first = False
                self._tell(True, "listening")
                self._on_reset()
            try:
                async with asyncio.timeout(self._probe_every):
                    await gone.wait()
            except TimeoutError:
                continue

    def _receive(self, _: Any, __: int, channel: str, payload: str) -> None:
        if payload.startswith(_PROBE):
            if payload == self._probe:
                self._seen.set()
            return
        self._on_notify(channel, payload.split(_SEPARATOR.get(channel, "\n")))

    def _tell(self, listening: bool, why: str) -> None:
        if self._on_state is not None:
            self._on_state(listening, why)


def _pause(tries: int, connected: bool) -> float:
    """Seconds before the next try, on average.

    Until hints arrive again everybody polls, so a server that was away must not be found late; where one is connected
    and hears nothing, trying often is of no use.
    """
    return float(min(_MOST_DEAF if connected else _MOST_AWAY, 0.1 * 2 ** min(tries, 10)))


__all__ = ["DONE", "WAKE", "Listener", "Notifier", "activity_queue", "done_run", "payloads", "run_queue"]
