"""Who starts an instance, and what the others are told: decided under the lock of the instance, then of its hot row.

Models `start()` (`begin_instances()`, `start_existing()`, `lock_instance()`, `may_reuse()`), `reserve()` and
`terminate()` against a worker's commit, which takes the hot row away under its own lock only. Caller a may lose its
answer and sends the same again; b follows the policies of the variant, d those of a; c only reserves.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any, ClassVar

from tests.faults.model.engine import Model, Mutant, Rows, Steps, Wrong

NAMES = {"a": "Ra", "b": "Rb", "d": "Rd"}


class Shared(Rows, namedtuple("Shared", "exists hot runs losses begun answers locks")):
    """``hot``: the open run, "reserved" or None; ``runs``: (run, status); ``begun``: runs in the order they began."""

    __slots__ = ()

    def status(self, run: str) -> str | None:
        """None: there is no such run."""
        return dict(self.runs).get(run)

    def end(self, run: str, status: str) -> Any:
        """With a run closed."""
        return self.but(runs=tuple((r, status if r == run else old) for r, old in self.runs))


class Starts(Model):
    rule = "starts"
    held_to: ClassVar = {
        "begin_instances()": ("from item order by shard, ns, id, ord on conflict do nothing",),
        "start()": (
            "fresh constant integer[] := aioflow.claim_keys('start'",
            "if outcome not in ('started', 'existing') then perform aioflow.forget_keys(",
        ),
        "lock_instance()": ("for no key update; return found;",),
        "start_existing()": (
            "if not aioflow.lock_instance(p_shard, p_namespace, p_instance) then",
            "and x.instance_id = p_instance for no key update; if not found then",
            "elsif exists (select from aioflow.run r where r.shard = p_shard and r.run_id = p_run) then",
        ),
        "may_reuse()": (
            "if exists (select from aioflow.run r where r.shard = p_shard and r.run_id = p_run) then return 'mine'",
            "when p_reuse = 'allow_failed_only' and v_status is distinct from 'completed' then 'ok'",
        ),
        "reserve()": ("elsif exists (select from aioflow.instance_hot h where",),
        "terminate()": ("aioflow.lock_instance(v_shard, p_namespace[ord], p_instance[ord])",),
    }
    variants: ClassVar = {
        "": ("fail", "allow"),
        "uses the one that is open": ("use_existing", "allow", "before"),
        "ends the one that is open": ("terminate_existing", "allow", "before"),
        "only after a failure": ("fail", "allow_failed_only", "before"),
        "reserved, and ended by force": ("fail", "allow", "reserve", "terminate"),
    }
    mutants = (
        Mutant("the instance is not locked first", "unique", "uses the one that is open"),
        Mutant("the hot row is locked before the instance", "deadlock", "reserved, and ended by force"),
        Mutant("the policy is judged in the snapshot before the wait", "policy", "only after a failure"),
        Mutant("a start that is sent again is a new one", "answer"),
        Mutant("a start that is sent again is known while its run is open", "once"),
        Mutant("a reserved instance counts as open", "answer", "reserved, and ended by force"),
        Mutant("a new instance is looked for, then inserted", "unique"),
        Mutant("ends what it read before the wait", "one_end", "ends the one that is open"),
    )
    resting = frozenset({"work"})

    def start(self) -> Shared:
        if "before" in self.options:
            return Shared(True, "R0", (("R0", "running"),), 1, ("R0",), (), frozenset())
        return Shared(False, None, (), 1, (), (), frozenset())

    def processes(self) -> dict[str, tuple[str, Any]]:
        found: dict[str, tuple[str, Any]] = {
            "a": ("begin", False),
            "b": ("begin", False),
            "d": ("begin", False),
            "w": ("work", None),
        }
        if "reserve" in self.options:
            found["c"] = ("reserve", None)
        if "terminate" in self.options:
            found["t"] = ("terminate", None)
        return found

    # a worker: the commit that closes locks the hot row only

    def work(self, s: Shared, me: str, mem: Any) -> Steps:
        if s.hot not in (None, "reserved") and s.free("hot", me):
            yield f"commit: {s.hot} completed", s.end(s.hot, "completed").but(hot=None), "work", None

    # start()

    def begin(self, s: Shared, me: str, again: bool) -> Steps:
        """`begin_instances`: the insert waits for whoever is inserting the same."""
        looked = "a new instance is looked for, then inserted" in self.flaws
        if s.exists:
            yield "the instance exists", s, "lock", again
        elif looked:
            yield "no such instance", s, "insert", again
        else:
            yield from self.insert(s, me, again)

    def insert(self, s: Shared, me: str, again: bool) -> Steps:
        if s.exists:
            raise Wrong("unique", "a second row for one instance")
        yield from self._started(s.but(exists=True), me, again)

    def lock(self, s: Shared, me: str, again: bool) -> Steps:
        if "the hot row is locked before the instance" in self.flaws and me == "b":
            if s.free("hot", me):
                yield "hot row locked", s.lock("hot", me), "second", again
        elif "the instance is not locked first" in self.flaws:
            yield "hot row: snapshot", s, "look", (again, s.hot, s.runs)
        elif s.free("instance", me):
            yield "instance locked", s.lock("instance", me), "hot", again

    def second(self, s: Shared, me: str, again: bool) -> Steps:
        if s.free("instance", me):
            yield "instance locked", s.lock("instance", me), "look", (again, s.hot, s.runs)

    def hot(self, s: Shared, me: str, again: bool) -> Steps:
        yield "hot row: snapshot", s, "look", (again, s.hot, s.runs)

    def look(self, s: Shared, me: str, mem: Any) -> Steps:
        """The lock of the hot row that the snapshot has; what is known of runs is read by later statements."""
        again, saw, runs = mem
        if saw is not None and not s.free("hot", me):
            return
        run = NAMES[me]
        open_ = s.hot if saw is not None else None
        if "ends what it read before the wait" in self.flaws:
            open_ = saw
        if "a start that is sent again is a new one" in self.flaws:
            mine = False
        elif "a start that is sent again is known while its run is open" in self.flaws:
            mine = open_ == run
        else:
            mine = s.status(run) is not None
        if mine:
            yield from self._tell(s, me, again, "started", run)
        elif open_ is None:
            old = "the policy is judged in the snapshot before the wait" in self.flaws
            yield from self._reuse(s, me, again, dict(runs) if old else dict(s.runs))
        elif open_ == "reserved" and "a reserved instance counts as open" not in self.flaws:
            yield from self._started(s, me, again)
        elif me == "b" and "use_existing" in self.options:
            yield from self._tell(s, me, again, "existing", open_)
        elif me == "b" and "terminate_existing" in self.options:
            if s.status(open_) != "running":
                raise Wrong("one_end", f"{open_} is ended twice")
            yield from self._started(s.end(open_, "terminated"), me, again)
        else:
            yield from self._tell(s, me, again, "exists", open_)

    def _reuse(self, s: Shared, me: str, again: bool, runs: dict[str, str]) -> Steps:
        last = s.begun[-1] if s.begun else None
        strict = me == "b" and "allow_failed_only" in self.options
        if strict and runs.get(last or "") == "completed":
            yield from self._tell(s, me, again, "closed", last)
            return
        if s.hot is not None:
            raise Wrong("unique", "a second hot row for one instance")
        if strict and last and s.status(last) == "completed":
            raise Wrong("policy", "started after a run that was completed")
        yield from self._started(s, me, again)

    def _started(self, s: Shared, me: str, again: bool) -> Steps:
        run = NAMES[me]
        if s.status(run) is not None:
            raise Wrong("once", f"{run} is started twice")
        after = s.but(hot=run, runs=(*s.runs, (run, "running")), begun=(*s.begun, run))
        yield from self._tell(after, me, again, "started", run)

    def _tell(self, s: Shared, me: str, again: bool, outcome: str, run: str | None) -> Steps:
        if again and s.status(NAMES[me]) is not None and outcome != "started":
            raise Wrong("answer", f"{me} was told {outcome} of what it had started")
        if outcome == "exists" and run == "reserved":
            raise Wrong("answer", "told that a run is open, and it is only reserved")
        s = s.unlock(me)
        yield f"told {outcome}", s.but(answers=(*s.answers, (me, outcome, run))), "done", None
        if s.losses and me == "a" and not again:
            yield f"told {outcome}, answer lost", s.but(losses=0), "begin", True

    # reserve() and terminate()

    def reserve(self, s: Shared, me: str, mem: Any) -> Steps:
        if not s.exists:
            yield "reserved", s.but(exists=True, hot="reserved"), "done", None
        elif s.free("instance", me):
            yield "instance locked", s.lock("instance", me), "reserve_closed", None

    def reserve_closed(self, s: Shared, me: str, mem: Any) -> Steps:
        """The hot row is only looked at: under the instance's lock none comes up."""
        if s.hot is not None:
            yield "told exists", s.unlock(me), "done", None
        else:
            yield "reserved", s.but(hot="reserved").unlock(me), "done", None

    def terminate(self, s: Shared, me: str, mem: Any) -> Steps:
        if not s.exists:
            yield "terminate: unknown", s, "done", None
        elif s.free("instance", me):
            yield "terminate: instance locked", s.lock("instance", me), "terminate_hot", None

    def terminate_hot(self, s: Shared, me: str, mem: Any) -> Steps:
        if s.hot is None:
            yield "terminate: already", s.unlock(me), "done", None
        elif s.free("hot", me):
            yield "terminate: hot row locked", s.lock("hot", me), "terminate_end", None

    def terminate_end(self, s: Shared, me: str, mem: Any) -> Steps:
        after = s if s.hot == "reserved" else s.end(s.hot, "terminated")
        yield f"terminate: {s.hot} ended", after.but(hot=None).unlock(me), "done", None

    # what must hold

    def always_unique(self, s: Shared) -> str | None:
        running = [run for run, status in s.runs if status == "running"]
        if len(running) > 1 or (running and s.hot != running[0]) or (s.hot not in (None, "reserved") and not running):
            return f"open are {running}, the hot row has {s.hot}"
        return None

    def always_once(self, s: Shared) -> str | None:
        return "a run began twice" if len(set(s.begun)) != len(s.begun) else None

    def finally_answer(self, s: Shared) -> str | None:
        for caller, outcome, run in s.answers:
            if outcome == "started" and s.status(run) is None:
                return f"{caller} was told started, and there is no such run"
        return None


MODELS = (Starts,)
