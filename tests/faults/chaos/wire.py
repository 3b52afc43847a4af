"""As much of Postgres' wire protocol (version 3, without TLS) as it takes to cut a stream where it matters.

What a client sends is split into *groups*: the messages up to one that makes the server act (Sync, Flush, a simple
query, a part of the login). What a server sends is split into messages.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from aioflow.store.queries import names, sql

_LENGTH: Final = struct.Struct("!I")
_ACTS: Final = frozenset(b"SHQXpF")
READY: Final = b"Z"
ERROR: Final = b"E"
NOTIFICATION: Final = b"A"
ROW: Final = b"D"
COMPLETE: Final = b"C"


@dataclass(frozen=True, slots=True)
class Group:
    """What travels together.

    ``statement`` is the name of ours that is executed in it, empty for any other; ``sync_at`` is where its Sync
    begins, -1 without one.
    """

    data: bytes
    statement: str
    sync_at: int


def _known() -> dict[bytes, str]:
    return {sql(name).encode(): name for name in names()}


class Frontend:
    """Splits the stream of a client."""

    def __init__(self) -> None:
        self._rest = b""
        self._group = b""
        self._started = False
        self._texts = _known()
        self._prepared: dict[bytes, str] = {}
        self._statement = ""

    def feed(self, data: bytes) -> Iterator[Group]:
        """The groups that this part of the stream completes."""
        self._rest += data
        while (size := self._size()) and len(self._rest) >= size:
            message, self._rest = self._rest[:size], self._rest[size:]
            begin = len(self._group)
            self._group += message
            kind = message[0] if self._started else ord("p")
            self._started = True
            if kind == ord("P"):
                self._parse(message[5:])
            elif kind == ord("B"):
                _, _, rest = message[5:].partition(b"\0")
                self._statement = self._prepared.get(rest.partition(b"\0")[0], "")
            elif kind in _ACTS:
                yield Group(self._group, self._statement, begin if kind == ord("S") else -1)
                self._group, self._statement = b"", ""

    def _size(self) -> int:
        """Bytes of the next message, 0 while that cannot be told. The first one has no letter."""
        skip = 1 if self._started else 0
        if len(self._rest) < skip + 4:
            return 0
        return skip + int(_LENGTH.unpack_from(self._rest, skip)[0])

    def _parse(self, body: bytes) -> None:
        name, _, rest = body.partition(b"\0")
        self._prepared[name] = self._texts.get(rest.partition(b"\0")[0], "")


class Backend:
    """Splits the stream of a server."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Letter and bytes of each message that this part of the stream completes."""
        self._rest += data
        while len(self._rest) >= 5:
            size = 1 + int(_LENGTH.unpack_from(self._rest, 1)[0])
            if len(self._rest) < size:
                return
            message, self._rest = self._rest[:size], self._rest[size:]
            yield message[:1], message


def payload_of(notification: bytes) -> bytes:
    """The payload of a notification."""
    return notification[9:].split(b"\0")[1]
