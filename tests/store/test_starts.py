"""Starting, reserving, request keys, cancelling and terminating: who wins, and what callers are told."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aioflow.core import events as ev
from aioflow.store import rows
from tests.store.bench import NOW, Bench, activity, ids, inputs, key, later, record, signalled


async def close(bench: Bench, status: str = "completed") -> None:
    await bench.step(close=status)


async def test_conflict_policies_of_an_open_instance(bench: Bench) -> None:
    first = await bench.start()
    assert (await bench.start())[:2] == ("exists", first.run_id)
    assert (await bench.start(conflict="use_existing"))[:2] == ("existing", first.run_id)
    new = await bench.start(conflict="terminate_existing")
    assert new.outcome == "started"
    assert new.run_id != first.run_id
    described = await bench.store.describe(key())
    assert described is not None
    assert (described.run_id, described.number, described.run_count) == (new.run_id, 2, 2)
    old = await bench.store.describe(key(), first.run_id)
    assert old is not None
    assert (old.status, old.number, old.history_length, old.open) == ("terminated", 1, 2, False)
    (event,) = (await bench.store.read_history(key(), old.run_id or ids(), 1))[:1]
    assert (event.record.kind, event.record.attrs) == ("RunTerminated", '{"origin":"terminate_existing"}')
    await bench.healthy()


@pytest.mark.parametrize(
    ("status", "reuse", "outcome"),
    [
        ("completed", "allow", "started"),
        ("completed", "allow_failed_only", "closed"),
        ("failed", "allow_failed_only", "started"),
        ("failed", "reject", "closed"),
    ],
)
async def test_reuse_policies_of_a_closed_instance(bench: Bench, status: str, reuse: str, outcome: str) -> None:
    first = await bench.start()
    await close(bench, status)
    again = await bench.start(reuse=reuse, key="k")
    assert again.outcome == outcome
    assert (again.run_id == first.run_id) == (outcome == "closed")
    if outcome == "started":
        assert (await bench.claim_one()).run_id == again.run_id
    else:
        assert await bench.conn.fetchval("select count(*) from aioflow.request") == 0
        reserve = rows.ReserveRequest(
            namespace="default", instance_id="i", workflow="W", queue="q", reuse=reuse, key="r"
        )  # type: ignore[arg-type]  # parametrized
        assert (await bench.store.reserve([reserve]))[0][:2] == ("closed", first.run_id)
    await bench.healthy()


async def test_a_start_is_known_by_its_run_id(bench: Bench) -> None:
    run_id = ids()
    assert (await bench.start(run_id=run_id)).again is False
    assert await bench.start(run_id=run_id) == ("started", run_id, True)
    await close(bench)
    assert await bench.start(run_id=run_id) == ("started", run_id, True)
    second = await bench.start()
    assert await bench.start(run_id=run_id) == ("started", run_id, True)
    assert await bench.start(run_id=run_id, conflict="terminate_existing") == ("started", run_id, True)
    assert (await bench.store.describe(key())).run_id == second.run_id  # type: ignore[union-attr]  # it exists


async def test_concurrent_starts_have_one_winner(bench: Bench) -> None:
    for status in ("new", "closed"):
        outcomes = await asyncio.gather(*(bench.start() for _ in range(8)))
        assert sorted(o.outcome for o in outcomes) == ["exists"] * 7 + ["started"], status
        assert len({o.run_id for o in outcomes}) == 1
        await close(bench)
    outcomes = await asyncio.gather(*(bench.start(conflict="terminate_existing") for _ in range(5)))
    assert [o.outcome for o in outcomes] == ["started"] * 5
    assert len(await bench.claim()) == 1
    statuses = await bench.conn.fetch("select status, count(*) from aioflow.run group by 1 order by 1")
    assert [tuple(r) for r in statuses] == [("completed", 2), ("running", 1), ("terminated", 4)]
    await bench.healthy()


async def test_a_batch_of_generated_starts(bench: Bench) -> None:
    requests = [
        rows.StartRequest(
            namespace="default" if n else "nowhere", instance_id=f"g{n}", run_id=ids(), workflow="W", queue="q",
            record=record(ev.RunStarted(at=NOW, workflow="W", queue="q", seed=str(n))), alone=False,
        )
        for n in range(30)
    ]  # fmt: skip
    outcomes = await bench.store.start(requests)
    assert [o.outcome for o in outcomes] == ["unknown_namespace"] + ["started"] * 29
    assert await bench.store.start(requests[1:]) == [("started", r.run_id, True) for r in requests[1:]]
    loads = [await bench.load(run) for run in await bench.claim(100)]
    assert len(loads) == 29
    await bench.healthy()


async def test_request_keys(bench: Bench) -> None:
    first = await bench.start(key="k", digest=b"1")
    assert await bench.start(key="k", digest=b"1") == ("started", first.run_id, True)
    assert (await bench.start(key="k", digest=b"2")).outcome == "conflict"
    assert (await bench.start(key="u", conflict="use_existing"))[:2] == ("existing", first.run_id)
    await close(bench)
    assert await bench.start(key="u", conflict="use_existing") == ("existing", first.run_id, True)
    assert await bench.start(key="k", digest=b"1") == ("started", first.run_id, True)
    second = await bench.start(key="k2")
    assert second.outcome == "started"
    assert (await bench.signal(key="k", digest=b"1")).outcome == "conflict"
    assert (await bench.signal(key="s", digest=b"1")).outcome == "accepted"
    await close(bench)
    assert (await bench.signal(key="s", digest=b"1")).outcome == "duplicate"
    assert (await bench.signal(key="s", digest=b"2")).outcome == "conflict"
    assert (await bench.signal(key="new", digest=b"2")).outcome == "closed"
    assert (await bench.signal("nobody", key="s")).outcome == "unknown"
    await bench.healthy()


async def test_one_key_twice_in_a_batch_has_one_effect(bench: Bench) -> None:
    await bench.start()
    request = rows.SignalRequest(
        namespace="default", instance_id="i", record=signalled(), key="k", digest=b"1", alone=False
    )
    outcomes = await bench.store.signal([request, request])
    assert [o.outcome for o in outcomes] == ["accepted", "duplicate"]
    assert len(inputs(await bench.load(await bench.claim_one()))) == 2


async def test_concurrent_requests_of_one_key_have_one_effect(bench: Bench) -> None:
    await bench.start()
    outcomes = await asyncio.gather(*(bench.signal(key="k", digest=b"1") for _ in range(8)))
    assert sorted(o.outcome for o in outcomes) == ["accepted"] + ["duplicate"] * 7
    assert len(inputs(await bench.load(await bench.claim_one()))) == 2


async def test_keys_expire_when_told_to(bench: Bench) -> None:
    await bench.start()
    await bench.signal(key="short", keep=60.0)
    await bench.signal(key="long")
    assert await bench.store.expire_requests() == 0
    await later(bench.conn, 120)
    assert await bench.store.expire_requests() == 1
    assert (await bench.signal(key="long")).outcome == "duplicate"
    assert (await bench.signal(key="short")).outcome == "accepted"


def reservation(instance_id: str = "i", **options: Any) -> rows.ReserveRequest:
    return rows.ReserveRequest(namespace="default", instance_id=instance_id, workflow="W", queue="q", **options)


async def test_a_reserved_instance_takes_signals_and_starts_later(bench: Bench) -> None:
    assert (
        await bench.store.reserve([reservation(key="r"), reservation("j", key="r")]) == [("reserved", None, False)] * 2
    )
    assert await bench.store.reserve([reservation(key="r"), reservation(key="other")]) == [
        ("reserved", None, True),
        ("exists", None, False),
    ]
    sent = await bench.signal(record=signalled(ref="early"))
    assert (sent.outcome, sent.run_id, sent.ready) == ("accepted", None, False)
    assert await bench.claim() == []
    assert (await bench.result()).status == "reserved"
    described = await bench.store.describe(key())
    assert described is not None
    assert (described.status, described.inbox, described.open) == ("reserved", 1, True)
    await bench.healthy()
    started = await bench.start()
    assert started.outcome == "started"
    loaded = await bench.load(await bench.claim_one())
    assert [(r.kind, r.ref) for r in inputs(loaded)] == [("RunStarted", None), ("SignalReceived", "early")]
    assert (await bench.store.reserve([reservation(key="late")]))[0] == ("exists", started.run_id, False)
    await bench.healthy()


async def test_a_closed_instance_can_be_reserved_again(bench: Bench) -> None:
    await bench.start()
    await close(bench)
    assert (await bench.store.reserve([reservation(key="r")]))[0].outcome == "reserved"
    assert (await bench.result()).status == "reserved"
    assert (await bench.start()).outcome == "started"
    assert (await bench.store.describe(key())).number == 2  # type: ignore[union-attr]  # it exists
    await bench.healthy()


async def test_a_reserved_instance_can_be_terminated(bench: Bench) -> None:
    await bench.store.reserve([reservation(key="r")])
    await bench.signal()
    ended = await bench.terminate()
    assert ended.outcome == "closed"
    assert await bench.kinds(ended.run_id) == ["SignalReceived", "RunTerminated"]
    assert (await bench.result()).status == "terminated"
    assert (await bench.signal()).outcome == "closed"
    assert (await bench.start()).outcome == "started"
    await bench.healthy()


async def test_cancel_is_asked_once(bench: Bench) -> None:
    await bench.start()
    first = await bench.cancel(grace=30.0, key="a")
    assert (first.outcome, first.ready) == ("accepted", True)
    assert (await bench.cancel(key="b")).outcome == "duplicate"
    assert [o.outcome for o in await asyncio.gather(*(bench.cancel() for _ in range(3)))] == ["duplicate"] * 3
    loaded = await bench.load(await bench.claim_one())
    assert [r.kind for r in inputs(loaded)] == ["RunStarted", "CancelRequested"]
    assert (await bench.store.describe(key())).cancel_requested_at is not None  # type: ignore[union-attr]
    assert await bench.store.due_closes() == []
    await later(bench.conn, 60)
    (due,) = await bench.store.due_closes()
    assert (due.key, due.run_id, due.kind) == (key(), loaded.run.run_id, "cancel_grace")
    event = record(ev.RunTerminated(at=NOW, origin="cancel_grace"))
    assert (await bench.terminate(run_id=due.run_id, record=event)).outcome == "closed"
    assert await bench.store.due_closes() == []
    assert (await bench.cancel()).outcome == "closed"
    await bench.healthy()


async def test_a_reserved_instance_that_was_cancelled_starts_cancelled(bench: Bench) -> None:
    await bench.store.reserve([reservation(key="r")])
    assert (await bench.cancel()).outcome == "accepted"
    assert (await bench.cancel()).outcome == "duplicate"
    await bench.start()
    assert (await bench.cancel()).outcome == "duplicate"
    loaded = await bench.load(await bench.claim_one())
    assert [r.kind for r in inputs(loaded)] == ["RunStarted", "CancelRequested"]


async def test_the_grace_of_a_reserved_instance_begins_with_its_run(bench: Bench) -> None:
    for name, grace in (("limited", 30.0), ("free", None)):
        request = rows.ReserveRequest(namespace="default", instance_id=name, workflow="W", queue="q")
        await bench.store.reserve([request])
        assert (await bench.cancel(name, grace=grace)).outcome == "accepted"
        assert (await bench.cancel(name, grace=1.0)).outcome == "duplicate"
    await later(bench.conn, 3600)
    runs = {name: (await bench.start(name)).run_id for name in ("limited", "free")}
    assert await bench.store.due_closes() == []
    await later(bench.conn, 3629)
    assert await bench.store.due_closes() == []
    await later(bench.conn, 3631)
    (due,) = await bench.store.due_closes()
    assert (due.run_id, due.kind) == (runs["limited"], "cancel_grace")
    await bench.healthy()


async def test_terminate_names_the_run_it_means(bench: Bench) -> None:
    first = (await bench.start()).run_id
    await close(bench)
    second = (await bench.start()).run_id
    assert await bench.terminate(run_id=first) == ("already", first)
    assert (await bench.terminate(run_id=ids())).outcome == "unknown"
    assert (await bench.terminate("nobody")).outcome == "unknown"
    assert (await bench.terminate(key="t", digest=b"1")) == ("closed", second)
    third = (await bench.start()).run_id
    assert (await bench.terminate(key="t", digest=b"1")).outcome == "duplicate"
    assert (await bench.terminate(key="t", digest=b"2")).outcome == "conflict"
    assert (await bench.claim_one()).run_id == third
    await bench.healthy()


async def test_terminate_leaves_nothing_behind(bench: Bench) -> None:
    await bench.start()
    await bench.step(activities=[activity()], timers=[("t", NOW)])
    (attempt,) = await bench.claim_activities()
    await bench.cancel(grace=60.0)
    await bench.terminate()
    assert not (await bench.complete(attempt)).recorded
    assert await bench.leftovers() == 0
    await bench.healthy()


async def test_lists_and_pages(bench: Bench) -> None:
    for n in range(7):
        await bench.start(f"n{n}")
    await bench.store.reserve([reservation("r", key="r")])
    await bench.terminate("n3")
    listed = await bench.store.list_instances("default")
    assert [s.key.instance_id for s in listed] == ["r", "n6", "n5", "n4", "n3", "n2", "n1", "n0"]
    assert [s.status for s in listed[:1]] == ["reserved"]
    pages, after = [], None
    while page := await bench.store.list_instances("default", limit=3, after=after):
        pages += page
        after = rows.Page(page[-1].started_at, page[-1].key.instance_id)
    assert pages == listed
    ended = await bench.store.list_instances("default", status="terminated")
    assert [s.key.instance_id for s in ended] == ["n3"]
    assert len(await bench.store.list_instances("default", prefix="n", status="running")) == 6
    assert await bench.store.list_instances("default", workflow="Other") == []
    assert await bench.store.list_instances("elsewhere") == []


async def test_a_closed_instance_that_is_reserved_again_is_what_the_reservation_says(bench: Bench) -> None:
    first = await bench.start(workflow="Old")
    await bench.terminate()
    before = await bench.store.describe(key())
    assert (await bench.store.reserve([reservation()]))[0].outcome == "reserved"
    (listed,) = await bench.store.list_instances("default")
    assert before is not None
    assert before.started_at is not None
    assert (listed.workflow, listed.status, listed.started_at > before.started_at) == ("W", "reserved", True)
    await bench.terminate()
    ended = await bench.store.describe(key())
    assert ended is not None
    assert ended.started_at == listed.started_at
    old = await bench.store.describe(key(), first.run_id)
    assert old is not None
    assert (old.workflow, ended.workflow) == ("Old", "W")


async def test_terminating_a_run_that_nobody_knows_names_none(bench: Bench) -> None:
    for _ in range(2):
        await bench.start()
        assert await bench.terminate(run_id=ids()) == ("unknown", None)
        await bench.terminate()
