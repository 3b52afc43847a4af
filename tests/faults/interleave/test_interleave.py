"""Operations of the store beside each other, statement by statement, on a server that says who waits for whom."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest

from aioflow.store.queries import names, sql
from tests.faults.interleave.connections import locks
from tests.faults.interleave.rig import TRIPLES, Rig, pairs

SCHEDULES = 520
FIRST_SEED = 1
SOMETIMES = (
    "blocked", "paused", "resume", "kill", "lose", "expire", "clock",
    "signal accepted", "signal closed", "cancel accepted", "cancel duplicate", "start started", "start exists",
    "close closed", "close already", "completion True", "completion False", "retry retried", "retry late",
    "commit ok", "commit fenced", "commit refused",
)  # fmt: skip
NOT_HERE = ("invariant_", "migration_", "notify")


@pytest.mark.slow
@pytest.mark.timeout(400)
async def test_no_schedule_breaks_anything_and_nobody_waits_in_a_circle(database: str) -> None:
    """Every pair once and triples four times, then all with further seeds as far as the number goes."""
    every = itertools.chain(
        ((names, FIRST_SEED + n) for n in (100, 200, 300, 400) for names in TRIPLES),
        ((names, seed) for seed in itertools.count(FIRST_SEED) for names in [*pairs(), *TRIPLES]),
    )
    sent: set[str] = set()
    counts: Counter[str] = Counter()
    async with Rig(database) as rig:
        for names_, seed in itertools.islice(every, SCHEDULES):
            result = await rig.schedule(names_, seed)
            assert not result.broken, str(result)
            sent |= result.sent
            counts += result.counts
        assert await rig.deadlocks() == 0
    never = [one for one in SOMETIMES if not counts[one]]
    assert not never, f"did not happen once: {never}; {counts}"
    unsent = {one for one in names() if locks(sql(one)) and not one.startswith(NOT_HERE)} - sent
    assert not unsent, f"statements that lock and that no schedule has sent: {sorted(unsent)}"


async def test_the_same_seed_takes_the_same_steps(database: str) -> None:
    async with Rig(database) as rig:
        first, second = [await rig.schedule(("signal", "commit"), 3) for _ in range(2)]
    steps = [[line for line in one.trace if not line.startswith(" ")] for one in (first, second)]
    assert steps[0] == steps[1]
    assert len(steps[0]) > 3
