"""A request key has one effect and one answer, whoever asks, however often, whatever became of the instance since.

Models `claim_keys()`, `deliver()`, `explain()` and `forget_keys()` as `signal()` calls them: a transaction of several
statements, each with a snapshot of its own; and `expire_requests.sql`. The insert of a key waits for whoever is about
to insert it. Callers a and b send the same, c and d send another body under the same key; a sends again when its
answer is lost.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any, ClassVar

from tests.faults.model.engine import Model, Mutant, Rows, Steps, Wrong

BODY = {"a": "x", "b": "x", "c": "y", "d": "y"}
REFUSED = ("closing", "closed", "unknown")


class Shared(Rows, namedtuple("Shared", "hot run exists closed key inbox effects losses world locks")):
    """``hot``: "open", "sealed" or None; ``key``: (holder, body), holder None when committed; None: no such row.

    inbox: bodies not yet consumed; ``effects``: bodies that were delivered; ``world``: what may still happen.
    """

    __slots__ = ()


class Requests(Model):
    rule = "request keys"
    held_to: ClassVar = {
        "claim_keys()": (
            "distinct on (shard, ns, id, key)",
            "from item order by shard, ns, id, key on conflict (shard, namespace, instance_id, key) do update",
            "set outcome = r.outcome where false",
            "where i.key is null or i.ord = any (fresh)",
        ),
        "explain()": (
            "select r.kind = p_kind and r.digest is not distinct from p_digest into v_same",
            "return case when v_same then 'duplicate' when not found and p_kind in ('signal', 'cancel') then 'closing'",
            "select case when i.run_count = (h.run_id is not null)::integer then 'unknown' else 'closed' end",
        ),
        "forget_keys()": ("where i.ord = any (p_take) and i.key is not null",),
        "signal()": (
            "if outcome <> 'accepted' then failed := failed || ord; end if;",
            "failed := failed || array(select f from unnest(fresh) f where f <> all (done));",
        ),
        "request_cancel()": (
            "outcome := 'closing'; failed := failed || ord;",
            "failed := failed || array(select f from unnest(fresh) f where f <> all (done));",
        ),
        "expire_requests.sql": ("where r.expires_at <= aioflow.clock()", "for update skip locked"),
    }
    variants: ClassVar = {
        "": ("seal", "close"),
        "a new run": ("close", "again"),
        "the instance is just being started": ("begin", "close"),
        "the key expires": ("expire",),
    }
    mutants = (
        Mutant("keys are scoped by run", "once", "a new run"),
        Mutant("keys are kept in the inbox", "once"),
        Mutant("a key outlives a refusal", "effect"),
        Mutant("the key is committed before the delivery", "effect"),
        Mutant("the other's row is looked up in the snapshot of the insert", "conflict"),
        Mutant("the body is not compared", "body"),
        Mutant("whoever is told no forgets the key", "once"),
        Mutant("no hot row means closed", "told_closed", "the instance is just being started"),
        Mutant("an expiring key is not locked", "conflict", "the key expires"),
        Mutant("the key is looked up, then inserted", "once"),
    )
    mortal = ("a",)
    resting = frozenset({"world", "consume"})

    def start(self) -> Shared:
        begun = "begin" not in self.options
        world = frozenset(self.options)
        return Shared("open" if begun else None, 1, begun, False, None, (), (), 1, world, frozenset())

    def processes(self) -> dict[str, tuple[str, Any]]:
        callers = dict.fromkeys(BODY, ("call", None))
        return {**callers, "w": ("consume", None), "world": ("world", None)}

    def killed(self, s: Shared, name: str) -> Shared:
        return s.but(key=None) if s.key and s.key[0] == name else s

    # the instance

    def world(self, s: Shared, me: str, mem: Any) -> Steps:
        if not s.free("hot", me):
            return
        if "begin" in s.world:
            yield "started", s.but(hot="open", exists=True, world=s.world - {"begin"}), "world", None
        elif s.hot == "open" and "seal" in s.world:
            yield "sealed", s.but(hot="sealed", world=s.world - {"seal"}), "world", None
        elif s.hot == "sealed":
            yield "the seal is lifted", s.but(hot="open"), "world", None
        if s.hot and "close" in s.world:
            yield "closed", s.but(hot=None, closed=True, inbox=(), world=s.world - {"close"}), "world", None
        if s.exists and not s.hot and "again" in s.world:
            after = s.but(hot="open", run=s.run + 1, world=s.world - {"again"})
            if "keys are scoped by run" in self.flaws and self._settled(s, me):
                after = after.but(key=None)
            yield "a new run", after, "world", None
        if "expire" in s.world and self._settled(s, me):
            yield "the key expires", s.but(key=None, world=s.world - {"expire"}), "world", None

    def _settled(self, s: Shared, me: str) -> bool:
        """The key's row is there, committed, and nobody has locked it."""
        return s.key is not None and s.key[0] is None and s.free("key", me)

    def consume(self, s: Shared, me: str, mem: Any) -> Steps:
        if s.inbox and s.free("hot", me):
            after = s.but(inbox=())
            if "keys are kept in the inbox" in self.flaws and self._settled(s, me):
                after = after.but(key=None)
            yield "consumed", after, "consume", None

    # a call: memory is whether it was there before; then (fresh, what is seen)

    def call(self, s: Shared, me: str, again: Any) -> Steps:
        looked = "the key is looked up, then inserted" in self.flaws
        if looked and (s.key is None or s.key[0]):
            yield "no such key", s, "deliver", (again, True)
        elif s.key is None:
            holder = None if "the key is committed before the delivery" in self.flaws else me
            yield "key inserted", s.but(key=(holder, BODY[me])), "deliver", (again, True)
        elif s.key[0] is None:
            seen = s.key[1]
            if "the other's row is looked up in the snapshot of the insert" in self.flaws:
                seen = None
            locked = "an expiring key is not locked" not in self.flaws
            yield "key exists", s.but(locks=s.locks | {("key", me)}) if locked else s, "explain", (again, seen)
        elif "the other's row is looked up in the snapshot of the insert" in self.flaws:
            yield "key is being inserted: snapshot", s, "blocked", again

    def blocked(self, s: Shared, me: str, again: Any) -> Steps:
        if s.key is None:
            yield "key inserted", s.but(key=(me, BODY[me])), "deliver", (again, True)
        elif s.key[0] is None:
            yield "key exists, unseen", s, "explain", (again, None)

    def explain(self, s: Shared, me: str, mem: Any) -> Steps:
        """Of a key that exists: read by a later statement."""
        again, _ = mem
        body = s.key[1] if s.key else None
        if "the other's row is looked up in the snapshot of the insert" in self.flaws:
            body = mem[1]
        same = body == BODY[me] or "the body is not compared" in self.flaws
        s = s.unlock(me)
        if "whoever is told no forgets the key" in self.flaws and not same and self._settled(s, me):
            s = s.but(key=None)
        yield from self._tell(s, me, again, "duplicate" if same else "conflict")

    def deliver(self, s: Shared, me: str, mem: Any) -> Steps:
        """The hot row is found by the statement's snapshot, then locked and looked at again."""
        if s.hot is None:
            yield "deliver: no hot row", s, "absent", (mem[0], s.exists)
        else:
            yield "deliver: snapshot", s, "bump", mem

    def bump(self, s: Shared, me: str, mem: Any) -> Steps:
        if not s.free("hot", me):
            return
        again = mem[0]
        if s.hot is None:
            yield "deliver: the row is gone", s, "absent", (again, True)
        elif s.hot == "sealed":
            yield from self._refuse(s, me, again, "closing")
        else:
            body = BODY[me]
            after = s.but(key=(None, body), inbox=(*s.inbox, body), effects=(*s.effects, body))
            yield from self._tell(after, me, again, "accepted")

    def absent(self, s: Shared, me: str, mem: Any) -> Steps:
        """Of a key that is new: `explain` looks at the instance with a snapshot of its own."""
        again, existed = mem
        if "no hot row means closed" in self.flaws:
            answer = "closed"
        elif s.exists and s.hot and not s.closed:
            answer = "unknown"  # its first run is open: it was not there when the delivery looked
        else:
            answer = "closed" if s.exists else "unknown"
        if answer == "unknown" and existed:
            raise Wrong("told_closed", "told unknown, and it existed before the call")
        yield from self._refuse(s, me, again, answer)

    def _refuse(self, s: Shared, me: str, again: Any, answer: str) -> Steps:
        if "a key outlives a refusal" in self.flaws:
            s = s.but(key=(None, BODY[me]))
        elif s.key and s.key[0] in (me, None):
            s = s.but(key=None)
        yield from self._tell(s, me, again, answer)

    # the answer

    def _tell(self, s: Shared, me: str, again: Any, answer: str) -> Steps:
        body = BODY[me]
        if answer in ("accepted", "duplicate") and body not in s.effects:
            raise Wrong("body" if s.effects else "effect", f"{me} was told {answer}, and it had no effect")
        if answer == "conflict" and all(done == body for done in s.effects):
            raise Wrong("conflict", f"{me} was told conflict, and nobody sent another body")
        if answer == "closed" and not s.closed:
            raise Wrong("told_closed", f"{me} was told closed, and it never was")
        if answer == "closing" and not again:
            yield f"told {answer}: comes back", s, "call", answer
        else:
            yield f"told {answer}", s, "done", None
        if s.losses and not again and me == "a":
            yield f"told {answer}, answer lost: sends again", s.but(losses=0), "call", "lost"

    # what must hold

    def always_once(self, s: Shared) -> str | None:
        if "expire" in self.options and "expire" not in s.world:
            return None  # then it is a new request
        return f"one key had {len(s.effects)} effects" if len(s.effects) > 1 else None

    def finally_key(self, s: Shared) -> str | None:
        return "a key that nobody holds blocks others" if s.key and s.key[0] else None


MODELS = (Requests,)
