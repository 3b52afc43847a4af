"""Rules for workflow tasks: claims, loads, commits of all sorts, releases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from aioflow.errors import DatabaseUnavailable
from aioflow.store import rows
from tests.faults.stateful.deciding import SHAPE, Deciding, Shape
from tests.faults.stateful.machine_base import LOST, OLD, PICK, PICKS, Task, loaded_as
from tests.faults.stateful.oracle_runs import widened
from tests.faults.stateful.rules_clients import ClientRules

QUEUES = st.sampled_from([["q", "r"], ["q", "r"], ["r", "q"], ["q"]])
EPOCHS_BACK = st.sampled_from([0, 0, 0, 1])
TWIST = st.sampled_from(["base", "token", "owner", "run"])


class RunRules(ClientRules, Deciding):
    """Everything a worker does with runs, and what zombies do with old ones."""

    def live(self) -> list[Task]:
        """Tasks whose token still holds their run; of each the last that was loaded."""
        held = {
            task.run.token: task
            for task in self.tasks
            if self.oracle.held(task.run.key, task.run.owner, task.run.token) is not None
        }
        return list(held.values())

    def some_tasks(self, picks: Sequence[int], old: bool) -> list[Task]:
        """Tasks of different instances, live ones or any."""
        chosen = self.some(self.tasks if old else self.live(), picks)
        return list({task.run.key: task for task in chosen}.values())

    def open(self, run: rows.ClaimedRun) -> Task | None:
        """Load, and compare; what was loaded is kept."""
        (loaded,) = self.world.run(self.world.store.load([run]))
        expected = self.oracle.load([run])
        assert [loaded_as(loaded)] == expected, f"load: {loaded_as(loaded)}, the oracle {expected}"
        if loaded is None:
            self.saw("load of what is not held")
            return None
        self.saw("timer loaded", len(loaded.timers))
        self.tasks.append(Task(run, loaded))
        return self.tasks[-1]

    @precondition(lambda self: self.workers)
    @rule(
        who=PICK,
        back=EPOCHS_BACK,
        queues=QUEUES,
        workflows=st.sampled_from([["W", "V"], ["W", "V"], ["W"]]),
        limit=st.integers(1, 3),
        suspects=st.booleans(),
        lost=LOST,
    )
    def claim_runs(
        self,
        who: int,
        back: int,
        queues: list[str],
        workflows: list[str],
        limit: int,
        suspects: bool,
        lost: str | None,
    ) -> None:
        worker = self.someone(who)
        epoch = self.oracle.worker.get(worker, {"claim_epoch": 0})["claim_epoch"] - back
        suspects = suspects and bool(self.oracle.claimable_runs(worker, epoch, queues, workflows, True))
        due = self.oracle.claimable_runs(worker, epoch, queues, workflows, suspects)
        asked = (worker, epoch, queues, workflows, widened(limit, due), self.uid(), suspects)
        if lost is not None:
            self.claim_lost("claim_runs", asked, lost)
            return
        got = self.world.run(self.world.store.claim_runs(*asked))
        expected = self.oracle.claim_runs(*asked)
        assert sorted(got, key=_by_key) == sorted(expected, key=_by_key), f"claimed {got}, the oracle {expected}"
        self.saw("suspect run claimed", len(got) if suspects else 0)
        self.saw("run claimed", len(got))
        for run in sorted(got, key=_by_key):
            self.open(run)

    def claim_lost(self, name: str, asked: tuple[Any, ...], lost: str) -> None:
        """A claim whose answer was lost is told at once; it may have taken what nobody knows of."""
        self.world.lose(f"{name}.{lost}")
        with pytest.raises(DatabaseUnavailable):
            self.world.run(getattr(self.world.store, name)(*asked))
        taken = getattr(self.oracle, name)(*asked) if lost == "after_send" else []
        self.saw(f"{name}: answer lost", len(taken))

    @precondition(lambda self: self.tasks)
    @rule(n=PICK, old=OLD)
    def load(self, n: int, old: bool) -> None:
        """Load again, with the clock of now."""
        for task in self.some_tasks([n], old):
            self.open(_at(task.run, self.oracle.now))

    # -- commits ------------------------------------------------------------------------------------

    def send(self, commits: list[rows.Commit], lost: str | None = None) -> list[rows.CommitOutcome]:
        """Commit, compare, note what was seen; what is still held is loaded again."""
        held = [self.oracle.held(one.key, one.owner, one.token) for one in commits]
        outcomes: list[rows.CommitOutcome] = self.ask("commit", commits, lost=lost)
        self.commits += commits
        for one, before, outcome in zip(commits, held, outcomes, strict=True):
            self.saw(f"commit {outcome.status}")
            self.saw("commit recognised", before is None and outcome.status == "ok")
            self.saw("commit recognised after its answer was lost", lost == "after_send" and outcome.status == "ok")
            self.saw("commit closes", one.close is not None and outcome.status == "ok")
            self.saw("commit kept", outcome.held and outcome.status == "ok")
            self.saw("commit rearms", outcome.rearmed)
            hot = self.oracle.hot.get((one.key.namespace, one.key.instance_id))
            self.saw("sealed", outcome.status == "refused" and bool(hot and hot["sealed"]))
            self._go_on(one, outcome)
        return outcomes

    def _go_on(self, one: rows.Commit, outcome: rows.CommitOutcome) -> None:
        """Who still holds the run loads it again, by the clock of the outcome."""
        token = one.token if outcome.status == "refused" else one.next_token
        task = next((t for t in reversed(self.tasks) if t.run.token == one.token), None)
        if outcome.held and outcome.clock is not None and task is not None:
            self.open(_at(task.run, outcome.clock, token=token))

    @precondition(lambda self: self.live())
    @rule(picks=PICKS, shapes=st.lists(SHAPE, min_size=3, max_size=3), lost=LOST)
    def commit(self, picks: list[int], shapes: list[Shape], lost: str | None) -> None:
        """One step of some runs, in one call."""
        if len(picks) > len(self.live()):
            self.claim_runs(1, 0, ["q", "r"], ["W", "V"], 3, False, None)
        tasks = self.some_tasks(picks, old=False)
        commits = [self.decide(task, shape) for task, shape in zip(tasks, shapes, strict=False)]
        self.saw("commits in one call", len(commits) > 1)
        self.send(commits, lost)

    @rule(who=PICK, shape=SHAPE)
    def turn(self, who: int, shape: Shape) -> None:
        """What a worker does all day: claim, load, commit."""
        self.claim_runs(who or 1, 0, ["q", "r"], ["W", "V"], 1, False, None)
        if self.live():
            self.step(0, shape)

    @rule(who=PICK, shape=SHAPE)
    def another_turn(self, who: int, shape: Shape) -> None:
        self.turn(who, shape)

    @precondition(lambda self: self.live())
    @rule(n=PICK, shape=SHAPE)
    def step(self, n: int, shape: Shape) -> None:
        """The usual: load, decide, commit."""
        task = self.pick(self.live(), n)
        fresh = self.open(_at(task.run, self.oracle.now))
        assert fresh is not None
        self.send([self.decide(fresh, shape)])

    @precondition(lambda self: self.tasks)
    @rule(picks=PICKS, shape=SHAPE, lost=LOST)
    def commit_of_a_zombie(self, picks: list[int], shape: Shape, lost: str | None) -> None:
        """Whatever was claimed and loaded once, maybe beside live ones."""
        self.send([self.decide(task, shape) for task in self.some_tasks(picks, old=True)], lost)

    @precondition(lambda self: self.commits)
    @rule(picks=PICKS, lost=LOST)
    def commit_again(self, picks: list[int], lost: str | None) -> None:
        """Commits that were sent before, unchanged, maybe long after."""
        chosen = {one.key: one for one in self.some(self.commits, picks)}
        self.send(list(chosen.values()), lost)
        self.saw("commit again")

    @precondition(lambda self: self.live())
    @rule(n=PICK, shape=SHAPE, twist=TWIST)
    def commit_of_a_stranger(self, n: int, shape: Shape, twist: str) -> None:
        """All is right, but one thing that tells the holder from others."""
        self.send([self.twisted(self.decide(self.pick(self.live(), n), shape), twist)])

    @precondition(lambda self: self.live())
    @rule(n=PICK, times=st.integers(1, 4), status=st.sampled_from(["completed", "failed"]), give_up=st.booleans())
    def close_while_signals_come(self, n: int, times: int, status: str, give_up: bool) -> None:
        """The run is about to close, and each time something comes between; or its worker gives it back."""
        task: Any = self.pick(self.live(), n)
        place = (task.run.key.namespace, task.run.key.instance_id)
        for _ in range(times):
            task = self.open(_at(task.run, self.oracle.now))
            self.tell("signal", self.signals([(place, "generated")]), None)
            (outcome,) = self.send([self.decide(task, Shape(close=status))])
            if outcome.status != "refused":
                return
        if give_up:
            run = task.run
            self.saw("sealed run given back", self.oracle.hot[place]["sealed"])
            self.ask("release_runs", [rows.ReleaseRun(key=run.key, owner=run.owner, token=run.token)])

    @precondition(lambda self: self.tasks)
    @rule(
        picks=PICKS,
        old=OLD,
        back_off=st.sampled_from([(0.0, None), (0.0, None), (8.0, "no code"), (0.0, "held up")]),
        flags=st.tuples(st.booleans(), st.sampled_from([False, False, True]), st.booleans()),
        most=st.sampled_from([2, 3, 5]),
        lost=LOST,
    )
    def release_runs(
        self, picks: list[int], old: bool, back_off: Any, flags: tuple[bool, bool, bool], most: int, lost: str | None
    ) -> None:
        uncount, alive, harmful = flags
        releases = [
            rows.ReleaseRun(
                key=task.run.key,
                owner=task.run.owner,
                token=task.run.token,
                delay=back_off[0],
                blocked_reason=back_off[1],
                uncount=uncount,
                alive=alive and not harmful,
                harmful=harmful,
            )
            for task in self.some_tasks(picks, old)
        ]
        for queue in self.ask("release_runs", releases, most, lost=lost):
            self.saw("run released" if queue is not None else "release of what is not held")


def _by_key(run: rows.ClaimedRun) -> Any:
    return run.key


def _at(run: rows.ClaimedRun, clock: Any, **changes: Any) -> rows.ClaimedRun:
    return replace(run, clock=clock, **changes)
