"""Bad input at the edge: a clear typed error where it is given, and not a row more than before."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from functools import partial
from typing import Any

import asyncpg
import pytest
from pydantic import BaseModel

from aioflow import Workflow, query, signal
from aioflow.client import Client, named
from aioflow.errors import (
    AioflowError,
    ArgumentError,
    ConfigurationError,
    DatabaseUnavailable,
    DefinitionError,
    EncodeError,
    InstanceNotFound,
    InvalidInstanceId,
    PayloadTooLarge,
    SchemaNotMigrated,
    SchemaTooNew,
    UnknownNamespace,
    UnknownQuery,
    UnknownSignal,
    UnknownWorkflow,
)
from aioflow.worker import Worker
from tests.acceptance.conftest import Stored
from tests.conftest import Admin

NOBODY = "postgresql://nobody@127.0.0.1:1/none"
SURROGATE = "\ud800"


class Order(BaseModel):
    id: str
    cents: int


class Shop(Workflow):
    def __init__(self) -> None:
        self.by = ""

    @signal
    def approve(self, by: str, *, times: int = 1) -> None:
        self.by = by * times

    @query
    def approved(self, least: int = 0) -> bool:
        return len(self.by) > least

    async def handle(self, order: Order, count: int = 1) -> int:
        return order.cents * count


class Other(Workflow):
    @signal
    def ping(self) -> None: ...

    @query
    def pinged(self) -> bool:
        return False

    async def handle(self) -> None: ...


ORDER = Order(id="o", cents=5)


@pytest.fixture
async def shop(client: Client) -> Any:
    """An open instance with the id ``shop`` that no worker runs; types are not checked."""
    await client.start(Shop.options(id="shop", queue="nobody"), ORDER)
    return client


async def refused(stored: Stored, kind: type[Exception], call: Callable[[], Any]) -> Exception:
    """The error of a call (when it is made or awaited), which must be of that kind, and leave no trace."""

    async def do() -> None:
        made = call()
        await (anext(made) if isinstance(made, AsyncIterator) else made)

    before = await stored()
    with pytest.raises(kind) as caught:
        await do()
    assert isinstance(caught.value, AioflowError)
    assert str(caught.value)
    assert await stored() == before
    return caught.value


# -- start ----------------------------------------------------------------------------------------

STARTS: dict[str, tuple[type[Exception], tuple[Any, ...], dict[str, Any]]] = {
    "none": (ArgumentError, (), {}),
    "too many": (ArgumentError, (ORDER, 1, 2), {}),
    "unknown name": (ArgumentError, (ORDER,), {"amount": 2}),
    "given twice": (ArgumentError, (ORDER,), {"order": ORDER}),
    "another type": (ArgumentError, ("text",), {}),
    "a dict for a model": (ArgumentError, ({"id": "o", "cents": 5},), {}),
    "text for a number": (ArgumentError, (ORDER, "2"), {}),
    "a bool for a number": (ArgumentError, (ORDER, True), {}),
    "a float for a number": (ArgumentError, (ORDER, 2.0), {}),
    "nothing for a model": (ArgumentError, (None,), {}),
    "another class": (ArgumentError, (Other(),), {}),
    "broken inside": (AioflowError, (Order.model_construct(id=7, cents="x"),), {}),
    "unstorable text": (EncodeError, (Order(id=SURROGATE, cents=1),), {}),
    "too large": (PayloadTooLarge, (Order(id="x" * 3_000_000, cents=1),), {}),
}


async def test_wrong_arguments_of_a_start(client: Client, stored: Stored) -> None:
    loose: Any = client
    for kind, args, kwargs in STARTS.values():
        call = partial(loose.start, Shop.options(id="i"), *args, **kwargs)
        assert "Shop" in str(await refused(stored, kind, call))
    await refused(stored, InstanceNotFound, lambda: client.describe("i"))


async def test_wrong_arguments_of_a_reserved_start(client: Client, stored: Stored) -> None:
    later: Any = await client.reserve(Shop.options(id="i"))
    await refused(stored, ArgumentError, lambda: later.start("text"))
    await refused(stored, ArgumentError, lambda: later.start())
    assert (await client.describe("i")).status == "reserved"


async def test_unknown_workflow_types(client: Client, stored: Stored) -> None:
    loose: Any = client
    for unknown in ("Nothing", named("Nothing", id="x"), "", "a\x00b", SURROGATE):
        await refused(stored, UnknownWorkflow, lambda it=unknown: loose.start(it, 1))
    await refused(stored, UnknownWorkflow, lambda: loose.reserve("Nothing"))
    for wrong in (7, None, Shop(), Shop.handle, lambda: None):
        await refused(stored, ArgumentError, lambda it=wrong: loose.start(it, ORDER))
    for no_workflow in (int, Workflow, Order):
        await refused(stored, DefinitionError, lambda it=no_workflow: loose.start(it, ORDER))


async def test_workflows_that_cannot_run_are_refused_where_they_are_written() -> None:
    with pytest.raises(DefinitionError, match="async def"):

        class Sync(Workflow):
            def handle(self) -> None: ...

    with pytest.raises(DefinitionError, match="async generator"):

        class Generating(Workflow):
            async def handle(self) -> AsyncIterator[int]:
                yield 1

    with pytest.raises(DefinitionError):

        class Open(Workflow):
            async def handle(self, *names: str) -> None: ...

    with pytest.raises(DefinitionError):

        class NeedsMore(Workflow):
            def __init__(self, more: int) -> None: ...

            async def handle(self) -> None: ...

    with pytest.raises(DefinitionError):

        class AsyncQuery(Workflow):
            @query
            async def state(self) -> int:  # type: ignore[misc]  # the point
                return 1

            async def handle(self) -> None: ...


IDS: dict[str, Any] = {
    "empty": "",
    "too long": "x" * 256,
    "with NUL": "a\x00b",
    "lone surrogate": SURROGATE,
    "a number": 7,
    "bytes": b"id",
}


async def test_bad_ids(client: Client, stored: Stored) -> None:
    calls: list[Callable[[Any], Any]] = [
        lambda bad: client.start(Shop.options(id=bad), ORDER),
        lambda bad: client.reserve(Shop.options(id=bad)),
        lambda bad: client.start(named("Shop", id=bad), ORDER),
        lambda bad: client.signal(bad, Shop.approve, "ann"),
        lambda bad: client.query(bad, Shop.approved),
        lambda bad: client.cancel(bad),
        lambda bad: client.terminate(bad),
        lambda bad: client.describe(bad),
        lambda bad: client.history(bad),
        lambda bad: client.instance(bad).result(),
    ]
    for bad in IDS.values():
        for call in calls:
            await refused(stored, InvalidInstanceId, partial(call, bad))


async def test_odd_ids_are_ids(client: Client) -> None:
    for odd in ("x" * 255, "\U0001f600" * 255, " ", "a/b", "a\nb", "%", "_", "'; drop table"):
        await client.start(Shop.options(id=odd), ORDER)
        assert (await client.describe(odd)).instance_id == odd
        assert [one.instance_id async for one in client.list(prefix=odd)] == [odd]


# -- signals and queries --------------------------------------------------------------------------

SIGNALS: dict[str, tuple[type[Exception], Any, tuple[Any, ...], dict[str, Any]]] = {
    "no argument": (ArgumentError, Shop.approve, (), {}),
    "too many": (ArgumentError, Shop.approve, ("ann", 2), {}),
    "another type": (ArgumentError, Shop.approve, (1,), {}),
    "unknown name": (ArgumentError, Shop.approve, ("ann",), {"often": 1}),
    "keyword of another type": (ArgumentError, Shop.approve, ("ann",), {"times": "2"}),
    "by name, another type": (ArgumentError, "approve", (1,), {}),
    "by name, no argument": (ArgumentError, "approve", (), {}),
    "unstorable": (EncodeError, Shop.approve, (SURROGATE,), {}),
    "too large": (PayloadTooLarge, Shop.approve, ("x" * 3_000_000,), {}),
    "unknown": (UnknownSignal, "reject", (), {}),
    "of another workflow": (UnknownSignal, Other.ping, (), {}),
    "name of another workflow's": (UnknownSignal, "ping", (), {}),
    "empty name": (UnknownSignal, "", (), {}),
    "name with NUL": (UnknownSignal, "a\x00b", (), {}),
    "a query": (ArgumentError, Shop.approved, (), {}),
    "a number": (ArgumentError, 7, (), {}),
    "a function": (ArgumentError, lambda self, by: None, ("ann",), {}),
}


async def test_wrong_signals(shop: Any, stored: Stored) -> None:
    for kind, wanted, args, kwargs in SIGNALS.values():
        await refused(stored, kind, partial(shop.signal, "shop", wanted, *args, **kwargs))
        await refused(stored, kind, partial(shop.instance("shop", Shop).signal, wanted, *args, **kwargs))
    await refused(stored, InstanceNotFound, lambda: shop.signal("nobody", Shop.approve, "ann"))


QUERIES: dict[str, tuple[type[Exception], Any, tuple[Any, ...]]] = {
    "too many": (ArgumentError, Shop.approved, (1, 2)),
    "another type": (ArgumentError, Shop.approved, ("1",)),
    "by name, another type": (ArgumentError, "approved", ("1",)),
    "unknown": (UnknownQuery, "denied", ()),
    "of another workflow": (UnknownQuery, Other.pinged, ()),
    "empty name": (UnknownQuery, "", ()),
    "a signal": (ArgumentError, Shop.approve, ("ann",)),
    "a number": (ArgumentError, 7, ()),
}


async def test_wrong_queries(client: Client, stored: Stored) -> None:
    loose: Any = client
    async with Worker(client, workflows=[Shop]):
        await (await client.start(Shop.options(id="shop"), ORDER)).result()
    for kind, wanted, args in QUERIES.values():
        await refused(stored, kind, partial(loose.query, "shop", wanted, *args))
        await refused(stored, kind, partial(loose.instance("shop", Shop).query, wanted, *args))
    await refused(stored, InstanceNotFound, lambda: client.query("nobody", Shop.approved))


# -- everything else that callers give ------------------------------------------------------------


async def test_wrong_reasons_filters_and_runs(shop: Any, stored: Stored) -> None:
    calls: list[tuple[type[Exception], Callable[[], Any]]] = [
        (ArgumentError, lambda: shop.cancel("shop", SURROGATE)),
        (ArgumentError, lambda: shop.cancel("shop", 7)),
        (ArgumentError, lambda: shop.terminate("shop", SURROGATE)),
        (ArgumentError, lambda: shop.terminate("shop", "x" * 4_001)),
        (ArgumentError, lambda: shop.list(prefix="\x00")),
        (ArgumentError, lambda: shop.list(prefix=SURROGATE)),
        (ArgumentError, lambda: shop.list(queue="a\x00")),
        (ArgumentError, lambda: shop.list(workflow="a\x00")),
        (ArgumentError, lambda: shop.list(status="open")),
        (ArgumentError, lambda: shop.list(limit=-1)),
        (ArgumentError, lambda: shop.list(limit="1")),
        (ArgumentError, lambda: shop.instance("shop", run_id="x").describe()),
        (DefinitionError, lambda: shop.start(Shop.options(queue=""), ORDER)),
        (DefinitionError, lambda: shop.start(Shop.options(queue="a\x00"), ORDER)),
        (DefinitionError, lambda: shop.start(Shop.options(conflict="maybe"), ORDER)),  # type: ignore[arg-type]  # so
        (DefinitionError, lambda: shop.start(Shop.options(id="i", request_key=""), ORDER)),
        (ArgumentError, lambda: shop.start(Shop.options(request_key="k"), ORDER)),
        (DefinitionError, lambda: shop.signal("shop", Shop.approve.options(key="x" * 256), "ann")),
    ]
    for kind, call in calls:
        await refused(stored, kind, call)
    for grace in (-1, float("nan"), float("inf"), "1", timedelta(days=-1)):
        before = await stored()
        with pytest.raises((ValueError, TypeError), match="grace"):
            await shop.cancel("shop", grace=grace)
        assert await stored() == before
    assert (await shop.describe("shop")).status == "running"
    await shop.terminate("shop", "a\x00b " + "x" * 3_990)  # strange, and text all the same


async def test_names_of_a_client(database: str) -> None:
    for wrong in ({"namespace": ""}, {"namespace": "a\x00"}, {"identity": SURROGATE}, {"identity": ""}):
        options: dict[str, Any] = wrong
        with pytest.raises(ConfigurationError):
            await Client.open(database, **options)


async def test_a_namespace_that_is_not_there(database: str, stored: Stored) -> None:
    async with Client.connect(database, namespace="nowhere") as client:
        await refused(stored, UnknownNamespace, lambda: client.start(Shop, ORDER))
        await refused(stored, UnknownNamespace, lambda: client.reserve(Shop))
        await refused(stored, UnknownNamespace, lambda: client.signal("i", Shop.approve, "ann"))


# -- the database ---------------------------------------------------------------------------------


async def test_a_database_that_is_down() -> None:
    with pytest.raises(DatabaseUnavailable):
        await Client.open(NOBODY)


async def test_a_database_that_goes_down(
    database: str, postgres_admin: Admin, sql: asyncpg.Connection[Any], stored: Stored
) -> None:
    name = await sql.fetchval("select current_database()")  # made by the fixture, plain letters
    cut = "select pg_terminate_backend(pid) from pg_stat_activity where datname = $1 and application_name = $2"
    async with Client.connect(database, patience=0.3) as client:
        postgres_admin.execute(" ".join(("alter database", name, "with allow_connections false")))
        await sql.execute("select pg_catalog.set_config('application_name', 'looking', false)")
        await sql.fetch(cut, name, "aioflow client")
        for call in (lambda: client.start(Shop, ORDER), lambda: client.describe("i"), lambda: client.cancel("i")):
            await refused(stored, DatabaseUnavailable, call)
        postgres_admin.execute(" ".join(("alter database", name, "with allow_connections true")))
        assert await client.start(Shop, ORDER)  # and goes on when it is back


async def test_a_database_that_is_not_migrated_or_too_new(
    empty_database: str, database: str, sql: asyncpg.Connection[Any]
) -> None:
    with pytest.raises(SchemaNotMigrated, match="aioflow migrate"):
        await Client.open(empty_database)
    await sql.execute("insert into aioflow.migration (number, name, checksum, breaking) values (9000, 'x', 'x', true)")
    with pytest.raises(SchemaTooNew, match="9000"):
        await Client.open(database)


async def test_a_queue_nobody_serves_is_accepted_and_visible_as_such(client: Client, stored: Stored) -> None:
    instance = await client.start(Shop.options(id="shop", queue="nobody"), ORDER)
    seen = await instance.describe()
    assert (seen.status, seen.queue, seen.served, seen.worker) == ("running", "nobody", False, None)
    assert seen.waiting_for is not None
    assert "none serves queue 'nobody'" in seen.waiting_for
    async with Worker(client, workflows=[Shop], queues=["other"]):
        beside = await client.start(Shop.options(queue="other"), ORDER)
        assert await beside.result(timeout=20) == 5  # it looked for work after the first one was there
        assert (await instance.describe()).status == "running"
        assert not (await instance.describe()).served
    async with Worker(client, workflows=[Shop], queues=["nobody"]):
        assert (await instance.describe()).served
        assert await instance.result(timeout=20) == 5
    assert (await stored())["instance_hot"] == 0
