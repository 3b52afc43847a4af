"""Side effects, limits, and eviction."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from aioflow import NotDurable, RemoteError, Workflow, activity, rng, side_effect, signal, timer
from aioflow.core import events as ev
from aioflow.core.limits import Limits
from aioflow.core.tasks import Sealed
from aioflow.errors import (
    DecodeError,
    EncodeError,
    NondeterminismError,
    PayloadTooLarge,
    StructuralLimitExceeded,
)
from tests.core.world import Driver, at, message


@activity.defn
async def step(x: int) -> int:
    return x


def flow(code: Callable[[], Any]) -> type[Workflow]:
    class Flow(Workflow):
        async def handle(self) -> Any:
            return await code()

    return Flow


def run(code: Callable[[], Any]) -> Driver:
    driver = Driver(flow(code))
    driver.start()
    return driver


async def stepped() -> Any:
    return await step(1)


def replayed(driver: Driver) -> Driver:
    """The same run after a cold replay of what it has so far."""
    driver.evict()
    driver.loaded()
    return driver


def interrupted() -> None:
    raise KeyboardInterrupt("mine")


def test_a_side_effect_runs_once() -> None:
    calls: list[int] = []

    async def code() -> Any:
        value = await side_effect(lambda: calls.append(1) or len(calls), type=int)  # type: ignore[func-returns-value]  # counts
        return [value, await step(1)]

    driver = replayed(run(code))
    driver.complete("0:a1", 1)
    assert driver.result() == [1, 1]
    assert calls == [1]


@pytest.mark.parametrize(
    ("make", "hint", "kind", "said"),
    [
        (lambda: {}["x"], Any, RemoteError, "KeyError: 'x'"),
        (lambda: sys.exit(3), Any, RemoteError, "SystemExit: 3"),
        (interrupted, Any, RemoteError, "KeyboardInterrupt: mine"),
        (object, Any, EncodeError, None),
        (lambda: "text", int, EncodeError, None),
        (lambda: "x" * 3_000_000, str, PayloadTooLarge, None),
    ],
)
def test_what_goes_wrong_in_a_side_effect_is_the_same_on_replay(
    make: Callable[[], Any], hint: Any, kind: type[Exception], said: str | None
) -> None:
    seen: list[Exception] = []

    async def code() -> Any:
        try:
            await side_effect(make, type=hint)
        except Exception as error:
            seen.append(error)
        return await step(1)

    driver = replayed(run(code))
    driver.complete("0:a1", 1)
    assert driver.result() == 1
    assert [type(one) for one in seen] == [kind, kind]
    assert str(seen[0]) == str(seen[1])
    assert said in (None, str(seen[0]))


async def coroutine_effect() -> Any:
    async def wrong() -> int:
        return 1

    try:
        return await side_effect(wrong)
    except BaseException:
        return "caught"


async def emitting_effect() -> Any:
    return await side_effect(lambda: step(1).send(None), type=int)


async def waking_effect() -> Any:
    event = asyncio.Event()
    waiter = asyncio.create_task(event.wait())
    await asyncio.sleep(0)
    await side_effect(event.set)
    await waiter


@pytest.mark.parametrize("code", [coroutine_effect, emitting_effect, waking_effect])
def test_a_side_effect_that_does_more_than_read_blocks_the_run(code: Callable[[], Any]) -> None:
    driver = Driver(flow(code))
    with pytest.raises(NotDurable):
        driver.start()
    assert driver.history == []


def test_a_side_effect_moves_no_randomness() -> None:
    async def code(effect: bool) -> Any:
        first = rng().random()
        if effect:
            await side_effect(lambda: rng().random(), type=float)
        return [first, rng().random()]

    async def without() -> Any:
        return await code(False)

    async def with_one() -> Any:
        return await code(True)

    assert run(without).result() == run(with_one).result()


# -- limits ---------------------------------------------------------------------------------------


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


@activity.defn
async def hold(text: str) -> str:
    return text


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


# -- eviction -------------------------------------------------------------------------------------


def test_eviction_runs_cleanup_and_lets_nothing_out(capfd: pytest.CaptureFixture[str]) -> None:
    seen: list[Any] = []

    async def code() -> Any:
        async def numbers() -> Any:
            try:
                yield await step(1)
            finally:
                seen.append("generator")
                await step(2)

        async def member() -> None:
            try:
                async for _ in numbers():
                    pass
            finally:
                try:
                    await side_effect(lambda: seen.append("effect"))
                except Sealed:
                    seen.append("sealed")
                    raise

        async with asyncio.TaskGroup() as group, asyncio.timeout(60):
            group.create_task(member())
            await asyncio.shield(step(3))

    driver = run(code)
    execution = driver.loaded()
    execution.evict()
    execution.evict()
    assert seen == ["generator", "sealed"]
    assert execution.closed
    assert driver.decisions[-1].problems == []
    driver.execution = None
    assert len(driver.loaded().definition.name) > 0
    driver.evict()
    assert capfd.readouterr() == ("", "")


def test_an_execution_that_raised_is_evicted() -> None:
    driver = run(stepped)
    execution = driver.loaded()
    with pytest.raises(DecodeError):
        execution.apply([ev.ActivityCompleted(at=at(1), ref="0:a1", payload=b"\x01nope")])
    assert execution.closed
    with pytest.raises(NondeterminismError):
        Driver(flow(stepped)).loaded().replay([ev.TimerFired(at=at(1), ref="0:t1")])


def test_a_callback_of_the_collector_may_read_the_clock_in_the_middle_of_a_workflow() -> None:
    read: list[float] = []

    def measure(phase: str, info: dict[str, int]) -> None:
        read.append(time.perf_counter())

    async def collects() -> Any:
        gc.collect()
        return len(read)

    gc.callbacks.append(measure)
    try:
        assert run(collects).result() >= 2  # its begin and its end; it may have come by itself as well
    finally:
        gc.callbacks.remove(measure)


STUBBORN = """
import asyncio, atexit
from aioflow.core import unwind
from tests.core.loop_driver import Driven

atexit.register(unwind._UNCLOSABLE.clear)  # as the interpreter may do it, once it takes modules apart

async def stubborn():
    while True:
        try:
            await asyncio.Event().wait()
        except BaseException:
            continue

run = Driven(stubborn)
run.close()
print("closed")
"""


def test_a_process_ends_though_evicted_code_swallows_everything() -> None:
    house = Path(__file__).parents[2]
    command = [sys.executable, "-c", STUBBORN]
    done = subprocess.run(command, cwd=house, capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "closed\n", "")
