"""The example service under docs/examples/orders: over real HTTP, with a real worker process, in both frameworks."""

from __future__ import annotations

import os
import socket
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.support import eventually

ORDERS = Path(__file__).parents[2] / "docs" / "examples" / "orders"
pytestmark = pytest.mark.slow

SERVICES = {
    "fastapi": ("-m", "uvicorn", "app:app", "--host", "127.0.0.1", "--log-level", "warning", "--port"),
    "aiohttp": ("aiohttp_app.py", "--host", "127.0.0.1", "--port"),
}


@contextmanager
def process(environment: dict[str, str], log: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A Python process in the example's folder; it must end well when it is asked to."""
    with log.open("wb") as output:
        running = subprocess.Popen(
            [sys.executable, *arguments], cwd=ORDERS, env=environment, stdout=output, stderr=output
        )
        try:
            yield running
            running.terminate()
            code = running.wait(20)
            assert code in (0, -15), f"exit code {code}:\n{log.read_text()[-4000:]}"
        finally:
            running.kill()
            running.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture
def environment(database: str, tmp_path: Path) -> dict[str, str]:
    given = {name: value for name, value in os.environ.items() if not name.startswith("AIOFLOW_")}
    return given | {
        "AIOFLOW_DATABASE_URL": database,
        "ORDERS_PROVIDER": str(tmp_path / "provider.sqlite3"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }


@pytest.fixture(params=SERVICES)
async def service(
    request: pytest.FixtureRequest, environment: dict[str, str], tmp_path: Path
) -> AsyncIterator[httpx.AsyncClient]:
    """The service and its worker, up and serving."""
    port = free_port()
    with (
        process(environment, tmp_path / "worker.log", "-m", "aioflow", "worker", "flows"),
        process(environment, tmp_path / "service.log", *SERVICES[request.param], str(port)) as serving,
    ):
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=30) as http:

            async def answers() -> bool:
                assert serving.poll() is None, (tmp_path / "service.log").read_text()
                try:
                    return (await http.get("/orders/none")).status_code == 404
                except httpx.TransportError:
                    return False

            await eventually(answers, within=30)
            yield http


def order(number: str, **given: object) -> dict[str, object]:
    return {"id": number, "customer": "ann", "sku": "tea", "cents": 1250} | given


def effects(environment: dict[str, str]) -> list[tuple[str, bool]]:
    """What the providers did, and whether it was undone."""
    database = sqlite3.connect(environment["ORDERS_PROVIDER"])
    try:
        return [(kind, bool(undone)) for kind, undone in database.execute("select kind, undone from effect")]
    finally:
        database.close()


async def step(http: httpx.AsyncClient, number: str) -> str | None:
    answer = await http.get(f"/orders/{number}")
    return answer.json()["state"]["step"] if answer.status_code == 200 else None


async def waits_for_approval(http: httpx.AsyncClient, number: str) -> None:
    async def waits() -> bool:
        return await step(http, number) == "waiting for approval"

    await eventually(waits, within=30)


async def test_an_order_is_started_approved_and_delivered(
    service: httpx.AsyncClient, environment: dict[str, str]
) -> None:
    started = await service.post("/orders", json=order("7"), headers={"Idempotency-Key": "k1"})
    assert (started.status_code, started.json()) == (202, {"instance_id": "order-7"})
    await waits_for_approval(service, "7")
    assert (await service.get("/orders/7/receipt")).status_code == 202

    approved = await service.post("/orders/7/approval", json={"by": "bob"})
    assert approved.status_code == 202
    receipt = await service.get("/orders/7/receipt", params={"wait": 30})
    assert receipt.status_code == 200
    assert receipt.json()["approved_by"] == "bob"
    assert receipt.json()["charge"].startswith("charge-")

    status = (await service.get("/orders/7")).json()
    assert status["status"] == "completed"
    assert status["state"] == {"step": "done", "approved_by": "bob"}
    assert sorted(effects(environment)) == [("charge", False), ("parcel", False), ("reservation", False)]

    # The same key is the same order, another one finds the number taken.
    repeated = await service.post("/orders", json=order("7"), headers={"Idempotency-Key": "k1"})
    assert repeated.status_code == 202
    assert (await service.post("/orders/7/approval", json={"by": "eve"})).status_code == 409
    assert (await service.delete("/orders/7")).status_code == 409


async def test_errors_are_answers(service: httpx.AsyncClient, environment: dict[str, str]) -> None:
    assert (await service.post("/orders/none/approval", json={"by": "bob"})).status_code == 404
    assert (await service.get("/orders/none/receipt")).status_code == 404
    assert (await service.post("/orders", json={"id": "1"})).status_code == 422
    assert (await service.post("/orders", json=order("x" * 300))).status_code == 422

    assert (await service.post("/orders", json=order("8", cents=10**9))).status_code == 202
    taken = await service.post("/orders", json=order("8"))
    assert (taken.status_code, taken.json()["error"]) == (409, "InstanceAlreadyExists")
    await service.post("/orders/8/approval", json={"by": "bob"})
    failed = await service.get("/orders/8/receipt", params={"wait": 30})
    assert failed.status_code == 422
    assert failed.json()["type"] == "PaymentDeclined"
    assert failed.json()["details"] == {"cents": 10**9}
    assert effects(environment) == [("reservation", True)]


async def test_a_cancelled_order_is_undone(service: httpx.AsyncClient, environment: dict[str, str]) -> None:
    await service.post("/orders", json=order("9"))
    await waits_for_approval(service, "9")
    assert (await service.delete("/orders/9", params={"reason": "changed my mind"})).status_code == 202
    cancelled = await service.get("/orders/9/receipt", params={"wait": 30})
    assert (cancelled.status_code, cancelled.json()["error"]) == (410, "WorkflowCancelled")
    assert effects(environment) == [("reservation", True)]
