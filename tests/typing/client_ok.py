"""What the running face promises: both checkers must be silent, and every ``assert_type`` must hold."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, assert_type

from flows import Derived, Nullary, Order, OrderWorkflow, Receipt, Sub, charge, render

from aioflow.client import Client, Instance
from aioflow.worker import Worker


async def service(order: Order) -> None:
    async with Client.connect("postgresql://localhost/orders") as client:
        instance = await client.start(OrderWorkflow.options(id="order-42"), order)
        assert_type(instance, Instance[Receipt])
        assert_type(await instance.result(), Receipt)
        assert_type(await instance.result(timeout=timedelta(seconds=3)), Receipt)
        assert_type(await client.start(Sub, order), Instance[Receipt])
        assert_type(await client.start(Sub.options(id="x", queue="q"), order, b=2), Instance[Receipt])
        assert_type(await client.start(Nullary), Instance[None])
        assert_type(await client.start(Derived, order), Instance[Receipt])
        assert_type(await client.start("Sub", order, 1), Instance[Any])
        async with Worker(client, workflows=[OrderWorkflow, Sub], activities=[charge, render], concurrency=200):
            pass


async def messages(client: Client, instance: Instance[Receipt], order: Order) -> None:
    await client.signal("order-42", OrderWorkflow.approve, "ann")
    await client.signal("order-42", OrderWorkflow.approve_later, "ann", delay=3)
    await client.signal("order-42", OrderWorkflow.approve.options(key="k"), by="ann")
    await client.signal("order-42", "approve", "ann")
    await client.signal("order-42", Derived.approve, "ann")
    assert_type(await client.query("order-42", OrderWorkflow.is_approved), bool)
    assert_type(await client.query("order-42", OrderWorkflow.at_least.options(timeout=3), 3), bool)
    assert_type(await client.query("order-42", "is_approved"), Any)
    await instance.signal(OrderWorkflow.approve, "ann")
    await instance.signal("approve", "ann")
    assert_type(await instance.query(OrderWorkflow.is_approved), bool)
    assert_type(await instance.query("is_approved"), Any)
    await instance.cancel("no longer wanted", grace=5)
    await client.terminate("order-42", "stuck")


async def references(client: Client, order: Order) -> None:
    assert_type(client.instance("order-42"), Instance[Any])
    assert_type(client.instance("order-42", OrderWorkflow), Instance[Receipt])
    later = await client.reserve(OrderWorkflow.options(id="order-43"))
    assert_type(await later.start(order), Instance[Receipt])
    assert_type(later.instance, Instance[Receipt])
