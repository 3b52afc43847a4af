"""Several activities of a run at once: who waits for more than one holds the run's row first, the others never wait.

Models the locks of `complete_activities.sql` and `commit_runs.sql` (activities in the order they are named, under the
hot row), `release_unknown_activities.sql` (hot rows, then activities), and those that take activities without the hot
row and therefore skip locked ones: `claim_activities.sql`, `heartbeats.sql`, `release_activities.sql`,
`reap_activities.sql`.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any, ClassVar

from tests.faults.model.engine import Model, Mutant, Rows, Steps

# The rows of each in the order in which it takes them: H is the hot row, a and b activities of its run.
WAITING = {"complete": ("H", "b", "a"), "commit": ("H", "a", "b"), "give back": ("H", "a", "b")}
SKIPPING = {"claim": ("b", "a"), "heartbeat": ("a", "b")}

WAITS = {
    "claim": ("a claim waits for locked activities",),
    "heartbeat": ("a heartbeat waits for locked activities",),
}


class Shared(Rows, namedtuple("Shared", "ended locks")):
    """``ended``: whose transaction is over."""

    __slots__ = ()


class Attempts(Model):
    rule = "locks of activities"
    held_to: ClassVar = {
        "release_unknown_activities.sql": (
            "join (select distinct u.shard, u.namespace, u.instance_id from unknown u) t",
            "for no key update of h",
            "where a.owner = $1 and a.token <> all ($2::uuid[]) order by a.shard, a.run_id, a.ref",
        ),
        "complete_activities.sql": ("from locked l join item i on",),
        "claim_activities.sql": ("for no key update skip locked",),
        "heartbeats.sql": ("for no key update of a skip locked",),
        "release_activities.sql": ("for no key update of a skip locked",),
        "reap_activities.sql": ("for no key update of a skip locked",),
    }
    mutants = (
        Mutant("what is not known is given back without the run's row", "deadlock"),
        Mutant("a claim waits for locked activities", "deadlock"),
        Mutant("a heartbeat waits for locked activities", "deadlock"),
        Mutant("outcomes are recorded without the run's row first", "deadlock"),
    )
    mortal = ("complete",)

    def start(self) -> Shared:
        return Shared(frozenset(), frozenset())

    def processes(self) -> dict[str, tuple[str, Any]]:
        return {name: ("take", self._rows(name, rows)) for name, rows in (WAITING | SKIPPING).items()}

    def _rows(self, name: str, rows: tuple[str, ...]) -> tuple[str, ...]:
        if name == "give back" and "what is not known is given back without the run's row" in self.flaws:
            return rows[1:]
        if name == "complete" and "outcomes are recorded without the run's row first" in self.flaws:
            return (*rows[1:], rows[0])
        return rows

    def take(self, s: Shared, me: str, rows: tuple[str, ...]) -> Steps:
        if not rows:
            yield "written, committed", s.but(ended=s.ended | {me}).unlock(me), "done", None
        elif s.free(rows[0], me):
            yield f"{rows[0]} locked", s.lock(rows[0], me), "take", rows[1:]
        elif me in SKIPPING and self.flaws.isdisjoint(WAITS.get(me, ())):
            yield f"{rows[0]} skipped", s, "take", rows[1:]

    def finally_over(self, s: Shared) -> str | None:
        left = (WAITING | SKIPPING).keys() - s.ended - {"complete"}
        return f"{sorted(left)} never came to an end" if left else None


MODELS = (Attempts,)
