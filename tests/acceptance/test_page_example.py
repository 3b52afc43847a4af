"""The example that explains the system: two steps one after the other, then two side by side."""

from __future__ import annotations

import os
from collections import Counter
from contextlib import AsyncExitStack
from typing import Any

import asyncpg
import pytest

from aioflow import Workflow, activity, all_
from aioflow.client import Client
from aioflow.worker import Worker
from tests.support import eventually

attempts: list[tuple[str, list[str]]] = []
"""Each attempt: what it is, and the history of its run as committed when it began."""


async def told() -> list[str]:
    """The history of the run of the current attempt: kinds with the name of the activity they are about."""
    connection = await asyncpg.connect(os.environ["AIOFLOW_TEST_PAGE"])
    try:
        rows = await connection.fetch(
            "select kind, ref, attrs::json ->> 'activity' as name from aioflow.history where run_id = $1 order by seq",
            activity.info().run_id,
        )
    finally:
        await connection.close()
    names = {row["ref"]: row["name"] for row in rows if row["name"]}
    return [f"{row['kind']} {names[row['ref']]}" if row["ref"] in names else row["kind"] for row in rows]


@activity.defn
async def a() -> str:
    attempts.append(("a", await told()))
    return "A"


@activity.defn
async def b() -> str:
    attempts.append(("b", await told()))
    return "B"


@activity.defn
async def c() -> str:
    attempts.append(("c", await told()))
    return "C"


@activity.defn
async def d() -> str:
    attempts.append(("d", await told()))

    async def c_is_done() -> bool:  # so that the order of the two is known
        return "ActivityCompleted c" in await told()

    await eventually(c_is_done)
    return "D"


class Page(Workflow):
    async def handle(self) -> list[object]:
        return [await activity(a), await activity(b), await all_([activity(c), activity(d)])]


BEFORE_A = ["RunStarted", "ActivityScheduled a"]
BEFORE_B = [*BEFORE_A, "ActivityCompleted a", "ActivityScheduled b"]
BEFORE_CD = [*BEFORE_B, "ActivityCompleted b", "ActivityScheduled c", "ActivityScheduled d"]
WHOLE = [*BEFORE_CD, "ActivityCompleted c", "ActivityCompleted d", "RunCompleted"]


@pytest.mark.parametrize("workers", [1, 3])
async def test_the_example_goes_as_its_page_says(
    client: Client, database: str, sql: asyncpg.Connection[Any], monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    monkeypatch.setenv("AIOFLOW_TEST_PAGE", database)
    attempts.clear()
    async with AsyncExitStack() as stack:
        for n in range(workers):
            one = Worker(client, workflows=[Page], activities=[a, b, c, d], identity=f"w{n}")
            await stack.enter_async_context(one)
        instance = await client.start(Page.options(id="page"))
        assert await instance.result(timeout=30) == ["A", "B", ["C", "D"]]

    # No activity ran twice, and each began only after the commit that holds its cause.
    assert Counter(name for name, _ in attempts) == Counter("abcd")
    seen = dict(attempts)
    assert seen["a"] == BEFORE_A
    assert seen["b"] == BEFORE_B
    assert seen["c"] == BEFORE_CD
    assert seen["d"][: len(BEFORE_CD)] == BEFORE_CD

    # The history is exactly these events, in this order.
    history = await instance.history()
    names = {e.event.ref: getattr(e.event, "activity", None) for e in history if e.kind == "ActivityScheduled"}
    assert [f"{e.kind} {names[e.event.ref]}" if e.event.ref in names else e.kind for e in history] == WHOLE
    assert [e.seq for e in history] == list(range(1, len(WHOLE) + 1))
    assert [e.value() for e in history if e.kind == "ActivityCompleted"] == ["A", "B", "C", "D"]

    # Each result stands in history before the next schedule, in the commit that schedules; c and d share one.
    commit = {f"{e.kind} {names.get(e.event.ref, '')}".strip(): e.commit for e in history}
    assert commit["ActivityCompleted a"] == commit["ActivityScheduled b"]
    assert commit["ActivityCompleted b"] == commit["ActivityScheduled c"] == commit["ActivityScheduled d"]
    assert commit["RunStarted"] == commit["ActivityScheduled a"]
    assert commit["ActivityCompleted d"] == commit["RunCompleted"] != commit["ActivityCompleted c"]
    assert len(set(commit.values())) == 5

    # Nothing is left over.
    left = await sql.fetchrow(
        "select (select count(*) from aioflow.instance_hot) as hot, (select count(*) from aioflow.inbox) as inbox,"
        " (select count(*) from aioflow.activity) as activity, (select count(*) from aioflow.timer) as timer"
    )
    assert tuple(left) == (0, 0, 0, 0)
