"""Edited code meets an old history: what is a mismatch, what is none, and that a mismatch does no harm."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from aioflow import Workflow, activity, all_, now, side_effect, timer
from aioflow.core import events as ev
from aioflow.core.keys import InstanceKey
from aioflow.core.registry import workflow_definition
from aioflow.core.replay import Execution
from aioflow.errors import NondeterminismError
from tests.core.world import RUN, Driver, at, stored

Code = Callable[[], Awaitable[Any]]


@activity.defn
async def first(x: int) -> int:
    return x


@activity.defn
async def second(x: int) -> int:
    return x


def flow(code: Code) -> type[Workflow]:
    class Flow(Workflow, name="flow"):
        async def handle(self) -> Any:
            return await code()

    return Flow


async def old() -> Any:
    a = await first(1)
    b = await second(2)
    await timer(60)
    c = await side_effect(lambda: 7, type=int)
    return [a, b, c, await first(3)]


def recorded() -> Driver:
    """A run of the old code that waits for its last activity."""
    driver = Driver(flow(old))
    driver.start()
    driver.complete("0:a1", 1)
    driver.complete("0:a2", 2)
    driver.fire("0:t1")
    assert [one.kind for one in driver.history[-2:]] == ["SideEffectRecorded", "ActivityScheduled"]
    return driver


def replayed(code: Code, history: list[ev.Event]) -> Execution:
    execution = Execution(workflow_definition(flow(code)), InstanceKey.of("default", "i"), RUN)
    execution.replay(stored(history))
    return execution


async def removed() -> Any:
    await first(1)
    await timer(60)
    return [await side_effect(lambda: 7, type=int), await first(3)]


async def added() -> Any:
    await first(1)
    await first(9)
    await second(2)
    await timer(60)
    return [await side_effect(lambda: 7, type=int), await first(3)]


async def renamed() -> Any:
    await first(1)
    await first(2)
    await timer(60)
    return [await side_effect(lambda: 7, type=int), await first(3)]


async def reordered() -> Any:
    await second(2)
    await first(1)
    await timer(60)
    return [await side_effect(lambda: 7, type=int), await first(3)]


async def returns_early() -> Any:
    return await first(1)


async def returns_before_the_end() -> Any:
    await first(1)
    await second(2)
    await timer(60)
    return await side_effect(lambda: 7, type=int)


async def fails_early() -> Any:
    await first(1)
    raise ValueError("new")


async def another_side_effect() -> Any:
    await first(1)
    await side_effect(lambda: 1, type=int)
    await second(2)


async def no_side_effect() -> Any:
    await first(1)
    await second(2)
    await timer(60)
    return await first(3)


async def no_timer() -> Any:
    await first(1)
    await second(2)
    return [await side_effect(lambda: 7, type=int), await first(3)]


async def timer_earlier() -> Any:
    await timer(60)
    await first(1)


async def side_effect_elsewhere() -> Any:
    await first(1)
    await second(2)
    await side_effect(lambda: 7, type=int)
    await timer(60)
    return await first(3)


async def nothing_at_all() -> Any:
    await asyncio.Event().wait()


MISMATCHES: list[tuple[Code, str, str]] = [
    (removed, "ActivityScheduled at 0:a2 (second)", "TimerStarted at 0:t1"),
    (added, "ActivityScheduled at 0:a2 (second)", "ActivityScheduled at 0:a2 (first)"),
    (renamed, "ActivityScheduled at 0:a2 (second)", "ActivityScheduled at 0:a2 (first)"),
    (reordered, "ActivityScheduled at 0:a1 (first)", "ActivityScheduled at 0:a1 (second)"),
    (returns_early, "ActivityScheduled at 0:a2 (second)", "nothing"),
    (returns_before_the_end, "ActivityScheduled at 0:a3 (first)", "nothing"),
    (fails_early, "ActivityScheduled at 0:a2 (second)", "nothing"),
    (another_side_effect, "nothing more", "SideEffectRecorded at 0:s1"),
    (no_side_effect, "SideEffectRecorded at 0:s1", "ActivityScheduled at 0:a3 (first)"),
    (no_timer, "TimerStarted at 0:t1", "SideEffectRecorded at 0:s1"),
    (timer_earlier, "ActivityScheduled at 0:a1 (first)", "TimerStarted at 0:t1"),
    (side_effect_elsewhere, "nothing more", "SideEffectRecorded at 0:s1"),
    (nothing_at_all, "ActivityScheduled at 0:a1 (first)", "nothing"),
]


@pytest.mark.parametrize(("code", "expected", "found"), MISMATCHES, ids=[row[0].__name__ for row in MISMATCHES])
def test_a_mismatch_names_expected_and_found(code: Code, expected: str, found: str) -> None:
    driver = recorded()
    with pytest.raises(NondeterminismError) as caught:
        replayed(code, driver.history)
    assert (caught.value.expected, caught.value.found) == (expected, found)
    # With the old code back the run goes on.
    driver.evict()
    driver.complete("0:a3", 3)
    assert driver.result() == [1, 2, 7, 3]


def test_a_mismatch_leaves_an_execution_that_decides_nothing() -> None:
    driver = recorded()
    execution = Execution(workflow_definition(flow(renamed)), InstanceKey.of("default", "i"), RUN)
    with pytest.raises(NondeterminismError) as caught:
        execution.replay(stored(driver.history))
    assert execution.closed
    assert caught.value.seq == 4
    assert "at event 4: expected ActivityScheduled at 0:a2 (second), found" in str(caught.value)


def test_a_mismatch_cannot_be_caught_by_the_code() -> None:
    async def stubborn() -> Any:
        await first(1)
        try:
            await side_effect(lambda: 1, type=int)
        except BaseException:
            return await second(2)

    with pytest.raises(NondeterminismError):
        replayed(stubborn, recorded().history)


def test_code_that_ends_where_history_goes_on_without_commands() -> None:
    async def waits() -> Any:
        await asyncio.Event().wait()

    async def returns() -> int:
        return 1

    driver = Driver(flow(waits))
    driver.start()
    with pytest.raises(NondeterminismError) as caught:
        replayed(returns, driver.history)
    assert (caught.value.expected, caught.value.found) == ("an open run", "RunCompleted at 0")
    driver = Driver(flow(returns))
    driver.start()
    with pytest.raises(NondeterminismError) as caught:
        replayed(waits, driver.history)
    assert (caught.value.expected, caught.value.found) == ("RunCompleted", "an open run")

    async def fails() -> int:
        raise ValueError("no")

    with pytest.raises(NondeterminismError) as caught:
        replayed(fails, driver.history)
    assert (caught.value.expected, caught.value.found) == ("RunCompleted", "RunFailed at 0")


def test_a_history_that_does_not_begin_with_a_start_is_refused() -> None:
    driver = recorded()
    with pytest.raises(NondeterminismError):
        replayed(old, driver.history[2:])
    with pytest.raises(NondeterminismError):
        replayed(old, driver.history[1:])


# -- what may change ------------------------------------------------------------------------------


async def other_arguments() -> Any:
    a = await first(10)
    b = await activity(second.options(queue="elsewhere", start_to_close=5), 20)
    await asyncio.sleep(60)
    c = await side_effect(lambda: 8, type=int)
    return [a, b, c, await first(30)]


async def other_duration() -> Any:
    a, b = await first(1), await second(2)
    await timer(86_400)
    moment = now()
    c = await side_effect(lambda: 7, type=int)
    await first(3)
    await timer(10)
    return [a, b, c, str(moment), str(now())]


async def more_at_the_end() -> Any:
    return [await old(), await second(4)]


async def a_timeout_around_it() -> Any:
    a, b = await first(1), await second(2)
    await timer(60)
    async with asyncio.timeout(None):
        c = await side_effect(lambda: 7, type=int)
        return [a, b, c, await first(3)]


@pytest.mark.parametrize("code", [other_arguments, other_duration, more_at_the_end, a_timeout_around_it])
def test_what_may_change(code: Code) -> None:
    replayed(code, recorded().history).evict()


def test_a_duration_that_changed_leaves_the_recorded_time() -> None:
    driver = Driver(flow(other_duration))
    driver.history = recorded().history
    driver.activities["0:a3"] = None
    driver.complete("0:a3", 3, when=100)
    assert driver.timers == {"0:t2": at(110)}
    driver.fire("0:t2")
    assert driver.result() == [1, 2, 7, str(at(61)), str(at(110))]


def test_a_new_duration_counts_for_timers_started_from_now_on() -> None:
    driver = Driver(flow(old))
    driver.start()
    driver.complete("0:a1", 1)
    driver.complete("0:a2", 2)
    edited = Driver(flow(other_duration))
    edited.history, edited.timers = driver.history, driver.timers
    edited.signal("nobody", when=2)
    assert edited.decisions[-1].next_due == at(61)


def test_a_step_in_another_branch_may_come_and_go() -> None:
    async def left() -> int:
        return await first(1) + await first(2)

    async def longer() -> int:
        return await left() + await first(3)

    async def right() -> int:
        return await second(1)

    def both(one: Code, other: Code) -> Code:
        async def code() -> Any:
            return list(await all_((one(), other())))

        return code

    driver = Driver(flow(both(left, right)))
    driver.start()
    driver.complete("0/1:a1", 1)
    edited = Driver(flow(both(longer, right)))
    edited.history, edited.activities = driver.history, driver.activities
    edited.complete("0/2:a1", 5)
    edited.complete("0/1:a2", 2)
    assert list(edited.activities) == ["0/1:a3"]
    edited.complete("0/1:a3", 3)
    assert edited.result() == [6, 5]
