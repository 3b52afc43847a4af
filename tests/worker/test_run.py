"""A run from its start to its result, and what stands in the database on the way."""

from __future__ import annotations

from typing import Any

import asyncpg

from aioflow import Workflow, activity, all_
from aioflow.client import Client
from tests.worker.conftest import worker

calls: list[str] = []


@activity.defn
async def note(name: str) -> str:
    calls.append(name)
    return name.upper()


class Steps(Workflow):
    async def handle(self) -> list[object]:
        return [
            await activity(note, "a"),
            await activity(note, "b"),
            await all_([activity(note, "c"), activity(note, "d")]),
        ]


async def history(sql: asyncpg.Connection[Any], instance_id: str) -> list[Any]:
    return await sql.fetch(
        "select e.seq, e.kind, e.ref, e.commit from aioflow.history e join aioflow.run r using (shard, run_id)"
        " where r.instance_id = $1 order by e.seq",
        instance_id,
    )


async def test_each_step_is_committed_before_the_next_begins(client: Client, sql: asyncpg.Connection[Any]) -> None:
    calls.clear()
    async with worker(client, Steps, note):
        instance = await client.start(Steps.options(id="steps"))
        assert await instance.result() == ["A", "B", ["C", "D"]]
    assert calls[:2] == ["a", "b"]
    assert sorted(calls[2:]) == ["c", "d"]  # nothing ran twice

    rows = await history(sql, "steps")
    assert [row["seq"] for row in rows] == list(range(1, len(rows) + 1))
    kinds = [row["kind"] for row in rows]
    assert kinds[:5] == [
        "RunStarted",
        "ActivityScheduled",
        "ActivityCompleted",
        "ActivityScheduled",
        "ActivityCompleted",
    ]
    a, b, c, d = (row for row in rows if row["kind"] == "ActivityScheduled")
    assert c["commit"] == d["commit"]
    assert d["seq"] == c["seq"] + 1
    done = {row["ref"]: row for row in rows if row["kind"] == "ActivityCompleted"}
    assert done[a["ref"]]["seq"] < b["seq"] < done[b["ref"]]["seq"] < c["seq"]
    assert done[a["ref"]]["commit"] == b["commit"]  # b was scheduled by the commit that holds a's result
    assert {done[c["ref"]]["seq"], done[d["ref"]]["seq"]} <= {len(rows) - 1, len(rows) - 2, len(rows) - 3}
    assert kinds[-1] == "RunCompleted"
    assert sorted(kinds).count("ActivityCompleted") == 4
