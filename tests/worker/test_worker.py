"""The worker as a whole: waking, leases, lost databases, draining, bad settings."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import asyncpg
import pytest
from structlog.testing import capture_logs

from aioflow import Workflow, activity, await_signal, timer
from aioflow.client import Client
from aioflow.core.fault import set_fault_hook
from aioflow.core.guard import allowed
from aioflow.errors import ConfigurationError, DatabaseUnavailable, SchemaNotMigrated
from aioflow.store.notify import Notifier
from aioflow.store.pool import Database
from aioflow.store.rows import WorkerRow
from aioflow.store.store import Store
from aioflow.worker import Endpoint, Worker, WorkerSettings
from tests.support import eventually
from tests.worker.conftest import QUICK, worker
from tests.worker.flows import Doubling, double
from tests.worker.link import Link

started: list[str] = []
events: list[str] = []
gate = asyncio.Event()


@pytest.fixture(autouse=True)
def _fresh() -> None:
    global gate
    started.clear()
    events.clear()
    gate = asyncio.Event()


@activity.defn
async def waiting(name: str) -> str:
    started.append(str(activity.info().attempt_id))
    try:
        await gate.wait()
    except asyncio.CancelledError:
        events.append("cancelled")
        raise
    return name


class Waiting(Workflow):
    async def handle(self, name: str) -> str:
        return await waiting(name)


class Listening(Workflow):
    async def handle(self) -> Any:
        await timer(0.05)
        return await await_signal("go")


# -- waking ---------------------------------------------------------------------------------------


async def test_polling_alone_suffices(database: str, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Notifier, "notify", lambda *_: None)
    deaf = Endpoint(database, listen_dsn="postgresql://nobody@127.0.0.1:1/none")
    async with Worker(deaf, workflows=[Doubling, Listening], activities=[double], settings=QUICK):
        assert await (await client.start(Doubling, 4)).result() == 8
        instance = await client.start(Listening)
        await instance.signal("go", "now")
        assert await instance.result() == "now"


async def test_workers_share_a_queue(client: Client, sql: asyncpg.Connection[Any]) -> None:
    async with worker(client, Doubling), worker(client, double), worker(client, Doubling, double):
        instances = [await client.start(Doubling, n) for n in range(20)]
        assert [await one.result() for one in instances] == [2 * n for n in range(20)]
    assert await sql.fetchval("select count(*) from aioflow.worker where not released") == 0


async def test_a_worker_leaves_other_namespaces_alone(client: Client, sql: asyncpg.Connection[Any]) -> None:
    await sql.execute("insert into aioflow.namespace (name) values ('other')")
    async with Client.connect(client.dsn, namespace="other") as other:
        theirs = await other.start(Doubling, 1)
        async with worker(client, Doubling, double):
            assert await (await client.start(Doubling, 2)).result() == 4
            assert (await theirs.describe()).status == "running"
        async with worker(other, Doubling, double):
            assert await theirs.result() == 2


# -- leases ---------------------------------------------------------------------------------------


async def test_a_worker_that_lost_its_lease_begins_anew(client: Client, sql: asyncpg.Connection[Any]) -> None:
    settings = dataclasses.replace(QUICK, lease_ttl=0.6)
    async with worker(client, Waiting, waiting, settings=settings):
        instance = await client.start(Waiting, "x")
        await eventually(lambda: len(started) == 1)
        await sql.execute("update aioflow.worker set dead = true")
        await eventually(lambda: events == ["cancelled"])
        await eventually(lambda: len(started) == 2)
        gate.set()
        assert await instance.result() == "x"
    rows = await sql.fetch("select worker_id from aioflow.worker")
    assert len(rows) == 2
    assert started[0] != started[1]


async def test_the_work_of_a_dead_worker_is_taken_over(
    client: Client, store: Store, sql: asyncpg.Connection[Any]
) -> None:
    settings = dataclasses.replace(QUICK, lease_ttl=0.6)
    instance = await client.start(Waiting, "x")
    async with worker(client, Waiting, settings=settings):
        await eventually(lambda: sql.fetchval("select count(*) from aioflow.activity"))
    # Somebody claims it and is never heard of again.
    dead, token = uuid.uuid4(), uuid.uuid4()
    await store.register_worker(WorkerRow(worker_id=dead, identity="dead", queues=("default",), lease=0.5))
    (claimed,) = await store.claim_activities(dead, 0, ["default"], ["waiting"], [token])
    gate.set()
    async with worker(client, Waiting, waiting, settings=settings):
        assert await instance.result() == "x"
    assert started[0] != str(claimed.token)
    record = await sql.fetchrow("select attrs from aioflow.history where kind = 'ActivityCompleted' limit 1")
    assert record is not None
    assert str(claimed.token) not in record["attrs"]


@pytest.mark.parametrize("point", ["claim_runs.after_send", "claim_activities.after_send"])
async def test_a_claim_whose_answer_was_lost_is_given_back(client: Client, faults: list[str], point: str) -> None:
    async with worker(client, Doubling, double):
        faults.append(point)
        await eventually(lambda: not faults)
        faults.append(point)
        assert await (await client.start(Doubling, 4)).result() == 8


@pytest.mark.parametrize(
    "point", ["commit.after_send", "complete_activities.after_send", "load.after_send", "commit.before_send"]
)
async def test_an_answer_that_was_lost_is_asked_for_again(
    client: Client, faults: list[str], point: str, sql: asyncpg.Connection[Any]
) -> None:
    async with worker(client, Doubling, double):
        faults.append(point)
        assert await (await client.start(Doubling, 4)).result() == 8
        assert not faults
    kinds = [row["kind"] for row in await sql.fetch("select kind from aioflow.history order by seq")]
    assert kinds == ["RunStarted", "ActivityScheduled", "ActivityCompleted", "RunCompleted"]


# -- the database goes away -----------------------------------------------------------------------


async def test_a_worker_outlives_its_database(database: str, client: Client, short_tmp: Path) -> None:
    async with Link(database, short_tmp) as link:
        settings = dataclasses.replace(QUICK, lease_ttl=30.0)
        source = Endpoint(link.dsn)
        async with Worker(source, workflows=[Waiting, Doubling], activities=[waiting, double], settings=settings):
            instance = await client.start(Waiting, "x")
            await eventually(lambda: len(started) == 1)
            await link.cut()
            other = await client.start(Doubling, 3)
            gate.set()  # the activity ends while nothing can be written
            await asyncio.sleep(0.05)
            await link.mend()
            assert await instance.result() == "x"
            assert await other.result() == 6
    assert len(started) == 1


async def test_a_worker_that_starts_waits_for_its_database(database: str, client: Client, short_tmp: Path) -> None:
    link = Link(database, short_tmp)
    with capture_logs() as logs:
        starting = asyncio.create_task(Worker(Endpoint(link.dsn), workflows=[Doubling], activities=[double]).run())
        await eventually(lambda: [one for one in logs if one["event"] == "database_not_ready"])
        async with link:
            assert await (await client.start(Doubling, 3)).result(timeout=20) == 6
            starting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await starting


async def test_a_worker_needs_its_database_to_start(empty_database: str) -> None:
    with pytest.raises(SchemaNotMigrated):
        async with Worker(Endpoint(empty_database), activities=[double]):
            pass
    settings = dataclasses.replace(QUICK, start_patience=0.1)
    with pytest.raises(DatabaseUnavailable):
        async with Worker(Endpoint("postgresql://nobody@127.0.0.1:1/none"), activities=[double], settings=settings):
            pass


# -- draining -------------------------------------------------------------------------------------


async def test_leaving_lets_running_work_end(client: Client, sql: asyncpg.Connection[Any]) -> None:
    async with worker(client, Waiting, waiting) as one:
        instance = await client.start(Waiting, "x")
        await eventually(lambda: len(started) == 1)
        one.request_drain()
        await client.start(Waiting, "not begun any more")
        await asyncio.sleep(0.05)
        gate.set()
    assert events == []
    assert await sql.fetchval("select count(*) from aioflow.inbox where kind = 'ActivityCompleted'") == 1
    assert len(started) == 1
    async with worker(client, Waiting, waiting):
        assert await instance.result() == "x"


async def test_what_does_not_end_in_time_is_given_back(client: Client, sql: asyncpg.Connection[Any]) -> None:
    settings = dataclasses.replace(QUICK, drain_grace=0.1)
    with capture_logs() as logs:
        async with worker(client, Waiting, waiting, settings=settings):
            instance = await client.start(Waiting, "x")
            await eventually(lambda: len(started) == 1)
    assert events == ["cancelled"]
    assert [one["activity"] for one in logs if one["event"] == "activity_given_back"] == ["waiting"]
    row = await sql.fetchrow("select owner, attempt, deliveries from aioflow.activity")
    assert row is not None
    assert (row["owner"], row["attempt"], row["deliveries"]) == (None, 1, 0)
    gate.set()
    async with worker(client, Waiting, waiting):
        assert await instance.result() == "x"


slow_step = threading.Event()


class SlowStep(Workflow):
    async def handle(self) -> str:
        with allowed():
            events.append("in the step")
            slow_step.wait(20)
        return "done"


async def test_a_step_that_outlasts_the_drain_is_not_held_against_its_run(
    client: Client, sql: asyncpg.Connection[Any]
) -> None:
    logs: list[Any] = []

    def failed() -> bool:
        return any(one["event"] == "workflow_tasks_failed" for one in logs)

    async def let_it_end(point: str) -> None:
        if point == "drain.before_unregister":
            slow_step.set()
            with anyio.move_on_after(0.3):
                await eventually(failed)

    slow_step.clear()
    set_fault_hook(let_it_end)
    try:
        with capture_logs() as logs:
            async with worker(client, SlowStep, settings=dataclasses.replace(QUICK, drain_grace=0.1)):
                instance = await client.start(SlowStep)
                await eventually(lambda: events == ["in the step"])
    finally:
        set_fault_hook(None)
    assert not failed()
    events.clear()
    async with worker(client, SlowStep):
        assert await instance.result(timeout=20) == "done"


@activity.defn
def deaf_thread() -> str:
    started.append("thread")
    thread_gate.wait(20)
    return "late"


thread_gate = threading.Event()


class WaitingForAThread(Workflow):
    async def handle(self) -> str:
        return await activity(deaf_thread)


async def test_a_thread_that_does_not_end_is_left_behind(client: Client, sql: asyncpg.Connection[Any]) -> None:
    settings = dataclasses.replace(QUICK, drain_grace=0.1, cancel_grace=0.1)
    thread_gate.clear()
    try:
        async with worker(client, WaitingForAThread, deaf_thread, settings=settings):
            instance = await client.start(WaitingForAThread)
            await eventually(lambda: started == ["thread"])
        assert await sql.fetchval("select owner is null from aioflow.activity")
    finally:
        thread_gate.set()
    async with worker(client, WaitingForAThread, deaf_thread):
        assert await instance.result() == "late"


async def test_a_block_that_runs_out_of_time_drains(client: Client, sql: asyncpg.Connection[Any]) -> None:
    gate.set()
    with anyio.CancelScope() as scope:
        async with worker(client, Waiting, waiting):
            first = await client.start(Waiting, "x")
            scope.cancel()
            await anyio.sleep_forever()
    with suppress(TimeoutError):
        async with asyncio.timeout(None) as timeout, worker(client, Waiting, waiting):
            assert await first.result() == "x"
            timeout.reschedule(asyncio.get_running_loop().time())
            await anyio.sleep_forever()
    assert timeout.expired()
    assert await sql.fetchval("select bool_and(dead) and count(*) = 2 from aioflow.worker")


async def test_cancelling_run_drains(client: Client, sql: asyncpg.Connection[Any]) -> None:
    gate.set()
    running = asyncio.create_task(worker(client, Doubling, double).run())
    assert await (await client.start(Doubling, 1)).result() == 2
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert await sql.fetchval("select bool_and(dead) from aioflow.worker")


# -- settings -------------------------------------------------------------------------------------


async def test_a_worker_says_what_is_wrong_with_it(database: str, client: Client) -> None:
    async with asyncpg.create_pool(database, min_size=1) as pool, Client.connect(pool) as pooled:
        with pytest.raises(ConfigurationError, match="pool"):
            Worker(pooled, activities=[double])
    with pytest.raises(ConfigurationError, match="needs workflows"):
        Worker(client)
    with pytest.raises(ConfigurationError, match="queues"):
        Worker(client, activities=[double], queues="orders")
    with pytest.raises(ConfigurationError, match="concurrency"):
        Worker(client, activities=[double], concurrency=0)
    with pytest.raises(ConfigurationError, match="lease_ttl"):
        WorkerSettings(lease_ttl=0)
    with pytest.raises(ConfigurationError, match="drain_grace"):
        WorkerSettings(drain_grace=-1)
    with pytest.raises(ConfigurationError, match="queues"):
        WorkerSettings(queues=("",))


async def test_a_worker_is_known_with_what_it_does(client: Client, store: Store) -> None:
    async with worker(client, Doubling, double, identity="here", queues=["a", "b"]) as one:
        (info,) = await store.workers()
        assert (info.identity, info.queues) == ("here", ("a", "b"))
        assert (info.workflows, info.activities, info.slots) == (("Doubling",), ("double",), 200)
        assert one.queues == ("a", "b")
        with pytest.raises(RuntimeError, match="once"):
            await one.__aenter__()
    (info,) = await store.workers(dead=True)
    assert info.dead


async def test_a_store_is_closed_with_its_worker(database: str) -> None:
    async with await Database.connect(database, max_size=1) as db:
        async with Worker(Endpoint(database), activities=[double], settings=QUICK):
            count = "select count(*) from pg_catalog.pg_stat_activity where application_name like 'aioflow worker%'"
            assert (await db.fetch(count))[0][0] > 0
        assert (await db.fetch(count))[0][0] == 0
