"""Workflows whose recorded histories are replayed for ever. Do not edit one: add another beside it."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import anyio
from pydantic import BaseModel

from aioflow import (
    ActivityError,
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
    uuid7,
    workflow_info,
)


class Order(BaseModel):
    id: str
    amount: int


class Receipt(BaseModel):
    order: Order
    approved_by: str | None
    notes: list[str] = []


@activity.defn(name="golden.charge", retry=RetryPolicy(max_attempts=5), start_to_close=30)
async def charge(order: Order) -> str:
    return order.id


@activity.defn(name="golden.reserve", queue="stock", heartbeat=timedelta(seconds=5))
def reserve(order: Order, copies: int = 1) -> list[str]:
    return [order.id] * copies


@activity.defn(name="golden.step")
async def step(n: int) -> int:
    return n


class Ordering(Workflow, name="golden.order", queue="orders"):
    """Parallel activities, a condition with a timeout, a handler, a channel, a timer."""

    def __init__(self) -> None:
        self.approved_by: str | None = None
        self.notes: list[str] = []

    @signal
    def approve(self, by: str) -> None:
        self.approved_by = by

    @signal
    async def note(self, text: str) -> None:
        self.notes.append(f"{text} {await step(len(self.notes))}")

    @query
    def approved(self) -> bool:
        return self.approved_by is not None

    async def handle(self, order: Order) -> Receipt:
        if not await await_condition(lambda: self.approved_by is not None, timeout=timedelta(days=2)):
            return Receipt(order=order, approved_by=None)
        paid, reserved = await all_((charge(order), activity(reserve, order, copies=2)))
        await timer(timedelta(hours=1))
        extra = await await_signal("gift", type=str)
        return Receipt(order=order, approved_by=self.approved_by, notes=[paid, *reserved, extra, *self.notes])


class Cancelling(Workflow, name="golden.cancel"):
    """A group that is cancelled, with cleanup in every branch and around all of it."""

    async def handle(self) -> None:
        async def member(n: int) -> None:
            try:
                await step(n)
            finally:
                await step(10 + n)

        try:
            async with asyncio.TaskGroup() as group:
                for n in range(3):
                    group.create_task(member(n))
                await timer(60)
        finally:
            await timer(1)
            await step(20)


class Failing(Workflow, name="golden.fail"):
    """Failures that are handled, and a group that is not."""

    async def handle(self) -> None:
        try:
            await step(1)
        except ActivityError as error:
            await step(2 if error.type == "ValueError" else 3)
        async with asyncio.TaskGroup() as group:
            group.create_task(step(4))
            group.create_task(step(5))


class Deciding(Workflow, name="golden.decide"):
    """Everything that is decided by recorded values, seeded randomness and the time of events."""

    async def handle(self, rounds: int) -> list[Any]:
        seen: list[Any] = []
        for n in range(rounds):
            try:
                seen.append(await side_effect(lambda n=n: {0: "flag"}[n], type=str))
            except Exception as error:
                seen.append(str(error))
            if rng().random() < 0.5:
                seen.append(await step(n))
            else:
                await asyncio.sleep(n + 0.25)
            seen += [str(uuid4()), str(uuid7()), now().isoformat(), workflow_info().history_length]
        return seen


class Locking(Workflow, name="golden.locks"):
    """asyncio's primitives against time limits, and who comes first."""

    async def handle(self) -> list[Any]:
        seen: list[Any] = []
        semaphore, condition, queue = asyncio.Semaphore(2), asyncio.Condition(), asyncio.Queue[int](1)

        async def work(n: int) -> None:
            async with semaphore:
                await queue.put(await step(n))
            async with condition:
                condition.notify()

        async def hear(n: int) -> None:
            try:
                async with condition:
                    await asyncio.wait_for(condition.wait(), n)
                seen.append(["heard", n])
            except TimeoutError:
                seen.append(["nothing", n])

        tasks = [asyncio.create_task(work(n)) for n in range(4)]
        ears = [asyncio.create_task(hear(n)) for n in (5, 7)]
        done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED, timeout=30)
        seen.append([[one.get_name() for one in some] for some in (done, pending)])
        for _ in range(4):
            seen.append(await queue.get())
        await asyncio.gather(*tasks, *ears)
        seen.append(await any_([step(8), step(9)]))
        for one in asyncio.as_completed([step(10), step(11)]):
            seen.append(await one)
        async with asyncio.timeout(100):
            seen.append(await asyncio.shield(step(12)))
        return seen


class Scoping(Workflow, name="golden.scopes"):
    """anyio's task groups and cancel scopes."""

    async def handle(self) -> list[Any]:
        seen: list[Any] = []

        async def member(n: int) -> None:
            try:
                seen.append(await step(n))
            finally:
                seen.append(f"end {n}")

        with anyio.move_on_after(10) as scope:
            async with anyio.create_task_group() as group:
                for n in range(4):
                    group.start_soon(member, n)
        seen.append(scope.cancelled_caught)
        try:
            with anyio.fail_after(1):
                await step(7)
        except TimeoutError:
            seen.append("late")
        await anyio.sleep(2)
        return seen


FLOWS: dict[str, type[Workflow]] = {
    "order": Ordering,
    "cancel": Cancelling,
    "fail": Failing,
    "decide": Deciding,
    "locks": Locking,
    "scopes": Scoping,
}
