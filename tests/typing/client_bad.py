"""Mistakes in calls of a client that both checkers must find; see authoring_bad.py."""

from __future__ import annotations

from flows import NoHandle, Nullary, Order, OrderWorkflow, Receipt, Sub, charge

from aioflow.client import Client, Instance, named


async def starting(client: Client, order: Order) -> None:
    await client.start(Sub)  # type: ignore[call-overload]
    await client.start(Sub, "x")  # type: ignore[call-overload]
    await client.start(Sub, order, "2")  # type: ignore[call-overload]
    await client.start(Sub, order, c=2)  # type: ignore[call-arg]
    await client.start(Sub, order, id="x")  # type: ignore[call-arg]
    await client.start(Sub.options(id="x"), "x")  # type: ignore[call-overload]
    await client.start(Nullary, 1)  # type: ignore[call-overload]
    await client.start(NoHandle)  # type: ignore[call-overload]
    await client.start(charge, order)  # type: ignore[call-overload]
    await client.start(Sub(), order)  # type: ignore[call-overload]
    await client.start(named("Sub", idd="x"), order)  # type: ignore[call-arg]
    later = await client.reserve(Sub.options(id="x"))
    await later.start()  # type: ignore[call-arg]
    await later.start("x")  # type: ignore[arg-type]
    await client.reserve(Sub, order)  # type: ignore[call-overload]
    client.instance("x", NoHandle)  # type: ignore[arg-type]
    client.instance(7)  # type: ignore[call-overload]
    r1: Instance[str] = await client.start(Sub, order)  # type: ignore[call-overload]
    r2: str = await (await client.start(Sub, order)).result()  # type: ignore[assignment]
    r3: Instance[str] = client.instance("x", Sub)  # type: ignore[arg-type]
    print(r1, r2, r3)


async def messages(client: Client, instance: Instance[Receipt]) -> None:
    await client.signal("id", OrderWorkflow.approve)  # type: ignore[call-overload]
    await client.signal("id", OrderWorkflow.approve, 1)  # type: ignore[call-overload]
    await client.signal("id", OrderWorkflow.approve.options(key="k"), 1)  # type: ignore[call-overload]
    await client.signal("id", OrderWorkflow.approve, "ann", key="k")  # type: ignore[call-arg]
    await client.signal("id", OrderWorkflow.is_approved)  # type: ignore[call-overload]
    await client.signal(OrderWorkflow.approve, "ann")  # type: ignore[call-overload]
    await client.query("id", OrderWorkflow.at_least, "x")  # type: ignore[call-overload]
    await client.query("id", OrderWorkflow.is_approved, 1)  # type: ignore[call-overload]
    await client.query("id", OrderWorkflow.approve, "ann")  # type: ignore[call-overload]
    await instance.signal(OrderWorkflow.approve, 1)  # type: ignore[call-overload]
    await instance.query(OrderWorkflow.at_least)  # type: ignore[call-overload]
    await instance.cancel(grace="3s")  # type: ignore[arg-type]
    await instance.result("3s")  # type: ignore[arg-type]
    client.list(status=3)  # type: ignore[arg-type]
    r1: str = await client.query("id", OrderWorkflow.is_approved)  # type: ignore[call-overload]
    r2: str = await instance.result()  # type: ignore[assignment]
    print(r1, r2)
