"""Queries: answered from open and closed runs by replay in this process, without writing or running anything."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import asyncpg
import pytest

from aioflow import Workflow, query, side_effect, signal
from aioflow.client import Client
from aioflow.errors import (
    ArgumentError,
    InstanceNotFound,
    NondeterminismError,
    QueryFailed,
    UnknownQuery,
    UnknownWorkflow,
)
from tests.client.flows import Double, Order, Orders, Sleeping
from tests.support_runs import Runs

CALLS: list[str] = []


def called() -> int:
    CALLS.append("called")
    return 1


class Base(Workflow):
    @query
    def kind(self) -> str:
        return type(self).__name__


class Effects(Base):
    def __init__(self) -> None:
        self.seen = 0

    @signal
    def poke(self) -> None:
        self.seen += 1

    @query
    def thread(self) -> tuple[int, str]:
        return self.seen, threading.current_thread().name

    @query
    def hang(self) -> None:
        end = time.monotonic() + 0.5
        while time.monotonic() < end:
            pass

    @query
    def leave(self, how: str) -> None:
        raise {"exit": SystemExit(3), "interrupt": KeyboardInterrupt()}[how]

    async def handle(self) -> str:
        await side_effect(called)
        await asyncio.sleep(3600)
        return "x"


async def rows(sql: asyncpg.Connection) -> list[Any]:
    found = []
    for table in ("instance_hot", "instance", "run", "inbox", "history", "activity", "timer", "request"):
        found += await sql.fetch(" ".join(("select", "t::text, xmin::text from", f"aioflow.{table} t")))
    return sorted(map(tuple, found))


async def test_open_and_closed_runs_answer(client: Client, runs: Runs) -> None:
    instance = await client.start(Orders, Order("o"))
    await runs.settle()
    assert await instance.query(Orders.state) is None
    await instance.signal(Orders.approve, "ann")
    await runs.settle()
    assert (await instance.describe()).status == "completed"
    assert await instance.query(Orders.state) == "ann"
    assert await client.query(instance.id, "state") == "ann"
    assert await client.query(instance.id, Orders.last, count=3) == []


async def test_a_query_sees_what_its_caller_sent_before(client: Client, serving: Runs) -> None:
    instance = await client.start(Orders, Order("o"))
    for n in range(10):
        await instance.signal(Orders.note, f"{n}")
        assert await instance.query(Orders.last, 1) == [f"{n}"]


async def test_a_query_writes_nothing_and_runs_off_the_loop(
    client: Client, store: Any, sql: asyncpg.Connection
) -> None:
    runs = await Runs(store, Effects).register()
    instance = await client.start(Effects)
    await instance.signal(Effects.poke)
    await runs.settle()
    CALLS.clear()
    before = await rows(sql)
    seen, thread = await instance.query(Effects.thread)
    assert seen == 1
    assert thread != threading.current_thread().name
    assert CALLS == []
    assert await rows(sql) == before


async def test_a_query_that_takes_too_long_is_given_up(client: Client, store: Any) -> None:
    runs = await Runs(store, Effects).register()
    instance = await client.start(Effects)
    await runs.settle()
    with pytest.raises(QueryFailed, match=r"within 0\.05 s"):
        await instance.query(Effects.hang.options(timeout=0.05))
    assert (await instance.query(Effects.thread))[0] == 0


@pytest.mark.parametrize("how", ["exit", "interrupt"])
async def test_a_query_does_not_end_the_process_that_asks(client: Client, store: Any, how: str) -> None:
    runs = await Runs(store, Effects).register()
    await client.start(Effects.options(id="a"))
    await runs.settle()
    with pytest.raises(QueryFailed, match=r"leave of Effects raised"):
        await client.query("a", Effects.leave, how)


async def test_a_run_that_lags_answers_stale(client: Client, runs: Runs) -> None:
    client._session.queries._catch_up = 0.05
    instance = await client.start(Orders, Order("o"))
    await runs.settle()
    await instance.signal(Orders.note, "unseen")
    assert await instance.query(Orders.last, 1) == []


async def test_what_has_not_run_has_no_answer(client: Client) -> None:
    client._session.queries._catch_up = 0.05
    instance = await client.start(Sleeping)
    with pytest.raises(UnknownQuery):
        await instance.query("anything")
    other = await client.start(Orders, Order("o"))
    with pytest.raises(QueryFailed, match="not run yet"):
        await other.query(Orders.state)
    reserved = await client.reserve(Orders)
    with pytest.raises(QueryFailed, match="reserved"):
        await reserved.instance.query(Orders.state)
    await other.terminate()
    with pytest.raises(QueryFailed, match="not run yet"):
        await other.query(Orders.state)


async def test_a_run_closed_from_outside_answers_from_what_its_code_saw(client: Client, runs: Runs) -> None:
    instance = await client.start(Orders, Order("o"))
    await instance.signal(Orders.note, "seen")
    await runs.settle()
    await instance.signal(Orders.approve, "ann")  # would schedule an activity
    await instance.terminate()
    assert await instance.query(Orders.last, 5) == ["seen"]
    assert await instance.query(Orders.state) is None


async def test_refusals(client: Client, runs: Runs) -> None:
    instance = await client.start(Orders.options(id="a"), Order("o"))
    await runs.settle()
    loose: Any = client.query
    for asked in ("stat", "approve"):
        with pytest.raises(UnknownQuery, match="it has: broken, last, sneaky, state"):
            await instance.query(asked)
        with pytest.raises(UnknownQuery):
            await client.query("a", asked)
    for wrong in ((), ("x",), (1, 2)):
        with pytest.raises(ArgumentError, match="last"):
            await loose("a", Orders.last, *wrong)
        with pytest.raises(ArgumentError, match="last"):
            await loose("a", "last", *wrong)
    with pytest.raises(ArgumentError, match=r"Class\.method"):
        await loose("a", Orders.approve, "x")
    with pytest.raises(InstanceNotFound):
        await client.query("nobody", Orders.state)
    with pytest.raises(QueryFailed, match="ZeroDivisionError") as failed:
        await instance.query(Orders.broken)
    assert isinstance(failed.value.__cause__, ZeroDivisionError)
    with pytest.raises(QueryFailed):
        await instance.query(Orders.sneaky)


async def test_the_code_has_to_be_here(database: str, client: Client, runs: Runs) -> None:
    await client.start(Orders.options(id="a"), Order("o"))
    await runs.settle()
    async with Client.connect(database) as bare:
        with pytest.raises(UnknownWorkflow, match=r"workflows=\[TheClass\]"):
            await bare.query("a", "state")
        with pytest.raises(UnknownQuery):
            await bare.instance("a", Double).query(Orders.state)
        with pytest.raises(UnknownWorkflow):
            await bare.instance("a", Effects).query(Effects.kind)
        assert await bare.instance("a", Orders).query("state") is None
    async with Client.connect(database, workflows=[Orders]) as knowing:
        assert await knowing.query("a", "state") is None
    async with Client.connect(database) as bare:
        assert await bare.query("a", Orders.state) is None


async def test_a_query_of_a_base_class_is_asked_of_the_class_that_runs(
    database: str, client: Client, store: Any
) -> None:
    runs = await Runs(store, Effects).register()
    await client.start(Effects.options(id="e"))
    await runs.settle()
    assert await client.query("e", Base.kind) == "Effects"
    async with Client.connect(database) as bare:
        with pytest.raises(UnknownWorkflow):
            await bare.query("e", Base.kind)


async def test_code_that_does_not_fit_is_said_so(database: str, client: Client, runs: Runs) -> None:
    class Changed(Workflow, name="Orders"):
        @query
        def state(self) -> str | None:
            return "changed"

        async def handle(self, order: Order) -> int:
            await asyncio.sleep(order.amount)
            return 1

    instance = await client.start(Orders.options(id="a"), Order("o"))
    await runs.settle()
    async with Client.connect(database) as other:
        with pytest.raises(NondeterminismError):
            await other.query("a", Changed.state)
    assert await instance.query(Orders.state) is None


async def test_twenty_queries_at_once(client: Client, runs: Runs) -> None:
    instance = await client.start(Orders, Order("o"))
    await runs.settle()
    assert await asyncio.gather(*(instance.query(Orders.last, n) for n in range(20))) == [[]] * 20
