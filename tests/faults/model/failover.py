"""A failover rolls the database back to an earlier state: tokens are unique, so nothing old passes for the present.

Models `commit_runs.sql` and `commit_verdict.sql` over a change of servers, `timelines.py` (a server that was left
behind is refused) and what a worker does about it: caches and leases go, `worker_epoch.sql` and
`release_unknown_runs.sql` give back what the database says it owns. The standby is asynchronous here, so acknowledged
commits may be gone; what is left must be one history all the same, and a run must never go on from what is no longer
there.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any, ClassVar

from tests.faults.model.engine import Model, Mutant, Steps

OLD, NEW = 0, 1


class Shared(namedtuple("Shared", "servers standby failed back stray")):
    """Each server: (owner, token, head, history); history: (decision, the history it was decided from).

    ``standby`` is what was replicated, ``back``: the old server answers again, ``stray``: a process that had seen the
    new server wrote to the old one.
    """

    __slots__ = ()


class Failover(Model):
    rule = "failover"
    held_to: ClassVar = {
        "timelines.py": ("self._highest[system] = max(before, timeline)", "if timeline < before: raise OldTimeline("),
        "commit_runs.sql": ("(l.run_id, l.owner, l.token, l.next_seq) is distinct from",),
        "commit_verdict.sql": ("e.seq = i.base", "as committed"),
        "release_unknown_runs.sql": ("where h.owner = $1 and h.token <> all ($2::uuid[])",),
    }
    variants: ClassVar = {
        "": (),
        "the old server comes back": ("back",),
        "the server does not tell timelines": ("untold",),
    }
    mutants = (
        Mutant("tokens are a counter in the row", "one_past", "the server does not tell timelines"),
        Mutant("a cache is known by next_seq only", "one_past", "the server does not tell timelines"),
        Mutant("caches and leases outlive the failover", "free"),
        Mutant("an older timeline is believed", "behind", "the old server comes back"),
        Mutant("the highest timeline is kept with the connection", "behind", "the old server comes back"),
        Mutant("a commit that the standby has not is told committed from memory", "free"),
    )
    resting = frozenset({"idle", "world"})

    def start(self) -> Shared:
        row = (None, None, None, ())
        return Shared((row, None), row, False, False, False)

    def processes(self) -> dict[str, tuple[str, Any]]:
        task = ("idle", (OLD, 2, None))  # w1 has two, which share its id
        second = {} if "back" in self.options else {"w1'": task}
        return {"w1": task, **second, "w2": task, "world": ("world", None)}

    def _blind(self) -> bool:
        return "untold" in self.options or "caches and leases outlive the failover" in self.flaws

    # the world: replication lags, the primary is lost, the standby is promoted, the old one comes back

    def world(self, s: Shared, me: str, mem: Any) -> Steps:
        if not s.failed and s.standby != s.servers[OLD]:
            yield "replicated", s._replace(standby=s.servers[OLD]), "world", None
        if not s.failed:
            yield "failover", s._replace(servers=(s.servers[OLD], s.standby), failed=True), "world", None
        elif "back" in self.options and not s.back:
            yield "the old server answers again", s._replace(back=True), "world", None

    def _reach(self, s: Shared, me: str, seen: int) -> list[int]:
        """Servers that a connection of this process may end at."""
        if not s.failed:
            return [OLD]
        if not s.back:
            return [NEW]
        pinned = seen == NEW and "an older timeline is believed" not in self.flaws
        if "the highest timeline is kept with the connection" in self.flaws:
            pinned = False
        return [NEW] if pinned else [NEW, OLD]

    def _put(self, s: Shared, at: int, row: Any) -> Shared:
        return s._replace(servers=(row, s.servers[NEW]) if at == OLD else (s.servers[OLD], row))

    # workers: memory is (timeline seen, claims left, cache), a cache is (head, next_seq, history it is of)

    def idle(self, s: Shared, me: str, mem: Any) -> Steps:
        seen, left, cache = mem
        task, me = me, me[:2]
        for at in self._reach(s, me, seen):
            now = max(seen, at)
            moved = now > seen and not self._blind()
            owner, token, head, history = s.servers[at]
            if moved:
                if owner == me:
                    owner = token = None
                after = self._put(s, at, (owner, token, head, history))
                yield "sees a new timeline: drops caches and leases", after, "idle", (now, left, None)
            elif owner is None and left and len(history) < 3:
                token = self._token(task, left, history)
                after = self._put(s, at, (me, token, head, history))
                yield "claim", after._replace(stray=s.stray or at < seen), "work", (at, now, left - 1, cache, token)

    def _token(self, task: str, left: int, history: Any) -> Any:
        """One for each commit: here named by the task and what it has left to do."""
        return len(history) if "tokens are a counter in the row" in self.flaws else (task, left)

    def work(self, s: Shared, me: str, mem: Any) -> Steps:
        """Load: the cache is taken if it is of the row's head, else the history is read."""
        at, seen, left, cache, token = mem
        me = me[:2]
        where = self._now(s, at, seen)
        if where is None:
            yield "the connection is gone", s, "idle", (seen, left, cache)
            return
        owner, held, head, history = s.servers[where]
        if (owner, held) != (me, token):
            yield "load: not held any more", s, "idle", (seen, left, None)
            return
        fits = cache is not None and (
            cache[1] == len(history) if "a cache is known by next_seq only" in self.flaws else cache[0] == head
        )
        of = cache[2] if fits else tuple(d for d, _ in history)
        yield f"load ({'cached' if fits else 'replayed'})", s, "send", (where, seen, left, token, len(history), of)

    def _now(self, s: Shared, at: int, seen: int) -> int | None:
        """Where a process that was connected to ``at`` is connected now."""
        if at == OLD and s.failed and not s.back:
            return None if seen == OLD and not self._blind() else NEW
        return at

    def send(self, s: Shared, me: str, mem: Any) -> Steps:
        """The commit, sent until there is an answer; lost connections end at whatever server answers."""
        at, seen, left, token, base, of = mem
        task, me = me, me[:2]
        places = [at] if not (s.failed and at == OLD) else self._reach(s, me, seen)
        for where in places:
            owner, held, head, history = s.servers[where]
            now = max(seen, where)
            decision = f"{task}.{left}.{base}"
            if (owner, held, len(history)) == (me, token, base):
                made = (*history, (decision, of))
                following = self._token(task, left, made)
                s2 = s._replace(stray=s.stray or where < seen)
                cache = (token, base + 1, (*of, decision))
                yield "commit", self._put(s2, where, (None, None, token, made)), "idle", (now, left, cache)
                if left:
                    kept = self._put(s2, where, (me, following, token, made))
                    yield "commit, kept", kept, "work", (where, now, left - 1, cache, following)
            elif head == token or (len(history) > base and history[base][0] == decision):
                yield "committed before", s, "idle", (now, left, None)
            elif "a commit that the standby has not is told committed from memory" in self.flaws and owner == me:
                yield "taken for committed", s, "idle", (now, left, (token, base + 1, (*of, decision)))
            else:
                yield "fenced: evict", s, "idle", (seen, left, None)

    # what must hold

    def always_one_past(self, s: Shared) -> str | None:
        """Each decision was made from what stands before it."""
        for server in s.servers:
            for n, (decision, of) in enumerate(server[3] if server else ()):
                before = tuple(d for d, _ in server[3][:n])
                if of != before:
                    return f"{decision} was decided from {of}, and stands behind {before}"
        return None

    def always_behind(self, s: Shared) -> str | None:
        return "a process that has seen the new server wrote to the old one" if s.stray else None

    def finally_free(self, s: Shared) -> str | None:
        owner = s.servers[NEW][0] if s.failed and "untold" not in self.options else None
        return f"owned by {owner}, which lives and does not know" if owner else None


MODELS = (Failover,)
