"""Orders over HTTP, with aiohttp: ``python aiohttp_app.py --port 8000``. The same paths and answers as app.py."""

import argparse
import os
from collections.abc import AsyncIterator, Awaitable, Callable

from aiohttp import web
from flows import Order, OrderWorkflow, Receipt
from problems import body_of, status_of
from pydantic import BaseModel, ValidationError

from aioflow import AioflowError
from aioflow.client import Client, Instance

AIOFLOW = web.AppKey("aioflow", Client)
routes = web.RouteTableDef()


class Approval(BaseModel):
    by: str


async def lifespan(app: web.Application) -> AsyncIterator[None]:
    """One client for the whole process."""
    async with Client.connect(os.environ["AIOFLOW_DATABASE_URL"], workflows=[OrderWorkflow]) as client:
        app[AIOFLOW] = client
        yield


@web.middleware
async def problems(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    try:
        return await handler(request)
    except AioflowError as error:
        return web.json_response(body_of(error), status=status_of(error))
    except ValidationError as error:
        return web.json_response({"error": "ValidationError", "message": str(error)}, status=422)


def order_of(request: web.Request) -> Instance[Receipt]:
    return request.app[AIOFLOW].instance(f"order-{request.match_info['order_id']}", OrderWorkflow)


def accepted(instance: Instance[Receipt]) -> web.Response:
    return web.json_response({"instance_id": instance.id}, status=202)


@routes.post("/orders")
async def start(request: web.Request) -> web.Response:
    """Start an order; sent again with the same Idempotency-Key it is the same order."""
    order = Order.model_validate_json(await request.text())
    key = request.headers.get("Idempotency-Key")
    options = OrderWorkflow.options(id=f"order-{order.id}", request_key=key)
    return accepted(await request.app[AIOFLOW].start(options, order))


@routes.get("/orders/{order_id}")
async def status(request: web.Request) -> web.Response:
    instance = order_of(request)
    description = await instance.describe()
    state = await instance.query(OrderWorkflow.state)
    return web.json_response(
        {"status": description.status, "waiting_for": description.waiting_for, "state": state.model_dump()}
    )


@routes.post("/orders/{order_id}/approval")
async def approve(request: web.Request) -> web.Response:
    instance = order_of(request)
    approval = Approval.model_validate_json(await request.text())
    await instance.signal(OrderWorkflow.approve, approval.by)
    return accepted(instance)


@routes.get("/orders/{order_id}/receipt")
async def receipt(request: web.Request) -> web.Response:
    """The result; waits for it up to ``wait`` seconds, and answers 202 when it is not there yet."""
    found = await order_of(request).result(timeout=float(request.query.get("wait", 1)))
    return web.json_response(found.model_dump())


@routes.delete("/orders/{order_id}")
async def cancel(request: web.Request) -> web.Response:
    """Ask the order to end: it undoes what it did, and has a minute for that."""
    instance = order_of(request)
    await instance.cancel(request.query.get("reason"), grace=60)
    return accepted(instance)


def make_app() -> web.Application:
    app = web.Application(middlewares=[problems])
    app.add_routes(routes)
    app.cleanup_ctx.append(lifespan)
    return app


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    arguments = parser.parse_args()
    web.run_app(make_app(), host=arguments.host, port=arguments.port, print=None)
