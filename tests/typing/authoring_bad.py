"""Mistakes that both checkers must find.

Every planted line ends in a suppression; a checker that does not find the mistake complains that it is not needed.
"""

from __future__ import annotations

import asyncio

from flows import (
    Gateway,
    NoHandle,
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
    started,
    sync_plain,
)

from aioflow import (
    RetryPolicy,
    Workflow,
    activity,
    all_,
    any_,
    await_condition,
    await_signal,
    query,
    side_effect,
    signal,
    timer,
)


async def calls(order: Order) -> None:
    await charge("x")  # type: ignore[arg-type]
    await activity(charge, "x")  # type: ignore[arg-type]
    await activity(charge)  # type: ignore[call-arg]
    await activity(charge, order, 1)  # type: ignore[call-arg]
    await activity(charge.options(queue="q"), "x")  # type: ignore[arg-type]
    await activity(charge, order, queue="q")  # type: ignore[call-arg]
    await activity(reserve, "a", ammount=2)  # type: ignore[call-arg]
    await activity(reserve, "a", 1, "note")  # type: ignore[call-arg]
    await activity(render, 1)  # type: ignore[arg-type]
    await activity(render.options(queue="q"), order, "2")  # type: ignore[arg-type]
    await activity(plain, 1)  # type: ignore[arg-type]
    await activity(sync_plain, 1)  # type: ignore[arg-type]
    await activity(Sub, order)  # type: ignore[arg-type]
    await activity(charge.options(queu="q"), order)  # type: ignore[call-arg]
    await activity(charge.options(retry=3), order)  # type: ignore[arg-type]
    await activity(charge.options(start_to_close="3s"), order)  # type: ignore[arg-type]
    await activity(Gateway().pay, "x")  # type: ignore[arg-type]
    await activity(Gateway.pay, Gateway(), 1)  # type: ignore[arg-type,call-arg]
    await render(order)  # type: ignore[misc]
    activity(charge, order)  # type: ignore[unused-coroutine]
    RetryPolicy(max_attempt=1)  # type: ignore[call-arg]
    RetryPolicy(non_retryable=(3,))  # type: ignore[arg-type]
    print(activity.info().attempts)  # type: ignore[attr-defined]


async def results(order: Order) -> None:
    r1: str = await activity(charge, order)  # type: ignore[arg-type]
    r2: int = await activity(render, order)  # type: ignore[arg-type]
    a, b = await all_((activity(charge, order), activity(reserve, "x")))
    r3: str = a  # type: ignore[assignment]
    r4: Receipt = b  # type: ignore[assignment]
    t: asyncio.Task[str] = asyncio.create_task(activity(charge, order))  # type: ignore[arg-type]
    r5: list[str] = await all_([activity(charge, order)])  # type: ignore[arg-type]
    r6: str = await await_signal("x", type=Order)  # type: ignore[arg-type]
    r7: str = await any_([activity(charge, order)])  # type: ignore[arg-type]
    r8: str = await side_effect(lambda: 1)  # type: ignore[arg-type,return-value]
    r9: int = render(order)  # type: ignore[assignment]
    print(r1, r2, r3, r4, t, r5, r6, r7, r8, r9)


async def helpers() -> None:
    await await_condition(lambda: "x")  # type: ignore[arg-type,return-value]
    await await_signal(3)  # type: ignore[call-overload]
    await timer("1s")  # type: ignore[arg-type]
    await all_([1, 2])  # type: ignore[arg-type]


class Handlers(Workflow):
    @signal  # type: ignore[arg-type]
    def returns(self, n: int) -> int:
        return n

    @signal
    def plain(self, n: int) -> None: ...

    @query
    def ask(self, n: int) -> int:
        return n

    async def handle(self, n: int) -> str:
        self.ask("x")  # type: ignore[arg-type]
        self.plain("x")  # type: ignore[arg-type]
        r: str = self.ask(1)  # type: ignore[assignment]
        return r


class SyncHandle(Workflow):
    def handle(self, a: Order) -> Receipt:
        return Receipt(1)


def references(order: Order) -> None:
    started(Sub)  # type: ignore[call-arg]
    started(Sub, "x")  # type: ignore[arg-type]
    started(Sub, order, "2")  # type: ignore[arg-type]
    started(Sub, order, c=2)  # type: ignore[call-arg]
    started(Sub, order, id="x")  # type: ignore[call-arg]
    started(Sub.options(id="x"), "x")  # type: ignore[arg-type]
    started(NoHandle)  # type: ignore[arg-type]
    started(SyncHandle, order)  # type: ignore[arg-type]
    started(charge, order)  # type: ignore[arg-type]
    sent(OrderWorkflow.approve)  # type: ignore[call-arg]
    sent(OrderWorkflow.approve, 1)  # type: ignore[arg-type]
    sent(OrderWorkflow.approve.options(key="k"), 1)  # type: ignore[arg-type]
    sent(OrderWorkflow.approve, "ann", key="k")  # type: ignore[call-arg]
    sent(OrderWorkflow.is_approved)  # type: ignore[arg-type]
    asked(OrderWorkflow.at_least, "x")  # type: ignore[arg-type]
    asked(OrderWorkflow.is_approved, 1)  # type: ignore[call-arg]
    asked(OrderWorkflow.approve, "ann")  # type: ignore[arg-type]
    r1: str = asked(OrderWorkflow.is_approved)  # type: ignore[assignment]
    r2: str = started(Sub, order)  # type: ignore[assignment]
    print(r1, r2)
    Handlers.plain(1)  # type: ignore[operator]
    Handlers.plain.options(timeout=3)  # type: ignore[call-arg]
    Handlers.ask.options(key="k")  # type: ignore[call-arg]
    NoHandle.options(id="x")  # type: ignore[misc]
    SyncHandle.options(id="x")  # type: ignore[misc]
    OrderWorkflow.options(idd="x")  # type: ignore[call-arg]
    OrderWorkflow.options(conflict="replace")  # type: ignore[arg-type]
    OrderWorkflow.options(id=3)  # type: ignore[arg-type]
