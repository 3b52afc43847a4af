"""Signals, cancellation, termination: delivered once or refused with nothing stored."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import asyncpg
import pytest
from structlog.testing import capture_logs

from aioflow import Workflow
from aioflow import signal as decorate
from aioflow.client import Client
from aioflow.core.events import CancelRequested
from aioflow.errors import (
    ArgumentError,
    EncodeError,
    InstanceClosed,
    InstanceClosing,
    InstanceFull,
    InstanceNotFound,
    RequestConflict,
    UnknownSignal,
    UnknownWorkflow,
    WorkflowCancelled,
    WorkflowTerminated,
)
from tests.client.flows import Double, Mailbox, Order, Orders, Patient, Receipt, Sleeping
from tests.support_runs import Runs


async def inbox(sql: asyncpg.Connection) -> int:
    return int(await sql.fetchval("select count(*) from aioflow.inbox where kind <> 'RunStarted'"))


async def test_signals_arrive_in_order_once(client: Client, runs: Runs) -> None:
    instance = await client.start(Orders, Order("o"))
    for n in range(20):
        await instance.signal(Orders.note, f"{n}")
    await runs.settle()
    assert await instance.query(Orders.last, 100) == [f"{n}" for n in range(20)]


async def test_concurrent_signals_share_statements_and_keep_their_order(
    client: Client, runs: Runs, sql: asyncpg.Connection
) -> None:
    instances = [await client.start(Orders, Order(f"{n}")) for n in range(5)]
    calls = [one.signal(Orders.note, f"{n}") for n in range(40) for one in instances]
    await asyncio.gather(*calls)
    assert await sql.fetchval("select count(distinct xmin::text) from aioflow.inbox") < 60
    await runs.settle()
    for one in instances:
        assert await one.query(Orders.last, 100) == [f"{n}" for n in range(40)]


@pytest.mark.parametrize("point", ["signal.before_send", "signal.after_send"])
async def test_a_lost_answer_delivers_once(
    client: Client, sql: asyncpg.Connection, faults: list[str], point: str
) -> None:
    await client.start(Orders.options(id="a"), Order("o"))
    faults.append(point)
    await client.signal("a", Orders.note, "x")
    assert (await inbox(sql), faults) == (1, [])


async def test_a_key_of_the_caller_is_one_signal(client: Client, sql: asyncpg.Connection) -> None:
    instance = await client.start(Orders.options(id="a"), Order("o"))
    keyed = Orders.note.options(key="k")
    await asyncio.gather(*(client.signal("a", keyed, "x") for _ in range(5)))
    with capture_logs() as logs:
        await instance.signal(keyed, "x")
    assert [(one["event"], one["instance_id"]) for one in logs] == [("request_repeated", "a")]
    assert await inbox(sql) == 1
    with pytest.raises(RequestConflict):
        await instance.signal(keyed, "y")
    await instance.signal(Orders.note.options(key="other"), "y")
    assert await inbox(sql) == 2


async def test_a_name_is_checked_against_what_workers_told(
    database: str, client: Client, serving: Runs, sql: asyncpg.Connection
) -> None:
    instance = await client.start(Orders.options(id="a"), Order("o", 2))
    async with Client.connect(database) as other:
        with pytest.raises(UnknownSignal, match="it has: approve, note"):
            await other.signal("a", "aprove", "ann")
        await other.signal("a", "note", "x", loud=True)
        await other.signal("a", "approve", "ann")
        assert await other.instance("a").result() == {"order": "o", "total": 2}
    assert await instance.query(Orders.last, 1) == ["X"]
    assert await inbox(sql) == 0


async def test_a_name_is_checked_against_the_class(client: Client, runs: Runs, sql: asyncpg.Connection) -> None:
    instance = await client.start(Orders.options(id="a"), Order("o"))
    with pytest.raises(UnknownSignal):
        await instance.signal("aprove", "ann")
    for wrong in ((), (1,), ("a", "b")):
        with pytest.raises(ArgumentError, match="approve"):
            await instance.signal("approve", *wrong)
    assert await inbox(sql) == 0


async def test_wrong_arguments_and_handlers_are_refused(client: Client, sql: asyncpg.Connection) -> None:
    instance = await client.start(Orders.options(id="a"), Order("o"))
    loose: Any = client.signal
    for wrong in ((), (1,), ("a", "b")):
        with pytest.raises(ArgumentError, match="approve"):
            await loose("a", Orders.approve, *wrong)
    with pytest.raises(ArgumentError, match=r"Class\.method"):
        await loose("a", Orders.state)
    with pytest.raises(ArgumentError, match=r"Class\.method"):
        await loose("a", 7)
    with pytest.raises(UnknownSignal):
        await instance.signal(Other.ping)
    with pytest.raises(UnknownSignal):
        await client.signal("a", Other.ping)
    assert await inbox(sql) == 0


class Other(Workflow):
    @decorate
    def ping(self) -> None: ...

    async def handle(self) -> None: ...


async def test_signals_nobody_declared_reach_a_workflow_that_awaits_them(
    database: str, client: Client, serving: Runs
) -> None:
    instance = await client.start(Mailbox.options(id="m"))
    await instance.signal("second", {"b": 1})
    async with Client.connect(database) as other:
        await other.signal("m", "first", 1, "x")
        with pytest.raises(ArgumentError, match="no names"):
            await other.signal("m", "third", a=1)
        with pytest.raises(EncodeError):
            await other.signal("m", "third", object())
    assert await instance.result() == [[1, "x"], {"b": 1}]


async def test_a_bare_name_to_a_workflow_nobody_told_of_is_refused(database: str, client: Client) -> None:
    await client.start(Sleeping.options(id="s"))
    async with Client.connect(database) as other:
        with pytest.raises(UnknownWorkflow, match="Sleeping"):
            await other.signal("s", "x")


async def test_closed_and_unknown_instances_take_nothing(client: Client, serving: Runs) -> None:
    instance = await client.start(Double.options(id="d"), 1)
    await instance.result()
    for call in (client.cancel("d"), client.terminate("d"), client.signal("d", Orders.approve.options(key="k"), "x")):
        with pytest.raises((InstanceClosed, UnknownSignal)):
            await call
    assert not [one async for one in client.list(status="running")]
    for name in ("approve", Orders.approve):
        with pytest.raises(InstanceNotFound, match="'nobody'"):
            await client.signal("nobody", name, "x")
    for other in (client.cancel("nobody"), client.terminate("nobody")):
        with pytest.raises(InstanceNotFound):
            await other


async def test_a_closed_instance_refuses_signals(database: str, client: Client, serving: Runs) -> None:
    instance = await client.start(Orders.options(id="a"), Order("o"))
    await instance.signal(Orders.approve, "ann")
    await instance.result()
    with pytest.raises(InstanceClosed):
        await instance.signal(Orders.note, "late")
    with pytest.raises(InstanceClosed):
        await client.signal("a", "note", "late")


async def test_an_instance_about_to_close_is_asked_again(
    client: Client, sql: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    from aioflow.client import sending

    instance = await client.start(Orders.options(id="a"), Order("o"))
    await sql.execute("update aioflow.instance_hot set sealed = true")
    sent = asyncio.create_task(instance.signal(Orders.note, "x"))
    await asyncio.sleep(0.03)
    assert not sent.done()
    await sql.execute("update aioflow.instance_hot set sealed = false")
    await sent
    assert await inbox(sql) == 1
    await sql.execute("update aioflow.instance_hot set sealed = true")
    monkeypatch.setattr(sending, "CLOSING_PATIENCE", 0.05)
    with pytest.raises(InstanceClosing):
        await instance.signal(Orders.note, "y")
    assert await inbox(sql) == 1


async def test_a_flood_of_signals_is_refused_with_a_typed_error(client: Client, sql: asyncpg.Connection) -> None:
    instance = await client.start(Orders.options(id="a"), Order("o"))
    await sql.execute(
        "insert into aioflow.inbox (shard, namespace, instance_id, gen, idx, kind, version, accepted_at)"
        " select h.shard, h.namespace, h.instance_id, h.wake_gen + n, 0, 'SignalReceived', 1, aioflow.clock()"
        " from aioflow.instance_hot h, generate_series(1, 10000) n"
    )
    await sql.execute("update aioflow.instance_hot set wake_gen = wake_gen + 10000")
    with pytest.raises(InstanceFull, match="try again when its run has taken some"):
        await instance.signal(Orders.note, "x")
    assert await inbox(sql) == 10_000
    await instance.cancel()
    await instance.terminate()


# -- cancel and terminate -------------------------------------------------------------------------


async def test_a_cancelled_run_cleans_up_and_says_so(client: Client, runs: Runs) -> None:
    instance = await client.start(Patient.options(id="p"))
    await asyncio.gather(*(client.cancel("p", "enough") for _ in range(3)))
    await runs.settle()
    with pytest.raises(WorkflowCancelled, match="enough") as ended:
        await instance.result(timeout=20)
    assert (ended.value.instance_id, ended.value.run_id) == ("p", instance.run_id)
    kinds = [one.kind for one in await instance.history()]
    assert kinds.count("CancelRequested") == 1
    assert kinds[-4:] == ["TimerCancelled", "ActivityScheduled", "ActivityCompleted", "RunCancelled"]


async def test_a_grace_is_kept_for_maintenance(client: Client, runs: Runs) -> None:
    instance = await client.start(Patient)
    await instance.cancel(grace=0)
    (due,) = await runs.store.due_closes(10)
    assert (due.kind, due.run_id) == ("cancel_grace", instance.run_id)
    with pytest.raises(ValueError, match="grace"):
        await instance.cancel(grace=-1)


@pytest.mark.parametrize("reason", ["enough", 'enough "\x00", "grace": 5, \\'])
async def test_a_run_that_was_cancelled_while_reserved_has_its_grace(client: Client, runs: Runs, reason: str) -> None:
    reserved = await client.reserve(Patient.options(id="p"))
    await reserved.instance.cancel(reason, grace=timedelta(hours=1))
    instance = await reserved.start()
    assert await runs.store.due_closes(10) == []
    await runs.settle()
    with pytest.raises(WorkflowCancelled, match="enough"):
        await instance.result(timeout=20)
    (asked,) = [one.event for one in await instance.history() if isinstance(one.event, CancelRequested)]
    assert (asked.grace, asked.reason) == (3600, reason)


async def test_terminate_closes_at_once(database: str, client: Client, runs: Runs) -> None:
    instance = await client.start(Patient.options(id="p"))
    await runs.settle()
    async with Client.connect(database) as other:
        waiting = asyncio.create_task(other.instance("p").result())
        await instance.terminate("out of money")
        with pytest.raises(WorkflowTerminated, match="out of money"):
            await waiting
    with pytest.raises(WorkflowTerminated):
        await instance.result()
    with pytest.raises(InstanceClosed):
        await instance.terminate()
    assert (await instance.describe()).status == "terminated"


@pytest.mark.parametrize("point", ["terminate", "request_cancel"])
@pytest.mark.parametrize("when", ["before_send", "after_send"])
async def test_a_lost_answer_ends_once(client: Client, faults: list[str], point: str, when: str) -> None:
    instance = await client.start(Patient)
    faults.append(f"{point}.{when}")
    await (instance.terminate() if point == "terminate" else instance.cancel())
    assert not faults


async def test_a_run_of_an_instance_can_be_meant(client: Client, serving: Runs) -> None:
    first = await client.start(Double.options(id="d"), 1)
    await first.result()
    second = await client.start(Orders.options(id="d"), Order("o"))
    old = client.instance("d", Double, run_id=first.run_id)
    assert await old.result() == 2
    assert (await old.describe()).status == "completed"
    assert [one.kind for one in await old.history()] == ["RunStarted", "RunCompleted"]
    with pytest.raises(InstanceClosed):
        await old.terminate()
    assert (await second.describe()).status == "running"
    unknown = client.instance("d", run_id=client._session.ids())
    for call in (unknown.describe, unknown.history, unknown.result, unknown.terminate):
        with pytest.raises(InstanceNotFound):
            await call()


async def test_receipts_are_typed(client: Client, serving: Runs) -> None:
    instance = await client.start(Orders, Order("o", 9))
    await instance.signal(Orders.approve, "ann")
    assert await client.instance(instance.id, Orders).result() == Receipt("o", 9)
