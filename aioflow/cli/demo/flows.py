"""What `aioflow demo` runs: an order with parallel activities, a timer, an approval and a retry."""

from __future__ import annotations

import asyncio
import json
import os
from datetime import timedelta

from pydantic import BaseModel

from aioflow import RetryPolicy, Workflow, activity, all_, await_condition, query, signal, timer

LEDGER = "AIOFLOW_DEMO_LEDGER"


class Order(BaseModel):
    """What the customer wants; ``amount`` in cents."""

    id: str
    item: str
    amount: int


class Receipt(BaseModel):
    """What the customer gets in the end."""

    order_id: str
    payment: str
    shelf: str
    parcel: str
    approved_by: str


@activity.defn(start_to_close=timedelta(minutes=1))
async def charge(order: Order) -> str:
    """Take the money: slow enough to be caught in the act."""
    note("began")
    await asyncio.sleep(4)
    note("ended")
    return f"payment-{str(activity.info().execution_id)[-6:]}"


@activity.defn
async def reserve(item: str) -> str:
    """Put the item aside."""
    note("began")
    note("ended")
    return f"shelf-{len(item)}"


@activity.defn(retry=RetryPolicy(initial_interval=1, max_attempts=5))
async def pack(order_id: str) -> str:
    """Pack the parcel; the first try always fails."""
    note("began")
    if activity.info().attempt == 1:
        note("failed")
        raise ConnectionError("the packing station does not answer")
    note("ended")
    return f"parcel-{order_id}"


class OrderWorkflow(Workflow):
    """Charge and reserve at once, wait a moment, wait for approval, pack."""

    def __init__(self) -> None:
        self.approved_by: str | None = None

    @signal
    def approve(self, by: str) -> None:
        """Somebody lets the order pass."""
        self.approved_by = by

    @query
    def is_approved(self) -> bool:
        """Whether somebody has."""
        return self.approved_by is not None

    async def handle(self, order: Order) -> Receipt:
        """The order, from payment to parcel."""
        payment, shelf = await all_((activity(charge, order), activity(reserve, order.item)))
        await timer(timedelta(seconds=2))
        await await_condition(lambda: self.approved_by is not None)
        parcel = await pack(order.id)
        return Receipt(
            order_id=order.id, payment=payment, shelf=shelf, parcel=parcel, approved_by=self.approved_by or ""
        )


def note(what: str) -> None:
    """Keep a line in the ledger of executions, when the demonstration asked for one."""
    if (path := os.environ.get(LEDGER)) is None:
        return
    info = activity.info()
    line = {
        "what": what,
        "activity": info.activity,
        "execution": str(info.execution_id),
        "attempt": str(info.attempt_id),
        "pid": os.getpid(),
    }
    with open(path, "a", encoding="utf-8") as ledger:
        ledger.write(json.dumps(line) + "\n")
