"""An activity: attempts by token, one outcome, retries that only failures and timeouts use up.

Models `claim_activities.sql`, `complete_activities.sql` with `completion_verdict.sql`, `retry_activities.sql`,
`heartbeats.sql`, `expired_activities.sql` (reads; what it found is ended by later statements, guarded by token and
deadline), `reap_activities.sql`, `release_activities.sql` and the commit that cancels, in `commit_runs.sql`.

Deadlines are numbered: a claim, a heartbeat or a release sets a new one, and time may pass the one that stands.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any, ClassVar

from tests.faults.model.engine import Model, Mutant, Rows, Steps, Wrong

RETRIES = 3


class Shared(
    Rows,
    namedtuple(
        "Shared", "open row attempt deadline passed seen used inbox history effects tokens killed losses world locks"
    ),
):
    """``row``: (owner, token), (None, None) when it waits, None when it is gone.

    ``passed``: its deadline has; ``seen``: the owner was alive after that. ``used``: failures and timeouts so far;
    ``tokens``: how many were given.
    """

    __slots__ = ()


class Activities(Model):
    rule = "activities"
    held_to: ClassVar = {
        "claim_activities.sql": ("x.owner is null", "deliveries = a.deliveries + 1"),
        "complete_activities.sql": (
            "and a.token is not distinct from i.token and (i.deadline is null or a.deadline = i.deadline)",
            "delete from aioflow.activity a using held i",
            "count(*) over () as locks",
        ),
        "retry_activities.sql": (
            "where a.token = i.token and (i.deadline is null or a.deadline = i.deadline)",
            "set owner = null, token = null, attempt = a.attempt + 1",
        ),
        "heartbeats.sql": ("where a.token = i.token and i.beat", "for no key update of a skip locked"),
        "expired_activities.sql": ("w.worker_id = a.owner and w.seen_at >= a.deadline",),
        "reap_activities.sql": ("set owner = null, token = null, started_at = null",),
        "release_activities.sql": ("set owner = null, token = null, started_at = null", "where a.token = i.token"),
        "completion_verdict.sql": (
            "and b.run_id = i.run_id and b.ref = i.ref and strpos(b.attrs, i.token) > 0",
            "and strpos(h.attrs, i.token) > 0",
        ),
        "commit_runs.sql": ("delete from aioflow.activity a using unwanted c",),
        "activities.py": ("if resent:",),
    }
    variants: ClassVar = {"": ("time",), "cancelled meanwhile": ("cancel", "time"), "quiet times": ()}
    mutants = (
        Mutant("a completion does not name its attempt", "late"),
        Mutant("a completion leaves the row", "outcomes"),
        Mutant("a failure does not name its attempt", "late"),
        Mutant("a timeout does not look at the deadline again", "early"),
        Mutant("a release counts as a retry", "budget"),
        Mutant("a dead worker's attempt is timed out", "dead_timed_out"),
        Mutant("a lost answer is not looked up", "verdict"),
        Mutant("a lost answer is looked up in the inbox only", "verdict"),
        Mutant("the activity is locked before the run", "deadlock", "cancelled meanwhile"),
        Mutant("a reaped attempt keeps its row's owner", "ends", "quiet times"),
        Mutant("an outcome is consumed without its row", "outcomes"),
    )
    mortal = ("w1",)
    resting = frozenset({"take", "sweep", "world", "consume", "reap"})

    def start(self) -> Shared:
        row = (None, None)
        return Shared(True, row, 1, 0, False, False, 0, (), (), (), 0, False, 2, self.options, frozenset())

    def processes(self) -> dict[str, tuple[str, Any]]:
        found: dict[str, tuple[str, Any]] = {"w1": ("take", None), "w2": ("take", None), "reaper": ("reap", None)}
        found |= {"sweeper": ("sweep", None), "world": ("world", None), "run": ("consume", None)}
        return found

    def killed(self, s: Shared, name: str) -> Shared:
        return s.but(killed=True)

    def _new_deadline(self, s: Shared) -> Shared:
        return s.but(deadline=s.deadline + 1, passed=False, seen=False)

    # attempts

    def take(self, s: Shared, me: str, mem: Any) -> Steps:
        if s.row == (None, None) and s.free("activity", me) and s.tokens < 4:
            token = s.tokens + 1
            yield f"claims attempt {s.attempt}", self._new_deadline(s.but(row=(me, token), tokens=token)), "run", token

    def run(self, s: Shared, me: str, token: int) -> Steps:
        yield "effect", s.but(effects=(*s.effects, token)), "end", token
        if s.row == (me, token) and s.passed and "time" in self.options and s.free("activity", me):
            yield "heartbeat", self._new_deadline(s), "run", token
        yield "fails", s, "fail", token

    def fail(self, s: Shared, me: str, token: int) -> Steps:
        yield from self._retry(s, me, token, None, "take")

    def end(self, s: Shared, me: str, token: int) -> Steps:
        yield "complete: snapshot", s, "complete", (token, False)

    def complete(self, s: Shared, me: str, mem: Any) -> Steps:
        token, again = mem
        if "the activity is locked before the run" in self.flaws:
            if s.free("activity", me):
                yield "activity locked", s.lock("activity", me), "second", mem
        elif s.free("hot", me) and s.free("activity", me):
            yield from self._completed(s, me, token, again)

    def second(self, s: Shared, me: str, mem: Any) -> Steps:
        if s.free("hot", me):
            for label, after, place, memory in self._completed(s, me, *mem):
                yield label, after.unlock(me), place, memory

    def _completed(self, s: Shared, me: str, token: int, again: bool) -> Steps:
        unnamed = "a completion does not name its attempt" in self.flaws
        if not s.open or s.row is None or not (unnamed or s.row == (me, token)):
            yield from self._told_late(s, token, again)
            return
        if s.row != (me, token):
            raise Wrong("late", "the result of an attempt that was given up is recorded")
        row = s.row if "a completion leaves the row" in self.flaws else None
        after = s.but(row=row, inbox=(*s.inbox, token))
        yield "recorded", after, "take", None
        if s.losses:
            yield "recorded, answer lost", after.but(losses=s.losses - 1), "complete", (token, True)

    def _told_late(self, s: Shared, token: int, again: bool) -> Steps:
        known = token in s.inbox or token in s.history
        if "a lost answer is not looked up" in self.flaws:
            found = False
        elif "a lost answer is looked up in the inbox only" in self.flaws:
            found = token in s.inbox
        else:
            found = known
        if again and known and not found and s.open:
            raise Wrong("verdict", "told that it came late, and it is recorded")
        yield "recorded before" if again and found else "late: not recorded", s, "take", None

    # ends by others

    def _retry(self, s: Shared, me: str, token: int, deadline: int | None, place: str) -> Steps:
        """`retry_activities.sql`; without retries left the failure is the outcome."""
        if not (s.free("hot", me) and s.free("activity", me)):
            return
        row = s.row
        fits = row is not None and row[1] == token
        unnamed = deadline is None and "a failure does not name its attempt" in self.flaws
        if unnamed and not fits and row is not None and row[0]:
            raise Wrong("late", "the failure of an attempt that was given up ends another one")
        guarded = deadline is None or "a timeout does not look at the deadline again" in self.flaws
        if not fits or not s.open or not (guarded or s.deadline == deadline):
            yield "late: nothing", s, place, None
            return
        if deadline is not None and not s.passed:
            raise Wrong("early", "an attempt that has just shown a sign of life is timed out")
        s = s.but(used=s.used + 1)
        if s.attempt >= RETRIES:
            yield "no retry left: failed", s.but(row=None, inbox=(*s.inbox, -token)), place, None
        else:
            again = s.but(row=(None, None), attempt=s.attempt + 1)
            yield "back to the queue", self._new_deadline(again), place, None

    def world(self, s: Shared, me: str, mem: Any) -> Steps:
        """Time passes a deadline; a live owner renews its lease."""
        if "time" in s.world and s.row and s.row[0] and not s.passed:
            yield "the deadline passes", s.but(passed=True, world=s.world - {"time"}), "world", None
        if s.passed and not s.seen and s.row and s.row[0] and not (s.killed and s.row[0] == "w1"):
            yield "its worker is seen alive", s.but(seen=True), "world", None

    def sweep(self, s: Shared, me: str, mem: Any) -> Steps:
        blind = "a dead worker's attempt is timed out" in self.flaws
        if s.row and s.row[0] and s.passed and (s.seen or blind):
            if not s.seen and s.killed and s.row[0] == "w1":
                raise Wrong("dead_timed_out", "a worker's death uses up a retry")
            yield "finds it expired", s, "expire", (s.row[1], s.deadline)

    def expire(self, s: Shared, me: str, mem: Any) -> Steps:
        yield from self._retry(s, me, *mem, "sweep")

    def reap(self, s: Shared, me: str, mem: Any) -> Steps:
        if s.killed and s.row and s.row[0] == "w1" and s.free("activity", me):
            if "a reaped attempt keeps its row's owner" in self.flaws:
                yield "released, so it seems", s, "done", None
                return
            attempt = s.attempt + ("a release counts as a retry" in self.flaws)
            yield "released", self._new_deadline(s.but(row=(None, None), attempt=attempt)), "reap", None

    # the run

    def consume(self, s: Shared, me: str, mem: Any) -> Steps:
        if not s.free("hot", me):
            return
        if s.inbox:
            row = s.row
            if "an outcome is consumed without its row" in self.flaws and row is None:
                row = (None, None)
            yield "commit: consumes the outcome", s.but(inbox=(), history=s.history + s.inbox, row=row), "consume", None
        if "cancel" in s.world:
            yield (
                "commit that cancels: hot row locked",
                s.lock("hot", me).but(world=s.world - {"cancel"}),
                "cancel",
                None,
            )

    def cancel(self, s: Shared, me: str, mem: Any) -> Steps:
        if s.free("activity", me):
            yield "commit: cancelled", s.but(row=None, open=bool(s.inbox) or s.open).unlock(me), "consume", None

    # what must hold

    def always_outcomes(self, s: Shared) -> str | None:
        outcomes = s.inbox + s.history
        return f"several outcomes: {outcomes}" if len(outcomes) > 1 else None

    def always_effect(self, s: Shared) -> str | None:
        unreal = [token for token in s.inbox + s.history if token > 0 and token not in s.effects]
        return "completed without an effect" if unreal else None

    def always_budget(self, s: Shared) -> str | None:
        return f"attempt {s.attempt} after {s.used} failures" if s.attempt > 1 + s.used else None

    def finally_ends(self, s: Shared) -> str | None:
        cancelled = "cancel" in self.options
        if not s.history and not cancelled and s.tokens < 4:
            return "the activity never has an outcome"
        return None


MODELS = (Activities,)
