"""Rules for activities: claims, outcomes, retries, signs of life, timeouts; by holders, zombies and strangers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from aioflow.store import rows
from tests.faults.stateful.deciding import result
from tests.faults.stateful.machine_base import LOST, OLD, PICK, PICKS
from tests.faults.stateful.oracle_runs import widened
from tests.faults.stateful.rules_runs import EPOCHS_BACK, QUEUES, RunRules

KIND = st.sampled_from(["ActivityCompleted", "ActivityCompleted", "ActivityFailed", "ActivityCancelled"])
DELAY = st.sampled_from([0.0, 2.0, 14.0])


class ActivityRules(RunRules):
    """Everything a worker does with activities."""

    def running(self) -> list[rows.ClaimedActivity]:
        """Attempts that still have their activity."""
        return [a for a in self.attempts if self.oracle.attempt_row(a.run_id, a.ref, a.token) is not None]

    def some_attempts(self, picks: Sequence[int], old: bool) -> list[rows.ClaimedActivity]:
        return self.some(self.attempts if old else self.running(), picks)

    @precondition(lambda self: self.workers and self.oracle.activity)
    @rule(
        who=PICK,
        back=EPOCHS_BACK,
        queues=QUEUES,
        names=st.sampled_from([["act", "bct"], ["act", "bct"], ["act"]]),
        limit=st.integers(1, 3),
        suspects=st.booleans(),
        lost=LOST,
    )
    def claim_activities(
        self, who: int, back: int, queues: list[str], names: list[str], limit: int, suspects: bool, lost: str | None
    ) -> None:
        worker = self.someone(who)
        epoch = self.oracle.worker.get(worker, {"claim_epoch": 0})["claim_epoch"] - back
        suspects = suspects and bool(self.oracle.claimable_activities(worker, epoch, queues, names, True))
        due = self.oracle.claimable_activities(worker, epoch, queues, names, suspects)
        tokens = [self.uid() for _ in range(widened(limit, due))]
        asked = (worker, epoch, queues, names, tokens, suspects)
        if lost is not None:
            if lost == "before_send" or len(due) <= 1 or len(tokens) == 1:  # else nobody knows which token is whose
                self.claim_lost("claim_activities", asked, lost)
            return
        got = self.world.run(self.world.store.claim_activities(*asked))
        assigned = {(one.run_id, one.ref): one.token for one in got}
        assert set(assigned.values()) == set(tokens[: len(got)])
        assert set(assigned) == {spot for *_, spot in due[: len(tokens)]}
        expected = self.oracle.claim_activities(worker, epoch, queues, names, assigned, suspects)
        got.sort(key=_address)
        assert got == sorted(expected, key=_address)
        self.saw("suspect activity claimed", len(got) if suspects else 0)
        self.saw("activity claimed", len(got))
        self.saw("next attempt claimed", sum(one.attempt > 1 for one in got))
        self.attempts += got

    @precondition(lambda self: self.attempts)
    @rule(picks=PICKS, old=OLD, kind=KIND, twist=st.sampled_from([None] * 5 + ["token", "ref", "nobody"]), lost=LOST)
    def complete(self, picks: list[int], old: bool, kind: str, twist: str | None, lost: str | None) -> None:
        outcomes = [self.outcome(one, kind, twist) for one in self.some_attempts(picks, old)]
        if not outcomes:
            return
        waking = {one.key for one in outcomes}
        answers = self.ask("complete_activities", outcomes, lost=lost)
        for answer in answers:
            self.saw("completion recorded" if answer.recorded else "completion late")
            self.saw("completion recognised after its answer was lost", lost == "after_send" and answer.recorded)
            self.saw("completion of a stranger", twist is not None and not answer.recorded)
        self.saw("completions of several runs in one call", len(waking) > 1)

    @precondition(lambda self: self.oracle.activity)
    @rule(who=PICK, kind=KIND, end=st.sampled_from([True, True, False]))
    def serve(self, who: int, kind: str, end: bool) -> None:
        """What a worker does all day: claim an activity, run it, tell its outcome."""
        self.claim_activities(who or 1, 0, ["q", "r"], ["act", "bct"], 1, False, None)
        if end and self.running():
            self.complete([0], False, kind, None, None)

    def outcome(self, one: rows.ClaimedActivity, kind: str, twist: str | None) -> rows.ActivityOutcome:
        token: Any = {"token": self.uid(), "nobody": None}.get(twist or "", one.token)
        ref = "else" if twist == "ref" else one.ref
        record = result(kind, ref, token, self.oracle.now)
        return rows.ActivityOutcome(key=one.key, run_id=one.run_id, ref=ref, token=token, record=record)

    @precondition(lambda self: self.attempts)
    @rule(picks=PICKS, old=OLD, delay=DELAY, stranger=OLD, lost=LOST)
    def retry(self, picks: list[int], old: bool, delay: float, stranger: bool, lost: str | None) -> None:
        retries = [
            rows.ActivityRetry(
                key=one.key,
                run_id=one.run_id,
                ref=one.ref,
                token=self.uid() if stranger else one.token,
                delay=delay,
                failure=b"\x01broken",
            )
            for one in self.some_attempts(picks, old)
        ]
        for answer in self.ask("retry_activities", retries, lost=lost):
            self.saw(f"retry {answer.status}")

    @precondition(lambda self: self.attempts)
    @rule(picks=PICKS, old=OLD, ask=st.booleans(), details=st.sampled_from([None, b"\x011", b"\x012"]), stranger=OLD)
    def heartbeat(self, picks: list[int], old: bool, ask: bool, details: bytes | None, stranger: bool) -> None:
        beats = [
            rows.Heartbeat(
                shard=one.key.shard,
                run_id=one.run_id,
                ref=one.ref,
                token=self.uid() if stranger else one.token,
                details=details,
                ask=ask,
            )
            for one in self.some_attempts(picks, old)
        ]
        for mine in self.ask("heartbeat", beats):
            self.saw("heartbeat" if mine else "heartbeat of a zombie")

    @precondition(lambda self: self.attempts)
    @rule(picks=PICKS, old=OLD, lost=LOST)
    def release_activities(self, picks: list[int], old: bool, lost: str | None) -> None:
        held = [
            rows.HeldActivity(one.key.shard, one.run_id, one.ref, one.token) for one in self.some_attempts(picks, old)
        ]
        for queue in self.ask("release_activities", held, lost=lost):
            self.saw("activity released" if queue is not None else "activity not held any more")

    # -- timeouts -----------------------------------------------------------------------------------

    def sweep(self) -> list[rows.ExpiredActivity]:
        """What is past its deadline; kept, so that it may be acted on when it is so no longer."""
        found = self.world.run(self.world.store.expired_activities())
        assert [one.deadline for one in found] == sorted(one.deadline for one in found)
        found.sort(key=lambda one: (one.deadline, one.run_id, one.ref))
        assert found == self.oracle.expired_activities()
        self.expired += [one for one in found if one not in self.expired]
        for one in found:
            self.saw(f"expired by {one.timeout}")
        return found

    @precondition(lambda self: self.oracle.activity or self.expired)
    @rule(n=PICK, old=OLD, again=st.booleans(), delay=DELAY)
    def time_out(self, n: int, old: bool, again: bool, delay: float) -> None:
        """End or retry one whose time is over, guarded by its token and deadline."""
        found = self.sweep()
        if not (self.expired if old else found):
            return
        self.end_late_one(self.pick(self.expired if old else found, n), again, delay)

    def end_late_one(self, one: rows.ExpiredActivity, again: bool, delay: float) -> None:
        place: dict[str, Any] = {"key": one.key, "run_id": one.run_id, "ref": one.ref, "deadline": one.deadline}
        if again and one.token is not None:
            retry = rows.ActivityRetry(token=one.token, delay=delay, failure=b"\x01late", **place)
            (told,) = self.ask("retry_activities", [retry])
            self.saw(f"timeout: retry {told.status}")
        else:
            record = result("ActivityTimedOut", one.ref, one.token, self.oracle.now)
            outcome = rows.ActivityOutcome(token=one.token, record=record, **place)
            (answer,) = self.ask("complete_activities", [outcome])
            self.saw("timed out" if answer.recorded else "timeout that came late")

    @precondition(lambda self: self.running())
    @rule(n=PICK, again=st.booleans(), delay=DELAY, beats=st.booleans())
    def overrun(self, n: int, again: bool, delay: float, beats: bool) -> None:
        """An attempt goes on past its deadline while its worker lives, and is timed out."""
        one = self.pick(self.running(), n)
        row = self.oracle.attempt_row(one.run_id, one.ref, one.token)
        assert row is not None
        if row["deadline"] is None or row["deadline"] < self.oracle.now:
            return
        self.move(row["deadline"] - self.oracle.now)
        self.ask("renew_lease", one.owner, 30.0)
        self.saw("overrun")
        found = [late for late in self.sweep() if late.token == one.token]
        if beats:  # just when it was found to be late
            beat = rows.Heartbeat(shard=one.key.shard, run_id=one.run_id, ref=one.ref, token=one.token)
            self.ask("heartbeat", [beat])
        for late in found:
            self.end_late_one(late, again, delay)


def _address(one: rows.ClaimedActivity) -> Any:
    return (one.run_id, one.ref)
