"""The properties are worth something: each planted mistake is found within a bounded number of programs."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from aioflow.core.branch import Branch
from aioflow.core.private import get_running_loop_or_none
from aioflow.errors import NondeterminismError
from tests.core.checks import check_in_process, check_sibling
from tests.core.mutants import MUTANTS, Mutant
from tests.core.program_strategies import programs, seeds, straight_lines
from tests.core.programs import Block
from tests.core.sizes import sized

MOST = 300


class Found(Exception):
    """The check failed."""


def bounded(check: Callable[..., object], *strategies: st.SearchStrategy[Any]) -> int:
    """Programs it takes until the check fails, at most MOST; an error when it never does."""
    tried = itertools.count(1)
    took = MOST

    @settings(
        max_examples=MOST,
        phases=[Phase.generate],
        derandomize=True,
        database=None,
        deadline=None,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.tuples(*strategies))
    def run(values: tuple[Any, ...]) -> None:
        nonlocal took
        number = next(tried)
        try:
            check(*values)
        except (AssertionError, NondeterminismError) as error:
            took = min(took, number)
            raise Found from error

    with pytest.raises(Found):
        run()
    return took


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=MUTANTS.keys())
def test_a_planted_mistake_is_found(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant(monkeypatch)
    assert bounded(check_in_process, programs(), seeds) <= MOST


def test_a_step_in_one_branch_moves_no_address_of_another() -> None:
    @sized(60)
    @given(straight_lines(), straight_lines())
    def check(one: Block, other: Block) -> None:
        check_sibling(one, other)

    check()


def test_ids_from_one_counter_of_the_run_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    # On replay they come out alike: it is an edit that they do not bear.
    counters: dict[object, itertools.count[int]] = {}

    def command_id(self: Branch, kind: str) -> str:
        counter = counters.setdefault(get_running_loop_or_none(), itertools.count(1))
        return f"{self.path}:{kind}{next(counter)}"

    monkeypatch.setattr(Branch, "command_id", command_id)
    assert bounded(check_sibling, straight_lines(), straight_lines()) <= MOST
