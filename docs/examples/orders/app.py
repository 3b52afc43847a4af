"""Orders over HTTP, with FastAPI: ``uvicorn app:app``. It starts and asks; a worker does the work."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Header, Request
from fastapi.responses import JSONResponse
from flows import Order, OrderState, OrderWorkflow, Receipt
from problems import body_of, status_of
from pydantic import BaseModel

from aioflow import AioflowError
from aioflow.client import Client, Instance


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, Any]]:
    """One client for the whole process; requests find it in their state."""
    async with Client.connect(os.environ["AIOFLOW_DATABASE_URL"], workflows=[OrderWorkflow]) as client:
        yield {"aioflow": client}


def client_of(request: Request) -> Client:
    client: Client = request.state.aioflow
    return client


def order_of(order_id: str, client: Annotated[Client, Depends(client_of)]) -> Instance[Receipt]:
    return client.instance(f"order-{order_id}", OrderWorkflow)


AioflowClient = Annotated[Client, Depends(client_of)]
OrderInstance = Annotated[Instance[Receipt], Depends(order_of)]
app = FastAPI(title="Orders", lifespan=lifespan)


class Approval(BaseModel):
    by: str


class Accepted(BaseModel):
    instance_id: str


class Status(BaseModel):
    status: str
    waiting_for: str | None
    state: OrderState


@app.exception_handler(AioflowError)
async def problem(request: Request, error: AioflowError) -> JSONResponse:
    return JSONResponse(body_of(error), status_of(error))


@app.post("/orders", status_code=202)
async def start(
    order: Order, client: AioflowClient, idempotency_key: Annotated[str | None, Header()] = None
) -> Accepted:
    """Start an order; sent again with the same Idempotency-Key it is the same order."""
    options = OrderWorkflow.options(id=f"order-{order.id}", request_key=idempotency_key)
    instance = await client.start(options, order)
    return Accepted(instance_id=instance.id)


@app.get("/orders/{order_id}")
async def status(instance: OrderInstance) -> Status:
    description = await instance.describe()
    state = await instance.query(OrderWorkflow.state)
    return Status(status=description.status, waiting_for=description.waiting_for, state=state)


@app.post("/orders/{order_id}/approval", status_code=202)
async def approve(approval: Approval, instance: OrderInstance) -> Accepted:
    await instance.signal(OrderWorkflow.approve, approval.by)
    return Accepted(instance_id=instance.id)


@app.get("/orders/{order_id}/receipt")
async def receipt(instance: OrderInstance, wait: float = 1) -> Receipt:
    """The result; waits for it up to ``wait`` seconds, and answers 202 when it is not there yet."""
    return await instance.result(timeout=wait)


@app.delete("/orders/{order_id}", status_code=202)
async def cancel(instance: OrderInstance, reason: str | None = None) -> Accepted:
    """Ask the order to end: it undoes what it did, and has a minute for that."""
    await instance.cancel(reason, grace=60)
    return Accepted(instance_id=instance.id)
