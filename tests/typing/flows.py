"""Definitions that the typed examples beside use; both checkers must be silent here."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import ParamSpec, TypeVar

from aioflow import RetryPolicy, Workflow, activity, query, signal, timer
from aioflow.api.messages import QueryDef, SignalDef
from aioflow.api.workflow import HasHandle, WorkflowRef

P = ParamSpec("P")
R = TypeVar("R")


def started(workflow: type[HasHandle[P, R]] | WorkflowRef[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
    """The shape of every call that starts a workflow."""
    raise NotImplementedError


def sent(signal: SignalDef[P], /, *args: P.args, **kwargs: P.kwargs) -> None:
    """The shape of every call that sends a signal."""


def asked(query: QueryDef[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
    """The shape of every call that asks a query."""
    raise NotImplementedError


@dataclass
class Order:
    id: str


@dataclass
class Receipt:
    total: int


@activity.defn(retry=RetryPolicy(max_attempts=5), start_to_close=timedelta(seconds=30))
async def charge(order: Order) -> Receipt:
    activity.heartbeat("half", 1)
    return Receipt(1)


@activity.defn
async def reserve(order_id: str, amount: int = 1, *, note: str = "") -> str:
    return order_id


@activity.defn
def render(order: Order, copies: int = 1) -> bytes:
    return b""


@activity.defn(queue="cpu")
def stamp(order: Order) -> bytes:
    return b""


async def plain(x: int) -> float:
    return float(x)


def sync_plain(x: int) -> int:
    return x


class Gateway:
    @activity.defn
    async def pay(self, n: int) -> str:
        return str(n)

    @activity.defn(name="gateway-hash")
    def hash(self, n: int) -> bytes:
        return bytes(n)


class Sub(Workflow):
    async def handle(self, a: Order, b: int = 0) -> Receipt:
        return Receipt(b)


class Nullary(Workflow, name="nothing"):
    async def handle(self) -> None:
        return None


class NoHandle(Workflow):
    pass


class OrderWorkflow(Workflow, queue="orders", blocking=(LookupError,)):
    def __init__(self) -> None:
        self.approved_by: str | None = None

    @signal
    def approve(self, by: str) -> None:
        self.approved_by = by

    @signal(name="approve-later")
    async def approve_later(self, by: str, delay: float = 1.0) -> None:
        await timer(delay)
        self.approve(by)

    @query
    def is_approved(self) -> bool:
        return self.approved_by is not None

    @query(name="at-least")
    def at_least(self, n: int) -> bool:
        return n > 0

    async def handle(self, order: Order) -> Receipt:
        return Receipt(len(order.id))


class Derived(OrderWorkflow):
    @query
    def more(self, n: int) -> int:
        return n
