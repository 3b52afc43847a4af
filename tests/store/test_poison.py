"""What kills workers: crashes are counted, suspects claimed apart, the guilty quarantined, others not blamed."""

from __future__ import annotations

from typing import Any

import pytest

from aioflow.core.fault import set_fault_hook
from aioflow.store import rows
from aioflow.store.workers import Released
from tests.store.bench import Bench, activity, ids, key, later, signalled


class Mortuary:
    """Workers that claim something and die."""

    def __init__(self, bench: Bench) -> None:
        self.bench, self.ahead = bench, 0.0

    async def claim(self, *, suspects: bool = False) -> Any:
        """All runs and activities of one lane, by a new worker; their instance ids, and refs of activities."""
        bench = self.bench
        worker = await bench.add_worker(lease=5.0)
        runs = await bench.store.claim_runs(worker, 0, ["q"], ["W"], 10, ids(), suspects)
        attempts = await bench.store.claim_activities(worker, 0, ["q"], ["act"], [ids() for _ in range(10)], suspects)
        return {run.key.instance_id: run for run in runs} | {one.ref: one for one in attempts}

    async def die(self, **options: Any) -> Released:
        """The lease of the last worker ends."""
        self.ahead += 60
        await later(self.bench.conn, self.ahead)
        return await self.bench.store.reap(0.0, **options)

    async def lanes(self) -> dict[str, tuple[int, int]]:
        """Crashes and isolation, by instance id or ref."""
        found = await self.bench.conn.fetch(
            "select instance_id as name, crashes, isolation from aioflow.instance_hot where next_seq = 1"
            " union all select ref, crashes, isolation from aioflow.activity"
        )
        return {r["name"]: (r["crashes"], r["isolation"]) for r in found}


@pytest.fixture
async def mortuary(bench: Bench) -> Mortuary:
    await bench.start("holder")
    await bench.step(activities=[activity("bad"), activity("good")])
    for name in ("run", "neighbour"):
        await bench.start(name)
    return Mortuary(bench)


ALL = ["bad", "good", "neighbour", "run"]


async def test_the_guilty_are_quarantined_and_neighbours_are_not_blamed(mortuary: Mortuary) -> None:
    bench = mortuary.bench
    assert sorted(await mortuary.claim()) == ALL
    assert (await mortuary.die()).suspects == []
    assert await mortuary.claim(suspects=True) == {}
    assert sorted(await mortuary.claim()) == ALL
    released = await mortuary.die()
    assert sorted((one.instance_id, one.workflow, one.activity, one.crashes) for one in released.suspects) == [
        ("holder", None, "act", 2),
        ("holder", None, "act", 2),
        ("neighbour", "W", None, 2),
        ("run", "W", None, 2),
    ]
    assert await bench.store.next_due("default", ["q"], ["W"], ["act"]) == (None, None)
    assert await bench.store.suspects("default", ["q"], ["W"], ["act"]) == (True, True)
    assert await bench.store.suspects("default", ["q"], ["X"], ["act"]) == (False, True)
    assert await bench.store.suspects("other", ["q"], ["W"], ["act"]) == (False, False)

    # What is ordinary and runs beside a suspect is not blamed; each suspect is, alone.
    await bench.start("fresh")
    assert sorted(await mortuary.claim()) == ["fresh"]
    worker = bench.worker
    (run,) = await bench.store.claim_runs(worker, 0, ["q"], ["W"], 1, ids(), True)
    released = await mortuary.die()
    assert [one.instance_id for one in released.quarantined] == [run.key.instance_id]
    lanes = await mortuary.lanes()
    assert lanes.pop("fresh") == (0, 0)
    assert lanes.pop(run.key.instance_id) == (3, 2)
    assert set(lanes.values()) == {(2, 1)}

    # The others come through: a commit, a completion, and a retry by the attempt's own worker clear them.
    claimed = await mortuary.claim(suspects=True)
    (other,) = {"run", "neighbour"} - {run.key.instance_id}
    assert sorted(claimed) == sorted(["bad", "good", other])
    await bench.store.commit([bench.decide(await bench.load(claimed[other]))])
    assert (await bench.hot(other))["crashes"] == (await bench.hot(other))["isolation"] == 0
    await bench.complete(claimed["good"])
    bad = claimed["bad"]
    again = rows.ActivityRetry(key=bad.key, run_id=bad.run_id, ref="bad", token=bad.token, delay=0.0, failure=None)
    await bench.store.retry_activities([again])
    assert (await mortuary.lanes())["bad"] == (0, 0)
    await bench.healthy()


async def _check_told(bench: Bench) -> None:
    reason = "quarantined: 3 workers in a row died while they ran it"
    told = await bench.store.describe(key("run"))
    assert told is not None
    assert (told.status, told.open, told.quarantined, told.crashes) == ("running", True, True, 3)
    assert told.blocked_reason == reason
    holder = await bench.store.describe(key("holder"))
    assert holder is not None
    assert not holder.quarantined
    assert holder.blocked_reason == "activity act is quarantined: 3 workers in a row died while they ran it"
    assert holder.run_id is not None
    pending = await bench.store.pending_activities(holder.key.shard, holder.run_id)
    assert [(one.ref, one.quarantined, one.crashes, one.attempt) for one in pending] == [
        ("bad", True, 3, 1),
        ("good", True, 3, 1),
    ]
    listed = {one.key.instance_id: one.blocked_reason for one in await bench.store.list_instances("default")}
    assert listed == {"run": reason, "neighbour": reason, "holder": holder.blocked_reason}
    found = await bench.store.quarantined("default")
    assert [(one.instance_id, one.activity, one.ref, one.workflow) for one in found] == [
        ("holder", "act", "bad", "W"),
        ("holder", "act", "good", "W"),
        ("neighbour", None, None, "W"),
        ("run", None, None, "W"),
    ]
    assert await bench.store.quarantined("other") == []


async def test_quarantine_is_open_visible_and_left_by_hand_only(mortuary: Mortuary) -> None:
    bench = mortuary.bench
    for suspects in (False, False, True):
        assert sorted(await mortuary.claim(suspects=suspects)) == ALL
        await mortuary.die()
    assert set((await mortuary.lanes()).values()) == {(3, 2)}
    for suspects in (False, True):
        assert await mortuary.claim(suspects=suspects) == {}
    assert await bench.store.suspects("default", ["q"], ["W"], ["act"]) == (False, False)
    assert await bench.store.next_due("default", ["q"], ["W"], ["act"]) == (None, None)
    assert await bench.store.backlog() == []

    await _check_told(bench)

    # It takes messages, which does not let it out, and may be ended by force.
    assert (await bench.signal("run", record=signalled())).outcome == "accepted"
    assert await mortuary.claim() == {}
    await bench.healthy()
    assert (await bench.terminate("neighbour")).outcome == "closed"

    outcomes = await bench.store.release_quarantined([key("run"), key("holder"), key("neighbour"), key("none")])
    assert [(one.outcome, one.run_queue, one.activity_queues) for one in outcomes] == [
        ("released", "q", ()),
        ("released", None, ("q",)),
        ("closed", None, ()),
        ("unknown", None, ()),
    ]
    assert [one.outcome for one in await bench.store.release_quarantined([key("run")])] == ["idle"]
    assert await bench.store.quarantined() == []
    assert await mortuary.claim() == {}
    assert sorted(await mortuary.claim(suspects=True)) == ["bad", "good", "run"]  # alone again
    await mortuary.die()
    assert len(await bench.store.quarantined()) == 3  # one more crash is enough
    await bench.healthy()


async def test_how_many_crashes_make_a_quarantine_is_a_setting(mortuary: Mortuary) -> None:
    for n, suspects in enumerate((False, False, True, True, True), 1):
        assert sorted(await mortuary.claim(suspects=suspects)) == ALL
        released = await mortuary.die(quarantine_after=5)
        assert len(released.quarantined) == (4 if n == 5 else 0)
        assert set((await mortuary.lanes()).values()) == {(n, 2 if n == 5 else 1 if n >= 2 else 0)}


async def test_goodbyes_and_lost_claims_are_not_crashes(mortuary: Mortuary) -> None:
    bench = mortuary.bench
    for _ in range(3):
        assert sorted(await mortuary.claim()) == ALL
        await bench.store.unregister_worker(bench.worker)
    for _ in range(3):
        claimed = await mortuary.claim()
        assert await bench.store.bump_epoch(bench.worker) == 1
        await bench.store.release_unknown(bench.worker, [], [])
    for _ in range(3):
        claimed = await mortuary.claim()
        held = [one for one in claimed.values() if isinstance(one, rows.ClaimedActivity)]
        assert [one.deliveries for one in held] == [1, 1]
        assert claimed["run"].attempt == 1
        await bench.store.release_activities(
            [rows.HeldActivity(one.key.shard, one.run_id, one.ref, one.token) for one in held]
        )
        runs = [one for one in claimed.values() if isinstance(one, rows.ClaimedRun)]
        await bench.store.release_runs(
            [rows.ReleaseRun(key=one.key, owner=one.owner, token=one.token, uncount=True) for one in runs]
        )
    assert set((await mortuary.lanes()).values()) == {(0, 0)}


async def test_a_goodbye_that_comes_between_a_death_and_its_count_is_no_crash(mortuary: Mortuary) -> None:
    bench = mortuary.bench
    await mortuary.claim()

    async def gone(point: str) -> None:
        if point == "reap_blame.before_send":
            raise RuntimeError(point)

    set_fault_hook(gone)
    try:
        with pytest.raises(RuntimeError):
            await mortuary.die()
    finally:
        set_fault_hook(None)
    await bench.store.unregister_worker(bench.worker)
    assert set((await mortuary.lanes()).values()) == {(0, 0)}
    assert await bench.store.reap(0.0) == ([], set(), set(), [], [])


async def test_a_run_whose_code_fails_is_no_suspect_any_more(mortuary: Mortuary) -> None:
    bench = mortuary.bench
    for _ in range(2):
        await mortuary.claim()
        await mortuary.die()
    run = (await mortuary.claim(suspects=True))["run"]
    for alive in (False, True):
        release = rows.ReleaseRun(key=run.key, owner=run.owner, token=run.token, blocked_reason="x", alive=alive)
        assert await bench.store.release_runs([release]) == ["q"]
        assert (await mortuary.lanes())["run"] == ((0, 0) if alive else (2, 1))
        (run,) = await bench.store.claim_runs(bench.worker, 0, ["q"], ["W"], 1, ids(), not alive)


async def test_a_new_run_of_the_instance_is_innocent(mortuary: Mortuary) -> None:
    for suspects in (False, False, True):
        await mortuary.claim(suspects=suspects)
        await mortuary.die()
    assert (await mortuary.bench.start("run", conflict="terminate_existing")).outcome == "started"
    assert (await mortuary.lanes())["run"] == (0, 0)


async def test_code_that_holds_up_its_worker_again_and_again_is_set_aside(mortuary: Mortuary) -> None:
    bench = mortuary.bench
    for harm in range(1, 6):
        run = (await mortuary.claim(suspects=harm > 2))["run"]
        release = rows.ReleaseRun(key=run.key, owner=run.owner, token=run.token, blocked_reason="slow", harmful=True)
        assert await bench.store.release_runs([release]) == ["q"]
        assert (await mortuary.lanes())["run"] == (harm, 2 if harm == 5 else 1 if harm >= 2 else 0)
    told = await bench.store.describe(key("run"))
    assert told is not None
    assert (told.open, told.quarantined, told.blocked_reason) == (True, True, "quarantined after 5 tries: slow")
    for suspects in (False, True):
        assert "run" not in await mortuary.claim(suspects=suspects)
    await bench.healthy()
