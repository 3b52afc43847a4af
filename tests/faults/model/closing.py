"""A close is refused while there is anything acknowledged that it has not seen; refused thrice, the door is sealed.

Models the refusal and the seal in `commit_runs.sql`, `deliver()` (senders are told "closing"),
`complete_activities.sql` (results still come), the releases that lift a seal, and what a worker does: a refused
decision is discarded and made anew from what is committed, messages first; what is left when ``handle()`` returns on
a message is applied before the close.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any, ClassVar

from tests.faults.model.engine import Model, Mutant, Steps, Wrong

MESSAGES = 10
SEAL_AFTER = 3


class Shared(namedtuple("Shared", "hot inbox row history accepted applied refusals killed")):
    """``hot``: (open, wake, ack, holder, sealed, refused). ``row``: an eager result's activity row stands."""

    __slots__ = ()


class Closing(Model):
    rule = "refused close"
    planned = "eager result"
    held_to: ClassVar = {
        "commit_runs.sql": (
            "when i.close is not null and l.wake_gen <> i.gen then 'refused'",
            "set refused = h.refused + 1, sealed = h.refused >= 2",
            "isolation = 0, sealed = false, refused = 0",
        ),
        "deliver()": (
            "case when h.sealed then 'closing'",
            "h.namespace, h.instance_id) = (l.shard, l.namespace, l.instance_id) and l.outcome = 'accepted'",
        ),
        "release_runs.sql": ("sealed = false, refused = 0",),
        "release_unknown_runs.sql": ("sealed = false, refused = 0",),
        "reap_runs.sql": ("sealed = false, refused = 0",),
    }
    variants: ClassVar = {
        "": (),
        "the result is eager": ("eager", "whole"),
        "closes on a message": ("message",),
        "a late message changes the decision": ("keep", "whole"),
        "the worker gives the run back": ("give",),
    }
    mutants = (
        Mutant("wake_gen alone is compared, loaded messages are dropped", "applied"),
        Mutant("the rest of a batch is dropped at the return", "applied", "closes on a message"),
        Mutant("the commit compares nothing", "applied"),
        Mutant("never sealed", "bounded"),
        Mutant("senders do not look at the seal", "sealed"),
        Mutant("results are refused by the seal", "lost_result", "the result is eager"),
        Mutant("an eager result goes with the evicted context", "ends", "the result is eager"),
        Mutant("a commit that does not close leaves the seal", "lifted", "a late message changes the decision"),
        Mutant("a release leaves the seal", "lifted", "the worker gives the run back"),
        Mutant("a reaped run stays sealed", "lifted"),
        Mutant("the seal comes with the first refusal", "early"),
    )
    reborn = "claim"
    resting = frozenset({"send", "claim", "reap"})

    @property
    def mortal(self) -> tuple[str, ...]:  # type: ignore[override]  # chosen by the variant
        return () if "whole" in self.options else ("w",)

    def start(self) -> Shared:
        eager = "eager" in self.options
        inbox = frozenset({(1, "s0")} if eager else {(1, "s0"), (2, "R")})
        return Shared((True, 2, 0, None, False, 0), inbox, eager, (), frozenset({"s0"}), frozenset(), 0, False)

    def processes(self) -> dict[str, tuple[str, Any]]:
        return {"sender": ("send", 1), "late": ("result", None), "w": ("claim", None), "reaper": ("reap", None)}

    def killed(self, s: Shared, name: str) -> Shared:
        return s._replace(killed=True)

    # who delivers

    def send(self, s: Shared, me: str, n: int) -> Steps:
        """One message after the other, as fast as they are accepted."""
        is_open, wake, ack, holder, sealed, refused = s.hot
        if not is_open:
            yield "told closed", s, "done", None
        elif n < MESSAGES and (not sealed or "senders do not look at the seal" in self.flaws):
            if sealed:
                raise Wrong("sealed", "a sealed instance accepted a message")
            item = "keep" if "keep" in self.options and n == 2 else f"s{n}"
            hot = (is_open, wake + 1, ack, holder, sealed, refused)
            after = s._replace(hot=hot, inbox=s.inbox | {(wake + 1, item)}, accepted=s.accepted | {item})
            yield f"{item} accepted", after, "send", n + 1

    def result(self, s: Shared, me: str, mem: Any) -> Steps:
        """A result that comes late: it cannot be refused."""
        is_open, wake, ack, holder, sealed, refused = s.hot
        if not is_open:
            yield "the run is closed: not recorded", s, "done", None
            return
        if sealed and "results are refused by the seal" in self.flaws:
            raise Wrong("lost_result", "a result was told to come back, and nobody brings it again")
        hot = (is_open, wake + 1, ack, holder, sealed, refused)
        yield "R2 delivered", s._replace(hot=hot, inbox=s.inbox | {(wake + 1, "R2")}), "done", None

    # the worker: memory is (messages first, eager result in memory)

    def claim(self, s: Shared, me: str, mem: Any) -> Steps:
        is_open, wake, ack, holder, sealed, refused = s.hot
        if is_open and holder is None and wake > ack:
            hot = (is_open, wake, ack, "second" if s.killed else "first", sealed, refused)
            yield "claim", s._replace(hot=hot), "load", (False, s.row)

    def _batch(self, s: Shared, first: bool, eager: bool) -> list[str]:
        batch = [item for _, item in sorted(s.inbox)] + (["R"] if eager else [])
        return sorted(batch, key=lambda item: item[0] == "R") if first else batch

    def _returns(self, s: Shared, batch: list[str]) -> int | None:
        """The input on which handle() returns."""
        for n, item in enumerate(batch):
            if "keep" in (*s.history, *batch[: n + 1]):
                return None
            if item == "R" or ("message" in self.options and item[0] == "s"):
                return n
        return None

    def _messages_behind(self, batch: list[str], at: int) -> bool:
        return "message" not in self.options and any(item[0] != "R" for item in batch[at + 1 :])

    def load(self, s: Shared, me: str, mem: Any) -> Steps:
        first, eager = mem
        gen, rows = s.hot[1], frozenset(s.inbox)
        batch = self._batch(s, first, eager)
        at = self._returns(s, batch)
        dropping = {
            "wake_gen alone is compared, loaded messages are dropped",
            "the rest of a batch is dropped at the return",
        } & self.flaws
        if at is not None and dropping:
            batch = batch[: at + 1]
        elif at is not None and not first and self._messages_behind(batch, at):
            yield "a loaded message stands behind the return: anew", s, "load", (True, eager)
            return
        label = f"load at {gen}, applies {batch}{', returns' if at is not None else ''}"
        yield label, s, "commit", (first, eager, gen, rows, tuple(batch), at is not None)
        if "give" in self.options and s.hot[4]:
            sealed = "a release leaves the seal" in self.flaws
            hot = (True, gen, min(s.hot[2], gen - 1), None, sealed, 0)
            yield "the task fails: given back", s._replace(hot=hot), "claim", None

    def commit(self, s: Shared, me: str, mem: Any) -> Steps:
        _, eager, gen, rows, batch, close = mem
        is_open, wake, ack, holder, sealed, refused = s.hot
        if close and wake != gen and "the commit compares nothing" not in self.flaws:
            needed = 0 if "the seal comes with the first refusal" in self.flaws else SEAL_AFTER - 1
            seal = refused >= needed and "never sealed" not in self.flaws
            hot = (is_open, wake, ack, holder, sealed or seal, refused + 1)
            kept = eager and "an eager result goes with the evicted context" not in self.flaws
            yield "close refused", s._replace(hot=hot, refusals=s.refusals + 1), "load", (True, kept)
            return
        seal = sealed and "a commit that does not close leaves the seal" in self.flaws
        after = s._replace(
            hot=(not close, wake, gen, None, seal, 0),
            inbox=s.inbox - rows,
            history=s.history + batch,
            applied=s.applied | set(batch),
            row=s.row and "R" not in batch,
        )
        yield f"commit{' and close' if close else ''}", after, "claim", None

    def reap(self, s: Shared, me: str, mem: Any) -> Steps:
        is_open, wake, ack, holder, sealed, _refused = s.hot
        if s.killed and holder == "first":
            kept = sealed and "a reaped run stays sealed" in self.flaws
            hot = (is_open, wake, min(ack, wake - 1), None, kept, 0)
            yield "the dead worker's run is released", s._replace(hot=hot), "done", None

    # what must hold

    def always_applied(self, s: Shared) -> str | None:
        missing = sorted(s.accepted - s.applied)
        return f"closed, and {missing} accepted and never applied" if not s.hot[0] and missing else None

    def always_behind(self, s: Shared) -> str | None:
        if s.hot[0] or "message" in self.options:
            return None
        late = [item for item in s.history[s.history.index("R") :] if item[0] != "R"]
        return f"{late} applied only after handle() had returned" if late else None

    def always_bounded(self, s: Shared) -> str | None:
        """Three times for messages, once for the pending result; what was before the kill counts apart."""
        return "a steady sender keeps the run from closing" if s.hot[5] > SEAL_AFTER + 1 else None

    def always_early(self, s: Shared) -> str | None:
        return "sealed though it was refused less than three times" if s.hot[4] and 0 < s.hot[5] < SEAL_AFTER else None

    def always_lifted(self, s: Shared) -> str | None:
        is_open, _, _, holder, sealed, _ = s.hot
        return "senders are turned away, and nobody is about to close" if is_open and sealed and not holder else None

    def finally_ends(self, s: Shared) -> str | None:
        return "quiet, and never closed" if s.hot[0] and "keep" not in s.history else None


MODELS = (Closing,)
