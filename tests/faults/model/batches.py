"""Several instances in one commit: all are locked first, in key order; each is judged by itself.

Models `commit_runs.sql` for two workers whose batches share instances, against a batch of deliveries (`deliver()`), a
batch of outcomes (`complete_activities.sql`) and a forced close of one of them; what is fenced or refused leaves the
others alone. Closes that concern other instances go by ingress (see children), never by a lock in here.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any, ClassVar

from tests.faults.model.engine import Model, Mutant, Rows, Steps, Wrong

ROWS = ("A", "B", "C")
BATCHES = {"w1": ("B", "A"), "w2": ("C", "B"), "s": ("A", "C")}


class Shared(Rows, namedtuple("Shared", "hot written answers locks")):
    """``hot``: per instance (token, wake_gen, armed) or None; ``written``: (instance, by); answers: (by, row, told)."""

    __slots__ = ()

    def row(self, name: str) -> Any:
        """The hot row."""
        return self.hot[ROWS.index(name)]

    def put(self, name: str, row: Any) -> Any:
        """With another hot row."""
        n = ROWS.index(name)
        return self.but(hot=(*self.hot[:n], row, *self.hot[n + 1 :]))


class Batches(Model):
    rule = "batch commits"
    held_to: ClassVar = {
        "commit_runs.sql": (
            "order by h.shard, h.namespace, h.instance_id for no key update of h",
            "count(*) over () as locks",
            "select * from judged where status = 'ok'",
            "select j.ord, j.status, j.wake_gen, j.clock from judged j",
        ),
        "complete_activities.sql": ("order by h.shard, h.namespace, h.instance_id for no key update of h",),
        "release_runs.sql": ("order by h.shard, h.namespace, h.instance_id for no key update of h",),
        "reap_runs.sql": ("order by h.shard, h.namespace, h.instance_id limit $2 for no key update of h",),
        "release_unknown_runs.sql": ("order by h.shard, h.namespace, h.instance_id for no key update",),
        "release_unknown_activities.sql": ("order by a.shard, a.run_id, a.ref for no key update",),
        "tasks.py": ('if r["status"] != "fenced":', "found[n] = verdict"),
    }
    variants: ClassVar = {"": (), "an instance is taken over": ("taken",), "an instance is closed": ("closed",)}
    mutants = (
        Mutant("a batch locks in its own order", "deadlock"),
        Mutant("a forced close locks before its batch does, in its own order", "deadlock", "an instance is closed"),
        Mutant("a row is written before the last lock is had", "deadlock"),
        Mutant("one fenced run fences the batch", "alone", "an instance is taken over"),
        Mutant("a batch is judged by its first run", "token", "an instance is taken over"),
        Mutant("wake_gen is read before the last lock is had", "moved"),
        Mutant("a closed instance shifts the answers of the batch", "answers", "an instance is closed"),
    )
    mortal = ("s",)
    resting = frozenset({"world"})

    def start(self) -> Shared:
        held = {"A": "w1", "B": "w1", "C": "w2"}
        hot = tuple((held[row], 1, False) for row in ROWS)
        return Shared(hot, (), (), frozenset())

    def processes(self) -> dict[str, tuple[str, Any]]:
        found: dict[str, tuple[str, Any]] = dict.fromkeys(BATCHES, ("begin", None))
        return found | {"world": ("world", None)}

    def world(self, s: Shared, me: str, mem: Any) -> Steps:
        """Before its commit, a run of w1 is given to w2, or closed by force (two instances, in key order)."""
        if "taken" in self.options and s.free("B", me):
            yield "B is w2's now", s.put("B", ("w2", *s.row("B")[1:])), "done", None
        if "closed" in self.options:
            own = "a forced close locks before its batch does, in its own order" in self.flaws
            yield "terminate: begins", s, "close", ("B", "A") if own else ("A", "B")

    def close(self, s: Shared, me: str, rows: tuple[str, ...]) -> Steps:
        row = rows[0]
        if not s.free(row, me):
            return
        if rows[1:]:
            yield f"terminate: {row} locked", s.lock(row, me), "close", rows[1:]
        else:
            yield "terminate: A closed", s.put("A", None).unlock(me), "done", None

    # a batch: locks one after the other, then judges and writes

    def begin(self, s: Shared, me: str, mem: Any) -> Steps:
        own = "a batch locks in its own order" in self.flaws
        order = BATCHES[me] if own else tuple(sorted(BATCHES[me]))
        yield "snapshot", s, "lock", (order, (), s.hot)

    def lock(self, s: Shared, me: str, mem: Any) -> Steps:
        order, seen, old = mem
        row = order[len(seen)]
        if not s.free(row, me):
            return
        after = (order, (*seen, s.row(row)), old)
        if s.row(row) is None:
            yield f"{row} is gone", s, self._next(order, seen), after
        else:
            yield f"{row} locked", s.lock(row, me), self._next(order, seen), after

    def _next(self, order: tuple[str, ...], seen: tuple[Any, ...]) -> str:
        return "lock" if len(seen) + 1 < len(order) else "write"

    def write(self, s: Shared, me: str, mem: Any) -> Steps:
        order, seen, old = mem
        if "a row is written before the last lock is had" in self.flaws and me == "w2":
            other = next(row for row in ROWS if row not in order)
            if not s.free(other, me):
                return  # it writes to a row that it has not locked with the others
        if me == "s":
            yield "delivered", self._deliver(s, order, seen).unlock(me), "done", None
            return
        after = s
        good = [row for row, was in zip(order, seen, strict=True) if was and was[0] == me]
        if "one fenced run fences the batch" in self.flaws and len(good) < len(order):
            good = []
        elif "a batch is judged by its first run" in self.flaws and order[0] in good:
            good = [row for row, was in zip(order, seen, strict=True) if was]
        told = {row: "ok" if row in good else "fenced" for row in order}
        if "a closed instance shifts the answers of the batch" in self.flaws:
            left = [row for row, was in zip(order, seen, strict=True) if was]
            told = dict(zip(order, [*(told[row] for row in left), "fenced", "fenced"], strict=False))
        for row in order:
            if row in good:
                after = self._commit(after, me, row, old)
        answers = after.answers + tuple((me, row, told[row]) for row in order)
        yield f"commit of {good}", after.but(answers=answers).unlock(me), "done", None

    def _commit(self, s: Shared, me: str, row: str, old: Any) -> Shared:
        """What was loaded is generation 1: whatever came since arms the run."""
        token, wake, _ = s.row(row)
        if token != me:
            raise Wrong("token", f"{me} wrote to {row}, which is {token}'s")
        found = old[ROWS.index(row)][1] if "wake_gen is read before the last lock is had" in self.flaws else wake
        return s.put(row, (None, wake, found != 1)).but(written=(*s.written, (row, me)))

    def _deliver(self, s: Shared, order: tuple[str, ...], seen: tuple[Any, ...]) -> Shared:
        for row, was in zip(order, seen, strict=True):
            if was:
                token, wake, armed = s.row(row)
                s = s.put(row, (token, wake + 1, armed or token is None))
        return s

    # what must hold

    def always_answers(self, s: Shared) -> str | None:
        for me, row, told in s.answers:
            if (told == "ok") != ((row, me) in s.written):
                return f"{me} was told {told} of {row}, and it is not so"
        return None

    def finally_alone(self, s: Shared) -> str | None:
        if "closed" in self.options:
            return None
        wanted = {("A", "w1"), ("C", "w2"), ("B", "w2" if "taken" in self.options else "w1")}
        missing = wanted - set(s.written)
        early = {("B", "w1"), ("B", "w2")} & set(s.written)
        if "taken" in self.options and missing <= {("B", "w2")} and (early or s.row("B")[0]):
            return None
        return f"{sorted(missing)} were not committed for another's sake" if missing else None

    def finally_moved(self, s: Shared) -> str | None:
        """What came before the commit had its locks re-arms the run."""
        for row, hot in zip(ROWS, s.hot, strict=True):
            if hot and hot[0] is None and hot[1] != 1 and not hot[2]:
                return f"{row} has something to do, and nobody will claim it"
        return None


MODELS = (Batches,)
