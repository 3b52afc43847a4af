"""Starts: ids, policies, request keys, races, and everything that is refused with nothing stored."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import pytest

from aioflow import Workflow
from aioflow.client import Client, JsonArguments, named
from aioflow.errors import (
    ArgumentError,
    DefinitionError,
    EncodeError,
    InstanceAlreadyExists,
    InvalidInstanceId,
    PayloadTooLarge,
    RequestConflict,
    UnknownNamespace,
    UnknownWorkflow,
)
from tests.client.flows import Double, Failing, Order, Orders, Receipt, Sleeping
from tests.support_runs import Runs

anything: Any = None


async def count(sql: asyncpg.Connection) -> int:
    total = 0
    for table in ("instance", "instance_hot", "run", "inbox", "request"):
        total += await sql.fetchval(" ".join(("select count(*) from", f"aioflow.{table}")))
    return total


async def test_a_start_runs_and_gives_a_typed_result(client: Client, serving: Runs) -> None:
    instance = await client.start(Double, 21)
    assert await instance.result() == 42
    assert len(instance.id) == 36
    assert instance.run_id is not None


async def test_a_class_no_worker_has_seen_is_accepted_and_visible_as_unserved(client: Client) -> None:
    instance = await client.start(Sleeping)
    found = await instance.describe()
    assert (found.queue, found.status, found.served) == ("nobody", "running", False)
    assert found.waiting_for == "a worker: none serves queue 'nobody'"


async def test_options_choose_id_and_queue(client: Client) -> None:
    instance = await client.start(Double.options(id="a/ü 1", queue="other"), 1)
    assert (instance.id, (await instance.describe()).queue) == ("a/ü 1", "other")


async def test_a_name_is_taken_when_a_worker_has_told_of_it(client: Client, serving: Runs) -> None:
    assert await (await client.start("Double", 4)).result() == 8
    instance = await client.start(named("Orders", id="x"), {"id": "o", "amount": 2})
    await client.signal("x", "approve", by="ann")
    assert await instance.result() == {"order": "o", "total": 2}


async def test_a_name_is_taken_when_the_client_has_its_class(database: str, serving: Runs) -> None:
    async with Client.connect(database, workflows=[Double]) as client:
        with pytest.raises(ArgumentError):
            await client.start("Double", "4")
        assert await (await client.start("Double", 4)).result() == 8


async def test_arguments_may_be_json(client: Client, serving: Runs) -> None:
    text = JsonArguments('{"order": {"id": "o"}}')
    start: Any = client.start
    instance = await start(Orders, text)
    await instance.signal("approve", JsonArguments('["ann"]'))
    assert await instance.result() == Receipt("o", 1)
    assert await (await client.start("Double", JsonArguments("8"))).result() == 16


# -- policies -------------------------------------------------------------------------------------


async def test_an_open_id_is_refused_used_or_taken_over(client: Client, serving: Runs) -> None:
    first = await client.start(Orders.options(id="a"), Order("1"))
    with pytest.raises(InstanceAlreadyExists, match="'a' is open") as refused:
        await client.start(Orders.options(id="a"), Order("2"))
    assert refused.value.run_id == first.run_id
    same = await client.start(Orders.options(id="a", conflict="use_existing"), Order("3"))
    assert same.run_id == first.run_id
    other = await client.start(Orders.options(id="a", conflict="terminate_existing"), Order("4"))
    assert other.run_id != first.run_id
    await client.signal("a", Orders.approve, "ann")
    assert await other.result() == Receipt("4", 1)
    assert await client.instance("a", Orders).result() == Receipt("4", 1)
    with pytest.raises(Exception, match="terminated"):
        await first.result()


async def test_a_closed_id_is_reused_as_the_policy_says(client: Client, serving: Runs) -> None:
    first = await client.start(Double.options(id="ok"), 1)
    await first.result()
    for reuse in ("reject", "allow_failed_only"):
        with pytest.raises(InstanceAlreadyExists, match="used before"):
            await client.start(Double.options(id="ok", reuse=anything or reuse), 2)
    again = await client.start(Double.options(id="ok"), 3)
    assert (await again.result(), await first.result()) == (6, 2)
    failed = await client.start(Failing.options(id="bad"), "x")
    with pytest.raises(Exception, match="did not work"):
        await failed.result()
    assert await (await client.start(Double.options(id="bad", reuse="allow_failed_only"), 4)).result() == 8


async def test_twenty_starts_of_one_id_have_one_winner(client: Client, serving: Runs) -> None:
    async def attempt(n: int) -> int | None:
        try:
            return await (await client.start(Double.options(id="one", reuse="reject"), n)).result()
        except InstanceAlreadyExists:
            return None

    outcomes = await asyncio.gather(*(attempt(n) for n in range(20)))
    winners = [n for n, outcome in enumerate(outcomes) if outcome is not None]
    assert len(winners) == 1
    assert outcomes[winners[0]] == 2 * winners[0]


async def test_many_starts_with_generated_ids_share_transactions(client: Client, sql: asyncpg.Connection) -> None:
    instances = await asyncio.gather(*(client.start(Double, n) for n in range(200)))
    assert len({one.id for one in instances}) == 200
    assert await sql.fetchval("select count(distinct xmin::text) from aioflow.instance") < 100


# -- request keys ---------------------------------------------------------------------------------


async def test_a_request_key_makes_a_start_idempotent(client: Client, serving: Runs) -> None:
    keyed = Double.options(id="k", request_key="r1")
    first = await client.start(keyed, 5)
    assert await first.result() == 10
    again = await client.start(keyed, 5)
    assert (again.run_id, await again.result()) == (first.run_id, 10)
    with pytest.raises(RequestConflict):
        await client.start(keyed, 6)
    with pytest.raises(ArgumentError, match="together with an id"):
        await client.start(Double.options(request_key="r2"), 5)


async def test_concurrent_starts_with_one_key_are_one_run(client: Client) -> None:
    keyed = Double.options(id="k", request_key="r1")
    instances = await asyncio.gather(*(client.start(keyed, 5) for _ in range(10)))
    assert len({one.run_id for one in instances}) == 1


# -- lost answers ---------------------------------------------------------------------------------


@pytest.mark.parametrize("point", ["start.before_send", "start.after_send"])
@pytest.mark.parametrize("chosen", [None, "mine"])
async def test_a_lost_answer_starts_once(
    client: Client, serving: Runs, sql: asyncpg.Connection, faults: list[str], point: str, chosen: str | None
) -> None:
    faults.append(point)
    instance = await client.start(Double.options(id=chosen), 3)
    assert not faults
    assert await instance.result() == 6
    assert await sql.fetchval("select count(*) from aioflow.run") == 1


@pytest.mark.parametrize("point", ["reserve.before_send", "reserve.after_send"])
async def test_a_lost_answer_reserves_once(client: Client, faults: list[str], point: str) -> None:
    faults.append(point)
    reserved = await client.reserve(Double.options(id="r"))
    assert (reserved.id, faults) == ("r", [])


# -- reserve --------------------------------------------------------------------------------------


async def test_a_reserved_id_takes_signals_and_starts_later(client: Client, serving: Runs) -> None:
    later = await client.reserve(Orders.options(id="later"))
    found = await later.instance.describe()
    assert (found.status, found.run_id, found.waiting_for) == ("reserved", None, "its start")
    with pytest.raises(InstanceAlreadyExists, match="reserved"):
        await client.reserve(Orders.options(id="later"))
    await client.signal("later", Orders.note, "early")
    waiting = asyncio.create_task(later.instance.result())
    instance = await later.start(Order("o", 7))
    await instance.signal(Orders.approve, "ann")
    assert await instance.result() == Receipt("o", 7)
    assert await waiting == Receipt("o", 7)
    assert await instance.query(Orders.last, 5) == ["early"]
    with pytest.raises(InstanceAlreadyExists):
        await later.start(Order("o", 8))


async def test_a_terminated_reservation_cannot_be_started(client: Client) -> None:
    later = await client.reserve(Double.options(id="later"))
    await client.terminate("later", "not wanted")
    with pytest.raises(InstanceAlreadyExists):
        await later.start(1)


# -- refusals -------------------------------------------------------------------------------------


async def test_wrong_arguments_are_refused_with_nothing_stored(client: Client, sql: asyncpg.Connection) -> None:
    start = anything or client.start
    loose: Any = start
    for args in ((), ("21",), (1, 2), (1.5,), (None,)):
        with pytest.raises(ArgumentError, match="Double"):
            await loose(Double, *args)
    with pytest.raises(ArgumentError, match="extra"):
        await loose(Double, 1, extra=2)
    with pytest.raises(ArgumentError, match="order"):
        await loose(Orders, {"id": "o"})
    for wrong in (7, Double(), lambda: None):
        with pytest.raises(ArgumentError, match="class"):
            await loose(wrong, 1)
    assert await count(sql) == 0


@pytest.mark.parametrize("bad", ["", "x" * 256, "a\x00b", "\ud800", 7])
async def test_bad_ids_are_refused(client: Client, sql: asyncpg.Connection, bad: Any) -> None:
    with pytest.raises(InvalidInstanceId):
        await client.start(Double.options(id=bad), 1)
    with pytest.raises(InvalidInstanceId):
        await client.start(named("Double", id=bad), 1)
    for call in (client.describe, client.history, client.cancel, client.terminate):
        with pytest.raises(InvalidInstanceId):
            await call(bad)
    with pytest.raises(InvalidInstanceId):
        await client.signal(bad, Orders.approve, "x")
    assert await count(sql) == 0


async def test_unknown_names_are_refused(client: Client, serving: Runs, sql: asyncpg.Connection) -> None:
    with pytest.raises(UnknownWorkflow, match="known: Double, Failing"):
        await client.start("Nothing", 1)
    with pytest.raises(UnknownWorkflow):
        await client.reserve("Nothing")
    assert await count(sql) == 0


async def test_a_name_becomes_known_when_a_worker_tells_of_it(client: Client, runs: Runs) -> None:
    with pytest.raises(UnknownWorkflow):
        await client.start("Sleeping")
    await Runs(runs.store, Sleeping, queues=("nobody",)).register()
    assert (await (await client.start("Sleeping")).describe()).queue == "nobody"


async def test_classes_that_are_no_workflows_are_refused(client: Client) -> None:
    start: Any = client.start

    class Plain:
        async def handle(self) -> None: ...

    for wrong in (Plain, int, Workflow):
        with pytest.raises(DefinitionError):
            await start(wrong)
    with pytest.raises(DefinitionError, match="async def"):
        type("Sync", (Workflow,), {"handle": lambda self: None})

    async def generating(self: Any) -> Any:
        yield 1

    with pytest.raises(DefinitionError, match="async generator"):
        type("Generating", (Workflow,), {"handle": generating})


async def test_values_that_cannot_be_stored_are_refused(
    client: Client, serving: Runs, database: str, sql: asyncpg.Connection
) -> None:
    with pytest.raises(EncodeError):
        await client.start("Double", object())
    async with Client.connect(database, payload_limit=100) as small:
        with pytest.raises(PayloadTooLarge):
            await small.start(Failing, "x" * 100)
    assert await count(sql) == 0


async def test_an_unknown_namespace_is_refused(database: str) -> None:
    async with Client.connect(database, namespace="nowhere") as client:
        with pytest.raises(UnknownNamespace, match="nowhere"):
            await client.start(Double, 1)
        with pytest.raises(UnknownNamespace):
            await client.start(Double.options(id="a"), 1)
        with pytest.raises(UnknownNamespace):
            await client.reserve(Double)
        with pytest.raises(UnknownNamespace):
            await client.signal("a", Orders.approve, "x")
