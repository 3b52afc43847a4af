"""The hot row of an instance outlives its runs: a new run takes the row over in place.

Models `deliver()` and `explain()` (senders), `start_existing()` with ``terminate_existing`` and `begin_run_in_place()`,
`claim_runs.sql`, `load_inbox.sql`, `commit_runs.sql` and `complete_activities.sql` (results carry their run).
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any, ClassVar

from tests.faults.model.engine import Model, Mutant, Steps

SENDERS = ("s1", "s2")


class Shared(namedtuple("Shared", "hot inbox history accepted told acts crashed")):
    """``hot`` is (row, run, wake_gen, ack_gen, holder); inbox: (gen, item, run or None); acts: runs of activities."""

    __slots__ = ()


class Instance(Model):
    rule = "instance row"
    planned = "continue-as-new"
    held_to: ClassVar = {
        "deliver()": ("set wake_gen = h.wake_gen + 1", "for no key update of h"),
        "begin_run_in_place()": (
            "wake_gen = h.wake_gen + 1, owner = null, token = null, next_seq = 1",
            "visible_at = aioflow.clock()",
            "values (p_shard, p_namespace, p_instance, v_gen, 0, 'RunStarted'",
        ),
        "start_existing()": (
            "set ack_gen = x.wake_gen",
            "perform aioflow.end_run(",
            "perform aioflow.begin_run_in_place(",
        ),
        "load_inbox.sql": ("(b.run_id is null or b.run_id = h.run_id)",),
        "end_run()": ("where t.run_id is null or t.run_id = p_run",),
    }
    variants: ClassVar = {
        "": (),
        "restart": ("restart",),
        "continue-as-new": ("again",),
        "continue-as-new, restart": ("again", "restart"),
    }
    mutants = (
        Mutant("a new run deletes and inserts the row", "told_closed", "continue-as-new"),
        Mutant("a restart deletes and inserts the row", "told_closed", "restart"),
        Mutant("a delivery names the run it read before", "told_closed", "continue-as-new"),
        Mutant("the inbox is keyed by run", "delivered", "continue-as-new"),
        Mutant("results of an earlier run are not left out", "foreign", "continue-as-new"),
        Mutant("a new run does not bump wake_gen", "activated", "continue-as-new"),
        Mutant("a restart keeps the holder's token", "once", "restart"),
    )
    mortal = ("w1",)
    resting = frozenset({"claim", "act", "release"})

    def start(self) -> Shared:
        return Shared((1, 1, 1, 0, None), ((1, "start", None),), (), (), (), (), False)

    def processes(self) -> dict[str, tuple[str, Any]]:
        found: dict[str, tuple[str, Any]] = dict.fromkeys(SENDERS, ("send", None))
        found |= {"w1": ("claim", None), "w2": ("claim", None), "act": ("act", None), "sweep": ("release", None)}
        if "restart" in self.options:
            found["r"] = ("restart", None)
        return found

    def killed(self, s: Shared, name: str) -> Shared:
        return s._replace(crashed=True)

    # senders: deliver()

    def send(self, s: Shared, me: str, mem: Any) -> Steps:
        yield f"snapshot (run {s.hot[1]})", s, "bump", s.hot[:2]

    def bump(self, s: Shared, me: str, seen: tuple[int, int]) -> Steps:
        row, run, wake, ack, holder = s.hot
        if row != seen[0] or (run != seen[1] and "a delivery names the run it read before" in self.flaws):
            yield "the row is gone: told closed", s._replace(told=(*s.told, me)), "done", None
            return
        keyed = seen[1] if "the inbox is keyed by run" in self.flaws else None
        inbox = (*s.inbox, (wake + 1, me, keyed))
        hot = (row, run, wake + 1, ack, holder)
        yield f"accepted at {wake + 1}", s._replace(hot=hot, inbox=inbox, accepted=(*s.accepted, me)), "done", None

    # an activity of the first run ends, maybe after that run

    def act(self, s: Shared, me: str, mem: Any) -> Steps:
        for of in s.acts:
            row, run, wake, ack, holder = s.hot
            hot, inbox = (row, run, wake + 1, ack, holder), (*s.inbox, (wake + 1, "result", of))
            acts = tuple(a for a in s.acts if a != of)
            yield f"result of run {of}", s._replace(hot=hot, inbox=inbox, acts=acts), "act", None

    # workers

    def claim(self, s: Shared, me: str, mem: Any) -> Steps:
        row, run, wake, ack, holder = s.hot
        if holder is None and wake != ack:
            yield f"claim run {run}", s._replace(hot=(row, run, wake, ack, me)), "load", None

    def load(self, s: Shared, me: str, mem: Any) -> Steps:
        run, wake, holder = s.hot[1], s.hot[2], s.hot[4]
        if holder != me:
            yield "not held any more", s, "claim", None
            return
        mixed = "results of an earlier run are not left out" in self.flaws
        rows = tuple(r for r in s.inbox if mixed or r[2] in (None, run))
        yield f"load at {wake}: {[r[1] for r in rows]}", s, "commit", (run, wake, rows)

    def commit(self, s: Shared, me: str, mem: Any) -> Steps:
        ran, gen, rows = mem
        row, run, wake, _ack, holder = s.hot
        if holder != me or (run != ran and "a restart keeps the holder's token" not in self.flaws):
            yield "fenced", s, "claim", None
            return
        items = tuple((ran, r[1], r[2]) for r in rows)
        keyed = "the inbox is keyed by run" in self.flaws
        left = tuple(r for r in s.inbox if r[0] > gen or (keyed and r[2] not in (None, ran)))
        acts = s.acts if any(r[0] == run for r in s.history) else (*s.acts, run)
        s = s._replace(history=s.history + items, inbox=left, acts=acts)
        over = "again" in self.options and run == 1 and any(item[1] == "s1" for item in items)
        if not over:
            yield f"commit {[i[1] for i in items]}", s._replace(hot=(row, run, wake, gen, None)), "claim", None
            return
        s = self._next_run(s, gen, "a new run deletes and inserts the row")
        yield f"commit {[i[1] for i in items]}, continue as new", s, "claim", None

    def _next_run(self, s: Shared, ack: int, torn: str) -> Shared:
        """In place: the row is updated, and bumped by this itself. Activities of the old run go."""
        row, run, wake, _, _ = s.hot
        bump = 0 if "a new run does not bump wake_gen" in self.flaws else 1
        inbox = (*s.inbox, (wake + bump, "start", None))
        row += torn in self.flaws
        return s._replace(hot=(row, run + 1, wake + bump, ack, None), inbox=inbox, acts=())

    def release(self, s: Shared, me: str, mem: Any) -> Steps:
        row, run, wake, ack, holder = s.hot
        if s.crashed and holder == "w1":
            yield (
                "the dead holder's row is released",
                s._replace(hot=(row, run, wake, min(ack, wake - 1), None)),
                "done",
                0,
            )

    # start with terminate_existing: end_run() and begin_run_in_place() under the lock of the row

    def restart(self, s: Shared, me: str, mem: Any) -> Steps:
        _row, run, wake, _ack, holder = s.hot
        taken = tuple((run, r[1], r[2]) for r in s.inbox if r[2] in (None, run))
        s = s._replace(history=s.history + taken, inbox=())
        s = self._next_run(s, wake, "a restart deletes and inserts the row")
        if "a restart keeps the holder's token" in self.flaws:
            s = s._replace(hot=(*s.hot[:4], holder))
        yield "terminated, started anew in place", s, "done", None

    # what must hold

    def always_told_closed(self, s: Shared) -> str | None:
        return f"{s.told} were told closed, and the instance was open all the time" if s.told else None

    def always_foreign(self, s: Shared) -> str | None:
        for ran, item, of in s.history:
            if of is not None and of != ran and item == "result":
                return f"a result of run {of} stands in run {ran}"
        runs = [ran for ran, _, _ in s.history]
        return "the old run was written to after the new one" if runs != sorted(runs) else None

    def always_once(self, s: Shared) -> str | None:
        for sender in SENDERS:
            if sum(item == sender for _, item, _ in s.history) > 1:
                return f"{sender} twice in history"
        return None

    def finally_activated(self, s: Shared) -> str | None:
        _row, run, _wake, _ack, _holder = s.hot
        started = any(ran == run and item == "start" for ran, item, _ in s.history)
        return f"run {run} was never activated" if not started and any(r[1] == "start" for r in s.inbox) else None

    def finally_delivered(self, s: Shared) -> str | None:
        got = [item for _, item, _ in s.history]
        missing = [one for one in s.accepted if one not in got]
        return f"quiet, and {missing} never delivered" if missing else None


MODELS = (Instance,)
