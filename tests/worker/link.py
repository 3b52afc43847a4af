"""A link to the database that a test can cut: a socket in a folder, forwarded to the server."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from types import TracebackType
from urllib.parse import parse_qs, urlencode, urlsplit, urlunsplit

_NAME = ".s.PGSQL.5432"


class Link:
    """While entered, ``dsn`` leads to the same database as the one given, through this process."""

    def __init__(self, dsn: str, folder: Path) -> None:
        self._parts, self._path = urlsplit(dsn), folder / _NAME
        self._query = {name: values[0] for name, values in parse_qs(self._parts.query).items()}
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._forwarding: set[asyncio.Task[None]] = set()

    @property
    def dsn(self) -> str:
        user = self._parts.netloc.rpartition("@")[0]
        query = self._query | {"host": str(self._path.parent), "port": "5432"}
        return urlunsplit(self._parts._replace(netloc=f"{user}@" if user else "", query=urlencode(query)))

    async def mend(self) -> None:
        """Take connections (again)."""
        self._server = await asyncio.start_unix_server(self._forward, path=str(self._path))

    async def cut(self) -> None:
        """Break every connection and refuse new ones."""
        if self._server is not None:
            self._server.close()
            self._server = None
        self._path.unlink(missing_ok=True)
        for writer in list(self._writers):
            writer.transport.abort()

    async def __aenter__(self) -> Link:
        await self.mend()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.cut()
        await asyncio.gather(*self._forwarding, return_exceptions=True)
        await asyncio.sleep(0)  # what was aborted last is closed

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._forwarding.add(task)
        writers = [writer]
        try:
            with contextlib.suppress(OSError):
                there, back = await self._open()
                writers.append(back)
                if self._server is not None:  # not cut meanwhile
                    self._writers.update(writers)
                    await asyncio.gather(_pump(reader, back), _pump(there, writer))
        finally:
            self._forwarding.discard(task)
            for one in writers:
                self._writers.discard(one)
                one.transport.abort()

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        port = self._query.get("port") or self._parts.port or 5432
        host = self._query.get("host") or self._parts.hostname or "127.0.0.1"
        if host.startswith("/"):
            return await asyncio.open_unix_connection(f"{host}/.s.PGSQL.{port}")
        return await asyncio.open_connection(host, int(port))


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await source.read(65_536):
            sink.write(data)
            await sink.drain()
    sink.transport.abort()
