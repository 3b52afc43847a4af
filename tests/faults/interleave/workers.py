"""Operations of workers: two processes, of which the second has lost its lease and may not know it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from aioflow.core import events as ev
from aioflow.core.events import Record
from aioflow.errors import DatabaseUnavailable
from aioflow.store import rows
from tests.faults.interleave.ledger import Hand
from tests.faults.interleave.scene import LEASE
from tests.store.bench import NOW, activity, completed, ids, inputs, record, scheduled

ACTIVITIES = ("a", "b", "c", "d", "e", "g", "x", "act")
_ENDED = ("ActivityCompleted", "ActivityFailed", "ActivityTimedOut", "ActivityCancelled")


def decide(hand: Hand, loaded: rows.Loaded, *, close: bool = False, keep: bool = False) -> rows.Commit:
    """What the code would do: take everything in, then close, or start something and cancel something."""
    run, records = loaded.run, inputs(loaded)
    commit = rows.Commit(
        key=run.key, run_id=run.run_id, owner=run.owner, token=run.token, next_token=ids(),
        base_seq=loaded.next_seq, gen=loaded.gen, records=records, next_due=hand.scene.far,
        gone_timers=[one.ref or "" for one in loaded.timers], keep=keep and not close,
    )  # fmt: skip
    if close:
        commit.close = "completed"
        records.append(record(ev.RunCompleted(at=NOW, payload=b"\x0142")))
        return commit
    new = activity(f"n{loaded.next_seq}", activity="act")
    commit.activities.append(new)
    records.append(scheduled(new))
    if any(one.next_seq == loaded.next_seq and one.run_id == run.run_id for one in hand.scene.runs.values()):
        gone = {one.ref for one in loaded.inbox if one.kind in _ENDED}
        commit.cancelled_activities += [ref for ref in hand.letters("abcdegx") if ref not in gone]
        for ref in commit.cancelled_activities:
            records.append(record(ev.ActivityCancelRequested(at=NOW, ref=ref)))
    if hand.rng.random() < 0.5:
        commit.timers.append((f"m{loaded.next_seq}", hand.scene.far))
        records.append(record(ev.TimerStarted(at=NOW, ref=f"m{loaded.next_seq}", due_at=hand.scene.far)))
    return commit


async def _load(hand: Hand, runs: Sequence[rows.ClaimedRun]) -> list[rows.Loaded]:
    return [one for one in (await hand.store.load(runs) if runs else ()) if one is not None]


async def _commit(hand: Hand, runs: Sequence[rows.ClaimedRun], *, keep: bool = False, **how: Any) -> None:
    """Load, decide, commit; again from the load when a close is refused or the run was kept."""
    for turn in range(3):
        commits = []
        for loaded in await _load(hand, runs):
            task = (loaded.run.run_id, loaded.run.token)
            if task not in hand.ledger.decisions:
                hand.ledger.decisions[task] = decide(hand, loaded, keep=keep and turn == 0, **how)
            commits.append(hand.ledger.decisions[task])
        if not commits:
            return
        hand.rng.shuffle(commits)
        again = []
        for commit, outcome in zip(commits, await commit_all(hand, commits), strict=True):
            run = next(one for one in runs if one.run_id == commit.run_id)
            if outcome.status == "refused":
                hand.ledger.decisions.pop((commit.run_id, commit.token), None)
            if outcome.held:
                token = commit.token if outcome.status == "refused" else commit.next_token
                again.append(replace(run, token=token, clock=outcome.clock or run.clock))
        runs = again


async def commit_all(hand: Hand, commits: Sequence[rows.Commit]) -> list[rows.CommitOutcome]:
    for commit in commits:
        hand.ledger.held_runs.update((commit.token, commit.next_token))
        hand.ledger.sent[commit.run_id, commit.token] = commit
    try:
        outcomes = await hand.store.commit(commits)
    except DatabaseUnavailable:
        for commit in commits:
            hand.ledger.commits[commit.run_id, commit.token].append(None)
        raise
    for commit, outcome in zip(commits, outcomes, strict=True):
        hand.ledger.commits[commit.run_id, commit.token].append(outcome.status)
    return outcomes


def _held(hand: Hand, letters: str) -> list[rows.ClaimedRun]:
    return [hand.scene.runs[one] for one in hand.letters(letters, 1)]


async def commit(hand: Hand) -> None:
    await _commit(hand, _held(hand, "pq"))


async def keep(hand: Hand) -> None:
    await _commit(hand, _held(hand, "pq"), keep=True)


async def close(hand: Hand) -> None:
    await _commit(hand, _held(hand, "pq"), close=True)


async def late_commit(hand: Hand) -> None:
    """By the worker whose lease is over; both workers' runs can be in one call only in this test."""
    await _commit(hand, _held(hand, "r"), close=hand.rng.random() < 0.5)


async def release_runs(hand: Hand) -> None:
    await hand.store.release_runs(
        [
            rows.ReleaseRun(key=run.key, owner=run.owner, token=run.token, harmful=hand.rng.random() < 0.2)
            for run in _held(hand, "pqr")
        ]
    )


async def _lost_claim(hand: Hand, worker: UUID) -> None:
    """What a worker does when the answer to a claim was lost."""
    if await hand.store.bump_epoch(worker) is not None:
        await hand.store.release_unknown(worker, list(hand.ledger.held_runs), list(hand.ledger.held_attempts))


async def _claim(hand: Hand, who: str) -> list[rows.ClaimedRun]:
    worker = hand.scene.workers[who]
    try:
        runs = await hand.store.claim_runs(worker, 0, ["q"], ["W"], hand.rng.randint(1, 3), ids())
    except DatabaseUnavailable:
        await _lost_claim(hand, worker)
        return []
    hand.ledger.held_runs.update(one.token for one in runs)
    return runs


async def claim_runs(hand: Hand) -> None:
    """By either worker; then all the way, or they stay held."""
    runs = await _claim(hand, hand.rng.choice(("one", "two", "two")))
    if hand.rng.random() < 0.5:
        await _commit(hand, runs, close=hand.rng.random() < 0.4)


async def claim_activities(hand: Hand) -> None:
    worker = hand.scene.workers[hand.rng.choice(("one", "two", "two"))]
    try:
        tokens = [ids() for _ in range(hand.rng.randint(2, 6))]
        attempts = await hand.store.claim_activities(worker, 0, ["q"], ACTIVITIES, tokens)
    except DatabaseUnavailable:
        await _lost_claim(hand, worker)
        return
    hand.ledger.held_attempts.update(one.token for one in attempts)
    if hand.rng.random() < 0.5:
        await _complete(hand, hand.rng.sample(attempts, len(attempts)))


async def _complete(hand: Hand, attempts: Sequence[rows.ClaimedActivity]) -> None:
    outcomes = [
        rows.ActivityOutcome(
            key=one.key, run_id=one.run_id, ref=one.ref, token=one.token, record=completed(one.token, ref=one.ref)
        )
        for one in attempts
    ]
    await _end(hand, outcomes)


async def _end(hand: Hand, outcomes: Sequence[rows.ActivityOutcome]) -> None:
    if not outcomes:
        return
    try:
        told: list[bool | None] = [one.recorded for one in await hand.store.complete_activities(outcomes)]
    except DatabaseUnavailable:
        told = [None] * len(outcomes)
    for outcome, recorded in zip(outcomes, told, strict=True):
        if outcome.token is not None:
            hand.ledger.completions[outcome.token].append(recorded)


async def complete(hand: Hand) -> None:
    await _complete(hand, hand.attempts("one", "two"))


async def retry(hand: Hand) -> None:
    attempts = hand.attempts("one", "two")
    outcomes = await hand.store.retry_activities(
        [
            rows.ActivityRetry(
                key=one.key, run_id=one.run_id, ref=one.ref, token=one.token, delay=0.0, failure=b"\x01{}"
            )
            for one in attempts
        ]
    )
    for one, outcome in zip(attempts, outcomes, strict=True):
        hand.ledger.retries[one.token].append(outcome.status)


async def heartbeat(hand: Hand) -> None:
    beats = [
        rows.Heartbeat(shard=one.key.shard, run_id=one.run_id, ref=one.ref, token=one.token, details=b"\x011")
        for one in hand.attempts("one", "two")
    ]
    await hand.store.heartbeat(beats)


async def release_activities(hand: Hand) -> None:
    await hand.store.release_activities(
        [rows.HeldActivity(one.key.shard, one.run_id, one.ref, one.token) for one in hand.attempts("one", "two")]
    )


async def time_out(hand: Hand) -> None:
    """The sweep over deadlines: some attempts are tried again, the others end."""
    expired = await hand.store.expired_activities(20)
    hand.rng.shuffle(expired)
    again = [one for one in expired if one.token is not None and hand.rng.random() < 0.5]
    if again:
        outcomes = await hand.store.retry_activities(
            [
                rows.ActivityRetry(
                    key=one.key, run_id=one.run_id, ref=one.ref, token=one.token or ids(), delay=0.0,
                    failure=None, deadline=one.deadline,
                )
                for one in again
            ]
        )  # fmt: skip
        for one, outcome in zip(again, outcomes, strict=True):
            hand.ledger.retries[one.token or ids()].append(outcome.status)
    await _end(
        hand,
        [
            rows.ActivityOutcome(
                key=one.key, run_id=one.run_id, ref=one.ref, token=one.token, deadline=one.deadline,
                record=_timed_out(one),
            )
            for one in expired if one not in again
        ],
    )  # fmt: skip


def _timed_out(one: rows.ExpiredActivity) -> Record:
    return record(ev.ActivityTimedOut(at=NOW, ref=one.ref, attempt_id=one.token, timeout=one.timeout))


async def reap(hand: Hand) -> None:
    await hand.store.reap(0.0)


async def unknown(hand: Hand) -> None:
    """The recovery after a lost claim, of a worker that knows only a part of what it has."""
    worker = hand.scene.workers[hand.rng.choice(("one", "two"))]
    if await hand.store.bump_epoch(worker) is not None:
        runs = {one for one in hand.ledger.held_runs if hand.rng.random() < 0.5}
        attempts = {one for one in hand.ledger.held_attempts if hand.rng.random() < 0.3}
        await hand.store.release_unknown(worker, sorted(runs), sorted(attempts))


async def bump_epoch(hand: Hand) -> None:
    await hand.store.bump_epoch(hand.scene.workers["one"])


async def register(hand: Hand) -> None:
    """A process that comes, tells what it knows, works, and goes."""
    worker = ids()
    known = [rows.DefinitionRow(namespace="default", workflow=name, queue="q") for name in hand.letters("UVW")]
    await hand.store.register_definitions(known)
    await hand.store.register_worker(rows.WorkerRow(worker_id=worker, identity="three", queues=("q",), lease=LEASE))
    runs = await hand.store.claim_runs(worker, 0, ["q"], ["W"], 2, ids())
    await _commit(hand, runs[:1])
    await hand.store.unregister_worker(worker)


async def retire(hand: Hand) -> None:
    await hand.store.unregister_worker(hand.scene.workers[hand.rng.choice(("one", "two"))])


async def renew(hand: Hand) -> None:
    await hand.store.renew_lease(hand.scene.workers[hand.rng.choice(("one", "two"))], LEASE)


WORKERS = (commit, keep, close, late_commit, release_runs, claim_runs, claim_activities, complete, retry, heartbeat,
           release_activities, time_out, reap, unknown, bump_epoch, register, retire, renew)  # fmt: skip
