"""Suspects are tried alone, but never hold a worker for ever."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import asyncpg
import pytest

from aioflow import Workflow, activity
from aioflow.client import Client
from aioflow.store.store import Store
from tests.support import eventually
from tests.worker.conftest import QUICK, worker

running: set[str] = set()
beside: dict[str, set[str]] = {}
gates: dict[str, asyncio.Event] = {}


@pytest.fixture(autouse=True)
def _fresh() -> None:
    running.clear()
    beside.clear()
    gates.clear()


@activity.defn
async def step(name: str) -> str:
    """Remember what ran beside it, and end when its gate is opened."""
    beside[name] = set(running)
    running.add(name)
    await gates.setdefault(name, asyncio.Event()).wait()
    running.discard(name)
    return name


class One(Workflow):
    async def handle(self, name: str) -> str:
        return await step(name)


class Bare(Workflow):
    async def handle(self) -> str:
        return "done"


SUSPECT_ACTIVITY = "update aioflow.activity set crashes = 2, isolation = 1 where instance_id = $1"
SUSPECT_RUN = "update aioflow.instance_hot set crashes = 2, isolation = 1 where instance_id = $1"


@pytest.fixture
async def suspect(client: Client, sql: asyncpg.Connection[Any]) -> Any:
    """An instance with an activity that two workers seem to have died with."""
    async with worker(client, One):
        instance = await client.start(One.options(id="suspect"), "suspect")
        await eventually(lambda: sql.fetchval("select count(*) from aioflow.activity"))
    await sql.execute(SUSPECT_ACTIVITY, "suspect")
    return instance


async def test_a_suspect_waits_until_what_runs_has_ended(client: Client, suspect: Any) -> None:
    settings = replace(QUICK, isolation_wait=60.0)
    neighbour = await client.start(One, "neighbour")
    async with worker(client, One, step, settings=settings):
        # Whichever comes first, the other comes after it.
        first = await eventually(lambda: next(iter(running), None))
        second = ({"neighbour", "suspect"} - {first}).pop()
        later = await client.start(One, "later")
        gates.setdefault("later", asyncio.Event()).set()
        gates[first].set()
        await eventually(lambda: second in beside)
        gates[second].set()
        assert [await one.result() for one in (suspect, neighbour, later)] == ["suspect", "neighbour", "later"]
    assert "suspect" not in beside["neighbour"] | beside["later"]
    assert beside["suspect"] == set()


async def test_a_long_neighbour_does_not_keep_a_suspect_waiting(client: Client, suspect: Any) -> None:
    settings = replace(QUICK, isolation_wait=0.3)
    neighbour = await client.start(One, "neighbour")
    gates["suspect"] = asyncio.Event()
    async with worker(client, One, step, settings=settings):
        await eventually(lambda: {"neighbour", "suspect"} <= set(beside))
        gates["suspect"].set()
        assert await suspect.result() == "suspect"
        gates["neighbour"].set()
        assert await neighbour.result() == "neighbour"


async def test_a_long_suspect_does_not_keep_others_waiting(client: Client, suspect: Any) -> None:
    settings = replace(QUICK, isolation_time=0.3)
    async with worker(client, One, step, settings=settings):
        await eventually(lambda: running == {"suspect"})
        gates["other"] = asyncio.Event()
        gates["other"].set()
        assert await (await client.start(One, "other")).result() == "other"
        assert beside["other"] == {"suspect"}
        gates["suspect"].set()
        assert await suspect.result() == "suspect"


async def test_a_suspect_run_is_tried_by_a_worker_without_activities(
    client: Client, sql: asyncpg.Connection[Any]
) -> None:
    instances = [await client.start(Bare.options(id=f"i{n}")) for n in range(5)]
    for n in range(5):
        await sql.execute(SUSPECT_RUN, f"i{n}")
    async with worker(client, Bare):
        assert [await one.result() for one in instances] == ["done"] * 5


async def test_a_lost_claim_of_a_suspect_is_given_back(client: Client, suspect: Any, faults: list[str]) -> None:
    faults.append("claim_activities.after_send")
    gates["suspect"] = asyncio.Event()
    gates["suspect"].set()
    async with worker(client, step):
        await eventually(lambda: "suspect" in beside)
    assert faults == []


async def test_draining_lets_a_trial_end(client: Client, suspect: Any, store: Store) -> None:
    async with worker(client, One, step) as busy:
        await eventually(lambda: running == {"suspect"})
        draining = asyncio.ensure_future(busy.drain())
        await eventually(lambda: busy._drain.is_set())
        gates["suspect"].set()
        await draining
    async with worker(client, One):
        assert await suspect.result() == "suspect"
    assert await store.invariants() == []
