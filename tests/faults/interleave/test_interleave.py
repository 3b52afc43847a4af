"""Operations of the store beside each other, statement by statement, on a server that says who waits for whom."""

from __future__ import annotations

import itertools

import pytest

from aioflow.store.queries import names, sql
from tests.faults.interleave.connections import locks
from tests.faults.interleave.mutants import MUTANTS, Mutant
from tests.faults.interleave.rig import TRIPLES, Rig, found, pairs

SCHEDULES = 700
FIRST_SEED = 1
NOT_HERE = ("invariant_", "migration_", "notify")


@pytest.mark.slow
@pytest.mark.timeout(400)
async def test_no_schedule_breaks_anything_and_nobody_waits_in_a_circle(database: str) -> None:
    """Every pair once, then triples and pairs with further seeds as far as the number goes."""
    combinations = [*pairs(), *TRIPLES * 3]
    every = ((names, seed) for seed in itertools.count(FIRST_SEED) for names in combinations)
    sent: set[str] = set()
    steps = 0
    async with Rig(database) as rig:
        for names_, seed in itertools.islice(every, SCHEDULES):
            result = await rig.schedule(names_, seed)
            assert not result.broken, str(result)
            sent |= result.sent
            steps += sum(result.counts.values())
        assert await rig.deadlocks() == 0
    assert steps > 5 * SCHEDULES
    unsent = {one for one in names() if locks(sql(one)) and not one.startswith(NOT_HERE)} - sent
    assert not unsent, f"statements that lock and that no schedule has sent: {sorted(unsent)}"


@pytest.mark.slow
@pytest.mark.timeout(200)
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda one: one.name)
async def test_planted_mistakes_are_found(database: str, mutant: Mutant) -> None:
    seed, result = await found(database, mutant, limit=600)
    assert result is not None, f"{mutant.broken}: not found by {seed} schedules"


async def test_the_same_seed_takes_the_same_steps(database: str) -> None:
    async with Rig(database) as rig:
        first, second = [await rig.schedule(("signal", "commit"), 3) for _ in range(2)]
    steps = [[line for line in one.trace if not line.startswith(" ")] for one in (first, second)]
    assert steps[0] == steps[1]
    assert len(steps[0]) > 3
