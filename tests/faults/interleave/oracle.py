"""Does what is in the tables after a schedule agree with what its actors were told?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any
from uuid import UUID

from aioflow.store.store import Store
from tests.faults.interleave.ledger import Ledger

__all__ = ["disagreements", "unfinished"]

_INPUTS = """
select kind, ref, attrs, null::uuid as run_id, null::uuid as commit, instance_id from aioflow.inbox
union all
select h.kind, h.ref, h.attrs, h.run_id, h.commit, r.instance_id
  from aioflow.history h join aioflow.run r using (shard, run_id)
"""
_ENDED = ("ActivityCompleted", "ActivityFailed", "ActivityTimedOut", "ActivityCancelled")


class _Found:
    """Inputs and events wherever they are, counted by what names them."""

    def __init__(self, rows: list[Any], runs: list[Any], hot: list[Any]) -> None:
        self.signals = Counter(r["ref"] for r in rows if r["kind"] == "SignalReceived")
        self.cancels = Counter(r["ref"] for r in rows if r["kind"] == "CancelRequested")
        self.ended = [(r["kind"], r["attrs"] or "") for r in rows if r["kind"] in _ENDED]
        self.commits = Counter((r["run_id"], r["commit"]) for r in rows if r["commit"] is not None)
        self.closes = Counter(r["commit"] for r in rows if r["commit"] is not None)
        self.begun = Counter(r["run_id"] for r in rows if r["kind"] == "RunStarted" and r["run_id"] is not None)
        waiting = Counter(r["instance_id"] for r in rows if r["kind"] == "RunStarted" and r["run_id"] is None)
        current = {r["instance_id"]: r["run_id"] for r in hot}
        self.begun.update({current.get(name): count for name, count in waiting.items()})
        self.runs = {r["run_id"]: r["status"] for r in runs}

    def outcomes(self, token: UUID) -> int:
        return sum(str(token) in attrs for _, attrs in self.ended)


async def disagreements(conn: Any, store: Store, ledger: Ledger) -> list[str]:
    """What contradicts the protocol or the answers."""
    found = _Found(
        await conn.fetch(_INPUTS),
        await conn.fetch("select run_id, status from aioflow.run"),
        await conn.fetch("select instance_id, run_id from aioflow.instance_hot"),
    )
    broken = [f"invariant {one.invariant}: {one.subject}: {one.detail}" for one in await store.invariants()]
    broken += _deliveries("signal", ledger.signals, found.signals)
    broken += _deliveries("cancel", ledger.cancels, found.cancels)
    return [*broken, *_starts(ledger, found), *_closes(ledger, found), *_activities(ledger, found),
            *_commits(ledger, found)]  # fmt: skip


def _deliveries(what: str, told: dict[str, str | None], found: Counter[str | None]) -> Iterator[str]:
    """Accepted: once in inbox or history. Refused: nowhere. ``duplicate``: an earlier try did it."""
    for ref, outcome in told.items():
        count = found[ref]
        right = {"accepted": count == 1, None: count <= 1, "duplicate": count <= 1}.get(outcome, count == 0)
        if not right:
            yield f"{what} {ref} was told {outcome} and is there {count} times"
    for name, count in found.items():
        if count != 1:
            yield f"{what} {name} is there {count} times"


def _starts(ledger: Ledger, found: _Found) -> Iterator[str]:
    for run, outcome in ledger.starts.items():
        there = run in found.runs
        if outcome is not None and there != (outcome == "started"):
            yield f"start of {run} was told {outcome} and is there: {there}"
    for run in found.runs:
        count = found.begun[run]
        if count != 1 and not (count == 0 and run in ledger.closes):  # a reserved one that was closed
            yield f"run {run} has {count} starts"


def _closes(ledger: Ledger, found: _Found) -> Iterator[str]:
    for commit, told in ledger.closes.items():
        wrote = found.closes[commit]
        if told is not None and told.outcome == "closed":
            status = found.runs.get(told.run_id)
            if not wrote or status != "terminated":
                yield f"close {commit} of {told.run_id} was told closed: {wrote} events, status {status}"
        elif told is not None and told.outcome != "duplicate" and wrote:
            yield f"close {commit} was told {told.outcome} and wrote {wrote} events"


def _activities(ledger: Ledger, found: _Found) -> Iterator[str]:
    for token in {*ledger.completions, *ledger.retries}:
        count, told = found.outcomes(token), ledger.completions[token]
        if count > 1 or (True in told and count != 1) or (told and not any(t is not False for t in told) and count):
            yield f"attempt {token} was told recorded {told} and has {count} outcomes"
        if "retried" in ledger.retries[token] and (count or True in told):
            yield f"attempt {token} was told retried and has {count} outcomes, told recorded {told}"


def _commits(ledger: Ledger, found: _Found) -> Iterator[str]:
    for task, told in ledger.commits.items():
        sent, wrote = len(ledger.sent[task].records), found.commits[task]
        if "ok" in told and wrote != sent:
            yield f"commit {task} of {sent} events was told {told} and wrote {wrote}"
        if "ok" not in told and None not in told and wrote:
            yield f"commit {task} was told {told} and wrote {wrote} events"


async def unfinished(conn: Any) -> list[str]:
    """After fresh workers found nothing more to do: whatever is still waiting, quarantine aside."""
    rows = await conn.fetch(
        "select h.instance_id, h.wake_gen, h.ack_gen, h.owner, h.visible_at, h.attempt from aioflow.instance_hot h"
        " where h.run_id is not null and h.isolation < 2"
        "   and (h.wake_gen <> h.ack_gen or h.owner is not null or exists (select from aioflow.inbox b"
        "        where (b.shard, b.namespace, b.instance_id) = (h.shard, h.namespace, h.instance_id)))"
    )
    return [f"nobody runs {dict(r)}" for r in rows]
