"""Which server of a replicated system to believe: after a failover never again one that was left behind.

Each promotion of a standby begins a new timeline, with a higher number. The highest one seen of each system is kept in
the memory of the process, never stored; it is compared whenever a connection is made.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final
from weakref import WeakMethod

import asyncpg

from aioflow.errors import OldTimeline
from aioflow.store.queries import sql

__all__ = ["TIMELINES", "Timelines", "place"]


async def place(connection: Any, fallback: str) -> tuple[str, int] | None:
    """System and timeline that a new connection has ended at; ``fallback`` names a system that does not tell.

    None: a server that has no timelines. Raises `ConnectionError` on a standby, which is as good as no connection.
    """
    try:
        found = await connection.fetchrow(sql("server_place"))
        if found["standby"]:
            raise ConnectionError("the server is a standby, where nothing can be written")
        system = await connection.fetchval(sql("server_system")) if found["may_ask"] else fallback
    except (asyncpg.FeatureNotSupportedError, asyncpg.UndefinedFunctionError):
        return None  # speaks the protocol, and keeps its log in another way
    return system, int(found["timeline"], 16)


class Timelines:
    """The highest timeline seen of each system, and who wants to know of a higher one. For all threads."""

    def __init__(self) -> None:
        self._highest: dict[str, int] = {}
        self._watchers: list[WeakMethod[Callable[[str, int], None]]] = []
        self._lock = threading.Lock()

    def watch(self, watcher: Callable[[str, int], None]) -> None:
        """Call a method with the system and its timeline whenever that goes up, from whichever thread saw it."""
        with self._lock:
            self._watchers = [one for one in self._watchers if one() is not None]
            self._watchers.append(WeakMethod(watcher))

    def see(self, system: str, timeline: int) -> None:
        """A connection to this timeline was made. Raises `OldTimeline` when the system was seen on a higher one."""
        with self._lock:
            before = self._highest.get(system, timeline)
            self._highest[system] = max(before, timeline)
            watchers = [one() for one in self._watchers] if timeline > before else []
        if timeline < before:
            raise OldTimeline(
                f"the server is on timeline {timeline}, and this process has seen {before}: it was left behind by a "
                "failover. Shut it down, or point the address at the new primary"
            )
        for watcher in watchers:
            if watcher is not None:
                watcher(system, timeline)


TIMELINES: Final = Timelines()
