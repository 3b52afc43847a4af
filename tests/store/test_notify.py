"""Hints: sent coalesced, received, and what happens when they do not arrive."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import asyncpg

from aioflow.store import notify
from aioflow.store.notify import DONE, WAKE, Listener, Notifier, activity_queue, done_run, payloads, run_queue
from aioflow.store.store import Store
from tests.store.bench import ids
from tests.support import eventually
from tests.worker.link import Link


class Ear:
    def __init__(self) -> None:
        self.heard: list[tuple[str, str]] = []
        self.resets = 0

    def hear(self, channel: str, items: list[str]) -> None:
        self.heard += [(channel, item) for item in items]

    def reset(self) -> None:
        self.resets += 1


async def test_hints_arrive_and_a_lost_connection_comes_back(
    database: str, store: Store, conn: asyncpg.Connection
) -> None:
    ear, notifier, run = Ear(), Notifier(store.db), ids()
    async with Listener(database, [WAKE, DONE], ear.hear, ear.reset) as listener:
        await eventually(lambda: listener.listening and ear.resets == 1)
        notifier.notify(WAKE, [run_queue("orders"), activity_queue("orders"), run_queue("orders")])
        notifier.notify(DONE, [done_run(run)])
        await eventually(lambda: len(ear.heard) >= 3)
        assert sorted(ear.heard) == [(DONE, run.hex), (WAKE, "a:orders"), (WAKE, "w:orders")]
        await conn.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity "
            "where application_name = 'aioflow listener' and datname = current_database()"
        )
        await eventually(lambda: listener.listening and ear.resets == 2)
        notifier.notify(WAKE, ["w:again"])
        await eventually(lambda: (WAKE, "w:again") in ear.heard)
    assert not listener.listening
    await notifier.close()


async def test_a_server_that_was_away_is_found_soon(database: str, short_tmp: Path, monkeypatch: Any) -> None:
    pauses: list[float] = []

    def pause(tries: int, connected: bool) -> float:
        pauses.append(before(tries + 20, connected))  # as after a long time
        return 0.01

    before = notify._pause
    monkeypatch.setattr(notify, "_pause", pause)
    ear, link = Ear(), Link(database, short_tmp)
    async with Listener(link.dsn, [WAKE], ear.hear, ear.reset) as listener:
        await eventually(lambda: len(pauses) > 5)
        async with link:
            await eventually(lambda: listener.listening)
            assert max(pauses) <= 0.5


async def test_swallowed_hints_are_noticed(database: str) -> None:
    ear, states = Ear(), []

    class Deaf(Listener):
        def _receive(self, *_: object) -> None:
            pass

    def tell(listening: bool, why: str) -> None:
        states.append((listening, why))

    async with Deaf(database, [WAKE], ear.hear, ear.reset, probe_within=0.05, on_state=tell) as listener:
        await eventually(lambda: states)
        assert not listener.listening
        assert ear.resets == 0


async def test_a_notifier_without_a_database_is_silent(store: Store) -> None:
    notifier = Notifier(store.db)
    await store.db.close()
    notifier.notify(WAKE, ["w:q"])
    await notifier.close()


def test_payloads_stay_below_the_limit() -> None:
    items = [f"w:{'x' * 300}{n:04}" for n in range(100)] + ["w:" + "y" * 9000]
    made = list(payloads(WAKE, items))
    assert all(len(part.encode()) < 8000 for part in made)
    assert sorted(item for part in made for item in part.split("\n")) == sorted(items[:-1])
    assert list(payloads(DONE, ["b", "a"])) == ["a,b"]
