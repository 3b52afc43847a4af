"""Starts, results and ends of children go through ingress: a commit locks its own instance and nobody else's.

As designed; the product has no children yet. A parent starts child C, an id that a user may be starting too; the
child ends and its parent learns of it; a parent that closes ends its child. What the parts rest on stands in the
product: `start_existing()` (a run id is started once) and `commit_runs.sql` (locks the instances of its own batch,
first).

Rows of an instance that does not exist are hopeless only if none of them is its start: the start of C and what
follows it are both in ingress until one transaction makes the hot row and deletes the start.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any, ClassVar

from tests.faults.model.engine import Model, Mutant, Rows, Steps


class Shared(
    Rows, namedtuple("Shared", "parent child ingress number inbox told runs ended dead busy tries killed locks")
):
    """``parent``: open; ``child``: who started the run that is open, or None; ingress: (id, target, kind).

    ``inbox``: what the parent will see, ``told``: what it has seen; ``runs``: starters of runs of C; ``ended``: of
    those that are closed; ``busy``: C is inserted by the user's open transaction.
    """

    __slots__ = ()


class Children(Model):
    rule = "children"
    planned = "all of it"
    held_to: ClassVar = {
        "start_existing()": ("elsif exists (select from aioflow.run r where r.shard = p_shard and r.run_id = p_run)",),
        "may_reuse()": ("and r.run_id = p_run) then return 'mine'; end if;",),
        "commit_runs.sql": ("order by h.shard, h.namespace, h.instance_id for no key update of h",),
    }
    variants: ClassVar = {"": (), "a user starts the same id": ("user",), "the parent closes": ("close",)}
    mutants = (
        Mutant("the child is inserted in the parent's commit", "held_up", "a user starts the same id"),
        Mutant("the drainer draws the child's run id, and deletes the row later", "once"),
        Mutant("the parent is told in a later transaction", "learns"),
        Mutant("parent and child lock each other's rows", "deadlock"),
        Mutant("what follows a start becomes a dead letter before it", "orphan", "the parent closes"),
        Mutant("a refused start is not told", "learns", "a user starts the same id"),
        Mutant("whoever has the id tells the parent", "foreign", "a user starts the same id"),
        Mutant("the child's start waits for the user inside a batch", "held_up", "a user starts the same id"),
    )
    mortal = ("c",)
    reborn = "child"
    resting = frozenset({"pick", "child", "wait"})

    def start(self) -> Shared:
        return Shared(True, None, frozenset(), 0, (), (), (), (), (), False, 2, False, frozenset())

    def processes(self) -> dict[str, tuple[str, Any]]:
        found: dict[str, tuple[str, Any]] = {"p": ("parent", None), "d1": ("pick", None), "d2": ("pick", None)}
        if "user" in self.options:
            found["u"] = ("user", None)
        return found | {"c": ("child", None)}

    def _put(self, s: Shared, target: str, kind: str) -> Shared:
        return s.but(number=s.number + 1, ingress=s.ingress | {(s.number, target, kind)})

    # the parent's commits

    def parent(self, s: Shared, me: str, mem: Any) -> Steps:
        if "the child is inserted in the parent's commit" in self.flaws:
            yield "commit: own row locked", s.lock("A", me), "insert", None
        else:
            yield "commit: start C by ingress", self._put(s, "C", "start"), "wait", 0

    def insert(self, s: Shared, me: str, mem: Any) -> Steps:
        if not s.busy:
            yield "C inserted, commit", self._start(s, "parent").unlock(me), "wait", 0

    def wait(self, s: Shared, me: str, cancelled: int) -> Steps:
        if not s.parent or not s.free("A", me):
            return
        if s.inbox:
            after = s.but(told=s.told + s.inbox, inbox=())
            yield f"commit: consumes {list(s.inbox)}", after, "wait", cancelled
        if "parent and child lock each other's rows" in self.flaws:
            if not cancelled and s.child:
                yield "commit: own row locked, to cancel C", s.lock("A", me), "cancel", None
        elif not cancelled and not s.told:
            yield "commit: cancel C by ingress", self._put(s, "C", "cancel"), "wait", 1
        if "close" in self.options and not s.inbox:
            after = self._put(s.but(parent=False), "C", "terminate")
            yield "commit: closes, its child shall end", after, "done", None

    def cancel(self, s: Shared, me: str, mem: Any) -> Steps:
        if s.free("C", me):
            yield "C's row locked, cancelled, commit", s.unlock(me), "wait", 1

    # C: started, runs, closes

    def _start(self, s: Shared, by: str) -> Shared:
        return s.but(child=by, runs=(*s.runs, by))

    def child(self, s: Shared, me: str, mem: Any) -> Steps:
        """A worker of C; its commit closes the run, and puts the result into ingress if it has a parent."""
        if not s.child or not s.free("C", me):
            return
        if "parent and child lock each other's rows" in self.flaws:
            yield "commit: C's row locked, to tell the parent", s.lock("C", me), "tell", None
            return
        by = s.child
        after = s.but(child=None, ended=(*s.ended, by))
        if "the parent is told in a later transaction" in self.flaws:
            yield "commit: C closes", after, "later", by
        else:
            owes = by == "parent" or "whoever has the id tells the parent" in self.flaws
            result = f"result of {by}'s"
            yield "commit: C closes", self._put(after, "A", result) if owes else after, "child", None

    def later(self, s: Shared, me: str, by: str) -> Steps:
        yield "result by ingress", self._put(s, "A", f"result of {by}'s"), "child", None

    def tell(self, s: Shared, me: str, mem: Any) -> Steps:
        if s.free("A", me):
            by = s.child
            after = s.but(child=None, ended=(*s.ended, by), inbox=(*s.inbox, f"result of {by}'s"))
            yield "the parent's row locked, told, commit", after.unlock(me), "child", None

    # a user starts C in a transaction of his own

    def user(self, s: Shared, me: str, mem: Any) -> Steps:
        if not s.runs:
            yield "C inserted, not committed", s.but(busy=True), "open", None
        else:
            yield "told that C exists", s, "done", None

    def open(self, s: Shared, me: str, mem: Any) -> Steps:
        yield "committed", self._start(s, "user").but(busy=False), "done", None
        yield "rolled back", s.but(busy=False), "done", None

    # drainers: by target, in the order of ids

    def pick(self, s: Shared, me: str, mem: Any) -> Steps:
        for target in ("A", "C"):
            rows = sorted(row for row in s.ingress if row[1] == target)
            if rows and target == "A" and s.free("A", me):
                yield from self._to_parent(s, rows[0])
            elif rows:
                yield from self._to_child(s, me, rows)

    def _to_parent(self, s: Shared, row: Any) -> Steps:
        after = s.but(ingress=s.ingress - {row})
        if s.parent:
            yield f"drains the {row[2]}", after.but(inbox=(*s.inbox, row[2])), "pick", None
        else:
            yield f"{row[2]}: dead letter", after.but(dead=(*s.dead, row[2])), "pick", None

    def _to_child(self, s: Shared, me: str, rows: list[Any]) -> Steps:
        row = rows[0]
        if row[2] == "start":
            yield from self._drain_start(s, me, row)
            if "what follows a start becomes a dead letter before it" in self.flaws and not s.child and rows[1:]:
                lost = rows[1]
                after = s.but(ingress=s.ingress - {lost}, dead=(*s.dead, lost[2]))
                yield f"{lost[2]}: no such instance, dead letter", after, "pick", None
            return
        after = s.but(ingress=s.ingress - {row})
        if not s.child:
            yield f"{row[2]}: dead letter", after.but(dead=(*s.dead, row[2])), "pick", None
        elif row[2] == "terminate" and s.child == "parent":
            yield "drains the terminate", after.but(child=None, ended=(*s.ended, s.child)), "pick", None
        else:
            yield f"drains the {row[2]}", after, "pick", None

    def _drain_start(self, s: Shared, me: str, row: Any) -> Steps:
        """In a transaction of its own, with a short lock timeout: a user may hold the id."""
        if "the child's start waits for the user inside a batch" in self.flaws and s.free("A", me):
            yield "locks A for another row of the batch", s.lock("A", me), "batch", row
            return
        if s.busy:
            return  # timed out, comes back
        after = s.but(ingress=s.ingress - {row})
        if "the drainer draws the child's run id, and deletes the row later" in self.flaws and not s.child:
            yield "C started", self._start(s, "parent"), "delete", row
        elif "parent" in s.runs:
            yield "started before", after, "pick", None
        elif s.runs:
            told = after if "a refused start is not told" in self.flaws else self._put(after, "A", "refused")
            yield "C exists: refused", told, "pick", None
        else:
            yield "C started", self._start(after, "parent"), "pick", None

    def delete(self, s: Shared, me: str, row: Any) -> Steps:
        yield "deletes the row", s.but(ingress=s.ingress - {row}), "pick", None

    def batch(self, s: Shared, me: str, row: Any) -> Steps:
        if not s.busy:
            yield "C started", self._start(s.but(ingress=s.ingress - {row}), "parent").unlock(me), "pick", None

    # what must hold

    def always_held_up(self, s: Shared) -> str | None:
        held = any(row == "A" for row, _ in s.locks)
        return "a run's row is held while the user's transaction is waited for" if held and s.busy else None

    def always_once(self, s: Shared) -> str | None:
        if s.runs.count("parent") > 1:
            return "one command started two children"
        seen = s.told + s.inbox
        return f"the parent was told {seen}" if len(seen) > 1 and not self.flaws else None

    def always_foreign(self, s: Shared) -> str | None:
        return "the parent was told the result of another's run" if "result of user's" in s.told + s.inbox else None

    def finally_learns(self, s: Shared) -> str | None:
        return "the parent never learns what became of its child" if s.parent and not s.told else None

    def always_orphan(self, s: Shared) -> str | None:
        started = "parent" in s.runs and s.child == "parent"
        waiting = any(row[1] == "C" and row[2] in ("terminate", "start") for row in s.ingress)
        return "the child goes on without its parent" if started and not s.parent and not waiting else None


MODELS = (Children,)
