"""What the actors of one schedule were told; and what they have in common as the processes that they stand for."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from uuid import UUID

from aioflow.store import rows
from aioflow.store.store import Store
from tests.faults.interleave.scene import NAMES, Scene

__all__ = ["Hand", "Ledger"]

Task = tuple[UUID, UUID]  # run and token: runs claimed together have one token


@dataclass(slots=True)
class Ledger:
    """Asked for and answered; None where no answer came.

    A decision is made once for each run and token: who re-sends a commit sends the same.
    """

    signals: dict[str, str | None] = field(default_factory=dict)
    cancels: dict[str, str | None] = field(default_factory=dict)
    starts: dict[UUID, str | None] = field(default_factory=dict)
    closes: dict[UUID, rows.TerminateOutcome | None] = field(default_factory=dict)
    completions: dict[UUID, list[bool | None]] = field(default_factory=lambda: defaultdict(list))
    retries: dict[UUID, list[str | None]] = field(default_factory=lambda: defaultdict(list))
    commits: dict[Task, list[str | None]] = field(default_factory=lambda: defaultdict(list))
    decisions: dict[Task, rows.Commit] = field(default_factory=dict)
    sent: dict[Task, rows.Commit] = field(default_factory=dict)
    held_runs: set[UUID] = field(default_factory=set)
    held_attempts: set[UUID] = field(default_factory=set)

    def told(self) -> Counter[str]:
        """How often each answer was given."""
        given = Counter(f"signal {one}" for one in self.signals.values())
        given.update(f"cancel {one}" for one in self.cancels.values())
        given.update(f"start {one}" for one in self.starts.values())
        given.update(f"close {one.outcome}" for one in self.closes.values() if one is not None)
        given.update(f"completion {one}" for some in self.completions.values() for one in some)
        given.update(f"retry {one}" for some in self.retries.values() for one in some)
        given.update(f"commit {one}" for some in self.commits.values() for one in some)
        return given


@dataclass(slots=True)
class Hand:
    """What an operation works with."""

    name: str
    store: Store
    rng: random.Random
    scene: Scene
    ledger: Ledger

    def some(self, letters: str, least: int = 2) -> list[str]:
        """Several of these instances in some order, as ids."""
        return [NAMES[one] for one in self.letters(letters, least)]

    def letters(self, letters: str, least: int = 2) -> list[str]:
        least = min(least, len(letters))
        return self.rng.sample(letters, self.rng.randint(least, len(letters)))

    def attempts(self, *holders: str) -> list[rows.ClaimedActivity]:
        """Several attempts of these workers in some order."""
        there = [one for holder in holders for one in self.scene.attempts[holder]]
        return self.rng.sample(there, self.rng.randint(3, min(9, len(there))))
