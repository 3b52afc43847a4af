"""The store's SQL on Postgres against an oracle of dictionaries, driven by random rules; and that it would be noticed.

``AIOFLOW_TEST_PROGRAMS`` says how many examples a long run makes, new ones each time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import pytest
from hypothesis import Phase, settings
from hypothesis import seed as seeded
from hypothesis.stateful import run_state_machine_as_test

from aioflow.errors import StoreError
from tests.core.sizes import PROGRAMS, sized_settings
from tests.faults.stateful.machine import Machine
from tests.faults.stateful.mutants import MUTANTS, Mutant, changed, function_of, statement_changed
from tests.faults.stateful.world import World

EXAMPLES, STEPS = 80, 40
MORE = 12
"""Rounds of other examples, as long as something that must be seen was not."""

REACHED = """
start started|start started again|start existing|start exists|start closed|start conflict again|start unknown_namespace
reserve reserved|reserve exists|reserve closed|signal accepted|signal duplicate|signal conflict|signal full
signal closing|signal closed|signal unknown|signal unknown_namespace|request_cancel accepted|request_cancel duplicate
request_cancel closed|terminate closed|terminate already|terminate unknown|terminate duplicate|request again
request expired|grace over: closed|release released|release idle
run claimed|suspect run claimed|claim_runs: answer lost|load of what is not held|timer loaded
commit ok|commit closes|commit kept|commit rearms|commit of a part|commit refused|sealed
sealed run given back|commit fenced|commit again
commits in one call|commit recognised|commit recognised after its answer was lost|activity cancelled|timer cancelled
run released|release of what is not held
activity claimed|next attempt claimed|suspect activity claimed|completion recorded|completion late
completion of a stranger|completion recognised after its answer was lost|completions of several runs in one call
retry retried|retry expired|retry late|heartbeat|heartbeat of a zombie|activity released|activity not held any more
expired by heartbeat|expired by schedule_to_start|expired by schedule_to_close|expired by start_to_close
timed out|timeout that came late|timeout: retry retried
lease renewed|renewal of a dead one|epoch of a dead one|unknown runs given back|unknown activities given back
declared dead|suspect run|suspect activity|quarantined run|quarantined activity|reaper died|good-bye|worker forgotten
looked at|looked into|listed|looked around|lost before_send|lost after_send
time passes|something is due|worker registered|worker of another namespace
""".replace("\n", "|")


@contextmanager
def machine(database: str, prepare: Callable[[World], None] = lambda _: None) -> Iterator[type[Machine]]:
    """The machine on this database, with counters of its own."""
    world = World(database)
    try:
        prepare(world)
        yield type("Machine", (Machine,), {"world": world, "seen": Counter()})
    finally:
        world.close()


def sizes(examples: int) -> settings:
    """Without shrinking in the usual run: each step is a dozen statements, so that would take longer than the rest."""
    phases = [Phase.generate, Phase.shrink] if PROGRAMS else [Phase.generate]
    return settings(sized_settings(examples), stateful_step_count=STEPS, phases=phases)


def unseen(seen: Counter[str]) -> list[str]:
    return sorted(name for name in set(REACHED.split("|")) - {""} if not seen[name])


@pytest.mark.slow
@pytest.mark.timeout(max(600, PROGRAMS * 5))
def test_the_store_does_what_the_oracle_says(database: str) -> None:
    with machine(database) as tested:
        run_state_machine_as_test(tested, settings=sizes(EXAMPLES))
        for more in range(MORE):
            if not unseen(tested.seen):
                break
            found = settings(sizes(10), derandomize=False)
            run_state_machine_as_test(seeded(more)(tested), settings=found)
        print(*(f"{count:7} {name}" for name, count in sorted(tested.seen.items())), sep="\n")
        assert not unseen(tested.seen)


def plant(mutant: Mutant, world: World) -> None:
    """A mistake in a function of the schema."""
    if (function := function_of(mutant)) is not None:
        world.run(world.change_function(function, partial(changed, mutant)))


def hunt(mutant: Mutant, database: str) -> int:
    """How many examples it takes to find the mistake."""
    with machine(database, partial(plant, mutant)) as tested:
        one = settings(sizes(4 * EXAMPLES), phases=[Phase.generate], report_multiple_bugs=False)
        with pytest.raises((AssertionError, StoreError)):
            run_state_machine_as_test(tested, settings=one)
        return tested.seen["example"]


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda one: one.name)
def test_a_planted_mistake_is_found(database: str, mutant: Mutant) -> None:
    if function_of(mutant) is not None:
        print(mutant.name, hunt(mutant, database))
        return
    with statement_changed(mutant):
        print(mutant.name, hunt(mutant, database))
