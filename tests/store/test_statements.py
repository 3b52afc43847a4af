"""Every statement file parses on the server; hot ones use their index; SQL and Python agree on shards."""

from __future__ import annotations

import json
import re
from importlib.resources import files
from typing import Any

import asyncpg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aioflow.core.keys import shard_of
from aioflow.store.pool import SESSION_SETTINGS
from aioflow.store.queries import names, sql
from tests.store.bench import ids

UTILITY = {"migration_schema", "migration_table"}


async def test_every_statement_prepares(conn: asyncpg.Connection) -> None:
    for name in names():
        if name not in UTILITY:
            await conn.prepare(sql(name))


@pytest.mark.parametrize("name", names())
def test_every_statement_tells_its_purpose(name: str) -> None:
    text = sql(name)
    assert text.startswith("-- ")
    assert text.count("\n") <= 100
    code = re.sub(r"'[^']*'|--.*", "", text)
    assert code == code.lower()
    assert ";" not in code


TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=40)


async def test_shards_agree(conn: asyncpg.Connection) -> None:
    pairs = [("default", "order-42"), ("ü", "ж/漢"), ("a/b", "c"), ("a", "b/c")]

    @settings(max_examples=200, suppress_health_check=list(HealthCheck), database=None)
    @given(TEXT, TEXT)
    def collect(namespace: str, instance_id: str) -> None:
        pairs.append((namespace, instance_id))

    collect()
    found = await conn.fetch(
        "select aioflow.shard_of(a, b) s from unnest($1::text[], $2::text[]) with ordinality x(a, b, o) order by o",
        [a for a, _ in pairs],
        [b for _, b in pairs],
    )
    assert [r["s"] for r in found] == [shard_of(*pair) for pair in pairs]


def _plans(node: dict[str, Any]) -> list[dict[str, Any]]:
    return [node] + [p for child in node.get("Plans", []) for p in _plans(child)]


async def _explain(conn: asyncpg.Connection, name: str, *args: Any) -> list[dict[str, Any]]:
    plan = await conn.fetchval("explain (analyze, format json) " + sql(name), *args)
    return _plans(json.loads(plan)[0]["Plan"])


FILL_RUNS = """insert into aioflow.instance_hot (shard, namespace, instance_id, run_id, workflow, queue, visible_at)
select aioflow.shard_of('default', n::text), 'default', n::text, gen_random_uuid(), 'W', 'q' || n % 4,
       case when n % 50 = 0 then now() - interval '1 s' * n else 'infinity' end from generate_series(1, 20000) n"""
FILL_ACTIVITIES = """insert into aioflow.activity (shard, run_id, ref, namespace, instance_id, execution_id, activity,
 queue, visible_at, owner, scheduled_at) select aioflow.shard_of('default', n::text), gen_random_uuid(), 'a', 'default',
 n::text, gen_random_uuid(), 'act', 'q' || n % 4, now() - interval '1 s' * n,
 case when n % 50 = 0 then null else gen_random_uuid() end, now() from generate_series(1, 20000) n"""
WORKER = """insert into aioflow.worker (worker_id, identity, namespace, queues, lease_until, started_at, seen_at)
values ($1, 'w', 'default', '{q0}', now() + '1 h', now(), now())"""


@pytest.mark.parametrize("analyzed", [True, False])
async def test_claims_read_the_index_of_ready_rows_only(database: str, analyzed: bool) -> None:
    conn = await asyncpg.connect(database, server_settings=SESSION_SETTINGS)
    worker = ids()
    await conn.execute(FILL_RUNS)
    await conn.execute(FILL_ACTIVITIES)
    await conn.execute(WORKER, worker)
    if analyzed:
        await conn.execute("analyze aioflow.instance_hot, aioflow.activity")
    runs = await _explain(conn, "claim_runs", worker, 0, ["q0", "q2"], ["W"], 20, ids(), False)
    _reads_index(runs, "instance_hot_ready", 20)
    tokens = [ids() for _ in range(20)]
    acts = await _explain(conn, "claim_activities", worker, 0, ["q0", "q2"], ["act"], tokens, False)
    _reads_index(acts, "activity_ready", 20)
    due = await _explain(conn, "next_due", ["q0", "q1"], ["W"], ["act"], "default")
    assert {"instance_hot_ready", "activity_ready"} <= {p.get("Index Name") for p in due}
    suspects = await _explain(conn, "suspects", ["q0", "q2"], ["W"], ["act"], "default")
    _reads_index(suspects, "instance_hot_ready", 0)
    _reads_index(suspects, "activity_ready", 0)
    await conn.close()


def _reads_index(plans: list[dict[str, Any]], index: str, rows: int) -> None:
    scans = [p for p in plans if p.get("Index Name") == index]
    assert scans
    assert sum(p["Actual Rows"] * p["Actual Loops"] for p in scans) <= rows
    assert not [p for p in plans if p["Node Type"] == "Seq Scan" and p["Relation Name"] in ("instance_hot", "activity")]


async def test_a_commit_takes_all_locks_before_its_first_write(conn: asyncpg.Connection) -> None:
    """The window over the locked rows must not be planned away."""
    args: list[Any] = [
        [1],
        ["default"],
        ["1"],
        [ids()],
        [ids()],
        [ids()],
        [ids()],
        [1],
        [1],
        [0],
        [None],
        [None],
        [False],
    ]
    plans = await _explain(conn, "commit_runs", *args, *([[]] * 27))
    names_of = [p for p in plans if p.get("Subplan Name") in ("CTE judged", "CTE locked")]
    assert any(p["Node Type"] == "WindowAgg" for p in plans)
    assert len(names_of) == 2


def test_several_rows_are_locked_in_key_order() -> None:
    """Wherever a statement may lock more than one row and waits for them, it names the order."""
    folder = files("aioflow.store") / "sql"
    texts = [
        entry.read_text() for part in (folder, folder / "migrations") for entry in part.iterdir() if entry.is_file()
    ]
    seen = 0
    for text in texts:
        for found in re.finditer(r"for (no key )?update of \w+(?! skip locked)\b(?!\s+skip)", text):
            assert "order by" in text[max(0, found.start() - 120) : found.start()], text[:80]
            seen += 1
    assert seen >= 6
