"""Mistakes that both checkers must find; see ``authoring_bad.py``."""

from __future__ import annotations

from flows import NoHandle, Nullary, Order, OrderWorkflow, Receipt, Sub, charge

from aioflow import Workflow
from aioflow.client import Client, Instance
from aioflow.worker import Worker


class SyncHandle(Workflow):
    def handle(self, a: Order) -> Receipt:
        return Receipt(1)


async def starts(client: Client, order: Order) -> None:
    await client.start(Sub)  # type: ignore[call-overload]
    await client.start(Sub, "x")  # type: ignore[call-overload]
    await client.start(Sub, order, "2")  # type: ignore[call-overload]
    await client.start(Sub, order, c=2)  # type: ignore[call-arg]
    await client.start(Sub, order, id="x")  # type: ignore[call-arg]
    await client.start(Sub.options(id="x"), "x")  # type: ignore[call-overload]
    await client.start(Sub.options(idd="x"), order)  # type: ignore[call-arg,call-overload]
    await client.start(Nullary, 1)  # type: ignore[call-overload]
    await client.start(NoHandle)  # type: ignore[call-overload]
    await client.start(SyncHandle, order)  # type: ignore[call-overload]
    await client.start(charge, order)  # type: ignore[call-overload]
    r1: Instance[str] = await client.start(Sub, order)  # type: ignore[call-overload]
    later = await client.reserve(Sub.options(id="x"))
    await later.start("x")  # type: ignore[arg-type]
    await later.start(order, 1, 2)  # type: ignore[call-arg]
    r2: str = await (await later.start(order)).result()  # type: ignore[assignment]
    await client.reserve(charge)  # type: ignore[call-overload]
    client.start(Sub, order)  # type: ignore[unused-coroutine]
    print(r1, r2)


async def messages(client: Client, instance: Instance[Receipt]) -> None:
    await client.signal("id", OrderWorkflow.approve)  # type: ignore[call-overload]
    await client.signal("id", OrderWorkflow.approve, 1)  # type: ignore[call-overload]
    await client.signal("id", OrderWorkflow.approve.options(key="k"), 1)  # type: ignore[call-overload]
    await client.signal("id", OrderWorkflow.approve, "ann", key="k")  # type: ignore[call-arg]
    await client.signal("id", OrderWorkflow.is_approved)  # type: ignore[call-overload]
    await client.query("id", OrderWorkflow.at_least, "x")  # type: ignore[call-overload]
    await client.query("id", OrderWorkflow.is_approved, 1)  # type: ignore[call-overload]
    await client.query("id", OrderWorkflow.approve, "ann")  # type: ignore[call-overload]
    await instance.signal(OrderWorkflow.approve, 1)  # type: ignore[call-overload]
    await instance.query(OrderWorkflow.at_least)  # type: ignore[call-overload]
    r1: str = await client.query("id", OrderWorkflow.is_approved)  # type: ignore[call-overload]
    r2: str = await instance.result()  # type: ignore[assignment]
    r3: bytes = await instance.query(OrderWorkflow.is_approved)  # type: ignore[call-overload]
    await instance.result(timeout="3s")  # type: ignore[arg-type]
    print(r1, r2, r3)


def workers(client: Client) -> None:
    Worker(client, workflow=[Sub])  # type: ignore[call-arg]
    Worker(client, workflows=[Sub], concurrency="200")  # type: ignore[arg-type]
