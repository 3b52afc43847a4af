"""Decisions as an engine would make them of what it loaded: records, activities, timers, a close."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from hypothesis import strategies as st

from aioflow.core.events import Record
from aioflow.store import rows
from tests.faults.stateful.machine_base import Base, Task
from tests.faults.stateful.oracle_tables import RESULTS, TERMINAL

ACTIVITIES: list[dict[str, Any]] = [
    {"queue": "q", "activity": "act"},
    {"queue": "q", "activity": "act", "start_to_close": 10.0, "heartbeat": 4.0},
    {"queue": "q", "activity": "act", "schedule_to_start": 6.0, "schedule_to_close": 40.0},
    {
        "queue": "r",
        "activity": "bct",
        "schedule_to_close": 15.0,
        "start_to_close": 20.0,
        "priority": 1,
        "retry": '{"maximum_attempts":3}',
    },
    {"queue": "q", "activity": "act", "heartbeat": 3.0, "schedule_to_start": 2.5},
]


@dataclass(frozen=True, slots=True)
class Shape:
    """What a step does: activities by their number above, timers by their delays, whether it ends something."""

    activities: tuple[int, ...] = ()
    timers: tuple[float, ...] = ()
    cancel: bool = False
    close: str | None = None
    keep: bool = False
    part: bool = False


SHAPE = st.builds(
    Shape,
    activities=st.lists(st.integers(0, len(ACTIVITIES) - 1), max_size=2).map(tuple),
    timers=st.sampled_from([(), (), (2.0,), (0.0, 0.5, 12.5)]),
    cancel=st.sampled_from([False, False, False, True]),
    close=st.sampled_from([None] * 12 + ["completed", "failed", "cancelled"]),
    keep=st.sampled_from([False, False, True]),
    part=st.sampled_from([False, False, True]),
)


class Deciding(Base):
    """Makes commits."""

    def decide(self, task: Task, shape: Shape) -> rows.Commit:
        """A commit that consumes what was loaded (only the first of it: ``part``)."""
        loaded, run = task.loaded, task.run
        gen, inputs, fired = loaded.gen, list(loaded.inbox), list(loaded.timers)
        if shape.part and len(set(loaded.gens)) > 1:
            gen, fired = loaded.gens[0], []
            inputs = [one for one, at in zip(inputs, loaded.gens, strict=True) if at <= gen]
            self.saw("commit of a part")
        inputs.sort(key=lambda one: one.kind != "RunStarted")
        before = self.oracle.history.get(run.run_id, [])[: loaded.next_seq - 1]
        past: list[tuple[str, str | None]] = [(row["kind"], row["ref"]) for row in before]
        past += [(one.kind, one.ref) for one in [*inputs, *fired]]
        commit = rows.Commit(
            key=run.key,
            run_id=run.run_id,
            owner=run.owner,
            token=run.token,
            next_token=self.uid(),
            base_seq=loaded.next_seq,
            gen=gen,
            records=[*inputs, *fired],
            gone_timers=[one.ref for one in fired if one.ref is not None],
            close=shape.close,
            keep=shape.keep,
        )
        self._activities(commit, shape, past)
        self._timers(commit, shape, past)
        if shape.close is not None:
            commit.records.append(self.record(TERMINAL[shape.close], payload=b"\x0142"))
        return commit

    def _activities(self, commit: rows.Commit, shape: Shape, past: list[tuple[str, str | None]]) -> None:
        over = {ref for kind, ref in past if kind in (*RESULTS, "ActivityCancelRequested")}
        waiting = [ref for kind, ref in past if kind == "ActivityScheduled" and ref not in over and ref is not None]
        if shape.cancel and waiting:
            commit.cancelled_activities.append(waiting[0])
            commit.records.append(self.record("ActivityCancelRequested", waiting[0]))
            self.saw("activity cancelled")
        for number in shape.activities:
            new = rows.NewActivity(
                ref=f"a{self.uid().int}", execution_id=self.uid(), payload=b"\x01[]", **ACTIVITIES[number]
            )
            commit.activities.append(new)
            commit.records.append(self.record("ActivityScheduled", new.ref))

    def _timers(self, commit: rows.Commit, shape: Shape, past: list[tuple[str, str | None]]) -> None:
        over = {ref for kind, ref in past if kind in ("TimerFired", "TimerCancelled")}
        running = [ref for kind, ref in past if kind == "TimerStarted" and ref not in over and ref is not None]
        if shape.cancel and running:
            ref = running.pop(0)
            commit.gone_timers.append(ref)
            commit.records.append(self.record("TimerCancelled", ref))
            self.saw("timer cancelled")
        for delay in shape.timers:
            ref = f"t{self.uid().int}"
            due = self.oracle.now + timedelta(seconds=delay)
            self.due[commit.run_id, ref] = due
            running.append(ref)
            commit.timers.append((ref, due))
            commit.records.append(self.record("TimerStarted", ref))
        commit.next_due = min((self.due[commit.run_id, ref] for ref in running), default=None)

    def twisted(self, commit: rows.Commit, how: str) -> rows.Commit:
        """The same, with something that is not right."""
        changes: dict[str, dict[str, Any]] = {
            "base": {"base_seq": commit.base_seq + 1},
            "token": {"token": commit.next_token},
            "owner": {"owner": self.uid()},
            "run": {"run_id": self.uid()},
        }
        return replace(commit, **changes[how])


def result(kind: str, ref: str, token: Any, at: Any) -> Record:
    """The outcome of an attempt."""
    return Record(kind, 1, ref, at, f'{{"attempt_id":"{token}"}}', b"\x011")
