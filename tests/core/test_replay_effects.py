"""Side effects, limits, and eviction."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aioflow import NotDurable, RemoteError, Workflow, activity, rng, side_effect
from aioflow.core import events as ev
from aioflow.core.tasks import Sealed
from aioflow.errors import (
    DecodeError,
    EncodeError,
    NondeterminismError,
    PayloadTooLarge,
)
from tests.core.world import Driver, at


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
