"""Calls of a client that both checkers must accept, with the types they must see."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, assert_type

from flows import Derived, Nullary, Order, OrderWorkflow, Receipt, Sub

from aioflow.client import Client, Description, HistoryEvent, Instance, Reserved, Summary, named


async def starting(client: Client, order: Order) -> None:
    instance = await client.start(OrderWorkflow.options(id="order-42"), order)
    assert_type(instance, Instance[Receipt])
    assert_type(await instance.result(), Receipt)
    assert_type(await instance.result(timeout=timedelta(seconds=3)), Receipt)
    assert_type(await client.start(Sub, order), Instance[Receipt])
    assert_type(await client.start(Sub.options(id="x", queue="q"), order, b=2), Instance[Receipt])
    assert_type(await client.start(Nullary), Instance[None])
    assert_type(await client.start("Sub", order, 1), Instance[Any])
    assert_type(await client.start(named("Sub", id="x"), order, 1), Instance[Any])
    later = await client.reserve(OrderWorkflow.options(id="order-43"))
    assert_type(await later.start(order), Instance[Receipt])
    assert_type(later.instance, Instance[Receipt])
    assert_type(await (await client.reserve(Sub)).start(order, b=1), Instance[Receipt])
    assert_type(await client.reserve("Sub"), Reserved[..., Any])
    assert_type(client.instance("order-42"), Instance[Any])
    assert_type(client.instance("order-42", OrderWorkflow), Instance[Receipt])
    assert_type(client.instance("order-42", run_id=instance.run_id), Instance[Any])


async def messages(client: Client, instance: Instance[Receipt]) -> None:
    await client.signal("order-42", OrderWorkflow.approve, "ann")
    await client.signal("order-42", OrderWorkflow.approve_later, "ann", delay=3)
    await client.signal("order-42", OrderWorkflow.approve.options(key="k"), by="ann")
    await client.signal("order-42", "approve", "ann")
    await client.signal("order-42", Derived.approve, "ann")
    await instance.signal(OrderWorkflow.approve, "ann")
    await instance.signal("approve", "ann", loud=True)
    assert_type(await client.query("order-42", OrderWorkflow.is_approved), bool)
    assert_type(await client.query("order-42", OrderWorkflow.at_least.options(timeout=3), 3), bool)
    assert_type(await client.query("order-42", "is_approved"), Any)
    assert_type(await instance.query(Derived.more, n=3), int)
    await client.cancel("order-42", "enough", grace=timedelta(minutes=1))
    await instance.cancel(grace=3)
    await client.terminate("order-42", "no")


async def reading(client: Client, instance: Instance[Receipt]) -> None:
    assert_type(await client.describe("order-42"), Description)
    assert_type(await instance.history(), list[HistoryEvent])
    assert_type([one async for one in client.list(status="running", workflow=Sub)], list[Summary])


async def opening(pool: object) -> None:
    async with Client.connect("postgresql://", workflows=[Sub, OrderWorkflow]) as client:
        assert_type(client, Client)
    client = await Client.open(pool, namespace="n")
    assert_type(client, Client)
    await client.close()
