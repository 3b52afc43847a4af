"""Claims against reaping: a worker is declared dead first, then what it owns is released until nothing is left.

Models `claim_runs.sql` and `claim_activities.sql` (own worker row first, live and of the epoch), `reap_declare.sql`,
`reap_runs.sql`, `reap_settle.sql`, `worker_epoch.sql` with `release_unknown_runs.sql` after a lost answer, and
`worker_renew.sql`. A commit may write a row that is already its worker's own (as designed: eager continuation).
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any, ClassVar

from tests.faults.model.engine import Model, Mutant, Rows, Steps


class Shared(Rows, namedtuple("Shared", "alive epoch rows known flying losses killed locks")):
    """``rows``: (name, owner); ``known``: what w1 knows to hold; ``flying``: the epoch of a claim sent and cut off."""

    __slots__ = ()

    def owner(self, row: str) -> str | None:
        """None: not owned, or gone."""
        return dict(self.rows).get(row)

    def give(self, row: str, owner: str | None) -> Any:
        """With another owner of a row."""
        return self.but(rows=tuple((r, owner if r == row else o) for r, o in self.rows))

    def claiming(self) -> bool:
        """Whether a claim holds the worker's row."""
        return any(row == "worker" for row, _ in self.locks)


class Reaping(Model):
    rule = "reaping"
    planned = "rows written already owned"
    held_to: ClassVar = {
        "claim_runs.sql": (
            "where w.worker_id = $1 and not w.dead and w.claim_epoch = $2 for key share",
            "for no key update skip locked",
        ),
        "claim_activities.sql": (
            "where w.worker_id = $1 and not w.dead and w.claim_epoch = $2 for key share",
            "for no key update skip locked",
        ),
        "reap_declare.sql": ("for update skip locked", "set dead = true"),
        "reap_runs.sql": ("where h.owner = any ($1::uuid[])", "visible_at = aioflow.clock()"),
        "reap_activities.sql": ("where a.owner = any ($1::uuid[])", "visible_at = aioflow.clock()"),
        "reap_pending.sql": ("where w.dead and not w.released",),
        "reap_settle.sql": ("not exists (select from aioflow.instance_hot h where h.owner = w.worker_id)",),
        "worker_epoch.sql": ("not w.dead for update", "set claim_epoch = w.claim_epoch + 1"),
        "worker_renew.sql": ("where w.worker_id = $1 and not w.dead",),
        "worker_retire.sql": ("for update ) update aioflow.worker w set dead = true, blame = 'none'",),
        "release_unknown_runs.sql": ("h.token <> all ($2::uuid[])", "visible_at = aioflow.clock()"),
        "release_unknown_activities.sql": ("a.token <> all ($2::uuid[])",),
    }
    variants: ClassVar = {"": ()}
    mutants = (
        Mutant("a claim does not lock its worker's row", "dead_owner"),
        Mutant("declared dead and released in one statement", "dead_owner"),
        Mutant("declared dead beside a claim in flight", "dead_owner"),
        Mutant("one pass of release", "dead_owner"),
        Mutant("a lost claim is forgotten", "unknown"),
        Mutant("no epoch: a lost claim may run later", "unknown"),
        Mutant("the epoch goes up beside a claim in flight", "unknown"),
        Mutant("a renewal revives the dead", "dead_owner"),
        Mutant("released for good before it is declared dead", "dead_owner"),
    )
    mortal = ("w1",)
    resting = frozenset({"land", "watch"})

    def start(self) -> Shared:
        rows = (("P", None), ("Q", None), ("R", None))
        return Shared(True, 0, rows, frozenset(), None, 1, False, frozenset())

    def processes(self) -> dict[str, tuple[str, Any]]:
        return {"w1": ("claim", 5), "net": ("land", None), "reaper": ("reap", None)}

    def killed(self, s: Shared, name: str) -> Shared:
        return s.but(killed=True)

    # the claim statement: snapshot, own worker row, a row

    def claim(self, s: Shared, me: str, n: int) -> Steps:
        if not n:
            yield "claims no more", s, "done", None
            return
        free = tuple(row for row, owner in s.rows if owner is None)
        yield "claim: snapshot", s, "worker", (n, free, s.epoch)
        if s.losses:
            yield "claim sent, cut off", s.but(losses=0, flying=s.epoch), "lost", n

    def _worker(self, s: Shared, me: str, epoch: int) -> Shared | None:
        if "a claim does not lock its worker's row" in self.flaws:
            return s  # it was read, and that was before
        stale = epoch != s.epoch and "no epoch: a lost claim may run later" not in self.flaws
        return None if not s.alive or stale else s.but(locks=s.locks | {("worker", me)})

    def worker(self, s: Shared, me: str, mem: Any) -> Steps:
        n, _, epoch = mem
        after = self._worker(s, me, epoch)
        if after is not None:
            yield "own worker row locked", after, "row", mem
        elif "a renewal revives the dead" in self.flaws and not s.alive:
            yield "renews its lease", s.but(alive=True), "claim", n - 1
        else:
            yield "dead, or of another epoch: nothing", s, "done", None

    def row(self, s: Shared, me: str, mem: Any) -> Steps:
        n, free, _ = mem
        for row in free:
            if s.owner(row) is None and row in dict(s.rows):
                after = s.give(row, "w1").unlock(me)
                yield f"claim of {row}", after.but(known=s.known | {row}), "own", (n - 1, row)
                if s.losses:
                    yield f"claim of {row}, answer lost", after.but(losses=0), "lost", n - 1
                return
        yield "nothing to claim", s.unlock(me), "claim", n - 1

    # a claim whose connection was cut off runs at any later time

    def land(self, s: Shared, me: str, mem: Any) -> Steps:
        if s.flying is not None:
            free = tuple(row for row, owner in s.rows if owner is None)
            yield "late claim: snapshot", s.but(flying=None), "late", (free, s.flying)

    def late(self, s: Shared, me: str, mem: Any) -> Steps:
        after = self._worker(s, me, mem[1])
        if after is None:
            yield "late claim: dead, or of another epoch", s, "done", None
        else:
            yield "late claim: worker row locked", after, "take", mem[0]

    def take(self, s: Shared, me: str, free: tuple[str, ...]) -> Steps:
        for row in free:
            if s.owner(row) is None and row in dict(s.rows):
                yield f"late claim of {row}, nobody listens", s.give(row, "w1").unlock(me), "done", None
                return
        yield "late claim: nothing", s.unlock(me), "done", None

    # after a lost answer

    def lost(self, s: Shared, me: str, n: int) -> Steps:
        if "a lost claim is forgotten" in self.flaws:
            yield "forgets it", s, "claim", n
        elif not s.alive:
            yield "declared dead meanwhile", s, "done", None
        elif not s.claiming() or "the epoch goes up beside a claim in flight" in self.flaws:
            yield "claim_epoch + 1", s.but(epoch=s.epoch + 1), "unknown", n

    def unknown(self, s: Shared, me: str, n: int) -> Steps:
        after = s
        for row, owner in s.rows:
            if owner == "w1" and row not in s.known:
                after = after.give(row, None)
        yield "releases what it owns and does not know", after, "claim", n

    # what is held is committed; that of P writes C, owned already

    def own(self, s: Shared, me: str, mem: Any) -> Steps:
        n, row = mem
        if s.owner(row) != "w1":
            yield "fenced", s.but(known=s.known - {row}), "claim", n
            return
        child = (("C", "w1"),) if row == "P" else ()
        rows = tuple(r for r in s.rows if r[0] != row) + child
        known = (s.known - {row}) | {name for name, _ in child}
        label = f"commit of {row}{', writes C as its own' if child else ''}"
        yield label, s.but(rows=rows, known=known), *(("own", (n, "C")) if child else ("claim", n))

    # the reaper

    def reap(self, s: Shared, me: str, mem: Any) -> Steps:
        if not s.killed:
            yield "w1 stays healthy", s, "watch", None
        early = "released for good before it is declared dead" in self.flaws
        if early:
            yield "release: snapshot", s, "release", self._owned(s)
        elif "declared dead and released in one statement" in self.flaws:
            yield "declare and release: snapshot", s, "declare", self._owned(s)
        else:
            yield "the lease is over", s, "declare", None

    def watch(self, s: Shared, me: str, mem: Any) -> Steps:
        if s.killed:
            yield from self.reap(s, me, mem)

    def _owned(self, s: Shared) -> tuple[str, ...]:
        return tuple(row for row, owner in s.rows if owner == "w1")

    def declare(self, s: Shared, me: str, seen: Any) -> Steps:
        if s.claiming() and "declared dead beside a claim in flight" not in self.flaws:
            return
        dead = s.but(alive=False)
        if seen is None:
            yield "declared dead", dead, "pass_", 0
        else:
            yield "declared dead, released", self._released(dead, seen), "done", None

    def pass_(self, s: Shared, me: str, passes: int) -> Steps:
        if passes and "one pass of release" in self.flaws:
            yield "one pass is enough", s, "done", None
        else:
            yield "release: snapshot", s, "release", self._owned(s)

    def release(self, s: Shared, me: str, seen: tuple[str, ...]) -> Steps:
        if s.alive and "released for good before it is declared dead" in self.flaws:
            yield "released, then declared dead", self._released(s, seen).but(alive=False), "done", None
        else:
            yield f"released {list(seen)}", self._released(s, seen), "settle", None

    def _released(self, s: Shared, seen: tuple[str, ...]) -> Shared:
        for row in seen:
            if s.owner(row) == "w1":
                s = s.give(row, None)
        return s

    def settle(self, s: Shared, me: str, mem: Any) -> Steps:
        if self._owned(s) and "one pass of release" not in self.flaws:
            yield "something is left", s, "pass_", 1
        else:
            yield "nothing is left: done with it", s, "done", None

    # what must hold

    def finally_dead_owner(self, s: Shared) -> str | None:
        left = [row for row, owner in s.rows if owner == "w1"]
        return f"{left} owned for ever by a dead worker" if left and (s.killed or not s.alive) else None

    def finally_unknown(self, s: Shared) -> str | None:
        left = [row for row, owner in s.rows if owner == "w1" and row not in s.known]
        return f"{left} owned by a live worker that does not know" if left else None


MODELS = (Reaping,)
