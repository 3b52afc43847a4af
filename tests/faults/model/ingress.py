"""Ingress rows of users' transactions: drained under the lock of their instance, in the order of their ids.

As designed; the product has the table's place in the protocol only: senders end in `deliver()`, and a sealed instance
takes nothing. P commits A1 and A2 by ingress, then sends B directly; U draws an id and commits late; Q starts Y, then
sends by ingress. Drainers pick instances, lock hot rows (skipping locked *hot* rows only), and move each one's rows
in a later statement of the transaction. X may be sealed for a while, and may close.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any, ClassVar

from tests.faults.model.engine import Model, Mutant, Rows, Steps, Wrong


class Shared(Rows, namedtuple("Shared", "hot ingress inbox dead number closes seals closed told locks")):
    """``hot``: per instance "open", "sealed" or None; ingress: (id, instance, item); ``dead``: dead letters."""

    __slots__ = ()

    def state(self, instance: str) -> str | None:
        """Of the hot row."""
        return dict(self.hot)[instance]

    def turn(self, instance: str, state: str | None) -> Any:
        """With the hot row in another state."""
        return self.but(hot=tuple((i, state if i == instance else x) for i, x in self.hot))


class Ingress(Model):
    rule = "ingress"
    planned = "all of it"
    held_to: ClassVar = {
        "deliver()": (
            "case when h.sealed then 'closing'",
            "order by h.shard, h.namespace, h.instance_id for no key update of h",
        ),
    }
    variants: ClassVar = {
        "": ("q",),
        "X may close": ("q", "close"),
        "X may be sealed": ("u", "seal"),
        "a late id, X may be sealed and close": ("u", "seal", "close"),
    }
    mutants = (
        Mutant("ingress rows are locked, skipping locked ones", "order"),
        Mutant("ingress rows are locked before the hot row", "deadlock"),
        Mutant("a direct delivery does not drain", "order"),
        Mutant("ids are not in the order of the sender's commits", "order"),
        Mutant("a dead letter is decided by an earlier statement", "dead_letter"),
        Mutant("delivered and deleted in two transactions", "once"),
        Mutant("a drain does not look at the seal", "sealed", "X may be sealed"),
        Mutant("a sealed instance's rows become dead letters", "dead_letter", "X may be sealed"),
        Mutant("a direct delivery drains into a sealed instance", "sealed", "X may be sealed"),
        Mutant("a drain that met the seal is not tried again", "left", "X may be sealed"),
    )
    mortal = ("d1",)
    resting = frozenset({"pick", "world"})

    def start(self) -> Shared:
        hot = (("X", "open"), ("Y", None))
        return Shared(
            hot, frozenset(), (), (), 0, "close" in self.options, "seal" in self.options, False, (), frozenset()
        )

    def processes(self) -> dict[str, tuple[str, Any]]:
        found: dict[str, tuple[str, Any]] = {"P": ("by_ingress", "A1")}
        found |= {"Q": ("begin", None)} if "q" in self.options else {"U": ("draw", None)}
        return found | {"d1": ("pick", None), "d2": ("pick", None), "world": ("world", None)}

    # senders

    def by_ingress(self, s: Shared, me: str, item: str) -> Steps:
        sign = -1 if "ids are not in the order of the sender's commits" in self.flaws else 1
        row = (sign * s.number, "X", item)
        after = s.but(number=s.number + 1, ingress=s.ingress | {row})
        yield f"{item} committed", after, *(("by_ingress", "A2") if item == "A1" else ("direct", None))

    def direct(self, s: Shared, me: str, mem: Any) -> Steps:
        """First statement of a direct delivery: the hot row."""
        if not s.free("X", me):
            return
        state = s.state("X")
        into = state == "sealed" and "a direct delivery drains into a sealed instance" in self.flaws
        if state is None:
            yield "B: told closed", s.but(told=(*s.told, "closed")), "done", None
        elif state == "sealed" and not into:
            yield "B: told closing, comes back", s, "again", None
        else:
            yield "B: X locked", s.lock("X", me), "deliver", None

    def again(self, s: Shared, me: str, mem: Any) -> Steps:
        if s.state("X") != "sealed":
            yield "B: once more", s, "direct", None

    def deliver(self, s: Shared, me: str, mem: Any) -> Steps:
        rows = self._of(s, "X")
        if "a direct delivery does not drain" in self.flaws:
            rows = []
        elif "ingress rows are locked, skipping locked ones" in self.flaws:
            rows = [row for row in rows if s.free(row, me)]
        elif not all(s.free(row, me) for row in rows):
            return
        after = self._move(s, rows)
        after = after.but(inbox=(*after.inbox, ("X", "B"))).unlock(me)
        yield f"drains {[r[2] for r in rows]}, delivers B", after, "done", None

    def draw(self, s: Shared, me: str, mem: Any) -> Steps:
        yield "C draws an id", s.but(number=s.number + 1), "commit_late", s.number

    def commit_late(self, s: Shared, me: str, number: int) -> Steps:
        yield "C committed", s.but(ingress=s.ingress | {(number, "X", "C")}), "done", None

    def begin(self, s: Shared, me: str, mem: Any) -> Steps:
        yield "Y started", s.turn("Y", "open"), "then", None

    def then(self, s: Shared, me: str, mem: Any) -> Steps:
        after = s.but(number=s.number + 1, ingress=s.ingress | {(s.number, "Y", "S")})
        yield "S committed, for Y", after, "done", None

    # X closes, or is sealed and then closes or goes on

    def world(self, s: Shared, me: str, mem: Any) -> Steps:
        if not s.free("X", me):
            return
        state = s.state("X")
        if state == "open" and s.closes:
            yield "X closes", s.turn("X", None).but(closes=False, closed=True), "world", None
        if state == "open" and s.seals:
            yield "X is sealed", s.turn("X", "sealed").but(seals=False), "world", None
        if state == "sealed":
            yield "the seal is lifted", s.turn("X", "open"), "world", None
            if s.closes:
                yield "X closes", s.turn("X", None).but(closes=False, closed=True), "world", None

    # drainers

    def _of(self, s: Shared, instance: str) -> list[Any]:
        return sorted(row for row in s.ingress if row[1] == instance)

    def _move(self, s: Shared, rows: list[Any]) -> Shared:
        for _, instance, _ in rows:
            if s.state(instance) == "sealed":
                raise Wrong("sealed", "a sealed instance accepted a row")
        inbox = s.inbox + tuple((instance, item) for _, instance, item in rows)
        return s.but(ingress=s.ingress - set(rows), inbox=inbox)

    def pick(self, s: Shared, me: str, mem: Any) -> Steps:
        """Statement 1: instances of the rows seen; their hot rows in key order, skipping locked ones."""
        if not s.ingress:
            return
        if self.flaws & {"ingress rows are locked before the hot row", "ingress rows are locked, skipping locked ones"}:
            yield from self._rows_first(s, me)
            return
        seen = sorted({row[1] for row in s.ingress})
        absent = tuple(i for i in ("X", "Y") if s.state(i) is None)
        sealed_too = "a drain does not look at the seal" in self.flaws
        wanted = [i for i in seen if s.state(i) == "open" or (s.state(i) == "sealed" and sealed_too)]
        got = tuple(i for i in wanted if s.free(i, me))
        if not got and not self._hopeless(s, absent):
            if "a drain that met the seal is not tried again" in self.flaws and s.state("X") == "sealed":
                yield "told closing, gives up", s, "done", None
            return  # everything is locked or sealed: it comes back
        after = s
        for instance in got:
            after = after.lock(instance, me)
        yield f"hot rows of {list(got)} locked", after, "drain", (got, absent)

    def _hopeless(self, s: Shared, absent: tuple[str, ...]) -> list[Any]:
        """Rows whose instance has no hot row, in one snapshot that sees both."""
        lost = [row for row in s.ingress if s.state(row[1]) is None]
        if "a dead letter is decided by an earlier statement" in self.flaws:
            lost = [row for row in s.ingress if row[1] in absent]
        if "a sealed instance's rows become dead letters" in self.flaws:
            lost += [row for row in s.ingress if s.state(row[1]) == "sealed"]
        return sorted(lost)

    def drain(self, s: Shared, me: str, mem: Any) -> Steps:
        """Statement 2, with a snapshot of its own."""
        got, absent = mem
        rows = [row for instance in got for row in self._of(s, instance)]
        lost = self._hopeless(s, absent)
        if "delivered and deleted in two transactions" in self.flaws:
            kept = self._move(s, rows).but(ingress=s.ingress)
            yield f"delivers {[r[2] for r in rows]}", kept.unlock(me), "delete", tuple(rows)
            return
        after = self._move(s, rows)
        after = after.but(ingress=after.ingress - set(lost), dead=after.dead + tuple(r[2] for r in lost))
        yield f"drains {[r[2] for r in rows]}, dead letters {[r[2] for r in lost]}", after.unlock(me), "pick", None

    def delete(self, s: Shared, me: str, rows: Any) -> Steps:
        yield "deletes them", s.but(ingress=s.ingress - set(rows)), "pick", None

    def _rows_first(self, s: Shared, me: str) -> Steps:
        rows = sorted(s.ingress)
        if "ingress rows are locked, skipping locked ones" in self.flaws:
            rows = [row for row in rows if s.free(row, me)][:1]
        if rows and all(s.free(row, me) for row in rows):
            locked = s.but(locks=s.locks | {(row, me) for row in rows})
            yield f"rows {[r[2] for r in rows]} locked", locked, "hot", tuple(rows)

    def hot(self, s: Shared, me: str, rows: Any) -> Steps:
        if s.free("X", me):
            live = [row for row in rows if s.state(row[1]) is not None]
            after = self._move(s, live)
            after = after.but(ingress=after.ingress - set(rows)).unlock(me)
            yield f"hot row locked, drains {[r[2] for r in live]}", after, "pick", None

    # what must hold

    def always_once(self, s: Shared) -> str | None:
        items = [item for _, item in s.inbox] + list(s.dead) + [row[2] for row in s.ingress]
        twice = "delivered and deleted in two transactions" in self.flaws
        items = [item for _, item in s.inbox] if twice else items
        return f"delivered twice: {items}" if len(set(items)) != len(items) else None

    def always_order(self, s: Shared) -> str | None:
        own = [item for _, item in s.inbox if item in ("A1", "A2", "B")]
        if own != sorted(own) or ("B" in own and len(own) < 3):
            return f"the order of one sender is {own}"
        return None

    def always_dead_letter(self, s: Shared) -> str | None:
        if "S" in s.dead or (s.dead and not s.closed):
            return f"{s.dead} became dead letters, and their instance is open"
        return None

    def finally_left(self, s: Shared) -> str | None:
        if s.ingress:
            return f"{sorted(s.ingress)} left behind"
        got = {item for _, item in s.inbox} | set(s.dead)
        wanted = {"A1", "A2"} | ({"S"} if "q" in self.options else {"C"}) | (set() if s.told else {"B"})
        return f"{sorted(wanted - got)} lost" if wanted - got else None


MODELS = (Ingress,)
