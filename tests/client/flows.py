"""Workflows that the client's tests start."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from aioflow import Workflow, activity, await_condition, await_signal, query, signal, timer


@dataclass
class Order:
    id: str
    amount: int = 1


@dataclass
class Receipt:
    order: str
    total: int


@activity.defn
async def charge(order: Order) -> Receipt:
    return Receipt(order.id, order.amount)


class Double(Workflow):
    async def handle(self, n: int) -> int:
        return n * 2


class Orders(Workflow):
    """Waits for approval; keeps notes."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.approved_by: str | None = None

    @signal
    def approve(self, by: str) -> None:
        self.approved_by = by

    @signal
    def note(self, text: str, *, loud: bool = False) -> None:
        self.notes.append(text.upper() if loud else text)

    @query
    def state(self) -> str | None:
        return self.approved_by

    @query
    def last(self, count: int) -> list[str]:
        return self.notes[-count:]

    @query
    def broken(self) -> int:
        return len(self.notes) // 0

    @query
    def sneaky(self) -> int:
        asyncio.get_running_loop().create_task(timer(1))
        return 1

    async def handle(self, order: Order) -> Receipt:
        await await_condition(lambda: self.approved_by is not None)
        return await charge(order)


class Mailbox(Workflow):
    """Takes signals of any name."""

    async def handle(self) -> list[Any]:
        return [await await_signal("first"), await await_signal("second")]


class Failing(Workflow):
    async def handle(self, text: str) -> None:
        try:
            raise KeyError(text)
        except KeyError as exc:
            raise ValueError("it did not work") from exc


class Sleeping(Workflow, queue="nobody"):
    async def handle(self) -> None:
        await timer(3600)


class Patient(Workflow):
    """Runs until cancelled, then says why it stops."""

    async def handle(self) -> str:
        try:
            await timer(3600)
        except asyncio.CancelledError:
            await charge(Order("cleanup"))
            raise
        return "done"
