"""A result joins its own worker's commit without an inbox row, also when the answer to that commit is lost.

As designed; the product does not do it yet. Its parts exist: `commit_runs.sql` (the row by its token),
`complete_activities.sql` (the attempt by its token), `commit_verdict.sql` and `load_inbox.sql`. The eager commit
deletes the attempt's row between the lock of the hot row and its update, in one statement; no row, and nothing is
written.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any, ClassVar

from tests.faults.model.engine import Model, Mutant, Steps, Wrong


class Shared(
    namedtuple("Shared", "hot attempt inbox history accepted effects commits losses expiries reaps dead killed landed")
):
    """``hot``: (wake, ack, token, owner, head); ``attempt``: (number, owner, state); history: (item, commit)."""

    __slots__ = ()


class Eager(Model):
    rule = "eager result"
    planned = "all of it"
    held_to: ClassVar = {
        "complete_activities.sql": ("and a.token is not distinct from i.token",),
        "commit_runs.sql": ("case when o.keep then 'infinity' when o.wake_gen <> o.gen then o.clock",),
        "commit_verdict.sql": ("h.wake_gen, aioflow.clock() as clock",),
    }
    variants: ClassVar = {"": ()}
    mutants = (
        Mutant("acknowledges the returned wake_gen without a load", "order"),
        Mutant("looks at the run's token only, not at the attempt's", "outcomes"),
        Mutant("the next step comes before the load", "order"),
        Mutant("a lost answer is taken for a late result", "verdict"),
        Mutant("acknowledges the wake_gen of the verdict without a load", "order"),
        Mutant("the attempt is deleted in a transaction of its own", "completed"),
        Mutant("after a lost answer the result goes by the inbox too, without its attempt's token", "outcomes"),
    )
    mortal = ("w1",)
    resting = frozenset({"claim", "take", "world"})

    def start(self) -> Shared:
        hot = (1, 1, "T1", "w1", None)
        return Shared(hot, (1, "w1", "run"), frozenset(), (("scheduled", 0),), (), 0, 0, 1, 1, 1, False, False, False)

    def processes(self) -> dict[str, tuple[str, Any]]:
        return {
            "w1": ("effect", None),
            "w2": ("take", None),
            "w3": ("claim", 0),
            "s1": ("signal", None),
            "s2": ("signal", None),
            "s3": ("signal", None),
            "world": ("world", None),
        }

    def killed(self, s: Shared, name: str) -> Shared:
        return s._replace(killed=True)

    def signal(self, s: Shared, me: str, mem: Any) -> Steps:
        wake = s.hot[0] + 1
        accepted = (*s.accepted, (me, s.commits))
        yield (
            "accepted",
            s._replace(hot=(wake, *s.hot[1:]), inbox=s.inbox | {(wake, me)}, accepted=accepted),
            "done",
            None,
        )

    def world(self, s: Shared, me: str, mem: Any) -> Steps:
        number, owner, state = s.attempt
        if s.expiries and state == "run":
            yield (
                "attempt timed out: next one ready",
                s._replace(attempt=(number + 1, None, "ready"), expiries=s.expiries - 1),
                "world",
                None,
            )
        if s.reaps and not s.dead:
            s = s._replace(reaps=0, dead=True)
            wake, ack, _token, holder, head = s.hot
            if holder == "w1":
                s = s._replace(hot=(wake, min(ack, wake - 1), None, None, head))
            if owner == "w1" and state == "run":
                s = s._replace(attempt=(number, None, "ready"))
            yield "w1 reaped", s, "world", None

    # another worker runs the attempt that came after

    def take(self, s: Shared, me: str, mem: Any) -> Steps:
        number, _, state = s.attempt
        if state == "ready":
            yield f"claims attempt {number}", s._replace(attempt=(number, me, "run")), "run", number

    def run(self, s: Shared, me: str, number: int) -> Steps:
        yield "effect", s._replace(effects=s.effects + 1), "complete", number

    def complete(self, s: Shared, me: str, number: int) -> Steps:
        if s.attempt == (number, me, "run"):
            yield "result to the inbox", self._by_inbox(s), "take", None
        else:
            yield "late: not recorded", s, "take", None

    def _by_inbox(self, s: Shared) -> Shared:
        wake = s.hot[0] + 1
        return s._replace(
            hot=(wake, *s.hot[1:]), inbox=s.inbox | {(wake, "result")}, attempt=(s.attempt[0], None, "done")
        )

    # w1 runs attempt 1 and holds the run by T1

    def effect(self, s: Shared, me: str, mem: Any) -> Steps:
        yield "effect (attempt 1)", s._replace(effects=s.effects + 1), "eager", False

    def _eager(self, s: Shared) -> Shared | None:
        wake, ack, token, owner, _head = s.hot
        blind = "looks at the run's token only, not at the attempt's" in self.flaws
        if token != "T1" or not (blind or s.attempt == (1, "w1", "run")):
            return None
        history = (*s.history, ("result", s.commits + 1))
        return s._replace(
            hot=(wake, ack, "T2", owner, "T1"),
            attempt=(s.attempt[0], None, "done"),
            history=history,
            commits=s.commits + 1,
            landed=True,
        )

    def eager(self, s: Shared, me: str, again: bool) -> Steps:
        if "the attempt is deleted in a transaction of its own" in self.flaws and s.attempt == (1, "w1", "run"):
            yield "attempt deleted, committed", s._replace(attempt=(1, "w1", "deleted")), "second", None
            return
        after = self._eager(s)
        if after is not None:
            wake = after.hot[0]
            yield f"eager commit, wake_gen {wake}", after, "next", ("commit", wake)
            if s.losses:
                yield "eager commit, answer lost", after._replace(losses=0), "lost", None
        elif again:
            yield "sent again: no row", s, "verdict", None
        elif s.hot[2] == "T1":
            yield "the attempt is another's: result dropped", s, "load", "T1"
        else:
            yield "fenced", s, "done", None

    def second(self, s: Shared, me: str, mem: Any) -> Steps:
        if s.hot[2] != "T1":
            yield "fenced", s, "done", None
        else:
            after = s._replace(attempt=(1, "w1", "run"))
            yield "eager commit", self._eager(after), "next", ("commit", s.hot[0])

    def lost(self, s: Shared, me: str, mem: Any) -> Steps:
        if "a lost answer is taken for a late result" in self.flaws:
            if s.landed:
                raise Wrong("verdict", "told that the result came late, and it is recorded")
        elif "after a lost answer the result goes by the inbox too, without its attempt's token" in self.flaws:
            yield "result to the inbox", self._by_inbox(s), "done", None
            return
        yield from self.eager(s, me, True)

    def verdict(self, s: Shared, me: str, mem: Any) -> Steps:
        committed = s.hot[4] == "T1" or any(item == "result" and n == 1 for item, n in s.history)
        if committed != s.landed:
            raise Wrong("verdict", f"told {'committed' if committed else 'fenced'}, and it is not so")
        if committed and s.hot[2] == "T2":
            yield f"committed, ours, wake_gen {s.hot[0]}", s, "next", ("verdict", s.hot[0])
        else:
            yield "committed" if committed else "fenced", s, "done", None

    def next(self, s: Shared, me: str, mem: Any) -> Steps:
        """``ack`` is 1 still; wake_gen moved: the inbox is loaded before anything else is applied."""
        source, wake = mem
        blind = {
            "commit": "acknowledges the returned wake_gen without a load",
            "verdict": "acknowledges the wake_gen of the verdict without a load",
        }[source]
        if blind in self.flaws:
            yield "goes on, acknowledges what was returned", s, "commit", ("T2", wake, ())
        elif wake == 1 or "the next step comes before the load" in self.flaws:
            yield "goes on", s, "commit", ("T2", 1, ())
        else:
            yield "wake_gen has moved", s, "load", "T2"

    def load(self, s: Shared, me: str, token: str) -> Steps:
        if s.hot[2] != token:
            yield "not held any more", s, "done", None
        else:
            yield f"load at {s.hot[0]}", s, "commit", (token, s.hot[0], tuple(sorted(s.inbox)))

    def _consume(self, s: Shared, gen: int, rows: Any, step: tuple[str, ...]) -> Shared:
        number = s.commits + 1
        items = tuple((item, number) for item in (*(r[1] for r in rows), *step))
        hot = (s.hot[0], gen, None, None, f"c{number}")
        return s._replace(hot=hot, inbox=s.inbox - set(rows), history=s.history + items, commits=number)

    def commit(self, s: Shared, me: str, mem: Any) -> Steps:
        token, gen, rows = mem
        if s.hot[2] != token:
            yield "fenced", s, "done", None
        else:
            yield f"commit {[r[1] for r in rows]} and a step", self._consume(s, gen, rows, ("step",)), "done", None

    def claim(self, s: Shared, me: str, times: int) -> Steps:
        if s.hot[2] is None and s.hot[0] > s.hot[1]:
            yield (
                "claim and load",
                s._replace(hot=(*s.hot[:2], f"w3.{times}", me, s.hot[4])),
                "other",
                (
                    times + 1,
                    s.hot[0],
                    tuple(sorted(s.inbox)),
                ),
            )

    def other(self, s: Shared, me: str, mem: Any) -> Steps:
        times, gen, rows = mem
        yield f"commit {[r[1] for r in rows]}", self._consume(s, gen, rows, ()), "claim", times

    # what must hold

    def always_outcomes(self, s: Shared) -> str | None:
        outcomes = sum(i == "result" for i, _ in s.history) + sum(i == "result" for _, i in s.inbox)
        return "two outcomes of one execution" if outcomes > 1 else None

    def always_order(self, s: Shared) -> str | None:
        """What was accepted before commit n is told by its answer, so the one after it has it."""
        for sender, before in s.accepted:
            applied = [n for item, n in s.history if item == sender]
            if (applied and applied[0] > before + 2) or (not applied and s.commits > before + 2):
                return f"{sender} was accepted before commit {before + 1}, and the one after it does not have it"
        return None

    def finally_delivered(self, s: Shared) -> str | None:
        missing = [one for one, _ in s.accepted if one not in {item for item, _ in s.history}]
        held = s.hot[3] == "w1" and not s.dead
        return f"quiet, and {missing} never delivered" if missing and not held else None

    def finally_completed(self, s: Shared) -> str | None:
        done = any(i == "result" for i, _ in s.history)
        held = s.hot[3] == "w1" and not s.dead
        return "the activity never has an outcome" if not done and not held else None


MODELS = (Eager,)
