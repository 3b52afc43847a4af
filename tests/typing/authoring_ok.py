"""What the authoring face promises: both checkers must be silent, and every ``assert_type`` must hold."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from datetime import datetime, timedelta
from random import Random
from typing import Any, assert_type
from uuid import UUID

from flows import (
    Derived,
    Gateway,
    Nullary,
    Order,
    OrderWorkflow,
    Receipt,
    Sub,
    asked,
    charge,
    plain,
    render,
    reserve,
    sent,
    stamp,
    started,
)

import aioflow as af
from aioflow import (
    RetryPolicy,
    Workflow,
    activity,
    all_,
    any_,
    await_condition,
    await_signal,
    now,
    query,
    rng,
    side_effect,
    signal,
    timer,
    uuid4,
    workflow_info,
)
from aioflow.api.activity import Activity

registered: list[Activity[..., Any]] = [charge, render, stamp, reserve, Gateway().pay]
classes: list[type[Workflow]] = [OrderWorkflow, Sub, Nullary]


async def calls(order: Order) -> None:
    assert_type(await charge(order), Receipt)
    assert_type(await activity(charge, order), Receipt)
    pending: Coroutine[Any, Any, Receipt] = activity(charge, order)
    await pending
    assert_type(await activity(charge.options(queue="gpu", retry=RetryPolicy()), order), Receipt)
    assert_type(await charge.options(queue="gpu", start_to_close=3)(order), Receipt)
    assert_type(await activity(reserve, order.id, amount=2, note="n"), str)
    assert_type(await reserve(order.id, 2, note="n"), str)
    assert_type(render(order), bytes)
    assert_type(stamp(order), bytes)
    assert_type(await activity(render, order, copies=2), bytes)
    assert_type(await activity(render.options(heartbeat=timedelta(seconds=5)), order), bytes)
    assert_type(render.options(queue="cpu")(order), bytes)
    assert_type(await af.activity(stamp, order), bytes)


async def methods() -> None:
    gateway = Gateway()
    assert_type(await gateway.pay(1), str)
    assert_type(gateway.hash(1), bytes)
    assert_type(await activity(gateway.pay, 1), str)
    assert_type(await activity(gateway.hash.options(queue="q"), 1), bytes)
    assert_type(await activity(Gateway.pay, 1), str)
    assert_type(await activity(Gateway.hash, 1), bytes)


async def together(order: Order) -> None:
    task = asyncio.create_task(activity(charge, order))
    assert_type(task, asyncio.Task[Receipt])
    async with asyncio.TaskGroup() as group:
        other = group.create_task(activity(render, order))
    assert_type(other.result(), bytes)
    gathered = await asyncio.gather(activity(charge, order), activity(reserve, order.id), timer(1))
    assert_type(gathered, tuple[Receipt, str, None])
    mixed = await asyncio.gather(charge(order), plain(1), timer(1))
    assert_type(mixed, tuple[Receipt, float, None])
    assert_type(await all_([activity(charge, order), activity(charge, order)]), list[Receipt])
    assert_type(await all_([activity(reserve, i) for i in "ab"]), list[str])
    assert_type(await all_(activity(reserve, i) for i in "ab"), list[str])
    receipt, name = await all_((activity(charge, order), activity(reserve, order.id)))
    assert_type(receipt, Receipt)
    assert_type(name, str)
    three = await all_((activity(charge, order), timer(1), activity(render, order)))
    assert_type(three, tuple[Receipt, None, bytes])
    assert_type(await any_([activity(charge, order), activity(charge, order)]), Receipt)
    assert_type(await any_((activity(charge, order), activity(reserve, order.id))), Receipt | str)
    async with asyncio.timeout(3):
        assert_type(await asyncio.wait_for(charge(order), 5), Receipt)


async def helpers() -> None:
    assert_type(await await_condition(lambda: True, timeout=timedelta(days=2)), bool)
    assert_type(await await_signal("paid", type=Order), Order)
    assert_type(await await_signal("paid", type=list[Order], timeout=3), list[Order])
    assert_type(await side_effect(lambda: 3), int)
    assert_type(now(), datetime)
    assert_type(uuid4(), UUID)
    assert_type(rng(), Random)
    assert_type(workflow_info().run_id, UUID)
    assert_type(await timer(1.5), None)


def attempts() -> None:
    assert_type(activity.info().attempt, int)
    assert_type(activity.info().execution_id, UUID)
    assert_type(activity.heartbeat(1, "x"), None)
    assert_type(activity.cancelled(), bool)
    activity.logger.info("charged", amount=1)


class Handlers(Workflow):
    @signal
    def plain(self, n: int) -> None: ...

    @signal
    async def slow(self, n: int) -> None: ...

    @query
    def ask(self, n: int = 0) -> str:
        return str(n)

    async def handle(self, order: Order) -> str:
        assert_type(self.plain(1), None)
        await self.slow(n=2)
        assert_type(self.ask(), str)
        return ""


def references(order: Order) -> None:
    assert_type(started(Sub, order), Receipt)
    assert_type(started(Sub, order, b=2), Receipt)
    assert_type(started(Sub.options(id="x", conflict="use_existing"), order, 2), Receipt)
    assert_type(started(Nullary), None)
    assert_type(started(Nullary.options(queue="q", request_key="k")), None)
    assert_type(started(Derived, order), Receipt)
    sent(OrderWorkflow.approve, "ann")
    sent(OrderWorkflow.approve.options(key="k"), by="ann")
    sent(OrderWorkflow.approve_later, "ann", delay=2)
    sent(Derived.approve, "ann")
    assert_type(asked(OrderWorkflow.is_approved), bool)
    assert_type(asked(OrderWorkflow.at_least.options(timeout=3), 3), bool)
    assert_type(asked(Derived.more, n=3), int)
    assert_type(OrderWorkflow.approve.name, str)
