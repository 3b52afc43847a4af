"""A failover to a standby, with the old primary still running: its address moves as a floating one would."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from aioflow import Workflow, activity, await_signal
from aioflow.client import Client
from aioflow.errors import DatabaseUnavailable, OldTimeline
from aioflow.store.binaries import as_identity
from aioflow.store.embedded import EmbeddedPostgres
from aioflow.store.migrations import migrate
from aioflow.store.pool import Database
from aioflow.store.store import Store
from aioflow.worker import Worker, WorkerSettings
from tests.support import eventually

SETTINGS = WorkerSettings(poll_interval=0.2, lease_ttl=30.0, connections=3)


@activity.defn
async def charge() -> str:
    return "charged"


class Order(Workflow):
    async def handle(self) -> list[Any]:
        return [await charge(), await await_signal("approve"), await charge()]


class Cluster:
    """A primary ``a``, its standby ``b``, and an address that leads to one of them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.a = EmbeddedPostgres(root / "a", durable=False)
        self.b = EmbeddedPostgres(root / "b", durable=False)
        self.dsn = f"postgresql://aioflow@/postgres?host={root}/now"

    def point_to(self, server: EmbeddedPostgres) -> None:
        link = self.root / "next"
        link.symlink_to(server.root)
        link.replace(self.root / "now")

    def copy(self) -> None:
        """Make the standby's folder."""
        self.b.root.mkdir(mode=0o700)
        shutil.copymode(self.a.root, self.b.root)
        target = self.b.root / self.a.data.name
        command = [
            str(self.a.binaries.bindir / "pg_basebackup"),
            "-d",
            self.a.dsn,
            "-D",
            str(target),
            "-R",
            "-c",
            "fast",
        ]
        stat = self.a.root.stat()
        shutil.chown(self.b.root, stat.st_uid, stat.st_gid)
        subprocess.run(as_identity(self.a._identity, command), check=True, capture_output=True)

    async def cut(self, server: EmbeddedPostgres) -> None:
        """End all connections to a server, as a failing network would."""
        await self.ask(
            server,
            "select count(pg_terminate_backend(pid, 5000)) from pg_stat_activity where application_name ~ 'aioflow'",
        )

    async def ask(self, server: EmbeddedPostgres, statement: str) -> Any:
        connection = await asyncpg.connect(server.dsn)
        try:
            return await connection.fetchval(statement)
        finally:
            await connection.close()


@pytest.fixture
async def cluster(short_tmp: Path) -> AsyncIterator[Cluster]:
    made = Cluster(short_tmp)
    async with made.a:
        made.point_to(made.a)
        await migrate(made.a.dsn)
        await asyncio.to_thread(made.copy)
        async with made.b:
            yield made


@pytest.mark.timeout(120)
async def test_workers_follow_a_failover_and_never_go_back(cluster: Cluster) -> None:
    with pytest.raises(DatabaseUnavailable, match="standby"):
        await Database.connect(cluster.b.dsn)
    async with (
        Client.connect(cluster.dsn, patience=5.0) as client,
        Worker(client, workflows=[Order], activities=[charge], settings=SETTINGS) as worker,
    ):
        first = await client.start(Order.options(id="first"))
        await eventually(lambda: waits(first))
        at = await cluster.ask(cluster.a, "select pg_current_wal_lsn()::text")
        await eventually(
            lambda: cluster.ask(cluster.b, "select pg_wal_lsn_diff(pg_last_wal_replay_lsn(), '" + at + "') >= 0")
        )
        assert await cluster.ask(cluster.b, "select pg_promote()")
        cluster.point_to(cluster.b)
        await cluster.cut(cluster.a)
        kept = await cluster.ask(cluster.a, "select count(*) from aioflow.history")

        # The worker begins anew, and the run goes on although the lease of its former self is long.
        await first.signal("approve", "yes")
        assert await first.result(timeout=20) == ["charged", "yes", "charged"]
        blamed = "select string_agg(coalesce(blame, '-'), ' ' order by started_at) from aioflow.worker"
        await eventually(lambda: said(cluster.ask(cluster.b, blamed), "none -"))

        # The old primary is up, and the address leads to it once more: nothing is written there.
        cluster.point_to(cluster.a)
        await cluster.cut(cluster.b)
        with pytest.raises(OldTimeline):
            await client.start(Order.options(id="lost"))
        assert await cluster.ask(cluster.a, "select count(*) from aioflow.history") == kept
        assert await cluster.ask(cluster.a, "select count(*) from aioflow.instance") == 1
        cluster.point_to(cluster.b)
        second = await client.start(Order.options(id="second"))
        await second.signal("approve", "yes")
        assert await second.result(timeout=30) == ["charged", "yes", "charged"]
        assert worker.started
    async with await Database.connect(cluster.dsn, max_size=1) as db:
        assert await Store(db).invariants() == []


async def waits(instance: Any) -> bool:
    told = await instance.describe()
    return bool(told.history_length >= 3 and told.unconsumed == 0 and told.worker is None and not told.activities)


async def said(answer: Any, expected: str) -> bool:
    return bool(await answer == expected)
