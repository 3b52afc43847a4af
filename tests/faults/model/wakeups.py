"""No wake-up is lost: every delivery bumps and arms, every commit and release arms what is left to do.

Models the arming in `deliver()` and `complete_activities.sql`, `commit_runs.sql` (whole or a part of what was loaded,
kept or given up), `release_runs.sql`, `reap_runs.sql`, `claim_runs.sql` and `begin_run_in_place()` (a reserved
instance is not armed until it starts). NOTIFY is not in it: polling alone must do.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any, ClassVar

from tests.faults.model.engine import Model, Mutant, Steps

NEVER = 99


class Shared(namedtuple("Shared", "started wake ack visible owner inbox timer done accepted killed taken")):
    """``visible``: 0 claimable, 1 with the timer, NEVER not; ``timer``: unset, armed, due or fired."""

    __slots__ = ()


class Wakeups(Model):
    rule = "arming"
    held_to: ClassVar = {
        "deliver()": (
            "visible_at = case when h.owner is null and h.run_id is not null then least(h.visible_at, aioflow.clock())",
        ),
        "complete_activities.sql": (
            "visible_at = case when h.owner is null then least(h.visible_at, aioflow.clock())",
        ),
        "commit_runs.sql": (
            "set ack_gen = o.gen",
            "visible_at = case when o.keep then 'infinity' when o.wake_gen <> o.gen then o.clock",
        ),
        "release_runs.sql": ("visible_at = aioflow.clock() + make_interval(secs => i.delay)",),
        "reap_runs.sql": ("set owner = null, token = null, visible_at = aioflow.clock()",),
        "claim_runs.sql": ("x.visible_at <= aioflow.clock() and x.visible_at < 'infinity' and x.owner is null",),
        "begin_instances()": ("case when run_id is null then 'infinity' else now end",),
        "begin_run_in_place()": ("set run_id = p_run, workflow = p_workflow",),
    }
    variants: ClassVar = {"": (), "reserved first": ("reserved",), "commits in parts": ("parts",)}
    mutants = (
        Mutant("a release arms only if wake_gen has moved", "lost"),
        Mutant("a commit does not arm what came meanwhile", "lost"),
        Mutant("a delivery does not arm", "lost"),
        Mutant("a delivery bumps only what is not armed", "lost"),
        Mutant("a commit looks whether the inbox is empty", "lost"),
        Mutant("a commit acknowledges the wake_gen it finds", "lost"),
        Mutant("a part that is left is not armed", "lost", "commits in parts"),
        Mutant("a claim does not take the due time off", "twice"),
        Mutant("a delivery arms what is only reserved", "not_started", "reserved first"),
        Mutant("a start leaves the row as it was reserved", "lost", "reserved first"),
        Mutant("a delivery takes an owned run's row back to due", "twice"),
    )
    mortal = ("w1",)
    resting = frozenset({"claim", "sweep", "time"})

    def start(self) -> Shared:
        if "reserved" in self.options:
            return Shared(False, 0, 0, NEVER, None, (), "unset", (), (), False, False)
        return Shared(True, 1, 0, 0, None, ((1, "start"),), "unset", (), ("start",), False, False)

    def processes(self) -> dict[str, tuple[str, Any]]:
        found: dict[str, tuple[str, Any]] = {"s1": ("send", None), "s2": ("send", None), "s3": ("send", None)}
        if "reserved" in self.options:
            found["starter"] = ("begin", None)
        return found | {
            "w1": ("claim", None),
            "w2": ("claim", None),
            "sweep": ("sweep", None),
            "time": ("time", None),
        }

    def killed(self, s: Shared, name: str) -> Shared:
        return s._replace(killed=True)

    def send(self, s: Shared, me: str, mem: Any) -> Steps:
        if "a delivery bumps only what is not armed" in self.flaws and s.visible == 0:
            yield "finds it armed", s, "insert", s.wake
            return
        loose = "a delivery takes an owned run's row back to due" in self.flaws
        reserved = "a delivery arms what is only reserved" in self.flaws
        visible = s.visible
        if (s.owner is None or loose) and (s.started or reserved) and "a delivery does not arm" not in self.flaws:
            visible = 0
        after = s._replace(wake=s.wake + 1, visible=visible, inbox=(*s.inbox, (s.wake + 1, me)))
        yield "accepted", after._replace(accepted=(*s.accepted, me)), "done", None

    def insert(self, s: Shared, me: str, wake: int) -> Steps:
        after = s._replace(inbox=(*s.inbox, (wake, me)), accepted=(*s.accepted, me))
        yield "accepted without a bump", after, "done", None

    def begin(self, s: Shared, me: str, mem: Any) -> Steps:
        stale = "a start leaves the row as it was reserved" in self.flaws
        visible = s.visible if stale else 0
        after = s._replace(started=True, wake=s.wake + 1, visible=visible, inbox=(*s.inbox, (s.wake + 1, "start")))
        yield "started", after._replace(accepted=(*s.accepted, "start")), "done", None

    def time(self, s: Shared, me: str, mem: Any) -> Steps:
        if s.timer == "armed":
            visible = 0 if s.visible == 1 else s.visible  # 1: claimable when the timer is due
            yield "the timer is due", s._replace(timer="due", visible=visible), "time", None

    # workers

    def claim(self, s: Shared, me: str, mem: Any) -> Steps:
        free = s.owner is None or "a claim does not take the due time off" in self.flaws
        if "a delivery takes an owned run's row back to due" in self.flaws:
            free = True  # what is claimable is told by the due time alone
        if s.visible == 0 and free:
            visible = 0 if "a claim does not take the due time off" in self.flaws else NEVER
            taken = s.owner is not None and not (s.killed and s.owner == "w1")
            yield "claim", s._replace(owner=me, visible=visible, taken=taken), "load", None

    def load(self, s: Shared, me: str, mem: Any) -> Steps:
        if s.owner != me:
            yield "not held any more", s, "claim", None
        else:
            yield f"load at {s.wake}", s, "look", (s.wake, s.inbox, s.timer == "due")
            yield "the task fails: given back", s._replace(owner=None, visible=self._released(s)), "claim", None

    def _released(self, s: Shared) -> int:
        if "a release arms only if wake_gen has moved" in self.flaws and s.wake == s.ack:
            return NEVER
        return 0

    def look(self, s: Shared, me: str, mem: Any) -> Steps:
        """The commit's snapshot: it says nothing of what comes while the lock is waited for."""
        if "a commit looks whether the inbox is empty" in self.flaws:
            yield "commit: snapshot", s, "commit", (*mem, s.inbox)
        else:
            yield from self.commit(s, me, (*mem, ()))

    def commit(self, s: Shared, me: str, mem: Any) -> Steps:
        loaded, rows, due, seen = mem
        if s.owner != me:
            yield "fenced", s, "claim", None
            return
        parts = [rows]
        if "parts" in self.options and len({row[0] for row in rows}) > 1:
            parts.append(tuple(row for row in rows if row[0] == rows[0][0]))
        for part in parts:
            whole = part == rows
            gen = loaded if whole else part[-1][0]
            after = self._consume(s, gen, part, due and whole)
            items = list(after.done[len(s.done) :])
            left = [row for row in seen if row not in part]
            armed = self._armed(after, loaded, bool(left))
            yield f"commit {items}", after._replace(owner=None, visible=armed), "claim", None
            if len(s.done) < 2:
                yield f"commit {items}, kept", after._replace(visible=NEVER), "load", None

    def _consume(self, s: Shared, gen: int, rows: Any, due: bool) -> Shared:
        items = [item for _, item in rows] + (["timer"] if due else [])
        timer = "fired" if due else "armed" if s.timer == "unset" and "start" in items else s.timer
        ack = s.wake if "a commit acknowledges the wake_gen it finds" in self.flaws else gen
        inbox = tuple(row for row in s.inbox if row not in rows)
        return s._replace(ack=ack, inbox=inbox, done=s.done + tuple(items), timer=timer)

    def _armed(self, after: Shared, loaded: int, left: bool) -> int:
        """What the commit makes of visible_at: now, when the timer is due (1), or never."""
        moved = after.wake != after.ack
        if "a commit does not arm what came meanwhile" in self.flaws:
            moved = False
        elif "a commit looks whether the inbox is empty" in self.flaws:
            moved = left
        elif "a part that is left is not armed" in self.flaws:
            moved = after.wake != loaded
        return 0 if moved else {"armed": 1, "due": 0}.get(after.timer, NEVER)

    def sweep(self, s: Shared, me: str, mem: Any) -> Steps:
        if s.killed and s.owner == "w1":
            yield "the dead worker's run is released", s._replace(owner=None, visible=self._released(s)), "sweep", None

    # what must hold

    def always_twice(self, s: Shared) -> str | None:
        return "a run that is held was claimed again" if s.taken else None

    def always_not_started(self, s: Shared) -> str | None:
        return "claimed before it was started" if s.owner and not s.started else None

    def always_kept_out(self, s: Shared) -> str | None:
        if s.owner and s.visible != NEVER and not self.flaws:
            return "a held row lies in the index of what is ready"
        return None

    def finally_lost(self, s: Shared) -> str | None:
        missing = [item for item in s.accepted if item not in s.done]
        if s.timer != "fired":
            missing.append("the timer")
        return f"quiet, and {missing} not done" if missing else None


MODELS = (Wakeups,)
