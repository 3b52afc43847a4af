"""Mistakes planted into the statements: schedules find each of them."""

from __future__ import annotations

import pytest

from tests.faults.interleave.mutants import MUTANTS, Mutant
from tests.faults.interleave.rig import found


@pytest.mark.slow
@pytest.mark.timeout(200)
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda one: one.name)
async def test_planted_mistakes_are_found(database: str, mutant: Mutant) -> None:
    seed, result = await found(database, mutant, limit=1000)
    assert result is not None, f"{mutant.broken}: not found by {seed} schedules"
