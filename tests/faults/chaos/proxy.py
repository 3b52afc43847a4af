"""A network that fails on purpose: every process reaches the server through a gate of its own.

A gate stalls, goes dark, refuses, is slow, loses notifications, or cuts a connection exactly around a statement:

- ``before``: the statement never reaches the server.
- ``unsynced``: the server executes it, and the line is cut before the Sync that would commit it.
- ``after``: the server has committed and answered, and nothing of the answer arrives.
- ``unready``: the same, but for the last message of the answer.
- ``late``: the gate stalls as the statement comes by, and lets it pass when it moves again.
- ``held``: the statement alone is held up for a while.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final, Literal, Self

from tests.faults.chaos.wire import COMPLETE, ERROR, NOTIFICATION, READY, ROW, Backend, Frontend, Group, payload_of

How = Literal["before", "unsynced", "after", "unready", "late", "held"]
CUTS: Final[tuple[How, ...]] = ("before", "unsynced", "after", "unready")
_CHUNK: Final = 65_536
_TURN: Final = 0.03  # seconds that a server gets to execute what will not be committed


@dataclass
class Cut:
    """One cut, at the next of these statements that passes a gate, by ``seconds`` if it is one that makes it late.

    ``about``: only a statement that has these bytes in it.
    """

    how: How
    statements: Collection[str]
    seconds: float = 0.0
    about: bytes = b""


@dataclass
class Tally:
    """What was done.

    ``lost``: answers of statements that took effect and that nobody got. ``fenced``: late ones that the database
    answered with a fence. ``unheard``: notifications that were dropped.
    """

    cuts: Counter[str] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)
    fenced: Counter[str] = field(default_factory=Counter)
    unheard: int = 0


class Gate:
    """The way of one process to the server, at a port of its own; open to begin with."""

    def __init__(self, target: tuple[str, int], tally: Tally, chance: random.Random) -> None:
        self._target, self._tally, self._chance = target, tally, chance
        self._server: asyncio.Server | None = None
        self._lines: set[_Line] = set()
        self._moving = asyncio.Event()
        self._moving.set()
        self.cuts: list[Cut] = []
        self.refusing = self.deaf = False
        self.delay = 0.0
        self.port = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exc: object) -> None:
        assert self._server is not None
        self._server.close()
        self.cut_all()

    # -- faults -----------------------------------------------------------------------------------

    def mend(self) -> None:
        """Everything passes again."""
        self.cuts.clear()
        self.refusing = self.deaf = False
        self.delay = 0.0
        self._moving.set()

    def expect(self, cut: Cut) -> None:
        """Make a cut at the next occasion; one that waits for the same occasion is enough."""
        if cut.statements not in [one.statements for one in self.cuts]:
            self.cuts.append(cut)

    def stall(self) -> None:
        """Nothing moves until `go_on`; then everything does, however late it is."""
        self._moving.clear()

    def go_on(self) -> None:
        """End a stall."""
        self._moving.set()

    def cut_all(self) -> None:
        """Break every connection."""
        for line in list(self._lines):
            line.cut()

    # -- lines ------------------------------------------------------------------------------------

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if self.refusing:
                raise ConnectionRefusedError
            there, back = await asyncio.open_connection(*self._target)
        except OSError:
            writer.transport.abort()
            return
        line = _Line(self, self._tally, writer, back)
        self._lines.add(line)
        try:
            await asyncio.gather(line.up(reader), line.down(there))
        finally:
            line.cut()
            self._lines.discard(line)

    async def passage(self) -> None:
        """Wait as long as whatever passes has to."""
        if self.delay:
            await asyncio.sleep(self.delay * self._chance.random())
        await self._moving.wait()

    def take_cut(self, group: Group) -> Cut | None:
        """The cut that a statement meets; it is used up by that."""
        for cut in self.cuts:
            if group.statement in cut.statements and cut.about in group.data:
                self.cuts.remove(cut)
                self._tally.cuts[f"{cut.how} {group.statement}"] += 1
                if cut.how == "late":
                    self.stall()
                    asyncio.get_running_loop().call_later(cut.seconds, self.go_on)
                return cut
        return None


class _Line:
    """One connection through a gate."""

    def __init__(self, gate: Gate, tally: Tally, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self._gate, self._tally, self._client, self._server = gate, tally, client, server
        self._losing: tuple[How, str] | None = None
        self._failed = False
        self._late = ""

    def cut(self) -> None:
        for writer in (self._client, self._server):
            writer.transport.abort()

    async def up(self, reader: asyncio.StreamReader) -> None:
        """From the client to the server."""
        frames = Frontend()
        with contextlib.suppress(OSError):
            while data := await reader.read(_CHUNK):
                for group in frames.feed(data):
                    await self._gate.passage()
                    await self._send(group)
        self.cut()

    async def _send(self, group: Group) -> None:
        cut = self._gate.take_cut(group) if group.statement else None
        how = cut.how if cut else None
        self._late = group.statement if how in ("late", "held") else ""
        if how == "before":
            self.cut()
        elif how == "unsynced" and group.sync_at > 0:
            self._server.write(group.data[: group.sync_at])
            await self._server.drain()
            await asyncio.sleep(_TURN)
            self.cut()
        else:
            if how == "held" and cut:
                await asyncio.sleep(cut.seconds)
            elif how == "late":
                await self._gate.passage()
            elif how:
                self._losing, self._failed = (how, group.statement), False
            self._server.write(group.data)
            await self._server.drain()

    async def down(self, reader: asyncio.StreamReader) -> None:
        """From the server to the client."""
        frames = Backend()
        with contextlib.suppress(OSError):
            while data := await reader.read(_CHUNK):
                passed = [message for letter, message in frames.feed(data) if self._passes(letter, message)]
                if passed:
                    await self._gate.passage()
                    self._client.write(b"".join(passed))
                    await self._client.drain()
        self.cut()

    def _passes(self, letter: bytes, message: bytes) -> bool:
        if self._losing is not None:
            how, statement = self._losing
            self._failed = self._failed or letter == ERROR
            if letter == READY:
                if not self._failed:
                    self._tally.lost[statement] += 1
                asyncio.get_running_loop().call_later(_TURN, self.cut)
                return False
            return how == "unready"
        if self._late and _fences(letter, message):
            self._tally.fenced[self._late] += 1
        if letter == NOTIFICATION and self._gate.deaf and not payload_of(message).startswith(b"probe:"):
            self._tally.unheard += 1
            return False
        return True


def _fences(letter: bytes, message: bytes) -> bool:
    """Whether an answer says that a late write changed nothing: so in a row, or by there being none."""
    return (letter == ROW and b"fenced" in message) or (letter == COMPLETE and b"SELECT 0" in message)
