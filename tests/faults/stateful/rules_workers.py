"""Rules for worker processes: leases, deaths, good-byes, lost claims; and for time itself."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from aioflow.store.workers import Released
from tests.faults.stateful.deciding import SHAPE, Shape
from tests.faults.stateful.machine_base import LOST, PICK, PLACES
from tests.faults.stateful.oracle_tables import FOREVER
from tests.faults.stateful.rules_activities import ActivityRules
from tests.faults.stateful.world import Killed

LEASE = st.sampled_from([30.0, 1000.0, 1000.0])
MOST = st.sampled_from([2, 3, 3])
CUTS = st.sampled_from(
    ["reap_pending.before_send", "reap_blame.before_send", "reap_blame.after_send", "reap_settle.before_send"]
)


class WorkerRules(ActivityRules):
    """Processes come, live, hang, die, and are found dead."""

    @initialize(lease=LEASE, shape=SHAPE)
    def begin(self, lease: float, shape: Shape) -> None:
        """Two workers; two runs that have taken a step, one of them held; activities, one of them running."""
        self.add_worker(1000.0)
        self.add_worker(lease)
        self.start([(place, None, ("W", "q"), "fail", "allow", 0) for place in PLACES[:2]], None)
        self.turn(1, replace(shape, activities=(1, *shape.activities), close=None))
        self.turn(1, replace(shape, activities=(2, 4), close=None, keep=True))
        self.claim_activities(1, 0, ["q"], ["act"], 1, False, None)

    @precondition(lambda self: len(self.workers) < 8)
    @rule(lease=LEASE, namespace=st.sampled_from(["default", "default", "default", "other"]))
    def register(self, lease: float, namespace: str) -> None:
        self.add_worker(lease, namespace)
        self.saw("worker of another namespace" if namespace == "other" else "worker registered")

    @rule(who=PICK, lease=LEASE)
    def renew(self, who: int, lease: float) -> None:
        alive = self.ask("renew_lease", self.pick(self.workers, who) if who % 2 else self.someone(who), lease)
        self.saw("lease renewed" if alive else "renewal of a dead one")

    @rule(who=PICK, forgotten=st.integers(0, 3), lost=LOST)
    def give_back_unknown(self, who: int, forgotten: int, lost: str | None) -> None:
        """A claim's answer was lost: void old claims, then give back what one does not know."""
        worker = self.someone(who)
        if self.ask("bump_epoch", worker, lost=lost) is None:
            self.saw("epoch of a dead one")
            return
        runs = [task.run.token for task in self.live() if task.run.owner == worker][forgotten:]
        attempts = [one.token for one in self.running() if one.owner == worker][forgotten:]
        released = self.ask("release_unknown", worker, runs, attempts)
        late = (worker, self.oracle.worker[worker]["claim_epoch"] - 1, ["q", "r"], ["W", "V"], 3, self.uid())
        assert self.ask("claim_runs", *late) == [], "a claim from before found something"
        self.saw("unknown runs given back", bool(released.run_queues))
        self.saw("unknown activities given back", bool(released.activity_queues))

    def buried(self, name: str, *args: Any) -> Released:
        """An operation that releases the work of dead ones; the lists of what crashed have no order."""
        expected = getattr(self.oracle, name)(*args)
        got = self.world.run(getattr(self.world.store, name)(*args))
        got = got._replace(
            workers=sorted(got.workers),
            suspects=sorted(got.suspects, key=str),
            quarantined=sorted(got.quarantined, key=str),
        )
        assert got == expected, f"{name}: the store answered {got}, the oracle {expected}"
        self.saw("declared dead", len(got.workers))
        self.saw("suspect run", sum(one.activity is None for one in got.suspects))
        self.saw("suspect activity", sum(one.activity is not None for one in got.suspects))
        self.saw("quarantined run", sum(one.activity is None for one in got.quarantined))
        self.saw("quarantined activity", sum(one.activity is not None for one in got.quarantined))
        return got

    @rule(
        how=st.sampled_from(["dies", "good-bye", "good-bye cut", "reaper", "forgotten"]),
        who=PICK,
        most=MOST,
        cut=CUTS,
    )
    def worker_goes(self, how: str, who: int, most: int, cut: str) -> None:
        """Dead, gone, or only found so; and whoever finds it may die of that as well."""
        if how == "dies":
            self.die(who, most)
        elif how == "reaper":
            self.reaper_dies(who, cut)
        elif how == "forgotten":
            self.saw("worker forgotten", self.ask("forget_workers", 60.0 * (most - 2)))
        else:
            self.say_good_bye(who, how == "good-bye cut")

    @rule(times=st.integers(1, 3), most=MOST, suspects=st.sampled_from([True, True, False]), release=st.booleans())
    def kill_again_and_again(self, times: int, most: int, suspects: bool, release: bool) -> None:
        """Workers claim what there is, and die with it."""
        for _ in range(times):
            self.add_worker(5.0)
            for lane in (True, False) if suspects else (False,):
                self.claim_runs(1, 0, ["q", "r"], ["W", "V"], 3, lane, None)
                self.claim_activities(1, 0, ["q", "r"], ["act", "bct"], 3, lane, None)
            self.die(0, most)
        if release and self.oracle.quarantined():
            self.release_quarantined([])

    def die(self, who: int, most: int) -> None:
        """The lease of a process ends, and somebody notices."""
        self.end_lease(who)
        self.buried("reap", 0.0, most)

    def reaper_dies(self, who: int, cut: str) -> None:
        """Whoever reaps is gone in the middle of it."""
        self.end_lease(who)
        self.oracle.declare_dead()
        pending = [w for w, row in self.oracle.worker.items() if row["dead"] and not row["released"]]
        self.world.strike(cut, Killed(cut))
        if pending or cut.startswith("reap_pending"):
            with pytest.raises(Killed):
                self.world.run(self.world.store.reap(0.0))
        else:
            self.world.run(self.world.store.reap(0.0))
        if cut in ("reap_blame.after_send", "reap_settle.before_send"):
            self.oracle.blame()
        if cut == "reap_settle.before_send":
            self.oracle.bury(pending)
            for worker in pending:
                self.oracle.worker[worker]["released"] = False
        self.world.strike("", Killed())
        self.saw("reaper died", bool(pending))

    def end_lease(self, who: int) -> None:
        """Of a worker that lives: mostly the one that ends first, since the others may not outlast any longer one."""
        ends = sorted((row["lease_until"] for row in self.oracle.worker.values() if not row["dead"]), reverse=True)
        if ends:
            end = self.pick(ends, who if who % 8 == 0 else 0)
            self.move(max(end - self.oracle.now, timedelta(0)) + timedelta(microseconds=1))

    def say_good_bye(self, who: int, cut: bool) -> None:
        uncounted = [w for w, row in self.oracle.worker.items() if row["dead"] and row["blame"] is None]
        worker = self.pick(uncounted, who) if uncounted else self.someone(who)
        if worker not in self.oracle.worker:
            return
        early = self.oracle.worker[worker]["dead"] and self.oracle.worker[worker]["blame"] is None
        if not cut:
            self.buried("unregister_worker", worker)
        else:
            self.world.strike("unregister_worker.after_send", Killed())
            with pytest.raises(Killed):
                self.world.run(self.world.store.unregister_worker(worker))
            self.oracle.retire(worker)
        self.saw("good-bye")
        self.saw("good-bye of one declared dead", early)

    # -- time ---------------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([0.25, 1.0, 3.0, 10.0, 25.0]))
    def time_passes(self, seconds: float) -> None:
        self.move(timedelta(seconds=seconds))
        self.saw("time passes")

    @rule(n=PICK, edge=st.sampled_from([0, 0, -1, 1]))
    def something_is_due(self, n: int, edge: int) -> None:
        """To the moment at which something is due, or a microsecond beside it."""
        times = self.coming()
        if times:
            self.move(self.pick(times[-3:], n) + timedelta(microseconds=edge) - self.oracle.now)
            self.still = True
            self.saw("something is due")

    def coming(self) -> list[Any]:
        oracle = self.oracle
        named: list[Any] = [row["due_at"] for row in oracle.timer.values()]
        for row in [*oracle.hot.values(), *oracle.activity.values()]:
            named += [row["visible_at"], row.get("deadline")]
        named += [row["lease_until"] for row in oracle.worker.values()]
        named += [row["expires_at"] for row in oracle.request.values()]
        return sorted({at for at in named if at is not None and oracle.now < at < FOREVER}, reverse=True)
