"""Waiting for results: one listener, few queries, lost hints, time limits, ends of every kind."""

from __future__ import annotations

import asyncio
import gc
import weakref
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from aioflow.client import Client
from aioflow.client.results import FACTOR, FIRST, Results
from aioflow.core import events as ev
from aioflow.core.keys import InstanceKey
from aioflow.core.versions import encode
from aioflow.errors import (
    ClientClosed,
    DatabaseUnavailable,
    DecodeError,
    InstanceNotFound,
    ResultTimeout,
    WorkflowFailed,
    WorkflowTimedOut,
)
from aioflow.store import notify
from aioflow.store.rows import InstanceRef, ResultRow, TerminateRequest
from tests.client.flows import Double, Failing, Order, Orders, Patient, Sleeping
from tests.support import eventually
from tests.support_runs import Runs

AT = datetime.fromtimestamp(0, UTC)


def key(name: str = "a") -> InstanceKey:
    return InstanceKey.of("default", name)


class Table:
    """Runs and how they stand, in place of a database; counts queries."""

    def __init__(self) -> None:
        self.rows: dict[UUID | None, ResultRow] = {}
        self.queries: list[int] = []
        self.in_flight = self.most_in_flight = 0
        self.error: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()

    def open(self, number: int) -> UUID:
        run = UUID(int=number)
        self.rows[run] = ResultRow(run, "W", "running", None)
        return run

    def close(self, run: UUID, event: ev.Event | None = None) -> None:
        event = event or ev.RunCompleted(at=AT, payload=b"\x011")
        status = "continued_as_new" if isinstance(event, ev.RunContinuedAsNew) else "completed"
        self.rows[run] = ResultRow(run, "W", status, encode(event))

    async def __call__(self, refs: Any) -> list[ResultRow | None]:
        self.queries.append(len(refs))
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            found = [self.rows.get(one.run_id) for one in refs]
            await self.gate.wait()
            if self.error is not None:
                raise self.error
            return found
        finally:
            self.in_flight -= 1


class NoJitter:
    def uniform(self, low: float, high: float) -> float:
        return 1.0


def made(table: Table, **given: Any) -> Results:
    random: Any = NoJitter()
    return Results(table, hearing=lambda: True, random=random, **given)


async def test_all_who_wait_ask_together() -> None:
    table = Table()
    results = made(table)
    runs = [table.open(n) for n in range(700)]
    waiting = [asyncio.create_task(results.wait(key(), run)) for run in runs]
    await eventually(lambda: sum(table.queries) == 700)
    assert len(table.queries) == 2  # 500 in one
    assert table.most_in_flight == 1
    for run in runs:
        table.close(run)
    results.closed_runs(runs)
    assert [row.run_id for row in await asyncio.gather(*waiting)] == runs
    assert len(table.queries) == 4
    assert len(results) == 0
    await results.close()


async def test_a_lost_hint_is_made_good_by_asking_again() -> None:
    table = Table()
    results = made(table)
    run = table.open(1)
    waiting = asyncio.create_task(results.wait(key(), run))
    await eventually(lambda: table.queries)
    table.close(run)
    assert (await waiting).status == "completed"
    assert len(table.queries) <= 4
    await results.close()


async def test_a_hint_that_comes_while_asking_is_not_lost() -> None:
    table = Table()
    table.gate.clear()
    results = made(table)
    run = table.open(1)
    waiting = asyncio.create_task(results.wait(key(), run))
    await eventually(lambda: table.in_flight)
    results.closed_runs([run])  # while an answer is on its way that still says running
    table.gate.set()
    await eventually(lambda: len(table.queries) == 2)
    (waiter,) = results._waiters
    assert waiter.delay <= FIRST * FACTOR  # backed off once, though asked twice
    table.close(run)
    await waiting
    await results.close()


async def test_a_continued_run_is_followed() -> None:
    table = Table()
    results = made(table)
    first, second = table.open(1), table.open(2)
    table.close(first, ev.RunContinuedAsNew(at=AT, next_run_id=second, payload=b"\x01[]"))
    waiting = asyncio.create_task(results.wait(key(), first))
    await eventually(lambda: len(table.queries) == 2)
    table.close(second)
    results.closed_runs([second])
    assert (await waiting).run_id == second
    await results.close()


async def test_who_does_not_know_its_run_hears_every_hint() -> None:
    table = Table()
    results = made(table)
    table.rows[None] = ResultRow(None, None, "reserved", None)
    waiting = asyncio.create_task(results.wait(key(), None))
    await eventually(lambda: len(table.queries) == 1)
    table.close(UUID(int=5))
    table.rows[None] = table.rows[UUID(int=5)]
    results.closed_runs([UUID(int=9)])
    assert (await waiting).run_id == UUID(int=5)
    await results.close()


async def test_a_cancelled_waiter_leaves_nothing() -> None:
    table = Table()
    results = made(table)
    run = table.open(1)
    waiting = asyncio.create_task(results.wait(key(), run))
    await eventually(lambda: table.queries)
    (waiter,) = results._waiters
    gone = weakref.ref(waiter.future)
    del waiter
    waiting.cancel()
    await asyncio.wait({waiting})
    del waiting
    gc.collect()
    assert (len(results), results._by_run, results._due, gone()) == (0, {}, {}, None)
    await results.close()


async def test_a_database_that_is_away_is_waited_for_and_then_told() -> None:
    table = Table()
    table.error = DatabaseUnavailable("away")
    results = made(table, patience=0.6)
    run = table.open(1)
    with pytest.raises(DatabaseUnavailable):
        await results.wait(key(), run)
    assert len(table.queries) >= 2
    table.error = None
    table.close(run)
    assert (await results.wait(key(), run)).status == "completed"
    table.error = RuntimeError("a bug")
    with pytest.raises(RuntimeError):
        await results.wait(key(), run)
    await results.close()


async def test_what_does_not_exist_is_told_at_once() -> None:
    results = made(Table())
    with pytest.raises(InstanceNotFound, match="'a'"):
        await results.wait(key(), UUID(int=1))
    await results.close()


async def connections(sql: asyncpg.Connection, name: str) -> int:
    return int(
        await sql.fetchval(
            "select count(*) from pg_stat_activity where application_name = $1 and datname = current_database()", name
        )
    )


# -- on a database --------------------------------------------------------------------------------


async def test_two_hundred_waiters_have_one_listener_and_few_queries(
    client: Client, runs: Runs, sql: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    ask = client._session._results._read

    async def counted(refs: Any) -> Any:
        calls.append(len(refs))
        return await ask(refs)

    monkeypatch.setattr(client._session._results, "_read", counted)
    instances = await asyncio.gather(*(client.start(Double, n) for n in range(200)))
    waiting = [asyncio.create_task(one.result()) for one in instances]
    await eventually(lambda: sum(calls) >= 200 and client._session._hearing())
    assert await connections(sql, "aioflow listener") == 1
    assert await connections(sql, "aioflow client") <= 8
    await runs.settle()
    notifier = notify.Notifier(runs.store.db)
    notifier.notify(notify.DONE, [notify.done_run(one.run_id) for one in instances if one.run_id])
    assert await asyncio.gather(*waiting) == [2 * n for n in range(200)]
    await notifier.close()
    assert len(calls) < 60
    assert len(client._session._results) == 0


async def test_a_lost_listener_comes_back(client: Client, runs: Runs, sql: asyncpg.Connection) -> None:
    instance = await client.start(Double, 1)
    waiting = asyncio.create_task(instance.result())
    await eventually(client._session._hearing)
    cut = "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'aioflow listener'"
    await sql.fetch(cut)
    await eventually(lambda: not client._session._hearing())
    await runs.settle()
    assert await waiting == 2
    other = await client.start(Double, 2)
    waiting = asyncio.create_task(other.result())
    await eventually(client._session._hearing)
    await runs.settle()
    assert await waiting == 4


async def test_a_client_over_a_pool_polls(database: str, runs: Runs) -> None:
    async with asyncpg.create_pool(database, min_size=1, max_size=3) as pool:
        async with Client.connect(pool) as client:
            assert (client.dsn, client.listen_dsn) == (None, None)
            instance = await client.start(Double, 3)
            waiting = asyncio.create_task(instance.result())
            await eventually(lambda: len(client._session._results))
            await runs.settle()
            assert await waiting == 6
        assert await pool.fetchval("select 1") == 1


async def test_a_time_limit_leaves_the_run(client: Client, runs: Runs) -> None:
    instance = await client.start(Double, 1)
    with pytest.raises(ResultTimeout) as late:
        await instance.result(timeout=0.01)
    assert isinstance(late.value, TimeoutError)
    with pytest.raises(ResultTimeout):
        await instance.result(0)
    await runs.settle()
    assert await instance.result(timeout=30) == 2
    with pytest.raises(ValueError, match="timeout"):
        await instance.result(timeout=-1)


async def test_no_time_at_all_asks_once(client: Client, runs: Runs) -> None:
    with pytest.raises(InstanceNotFound):
        await client.instance("nobody").result(timeout=0)
    reserved = await client.reserve(Double.options(id="later"))
    with pytest.raises(ResultTimeout, match="still open"):
        await reserved.instance.result(timeout=0)
    instance, failing = await client.start(Double, 1), await client.start(Failing, "k")
    await runs.settle()
    assert await instance.result(timeout=0) == 2
    assert await client.instance(instance.id, Double).result(timedelta(0)) == 2
    with pytest.raises(WorkflowFailed):
        await failing.result(timeout=0)


async def test_a_look_follows_continued_runs() -> None:
    table = Table()
    results = made(table)
    first, second = table.open(1), table.open(2)
    table.close(first, ev.RunContinuedAsNew(at=AT, next_run_id=second, payload=b"\x01[]"))
    assert await results.look(key(), first) is None
    table.close(second)
    found = await results.look(key(), first)
    assert found is not None
    assert found.run_id == second
    await results.close()


async def test_closing_the_client_wakes_who_waits(database: str) -> None:
    client = await Client.open(database)
    instance = await client.start(Sleeping)
    waiting = asyncio.create_task(instance.result())
    await eventually(lambda: len(client._session._results))
    await client.close()
    with pytest.raises(ClientClosed, match="the run goes on"):
        await waiting
    await client.close()


async def test_a_failure_keeps_its_causes(client: Client, serving: Runs) -> None:
    instance = await client.start(Failing, "k")
    with pytest.raises(WorkflowFailed, match="it did not work") as failed:
        await instance.result()
    error = failed.value
    assert (error.type, error.message, error.run_id) == ("ValueError", "it did not work", instance.run_id)
    assert error.cause is not None
    assert error.__cause__ is error.cause
    cause: Any = error.cause.__cause__
    assert (cause.type, cause.message) == ("KeyError", "'k'")


async def test_a_run_that_ran_out_of_time(client: Client, store: Any) -> None:
    instance = await client.start(Patient)
    event = ev.RunTimedOut(at=AT, timeout="execution")
    request = TerminateRequest(
        namespace="default",
        instance_id=instance.id,
        commit=UUID(int=1),
        record=encode(event),
        status="timed_out",
    )
    await store.terminate([request])
    with pytest.raises(WorkflowTimedOut, match="execution"):
        await instance.result()


async def test_results_of_unknown_and_of_untyped_instances(client: Client, serving: Runs) -> None:
    with pytest.raises(InstanceNotFound):
        await client.instance("nobody").result()
    instance = await client.start(Orders.options(id="a"), Order("o"))
    await instance.signal(Orders.approve, "ann")
    assert await client.instance("a").result() == {"order": "o", "total": 1}
    with pytest.raises(DecodeError, match="result of instance"):
        await client.instance("a", Double).result()


async def test_the_wait_survives_lost_answers(client: Client, serving: Runs, faults: list[str]) -> None:
    instance = await client.start(Double, 1)
    faults += ["results.before_send", "results.after_send"]
    assert await instance.result() == 2


def test_refs_have_the_shape_the_store_takes() -> None:
    assert InstanceRef(key(), None).run_id is None
