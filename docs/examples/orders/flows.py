"""An order: reserved, approved by a person, charged, shipped, told to everybody. Undone when it goes wrong.

A worker of this module: ``aioflow worker flows``.
"""

import asyncio
from datetime import timedelta
from typing import Literal

import provider
from pydantic import BaseModel, PositiveInt

from aioflow import ApplicationError, RetryPolicy, Workflow, activity, all_, await_condition, query, signal

Step = Literal["reserving", "waiting for approval", "charging", "shipping", "telling", "done", "undone"]


class Order(BaseModel):
    id: str
    customer: str
    sku: str
    quantity: PositiveInt = 1
    cents: PositiveInt


class Receipt(BaseModel):
    order_id: str
    charge: str
    parcel: str
    approved_by: str


class OrderState(BaseModel):
    step: Step
    approved_by: str | None


# An activity may run more than once: its worker can die after the provider has answered and before the answer is
# stored. Its execution id is the same each time, so the provider can tell a repetition from a second order.


def idempotency_key() -> str:
    return str(activity.info().execution_id)


@activity.defn(start_to_close=timedelta(seconds=10))
def reserve(sku: str, quantity: int) -> str:
    """A plain function runs in a thread of the worker, so it may block."""
    return provider.reserve(sku, quantity, idempotency_key())


@activity.defn(start_to_close=timedelta(seconds=10))
def release(reservation: str) -> None:
    provider.release(reservation)


@activity.defn(retry=RetryPolicy(max_attempts=5), start_to_close=timedelta(seconds=10))
async def charge(customer: str, cents: int) -> str:
    """An ``async def`` runs on the worker's event loop, so it must not block."""
    try:
        return await asyncio.to_thread(provider.charge, customer, cents, idempotency_key())
    except provider.Declined as declined:
        raise ApplicationError(
            str(declined), type="PaymentDeclined", details={"cents": cents}, non_retryable=True
        ) from declined


@activity.defn(start_to_close=timedelta(seconds=10))
async def refund(charged: str) -> None:
    await asyncio.to_thread(provider.refund, charged)


@activity.defn(start_to_close=timedelta(seconds=10))
async def ship(order: Order) -> str:
    return await asyncio.to_thread(provider.ship, order.customer, order.sku, idempotency_key())


@activity.defn
async def tell(who: str, text: str) -> None:
    activity.logger.info("told", who=who, text=text)


class OrderWorkflow(Workflow, name="order", queue="orders"):
    def __init__(self) -> None:
        self.step: Step = "reserving"
        self.approved_by: str | None = None

    @signal
    def approve(self, by: str) -> None:
        self.approved_by = self.approved_by or by

    @query
    def state(self) -> OrderState:
        return OrderState(step=self.step, approved_by=self.approved_by)

    async def handle(self, order: Order) -> Receipt:
        reservation = await activity(reserve, order.sku, order.quantity)
        try:
            receipt = await self._sell(order)
        except BaseException:  # cancellation too: a cancelled order gives its goods back
            await activity(release, reservation)
            self.step = "undone"
            raise
        self.step = "telling"
        await all_([tell(order.customer, f"parcel {receipt.parcel}"), tell("sales", f"sold {order.id}")])
        self.step = "done"
        return receipt

    async def _sell(self, order: Order) -> Receipt:
        self.step = "waiting for approval"
        if not await await_condition(lambda: self.approved_by is not None, timeout=timedelta(days=2)):
            raise ApplicationError(f"nobody approved order {order.id} in time", type="OrderExpired")
        self.step = "charging"
        charged = await charge(order.customer, order.cents)
        try:
            self.step = "shipping"
            parcel = await ship(order)
        except BaseException:
            await refund(charged)
            raise
        return Receipt(order_id=order.id, charge=charged, parcel=parcel, approved_by=self.approved_by or "")
