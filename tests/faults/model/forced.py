"""A forced close consumes the whole inbox without code: it locks first, and reads the rest in a later statement.

Models `terminate()` with `lock_instance()` and `end_run()`, against senders (`deliver()`), results
(`complete_activities.sql`), a worker's commit and another forced close.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any, ClassVar

from tests.faults.model.engine import Model, Mutant, Rows, Steps, Wrong


class Shared(Rows, namedtuple("Shared", "hot inbox history acts accepted answers locks")):
    """``hot``: (wake, ack, token, next_seq) or None; history: (seq, item); ``answers``: what the closers were told."""

    __slots__ = ()


class Forced(Model):
    rule = "forced close"
    held_to: ClassVar = {
        "terminate()": (
            "if ord = any (fresh) and aioflow.lock_instance(v_shard, p_namespace[ord], p_instance[ord]) then select",
            "for no key update; end if; if h.instance_id is null",
            "perform aioflow.end_run(v_shard, h.namespace, h.instance_id, h.run_id, h.next_seq",
        ),
        "end_run()": (
            "delete from aioflow.inbox b where b.shard = p_shard and b.namespace = p_namespace and b.instance_id =",
            "select p_shard, p_run, p_next_seq + e.n - 1",
            "delete from aioflow.activity a where a.shard = p_shard and a.run_id = p_run",
        ),
        "lock_instance()": ("for no key update; return found;",),
    }
    variants: ClassVar = {"": ()}
    mutants = (
        Mutant("lock and the rest in one statement", "recorded"),
        Mutant("next_seq comes from the snapshot", "sequence"),
        Mutant("the row is not looked at again", "terminal"),
        Mutant("a commit does not look at the row", "once"),
        Mutant("the terminal event stands before the inputs", "last"),
        Mutant("activities of the run are left", "left"),
    )
    mortal = ("w",)
    resting = frozenset({"claim", "act"})

    def start(self) -> Shared:
        return Shared((1, 0, None, 1), frozenset({(1, "start")}), (), frozenset(), (), (), frozenset())

    def processes(self) -> dict[str, tuple[str, Any]]:
        return {
            "s1": ("send", None),
            "s2": ("send", None),
            "w": ("claim", None),
            "act": ("act", None),
            "t1": ("close", None),
            "t2": ("close", None),
        }

    # who delivers

    def send(self, s: Shared, me: str, mem: Any) -> Steps:
        yield "snapshot", s, "bump", None

    def bump(self, s: Shared, me: str, mem: Any) -> Steps:
        if not s.free("hot", me):
            return
        if s.hot is None:
            yield "told closed", s, "done", None
        else:
            yield "accepted", self._deliver(s, me).but(accepted=(*s.accepted, me)), "done", None

    def _deliver(self, s: Shared, item: str) -> Shared:
        wake = s.hot[0] + 1
        return s.but(hot=(wake, *s.hot[1:]), inbox=s.inbox | {(wake, item)})

    def act(self, s: Shared, me: str, mem: Any) -> Steps:
        for ref in s.acts:
            yield "result: snapshot", s, "complete", ref

    def complete(self, s: Shared, me: str, ref: str) -> Steps:
        if not s.free("hot", me):
            return
        if s.hot is None or ref not in s.acts:
            yield "late: not recorded", s, "act", None
        else:
            after = self._deliver(s, f"{ref} done").but(acts=s.acts - {ref}, accepted=(*s.accepted, f"{ref} done"))
            yield "result recorded", after, "act", None

    # the worker

    def claim(self, s: Shared, me: str, mem: Any) -> Steps:
        if s.hot and s.hot[2] is None and s.hot[0] != s.hot[1] and s.free("hot", me):
            token = f"T{s.hot[3]}"
            yield "claim", s.but(hot=(*s.hot[:2], token, s.hot[3])), "load", token

    def load(self, s: Shared, me: str, token: str) -> Steps:
        if s.hot is None or s.hot[2] != token:
            yield "not held any more", s, "claim", None
        else:
            yield f"load at {s.hot[0]}", s, "commit", (token, s.hot[0], s.hot[3], tuple(sorted(s.inbox)))

    def commit(self, s: Shared, me: str, mem: Any) -> Steps:
        token, gen, base, rows = mem
        if not s.free("hot", me):
            return
        if s.hot is None and "a commit does not look at the row" in self.flaws:
            after = self._write(s, [item for _, item in rows], base)
            yield "commit without a row", after, "claim", None
        elif s.hot is None or s.hot[2] != token:
            yield "fenced", s, "claim", None
        else:
            schedule = [f"a{base}"] if base < 3 else []
            items = [item for _, item in rows] + [f"{ref} scheduled" for ref in schedule]
            hot = (s.hot[0], gen, None, base + len(items))
            left = frozenset(r for r in s.inbox if r[0] > gen)
            after = self._write(s, items, base).but(hot=hot, inbox=left, acts=s.acts | set(schedule))
            yield f"commit {items}", after, "claim", None

    def _write(self, s: Shared, items: list[str], base: int) -> Shared:
        records = tuple((base + n, item) for n, item in enumerate(items))
        if {seq for seq, _ in records} & {seq for seq, _ in s.history}:
            if "a commit does not look at the row" in self.flaws:
                raise Wrong("once", "an input is recorded twice")
            raise Wrong("sequence", "an event stands where another does")
        return s.but(history=s.history + records)

    # forced closes

    def close(self, s: Shared, me: str, mem: Any) -> Steps:
        yield "terminate: snapshot", s, "lock", (s.hot, frozenset(s.inbox))

    def lock(self, s: Shared, me: str, seen: Any) -> Steps:
        if not s.free("hot", me):
            return
        hot = s.hot
        if hot is None and seen[0] is not None and "the row is not looked at again" in self.flaws:
            hot = seen[0]
        if hot is None:
            yield "already closed", s.but(answers=(*s.answers, (me, "already"))), "done", None
        elif "lock and the rest in one statement" in self.flaws:
            yield "locked, closed at the old snapshot", self._end(s, me, hot, seen[1]), "done", None
        elif "next_seq comes from the snapshot" in self.flaws and seen[0]:
            yield "locked", s.lock("hot", me), "end", seen[0]
        else:
            yield "locked", s.lock("hot", me), "end", hot

    def end(self, s: Shared, me: str, hot: Any) -> Steps:
        yield "the inbox is consumed, closed", self._end(s, me, hot, s.inbox), "done", None

    def _end(self, s: Shared, me: str, hot: Any, inbox: frozenset[Any]) -> Shared:
        items = [item for _, item in sorted(inbox & s.inbox)] + [f"terminated by {me}"]
        if "the terminal event stands before the inputs" in self.flaws:
            items = items[::-1]
        base = hot[3]
        if s.hot is None:
            base = 1 + max(seq for seq, _ in s.history)
        acts = s.acts if "activities of the run are left" in self.flaws else frozenset()
        after = self._write(s, items, base).but(hot=None, inbox=frozenset(), acts=acts)
        return after.but(answers=(*s.answers, (me, "closed"))).unlock(me)

    # what must hold

    def always_recorded(self, s: Shared) -> str | None:
        if s.hot is not None:
            return None
        missing = [item for item in s.accepted if item not in {i for _, i in s.history}]
        return f"closed, and {missing} accepted and never recorded" if missing else None

    def always_terminal(self, s: Shared) -> str | None:
        ends = [item for _, item in s.history if item.startswith("terminated")]
        return f"several terminal events: {ends}" if len(ends) > 1 else None

    def always_last(self, s: Shared) -> str | None:
        if s.hot is None and not max(s.history)[1].startswith("terminated"):
            return "the terminal event is not the last"
        return None

    def always_left(self, s: Shared) -> str | None:
        return "an activity of a closed run is left" if s.hot is None and s.acts else None

    def finally_closed(self, s: Shared) -> str | None:
        told = sorted(answer for _, answer in s.answers)
        return f"two forced closes, and the answers are {told}" if told != ["already", "closed"] else None


MODELS = (Forced,)
