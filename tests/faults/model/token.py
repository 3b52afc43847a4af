"""One token for each commit: the row's is spent and the next one installed, so a lost answer can be told afterwards.

Models `commit_runs.sql` and `commit_verdict.sql` as `Tasks.commit` uses them: a lost answer means that the same commit
is sent again; if that finds the row changed, the verdict is read. A worker keeps the row over a commit or gives it up.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any, ClassVar

from tests.faults.model.engine import Model, Mutant, Steps, Wrong


class Shared(namedtuple("Shared", "hot history landed flying losses dead killed denied")):
    """``hot``: (owner, token, head, next_seq) or None when closed; history: (token, decision) by sequence.

    ``landed``: (token, decision) of each commit that took effect; ``flying``: commits sent whose connection is gone;
    ``denied``: commits that were told fenced.
    """

    __slots__ = ()


class Token(Model):
    rule = "token per commit"
    held_to: ClassVar = {
        "commit_runs.sql": (
            "(l.run_id, l.owner, l.token, l.next_seq) is distinct from (i.run_id, i.owner, i.token, i.base)",
            "head = o.token, token = o.next_token, owner = case when o.keep then h.owner end",
            "e.at, e.attrs, e.payload, o.token",
        ),
        "commit_verdict.sql": (
            "coalesce(h.head = i.token, false) or coalesce(e.commit = i.token, false) as committed",
            "coalesce(h.owner = i.owner and h.token = i.next_token, false) as mine",
            "e.run_id = i.run_id and e.seq = i.base",
        ),
        "tasks.py": ('rows = await self._db.fetch(sql("commit_runs"), *_commit_args(commits), point="commit"',),
    }
    variants: ClassVar = {"": (), "the row is kept": ("keep",)}
    mutants = (
        Mutant("head alone decides", "verdict"),
        Mutant("the installed token alone decides", "verdict"),
        Mutant("a commit does not name the token", "owner", "the row is kept"),
        Mutant("decided anew under the same token", "verdict"),
        Mutant("only asked about, not sent again", "verdict"),
        Mutant("a commit without a record", "verdict"),
        Mutant("one token for two commits", "verdict", "the row is kept"),
        Mutant("a row that is still ours is given up after a verdict", "free", "the row is kept"),
    )
    mortal = ("w1",)
    resting = frozenset({"watch", "land", "take"})

    def start(self) -> Shared:
        return Shared((None, None, None, 0), (), (), (), 3, False, False, ())

    def processes(self) -> dict[str, tuple[str, Any]]:
        return {"w1": ("take", 0), "w2": ("take", 0), "reaper": ("reap", None), "net": ("land", None)}

    def killed(self, s: Shared, name: str) -> Shared:
        return s._replace(killed=True)

    # the commit statement

    def _commit(self, s: Shared, me: str, token: str, following: str, base: int, decision: str) -> Shared | None:
        """None: no row that fits. w2's last decision closes the run."""
        if s.hot is None:
            return None
        owner, held, _head, seq = s.hot
        if "a commit does not name the token" in self.flaws:
            owner, held = me, token
        if (owner, held, seq) != (me, token, base):
            return None
        bare = "a commit without a record" in self.flaws and me == "w1"
        history = s.history if bare else (*s.history, (token, decision))
        keep = "keep" in self.options and me == "w1" and base == 0
        hot = (me if keep else None, following if keep else None, token, len(history))
        return s._replace(
            hot=None if decision == "close" else hot, history=history, landed=(*s.landed, (token, decision))
        )

    def take(self, s: Shared, me: str, n: int) -> Steps:
        if s.hot and s.hot[0] is None and len(s.landed) < 4 and not (s.dead and me == "w1"):
            token = f"{me}.{n}"
            base = s.hot[3]
            decision = "close" if me == "w2" and base else f"d{base}"
            yield (
                f"claim, decides {decision}",
                s._replace(hot=(me, token, *s.hot[2:])),
                "send",
                (
                    n + 1,
                    token,
                    base,
                    decision,
                ),
            )

    def _following(self, token: str, n: int, me: str) -> str:
        return token if "one token for two commits" in self.flaws else f"{me}.{n}"

    def send(self, s: Shared, me: str, mem: Any) -> Steps:
        n, token, base, decision = mem
        following = self._following(token, n, me)
        after = self._commit(s, me, token, following, base, decision)
        if after is not None:
            yield "commit", after, "own", (n + 1, following, base + 1)
        else:
            yield "no row: asks for the verdict", s, "verdict", (*mem, following)
        if s.losses:
            s = s._replace(losses=s.losses - 1)
            again = (*mem, following)
            if after is not None:
                yield "commit, answer lost", after._replace(losses=s.losses), "again", again
            yield (
                "connection lost, commit on its way",
                s._replace(flying=(*s.flying, (me, token, following, base, decision))),
                "again",
                again,
            )

    def land(self, s: Shared, me: str, mem: Any) -> Steps:
        for one in s.flying:
            left = s._replace(flying=tuple(other for other in s.flying if other != one))
            after = self._commit(left, *one)
            if after is not None and (one[1], one[4]) in s.denied:
                raise Wrong("verdict", "told fenced, and the commit took effect afterwards")
            yield ("a commit lands" if after else "a commit lands: no row"), after or left, "land", None

    def again(self, s: Shared, me: str, mem: Any) -> Steps:
        n, token, base, decision, following = mem
        if "decided anew under the same token" in self.flaws:
            decision = f"{decision}'"
            mem = (n, token, base, decision, following)
        if "only asked about, not sent again" in self.flaws:
            yield "asks for the verdict", s, "verdict", mem
            return
        after = self._commit(s, me, token, following, base, decision)
        if after is not None:
            yield "sent again: commit", after, "own", (n + 1, following, base + 1)
        else:
            yield "sent again: no row", s, "verdict", mem

    def verdict(self, s: Shared, me: str, mem: Any) -> Steps:
        n, token, base, decision, following = mem
        head = s.hot is not None and s.hot[2] == token
        written = len(s.history) > base and s.history[base][0] == token
        mine = s.hot is not None and s.hot[:2] == (me, following)
        committed = head or written
        if "head alone decides" in self.flaws:
            committed = head
        elif "the installed token alone decides" in self.flaws:
            committed = mine
        if committed != ((token, decision) in s.landed):
            raise Wrong("verdict", f"told {'committed' if committed else 'fenced'}, and it is not so")
        if committed and mine and "a row that is still ours is given up after a verdict" not in self.flaws:
            yield "committed, still ours", s, "own", (n + 1, following, base + 1)
        elif committed:
            yield "committed", s, "take", n + 1
        else:
            yield "fenced", s._replace(denied=(*s.denied, (token, decision))), "take", n + 1

    def own(self, s: Shared, me: str, mem: Any) -> Steps:
        """After a commit: if it was to keep the row, the next one is decided, whoever may hold the row now."""
        n, token, base = mem
        if "keep" in self.options and me == "w1" and base == 1:
            yield "kept: decides the next", s, "send", (n, token, base, f"d{base}")
        else:
            yield "given up", s, "take", n

    def reap(self, s: Shared, me: str, mem: Any) -> Steps:
        hot = s.hot
        if hot is not None and hot[0] == "w1":
            hot = (None, None, *hot[2:])
        yield "w1 is dead for ever, its row released", s._replace(dead=True, hot=hot), "done", None
        if not s.killed:
            yield "w1 stays healthy", s, "watch", None

    def watch(self, s: Shared, me: str, mem: Any) -> Steps:
        if s.killed:
            yield from self.reap(s, me, mem)

    # what must hold

    def always_owner(self, s: Shared) -> str | None:
        if s.dead and s.hot and s.hot[0] == "w1":
            return "a worker that was declared dead took the row back"
        return None

    def finally_free(self, s: Shared) -> str | None:
        return f"held for ever by {s.hot[0]}, which does not know" if s.hot and s.hot[0] else None


MODELS = (Token,)
