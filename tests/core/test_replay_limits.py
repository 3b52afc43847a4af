"""Limits: what is too much is refused at the call or ends the run, the same on every replay."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from aioflow import Workflow, activity, side_effect, signal, timer
from aioflow.core import events as ev
from aioflow.core.limits import Limits
from aioflow.errors import StructuralLimitExceeded
from tests.core.world import Driver, message


@activity.defn
async def step(x: int) -> int:
    return x


@activity.defn
async def hold(text: str) -> str:
    return text


def flow(code: Callable[[], Any]) -> type[Workflow]:
    class Flow(Workflow):
        async def handle(self) -> Any:
            return await code()

    return Flow


def replayed(driver: Driver) -> None:
    """A cold replay of what the run has so far."""
    driver.evict()
    driver.loaded()


@pytest.mark.parametrize(
    ("what", "limit"), [(step, "pending_activities"), (lambda n: timer(60 + n), "timers")], ids=["activities", "timers"]
)
def test_more_than_a_limit_at_once_is_raised_at_the_call(what: Callable[[int], Any], limit: str) -> None:
    async def code() -> Any:
        found = await asyncio.gather(*(what(n) for n in range(4)), return_exceptions=True)
        return [type(one).__name__ for one in found]

    driver = Driver(flow(code), limits=Limits(pending_activities=3, timers=3))
    driver.start()
    assert len(driver.activities) + len(driver.timers) == 3
    for ref in list(driver.activities):
        driver.complete(ref, 1)
    for ref in list(driver.timers):
        driver.fire(ref)
    kept = "int" if limit == "pending_activities" else "NoneType"
    assert driver.result() == [kept, kept, kept, StructuralLimitExceeded.__name__]

    async def uncaught() -> Any:
        await asyncio.gather(*(what(n) for n in range(4)))

    driver = Driver(flow(uncaught), limits=Limits(pending_activities=3, timers=3))
    driver.start()
    end = driver.history[-1]
    assert isinstance(end, ev.RunFailed)
    assert end.limit == limit


def test_more_bytes_than_a_step_may_give_are_refused_at_the_call() -> None:
    async def code() -> Any:
        tasks = [asyncio.ensure_future(hold("x" * 1_000)) for _ in range(4)]
        await asyncio.wait([tasks[3]])  # refused at once, so nothing was waited for
        tasks[1].cancel()  # gives its place back, in the same step
        await asyncio.sleep(0)
        late = asyncio.ensure_future(hold("y" * 1_000))
        await asyncio.sleep(0)
        effects = []
        for make in (lambda: "z" * 900, lambda: "small"):
            try:
                effects.append(await side_effect(make, type=str))
            except StructuralLimitExceeded as error:
                effects.append(error.limit)
        error = tasks[3].exception()
        assert isinstance(error, StructuralLimitExceeded)
        return [error.limit, str(error), *effects, await tasks[0], await late, await hold("x" * 2_000)]

    driver = Driver(flow(code), limits=Limits(step_bytes=3_500))
    driver.start()
    assert len(driver.activities) == 3
    replayed(driver)
    for ref in list(driver.activities):
        driver.complete(ref, "done")
        replayed(driver)
    assert len(driver.activities) == 1  # another step, other bytes
    driver.complete(next(iter(driver.activities)), "last")
    limit, told, *rest = driver.result()
    assert limit == "step_bytes"
    assert "at most 3500 bytes" in told
    assert rest == ["step_bytes", "small", "done", "done", "last"]


def test_a_step_of_the_largest_values_fails_its_run_before_anything_is_stored() -> None:
    async def code() -> Any:
        await asyncio.gather(*(hold("x" * 2_000_000) for _ in range(600)))

    driver = Driver(flow(code))
    decision = driver.start()
    assert driver.failure().type == "StructuralLimitExceeded"
    end = driver.history[-1]
    assert isinstance(end, ev.RunFailed)
    assert end.limit == "step_bytes"
    assert decision.size < Limits().step_bytes + 100_000


def test_a_step_that_asks_for_much_gets_on_and_one_that_only_asks_again_does_not() -> None:
    seen: list[tuple[int, int]] = []

    async def code() -> Any:
        for _ in range(9):
            with suppress(StructuralLimitExceeded):
                await activity(hold, "x" * 1_000)
            assert driver.execution is not None
            seen.append(driver.execution.progress)

    driver = Driver(flow(code), limits=Limits(step_bytes=500, pending_activities=4, timers=2))
    driver.start()
    assert [tried for _, tried in seen] == [1, 2, 3, 4, 5, 6, 6, 6, 6]


def test_a_history_is_replayed_under_limits_that_are_lower_now() -> None:
    async def code() -> Any:
        kept = [asyncio.ensure_future(hold("x" * 1_000)) for _ in range(4)]
        sleeps = [asyncio.ensure_future(asyncio.sleep(60 + n)) for n in range(4)]
        await asyncio.gather(*sleeps)
        return await asyncio.gather(*kept)

    driver = Driver(flow(code))
    driver.start()
    driver.limits = Limits(step_bytes=1_500, pending_activities=1, timers=1)
    replayed(driver)
    for ref in list(driver.timers):
        driver.fire(ref)
    for ref in list(driver.activities):
        driver.complete(ref, "done")
    assert driver.result() == ["done"] * 4


def test_what_many_events_add_up_to_is_decided_in_parts() -> None:
    class Echoing(Workflow):
        @signal
        async def echo(self, text: str) -> None:
            await hold(text)

        async def handle(self) -> Any:
            return await step(1)

    driver = Driver(Echoing, limits=Limits(step_bytes=8 * 2_000))
    driver.start()
    inputs = [message("echo", "x" * 600, when=n) for n in range(1, 11)]
    asked: list[int] = []

    def may_stop(applied: int) -> bool:
        asked.append(applied)
        return applied % 3 == 0

    decision = driver.loaded().apply(inputs, may_stop)
    assert (decision.applied, asked) == (3, [2, 3])
    driver.write(decision)
    assert len(driver.activities) == 4
    assert driver.loaded().apply(inputs[3:], lambda _: False).applied == 7


def test_a_history_past_its_limit_fails_the_run_and_can_be_replayed() -> None:
    async def forever() -> Any:
        while True:
            await step(1)

    driver = Driver(flow(forever), limits=Limits(history_hard=7))
    driver.start()
    for n in range(1, 4):
        assert driver.closed is None
        driver.complete(f"0:a{n}", n)
    end = driver.history[-1]
    assert isinstance(end, ev.RunFailed)
    assert end.limit == "history_events"
    assert len(driver.history) == 9
    assert driver.loaded().closed
