"""A due timer stands behind every input that was acknowledged before its time, and never fires early.

Models `claim_runs.sql` (its clock is read before any load), `load_inbox.sql` (inbox and timers due by that clock, in
one snapshot), `deliver()` (``accepted_at`` is read under the row's lock), `commit_runs.sql` (arms the next due time;
returns ``wake_gen`` and the clock under the lock) and `place` in the core, which puts timers among inputs.

The senders' clocks matter: an input is accepted while its sender holds the lock, and acknowledged when that commits.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any, ClassVar

from tests.faults.model.engine import Model, Mutant, Rows, Steps

DUE = 2
END = 3
FOREVER = 9


class Shared(Rows, namedtuple("Shared", "clock wake ack visible owner inbox history acked timer fired locks")):
    """inbox: (position, item, accepted at); ``acked``: (item, acknowledged at); ``timer``: its row stands."""

    __slots__ = ()


class Timers(Model):
    rule = "timers"
    planned = "a kept run fires without a load"
    held_to: ClassVar = {
        "claim_runs.sql": ("h.attempt, h.blocked_reason, aioflow.clock() as clock",),
        "load_inbox.sql": (
            "where t.kind = 'workflow' and t.due_at <= h.clock",
            "clock (read before this statement: the claim's)",
        ),
        "deliver()": ("aioflow.clock(), i.attrs, i.payload from bumped b",),
        "commit_runs.sql": (
            "when o.wake_gen <> o.gen then o.clock else coalesce(o.due, 'infinity') end",
            "l.wake_gen, aioflow.clock() as clock, count(*) over () as locks",
            "delete from aioflow.timer x using timers_over t",
        ),
    }
    variants: ClassVar = {
        "": (),
        "a message cancels the timer": ("cancel",),
        "the run is kept, and loads": ("keep",),
        "the run is kept, and fires without a load": ("keep", "blind"),
    }
    mutants = (
        Mutant("accepted_at is of the sender's own clock, which is ahead", "acknowledged"),
        Mutant("the clock is read inside the load", "acknowledged"),
        Mutant("timers stand before the batch", "acknowledged"),
        Mutant("accepted_at is read before the lock, and the batch sorted by it", "order"),
        Mutant("fires a tick early", "early"),
        Mutant("a late fire is not dropped", "cancelled", "a message cancels the timer"),
        Mutant("a kept run reads the clock, not wake_gen", "acknowledged", "the run is kept, and fires without a load"),
        Mutant("a kept run trusts the clock of a verdict", "acknowledged", "the run is kept, and fires without a load"),
        Mutant("the timer's row outlives its fire", "once"),
        Mutant("a commit does not arm the next due time", "fires"),
        Mutant("a lapsed wake-up forgets the due time", "fires"),
    )
    resting = frozenset({"claim", "clock"})

    def start(self) -> Shared:
        return Shared(0, 0, 0, DUE, None, (), (), (), True, 0, frozenset())

    def processes(self) -> dict[str, tuple[str, Any]]:
        return {
            "s1": ("send", None),
            "s2": ("send", None),
            "s3": ("send", None),
            "w": ("claim", None),
            "time": ("tick", None),
        }

    def tick(self, s: Shared, me: str, mem: Any) -> Steps:
        if s.clock < END:
            yield f"it is {s.clock + 1}", s.but(clock=s.clock + 1), "tick", None
        else:
            yield "time stops", s, "done", None

    # senders: accepted under the lock, acknowledged by the commit

    def send(self, s: Shared, me: str, mem: Any) -> Steps:
        if "accepted_at is read before the lock, and the batch sorted by it" in self.flaws:
            yield f"reads the clock: {s.clock}", s, "bump", s.clock
        else:
            yield from self.bump(s, me, None)

    def bump(self, s: Shared, me: str, read: int | None) -> Steps:
        if s.free("hot", me):
            ahead = DUE if "accepted_at is of the sender's own clock, which is ahead" in self.flaws else 0
            at = s.clock + ahead if read is None else read
            yield f"locked, accepted at {at}", s.lock("hot", me), "commit_input", at

    def commit_input(self, s: Shared, me: str, at: int) -> Steps:
        item = "stop" if me == "s2" and "cancel" in self.options else me
        wake = s.wake + 1
        visible = min(s.visible, s.clock) if s.owner is None else s.visible
        inbox = (*s.inbox, (wake, item, at))
        after = s.but(wake=wake, visible=visible, inbox=inbox, acked=(*s.acked, (item, s.clock))).unlock(me)
        yield f"{item} acknowledged at {s.clock}", after, "done", None

    # the worker

    def claim(self, s: Shared, me: str, mem: Any) -> Steps:
        early = 1 if "fires a tick early" in self.flaws else 0
        if s.owner is None and s.visible <= s.clock + early and s.free("hot", me):
            yield f"claim, clock {s.clock}", s.but(owner=me, visible=FOREVER), "load", s.clock + early

    def load(self, s: Shared, me: str, clock: int) -> Steps:
        if "the clock is read inside the load" in self.flaws:
            yield f"load at {s.wake}: snapshot", s, "later", (s.wake, s.inbox, s.timer)
        else:
            yield f"load at {s.wake}", s, "commit", (s.wake, self._place(s.inbox, s.timer and clock >= DUE))

    def later(self, s: Shared, me: str, mem: Any) -> Steps:
        gen, inbox, timer = mem
        yield f"the load's clock: {s.clock}", s, "commit", (gen, self._place(inbox, timer and s.clock >= DUE))

    def _place(self, inbox: Any, due: bool) -> tuple[str, ...]:
        """As `place`: behind the last input accepted before its time."""
        rows = sorted(
            inbox,
            key=(lambda r: r[2:] + r[:1])
            if "accepted_at is read before the lock, and the batch sorted by it" in self.flaws
            else None,
        )
        items = [row[1] for row in rows]
        if due:
            at = max((n + 1 for n, row in enumerate(rows) if row[2] < DUE), default=0)
            items.insert(0 if "timers stand before the batch" in self.flaws else at, "timer")
        return tuple(items)

    def commit(self, s: Shared, me: str, mem: Any) -> Steps:
        gen, items = mem
        if not s.free("hot", me):
            return
        applied = list(items)
        before = (*s.history, *applied[: applied.index("timer")]) if "timer" in applied else ()
        if "stop" in before and "a late fire is not dropped" not in self.flaws:
            applied.remove("timer")  # it is not pending at its place
        gone = "timer" in applied or "stop" in applied
        timer = s.timer and (not gone or "the timer's row outlives its fire" in self.flaws)
        history = s.history + tuple(applied)
        inbox = tuple(r for r in s.inbox if r[0] > gen)
        s = s.but(ack=gen, inbox=inbox, history=history, timer=timer, fired=s.fired + applied.count("timer"))
        if "keep" in self.options and not any(h == "kept" for h in s.history) and timer:
            s = s.but(history=(*s.history, "kept"))
            yield f"commit {applied}, kept: wake_gen {s.wake}, clock {s.clock}", s, "kept", (gen, s.wake, s.clock)
            if "a kept run trusts the clock of a verdict" in self.flaws:
                yield f"commit {applied}, answer lost", s, "verdict", gen
            return
        due = DUE if timer and "a commit does not arm the next due time" not in self.flaws else FOREVER
        moved = s.wake != gen
        if moved and "a lapsed wake-up forgets the due time" in self.flaws:
            due = FOREVER
        visible = s.clock if moved and "a lapsed wake-up forgets the due time" not in self.flaws else due
        yield f"commit {applied}", s.but(owner=None, visible=visible), "claim", None

    def verdict(self, s: Shared, me: str, gen: int) -> Steps:
        yield f"verdict: snapshot, wake_gen {s.wake}", s, "verdict_clock", (gen, s.wake)

    def verdict_clock(self, s: Shared, me: str, mem: Any) -> Steps:
        yield f"the verdict's clock: {s.clock}", s, "kept", (*mem, s.clock)

    def kept(self, s: Shared, me: str, mem: Any) -> Steps:
        """Loads with the clock that the commit returned; as designed, need not if nothing came and the timer is due."""
        gen, wake, clock = mem
        if "a kept run reads the clock, not wake_gen" in self.flaws and s.clock >= DUE:
            yield f"reads the clock: {s.clock}, fires", s, "commit", (gen, ("timer",))
        elif "blind" in self.options and wake == gen and clock >= DUE:
            yield "nothing came until then, fires", s, "commit", (gen, ("timer",))
        else:
            yield "loads again", s, "load", clock

    # what must hold

    def _inputs(self, s: Shared) -> list[str]:
        return [item for item in s.history if item not in ("kept",)]

    def always_acknowledged(self, s: Shared) -> str | None:
        history = self._inputs(s)
        if "timer" not in history:
            return None
        before = history[: history.index("timer")]
        for item, at in s.acked:
            if at < DUE and item not in before:
                return f"{item} was acknowledged at {at}, and the timer of {DUE} stands before it"
        return None

    def always_order(self, s: Shared) -> str | None:
        inputs = [item for item in self._inputs(s) if item != "timer"]
        accepted = [item for item, _ in s.acked]
        return f"{inputs} were accepted as {accepted}" if inputs != accepted[: len(inputs)] else None

    def always_early(self, s: Shared) -> str | None:
        return f"fired at {s.clock}" if s.fired and s.clock < DUE else None

    def always_once(self, s: Shared) -> str | None:
        return "fired twice" if s.fired > 1 else None

    def always_cancelled(self, s: Shared) -> str | None:
        history = self._inputs(s)
        if "stop" in history and "timer" in history[history.index("stop") :]:
            return "cancelled, and fired"
        return None

    def finally_fires(self, s: Shared) -> str | None:
        if not s.fired and "stop" not in s.history:
            return "the timer never fires"
        return "inputs are left" if s.inbox else None


MODELS = (Timers,)
