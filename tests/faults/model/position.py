"""Where an input stands: its position is the ``wake_gen`` that its own bump returned, under the lock of the row.

Models `deliver()` (batches over several instances), `load_inbox.sql` (generation and inbox in one snapshot) and the
consumption by `commit_runs.sql`, also of a part of what was loaded.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any, ClassVar

from tests.faults.model.engine import Model, Mutant, Rows, Steps, Wrong

BATCHES = {
    "s1": (("X", ("a1", "a2")), ("Y", ("b",))),
    "s2": (("X", ("c",)),),
    "s3": (("X", ("e",)), ("Y", ("d",))),
    "s4": (("X", ("f",)),),
}


class Shared(Rows, namedtuple("Shared", "gens acks inbox order history locks numbers")):
    """``gens`` and ``acks`` of X and Y; inbox: (instance, position, index, item); ``order``: items of X as sent."""

    __slots__ = ()


class Position(Model):
    rule = "inbox position"
    held_to: ClassVar = {
        "deliver()": (
            "returning h.shard, h.namespace, h.instance_id, h.wake_gen",
            "select b.shard, b.namespace, b.instance_id, b.wake_gen, i.ord",
            "order by h.shard, h.namespace, h.instance_id for no key update of h",
        ),
        "load_inbox.sql": ("where b.gen <= h.wake_gen", "order by 1, 2, 3, 4, 8, 7"),
        "commit_runs.sql": ("and b.gen <= o.gen",),
        "complete_activities.sql": ("returning h.shard, h.namespace, h.instance_id, h.wake_gen",),
    }
    variants: ClassVar = {"": (), "commits in parts": ("parts",)}
    mutants = (
        Mutant("the position is the value in the snapshot, plus one", "unique"),
        Mutant("the position comes from a sequence, drawn before the lock", "commit_order"),
        Mutant("wake_gen is read after the inbox", "consumed"),
        Mutant("a batch locks in its own order", "deadlock"),
        Mutant("a part of a generation is consumed", "consumed", "commits in parts"),
        Mutant("the inbox is sorted by item", "commit_order"),
    )
    mortal = ("w",)
    resting = frozenset({"claim"})

    def start(self) -> Shared:
        return Shared((0, 0), (0, 0), frozenset(), (), (), frozenset(), 0)

    def processes(self) -> dict[str, tuple[str, Any]]:
        return dict.fromkeys(BATCHES, ("send", None)) | {"w": ("claim", 0)}

    def _batch(self, me: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
        own = "a batch locks in its own order" in self.flaws and me == "s3"
        return BATCHES[me][::-1] if own else BATCHES[me]

    def send(self, s: Shared, me: str, mem: Any) -> Steps:
        yield "snapshot", s.but(numbers=s.numbers + 1), "lock", (0, s.gens, s.numbers + 1)

    def lock(self, s: Shared, me: str, mem: Any) -> Steps:
        n, gens, number = mem
        batch = self._batch(me)
        row = batch[n][0]
        if not s.free(row, me):
            return
        if n + 1 < len(batch):
            yield f"lock {row}", s.lock(row, me), "lock", (n + 1, gens, number)
        else:
            yield f"lock {row}, bump, insert", self._deliver(s, me, gens, number).unlock(me), "done", None

    def _deliver(self, s: Shared, me: str, seen: tuple[int, int], number: int) -> Shared:
        gens, inbox, order = list(s.gens), set(s.inbox), s.order
        for row, items in BATCHES[me]:
            n = "XY".index(row)
            gens[n] += 1
            position = gens[n]
            if "the position is the value in the snapshot, plus one" in self.flaws:
                position = seen[n] + 1
            elif "the position comes from a sequence, drawn before the lock" in self.flaws:
                position = number
            for index, item in enumerate(items):
                if any(r[:3] == (row, position, index) for r in inbox):
                    raise Wrong("unique", f"a second row at {row} {position}.{index}")
                inbox.add((row, position, index, item))
                if row == "X":
                    order = (*order, item)
        return s.but(gens=tuple(gens), inbox=frozenset(inbox), order=order)

    # the worker of X

    def claim(self, s: Shared, me: str, mem: Any) -> Steps:
        if s.gens[0] != s.acks[0] or any(r[0] == "X" for r in s.inbox):
            yield "claim X", s, "load", None

    def load(self, s: Shared, me: str, mem: Any) -> Steps:
        by = 3 if "the inbox is sorted by item" in self.flaws else 1
        rows = tuple(sorted((r for r in s.inbox if r[0] == "X"), key=lambda r: (r[by], r[2])))
        if "wake_gen is read after the inbox" in self.flaws:
            yield "reads the inbox", s, "generation", rows
        else:
            yield f"load X at {s.gens[0]}", s, "commit", (s.gens[0], rows)

    def generation(self, s: Shared, me: str, rows: Any) -> Steps:
        yield f"reads wake_gen {s.gens[0]}", s, "commit", (s.gens[0], rows)

    def commit(self, s: Shared, me: str, mem: Any) -> Steps:
        gen, rows = mem
        if not s.free("X", me):
            return
        yield from self._commit(s, gen, rows)
        if "parts" in self.options and rows:
            first = rows[0][1]
            part = tuple(r for r in rows if r[1] == first)
            if "a part of a generation is consumed" in self.flaws:
                part = part[:1]
            if part != rows:
                yield from self._commit(s, first, part)

    def _commit(self, s: Shared, gen: int, rows: Any) -> Steps:
        numbered = "the position comes from a sequence, drawn before the lock" in self.flaws
        gone = {r for r in s.inbox if r[0] == "X" and (r[1] <= gen or (numbered and r in rows))}
        if gone != set(rows):
            raise Wrong("consumed", f"deletes {sorted(r[3] for r in gone)}, applied {[r[3] for r in rows]}")
        items = tuple(r[3] for r in rows)
        yield (
            f"commit X {list(items)}",
            s.but(acks=(gen, s.acks[1]), inbox=s.inbox - gone, history=s.history + items),
            "claim",
            None,
        )

    def always_commit_order(self, s: Shared) -> str | None:
        if s.history != s.order[: len(s.history)]:
            return f"history {s.history} is not in the order of the commits {s.order}"
        return None

    def always_atomic(self, s: Shared) -> str | None:
        return "only a part of a batch was delivered" if ("b" in {r[3] for r in s.inbox}) > ("a1" in s.order) else None


MODELS = (Position,)
