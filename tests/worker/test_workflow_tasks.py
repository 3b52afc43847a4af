"""Workflow tasks that go wrong, and runs that go on with and without the cache."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import anyio
import asyncpg
import pytest
from structlog.testing import capture_logs

from aioflow import Workflow, activity, await_condition, query, signal, timer, workflow_info
from aioflow.client import Client
from aioflow.core.limits import Limits
from aioflow.errors import AioflowError, StoreError, WorkerExhausted, WorkflowFailed
from aioflow.store.tasks import Tasks
from tests.support import eventually
from tests.worker.conftest import QUICK, worker

calls: list[str] = []
held = asyncio.Event()


@pytest.fixture(autouse=True)
def _fresh() -> None:
    calls.clear()


@activity.defn
async def step(name: str) -> str:
    calls.append(name)
    return name


class Approval(Workflow, name="Approval"):
    def __init__(self) -> None:
        self.by: str | None = None
        self.seen = 0

    @signal
    def approve(self, by: str) -> None:
        self.by = by

    @signal
    def ping(self) -> None:
        self.seen += 1

    @query
    def pings(self) -> int:
        return self.seen

    async def handle(self) -> str:
        await step("one")
        await await_condition(lambda: self.by is not None)
        await step("two")
        return f"{self.by} after {self.seen}"


class Changed(Workflow, name="Approval"):
    """The same workflow after a deploy that does not fit."""

    def __init__(self) -> None:
        self.by: str | None = None

    @signal
    def approve(self, by: str) -> None:
        self.by = by

    @signal
    def ping(self) -> None: ...

    async def handle(self) -> str:
        await timer(3600)
        return "other"


async def hot(sql: asyncpg.Connection[Any]) -> asyncpg.Record:
    row = await sql.fetchrow("select * from aioflow.instance_hot")
    assert row is not None
    return row


async def test_code_that_does_not_fit_blocks_the_run_until_it_is_put_back(
    client: Client, sql: asyncpg.Connection[Any]
) -> None:
    async with worker(client, Approval, step):
        instance = await client.start(Approval.options(id="i"))
        await eventually(
            lambda: sql.fetchval("select 1 from aioflow.instance_hot where next_seq = 4 and owner is null")
        )
    before = await sql.fetch("select * from aioflow.history order by seq")
    async with worker(client, Changed, step):
        await instance.signal("approve", "ann")
        reason = await eventually(lambda: sql.fetchval("select blocked_reason from aioflow.instance_hot"))
        assert reason.startswith("NondeterminismError")
        assert "ActivityScheduled at 0:a1 (step)" in reason
        assert "TimerStarted" in reason
        await eventually(lambda: sql.fetchval("select attempt >= 2 from aioflow.instance_hot"))
        described = await instance.describe()
        assert described.status == "running"
    assert await sql.fetch("select * from aioflow.history order by seq") == before
    async with worker(client, Approval, step):
        assert await instance.result() == "ann after 0"
    assert calls == ["one", "two"]


class Blocking(Workflow, blocking=(ConnectionError,)):
    broken = True

    async def handle(self) -> str:
        if self.broken:
            raise ConnectionError("the price list is missing")
        return "ok"


async def test_a_definition_can_name_errors_that_block(client: Client, sql: asyncpg.Connection[Any]) -> None:
    async with worker(client, Blocking):
        instance = await client.start(Blocking)
        reason = await eventually(lambda: sql.fetchval("select blocked_reason from aioflow.instance_hot"))
        assert reason == "ConnectionError: the price list is missing"
        Blocking.broken = False
        try:
            assert await instance.result() == "ok"
        finally:
            Blocking.broken = True


class Leaving(Workflow):
    async def handle(self, how: str) -> None:
        raise {"exit": SystemExit(3), "interrupt": KeyboardInterrupt("mine")}[how]


@pytest.mark.parametrize(("how", "told"), [("exit", "SystemExit: 3"), ("interrupt", "KeyboardInterrupt: mine")])
async def test_code_that_would_end_its_process_fails_its_run(client: Client, how: str, told: str) -> None:
    async with worker(client, Leaving):
        with pytest.raises(WorkflowFailed, match=told):
            await (await client.start(Leaving, how)).result(timeout=20)


@pytest.mark.parametrize("cached", [1_000, 1])
async def test_many_runs_go_on_with_and_without_the_cache(
    client: Client, cached: int, sql: asyncpg.Connection[Any]
) -> None:
    settings = dataclasses.replace(QUICK, cached_runs=cached)
    async with worker(client, Approval, step, settings=settings):
        instances = [await client.start(Approval.options(id=f"i{n}")) for n in range(8)]
        for _ in range(3):
            for instance in instances:
                await instance.signal("ping")
        waiting = "select count(*) from aioflow.instance_hot where owner is null and wake_gen = ack_gen"
        await eventually(lambda: sql.fetchval(f"{waiting} and next_seq >= 7"))
        for instance in instances:
            await instance.signal("approve", "ann")
        assert [await instance.result() for instance in instances] == ["ann after 3"] * 8
    assert sorted(calls) == ["one"] * 8 + ["two"] * 8


class Mailbox(Workflow):
    """Ends as soon as an activity does, however many signals come."""

    def __init__(self) -> None:
        self.taken = 0

    @signal
    def put(self) -> None:
        self.taken += 1

    async def handle(self) -> int:
        await gate()
        return self.taken


@activity.defn
async def gate() -> None:
    await held.wait()


async def test_a_run_closes_under_a_steady_stream_of_signals(client: Client, sql: asyncpg.Connection[Any]) -> None:
    """What was accepted is in the history: a close that was too early is decided again."""
    global held
    held = asyncio.Event()
    accepted = 0

    async def send() -> None:
        nonlocal accepted
        while True:
            try:
                await client.signal("box", "put")
            except AioflowError:
                return
            accepted += 1

    async with worker(client, Mailbox, gate):
        instance = await client.start(Mailbox.options(id="box"))
        async with asyncio.timeout(30), anyio.create_task_group() as group:
            for _ in range(4):
                group.start_soon(send)
            await eventually(lambda: accepted > 20)
            held.set()
            taken = await instance.result()
    rows = await sql.fetchval("select count(*) from aioflow.history where kind = 'SignalReceived'")
    assert rows == accepted
    assert taken <= accepted
    assert await sql.fetchval("select kind from aioflow.history order by seq desc limit 1") == "RunCompleted"


@activity.defn
async def echo(text: str) -> str:
    return text[:2]


class Echoing(Workflow):
    def __init__(self) -> None:
        self.heard: list[str] = []

    @signal
    async def say(self, text: str) -> None:
        self.heard.append(text[:2])
        self.heard.append(await echo(text))

    async def handle(self, count: int) -> list[str]:
        await timer(0.01)
        await await_condition(lambda: len(self.heard) == 2 * count)
        return self.heard[:count]


async def test_what_came_in_one_load_is_written_in_parts_when_it_is_large(
    client: Client, sql: asyncpg.Connection[Any]
) -> None:
    settings = dataclasses.replace(QUICK, limits=Limits(step_bytes=8 * 5_000))
    reserved = await client.reserve(Echoing.options(id="loud"))
    for n in range(10):
        await reserved.instance.signal("say", f"{n:02}" + "x" * 1_000)
    instance = await reserved.start(20)  # its start comes last and is applied first
    for n in range(10, 20):
        await instance.signal("say", f"{n:02}" + "x" * 1_000)
    await eventually(lambda: sql.fetchval("select aioflow.clock() > started_at + interval '0.1 s' from aioflow.run"))
    async with worker(client, Echoing, echo, settings=settings):
        assert await instance.result(timeout=20) == [f"{n:02}" for n in range(20)]
    sizes = await sql.fetch(
        "select sum(octet_length(payload)) as size from aioflow.history"
        " where kind in ('SignalReceived', 'ActivityScheduled') group by commit"
    )
    assert sum(row["size"] > 1_000 for row in sizes) > 3
    assert await sql.fetchval("select count(*) from aioflow.history where kind = 'ActivityScheduled'") == 20


class Growing(Workflow):
    async def handle(self) -> None:
        for _ in range(6):
            await timer(0.001)


@pytest.mark.parametrize("cached", [1_000, 1])
async def test_a_history_that_grows_long_is_told_once(client: Client, cached: int) -> None:
    for soft in (1, 5, 6, 100):
        settings = dataclasses.replace(QUICK, cached_runs=cached, limits=Limits(history_soft=soft))
        with capture_logs() as logs:
            async with worker(client, Growing, settings=settings):
                await (await client.start(Growing)).result(timeout=20)
        told = [one["events"] for one in logs if one["event"] == "history_long"]
        assert len(told) == (soft < 100)
        assert all(soft < events <= soft + 2 for events in told)


class Busy(Workflow):
    async def handle(self) -> str:
        while not released.is_set():
            pass
        return "free"


class Quiet(Workflow):
    async def handle(self) -> int:
        return workflow_info().number


released = asyncio.Event()


async def test_a_workflow_that_blocks_is_set_aside_and_named(client: Client, sql: asyncpg.Connection[Any]) -> None:
    settings = dataclasses.replace(QUICK, step_limit=0.2, abandoned_threads=50)
    released.clear()
    try:
        async with worker(client, Busy, Quiet, settings=settings):
            busy = await client.start(Busy)
            others = [await client.start(Quiet) for _ in range(5)]
            assert [await one.result() for one in others] == [1] * 5
            reason = await eventually(lambda: sql.fetchval("select blocked_reason from aioflow.instance_hot"))
            assert "test_workflow_tasks.py:" in reason
            assert "Busy.handle" in reason
            released.set()
            assert await busy.result() == "free"
    finally:
        released.set()


async def test_a_workflow_that_always_blocks_is_quarantined(client: Client, sql: asyncpg.Connection[Any]) -> None:
    settings = dataclasses.replace(QUICK, step_limit=0.1, abandoned_threads=50, quarantine_after=3)
    released.clear()
    try:
        async with worker(client, Busy, Quiet, settings=settings):
            busy = await client.start(Busy)
            await eventually(lambda: sql.fetchval("select isolation = 2 from aioflow.instance_hot"))
            told = await busy.describe()
            assert told.quarantined
            assert "Busy.handle" in (told.blocked_reason or "")
            assert await (await client.start(Quiet)).result() == 1
            released.set()
            await client.release(busy.id)
            assert await busy.result() == "free"
    finally:
        released.set()


async def test_a_worker_that_lost_too_many_threads_gives_up(client: Client) -> None:
    settings = dataclasses.replace(QUICK, step_limit=0.1, abandoned_threads=1)
    released.clear()
    try:
        await client.start(Busy)
        with pytest.raises(WorkerExhausted):
            async with worker(client, Busy, settings=settings):
                await asyncio.Event().wait()
    finally:
        released.set()


async def test_an_error_of_ours_fails_the_task_not_the_run(
    client: Client, sql: asyncpg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from aioflow.worker import workflow_task

    def broken(*_: object) -> None:
        raise RuntimeError("a bug")

    with monkeypatch.context() as patch:
        patch.setattr(workflow_task, "_commit", broken)
        async with worker(client, Quiet):
            instance = await client.start(Quiet)
            reason = await eventually(lambda: sql.fetchval("select blocked_reason from aioflow.instance_hot"))
    assert reason == "RuntimeError: a bug"
    async with worker(client, Quiet):
        assert await instance.result() == 1


class Unspeakable(Workflow, blocking=(ValueError,)):
    async def handle(self) -> str:
        raise ValueError("a \x00 and a \ud800")


async def test_a_reason_that_the_database_would_not_take_is_told_all_the_same(
    client: Client, sql: asyncpg.Connection[Any]
) -> None:
    async with worker(client, Unspeakable):
        await client.start(Unspeakable)
        reason = await eventually(lambda: sql.fetchval("select blocked_reason from aioflow.instance_hot"))
    assert reason == r"ValueError: a \x00 and a \ud800"


async def test_runs_are_given_back_also_when_the_release_is_refused(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = 0
    release = Tasks.release_runs

    async def refuse_once(*args: Any) -> Any:
        nonlocal refused
        refused += 1
        if refused == 1:
            raise StoreError("refused")
        return await release(*args)

    monkeypatch.setattr(Tasks, "release_runs", refuse_once)
    instance = await client.start(Blocking)
    others = [await client.start(Quiet) for _ in range(3)]
    async with worker(client, Blocking, Quiet):  # all in one claim, so by one token
        await eventually(lambda: refused > 1)
        assert [await one.result() for one in others] == [1] * 3
        monkeypatch.setattr(Blocking, "broken", False)
        assert await instance.result() == "ok"
