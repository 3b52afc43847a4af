"""One history in every process: another hash seed, and every supported Python, each way."""

from __future__ import annotations

import pytest
from hypothesis import given

from tests.core.checks import assert_same
from tests.core.histories import from_json, to_json, told_json
from tests.core.program_strategies import programs, seeds
from tests.core.programs import Block, Program
from tests.core.pythons import NONE_FOUND, ReplayProcess, other_pythons, replay_processes
from tests.core.sizes import sized
from tests.core.world import Driver, World


def check_elsewhere(where: str, process: ReplayProcess, program: Block, seed: int) -> None:
    trace = World(Program, seed, program).play()
    here = told_json(trace.history)
    there = process.ask(what="play", program=program, seed=seed)
    assert_same(f"played on {where}", there["told"], here)
    # Recorded here and replayed there, from the middle on with what came later; then the other way round.
    middle = len(trace.batches) // 2
    done = sum(len(one.events) for one in trace.decisions[:middle])
    later = [to_json(batch) for batch in trace.batches[middle:]]
    for history, batches in ((trace.history[:done], later), (trace.history, [])):
        told = process.ask(what="replay", history=to_json(history), batches=batches)
        assert_same(f"replayed on {where}", told, here)
    driver = Driver(Program)
    driver.history = from_json(there["history"])
    driver.loaded()
    driver.evict()


def test_another_process_and_every_python_give_the_same_history() -> None:
    with replay_processes() as processes:

        @sized(90)
        @given(programs(), seeds)
        def check(program: Block, seed: int) -> None:
            for where, process in processes.items():
                check_elsewhere(where, process, program, seed)

        check()


def test_there_is_another_python() -> None:
    if not other_pythons():
        pytest.skip(NONE_FOUND)
