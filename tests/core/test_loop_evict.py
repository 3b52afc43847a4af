"""Eviction: every suspended state can be taken out of memory; nothing comes out and nothing is logged."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import logging
import sys
import warnings
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any

import pytest

from aioflow.core.loop import _HELD, Sealed
from tests.core.loop_driver import Driven, activity, current, note

Flow = Callable[[], Coroutine[Any, Any, Any]]


@pytest.fixture
def noise(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """What reached the unraisable hook, the warnings and asyncio's logger."""
    heard: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda what: heard.append((what.exc_value, what.object)))
    handler = logging.Handler()
    handler.emit = lambda record: heard.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("asyncio").addHandler(handler)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield heard
        gc.collect()
        heard.extend(str(one.message) for one in caught)
    logging.getLogger("asyncio").removeHandler(handler)
    assert not heard


async def step(name: str, count: int = 2) -> str:
    try:
        for number in range(count):
            await activity(f"{name}{number}")
        return name
    finally:
        await activity(f"clean-{name}")


async def numbers(count: int) -> AsyncIterator[int]:
    try:
        for number in range(count):
            await activity(f"n{number}")
            yield number
    finally:
        await activity("clean-numbers")


async def gathers() -> Any:
    return await asyncio.gather(*(step(f"g{number}") for number in range(3)), return_exceptions=True)


async def groups() -> None:
    async def inner() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(step("i"))
            group.create_task(step("j"))

    async with asyncio.TaskGroup() as group:
        group.create_task(inner())
        group.create_task(step("k"))
        await asyncio.sleep(3)


async def timeouts() -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(5):
            await step("x", 20)
    await asyncio.wait_for(step("y"), 100)
    await asyncio.shield(step("z"))


async def completed() -> None:
    for awaited in asyncio.as_completed([step(f"c{number}") for number in range(3)], timeout=50):
        await awaited


async def synchronised() -> None:
    lock, event, condition = asyncio.Lock(), asyncio.Event(), asyncio.Condition()
    queue: asyncio.Queue[int] = asyncio.Queue(1)
    gate, barrier = asyncio.Semaphore(1), asyncio.Barrier(3)

    async def worker(number: int) -> None:
        async with lock, gate:
            await step(f"w{number}", 1)
        await barrier.wait()
        async with condition:
            await condition.wait()
        await queue.put(number)
        await event.wait()

    tasks = [asyncio.create_task(worker(number)) for number in range(3)]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED, timeout=60)


async def generators() -> None:
    async for number in numbers(3):
        if number == 1:
            break
    left = numbers(3)
    await anext(left)
    async with contextlib.aclosing(numbers(3)) as closing:
        async for _ in closing:
            await asyncio.sleep(1)


async def failed_and_not_awaited() -> None:
    async def fails() -> None:
        raise ValueError("nobody asks")

    tasks = [asyncio.create_task(fails()) for _ in range(2)]
    await activity("a")
    del tasks
    await activity("b")


async def coroutines_not_yet_awaited() -> None:
    for coro in [step("one"), step("two"), step("three")]:
        await coro


async def conditions() -> None:
    await asyncio.gather(current().loop.add_condition(lambda: False), step("c"))


async def not_started() -> None:
    task = asyncio.create_task(step("never"))
    await activity("a")
    await task


FLOWS: list[Flow] = [
    gathers,
    groups,
    timeouts,
    completed,
    synchronised,
    generators,
    failed_and_not_awaited,
    coroutines_not_yet_awaited,
    conditions,
    not_started,
]


def advance(run: Driven) -> bool:
    """Apply one event; whether there was one."""
    timers = run.loop.pending_timers()
    if run.pending:
        run.complete(next(iter(run.pending)))
    elif timers:
        run.fire(min(timers, key=lambda ref: (timers[ref], ref)))
    else:
        return False
    return True


@pytest.mark.parametrize(
    ("flow", "cancelled"),
    [(flow, False) for flow in FLOWS]
    # A run that goes on after a cancellation is told, as anywhere, of the coroutines it did not await.
    + [(flow, True) for flow in FLOWS if flow is not coroutines_not_yet_awaited],
)
def test_every_suspended_state(flow: Flow, cancelled: bool, noise: list[Any]) -> None:
    for events in range(60):
        run = Driven(flow)
        went_on = [advance(run) for _ in range(events)].count(False) == 0
        if cancelled and not run.task.done():
            run.cancel()
        coroutines = [task.get_coro() for task in run.loop.tasks()]
        before = list(run.log)
        run.close()
        assert run.log == before
        assert all(coro.cr_frame is None for coro in coroutines)
        assert run.loop not in _HELD
        if not went_on:
            break
    else:
        raise AssertionError("never came to an end")
    assert events > 1


def test_a_run_is_gone_from_memory() -> None:
    run = Driven(groups)
    loop = weakref.ref(run.loop)
    run.close()
    del run
    gc.collect()
    assert loop() is None


def test_a_run_dropped_without_eviction_is_kept_from_the_collector() -> None:
    run = Driven(groups)
    loop = weakref.ref(run.loop)
    del run
    gc.collect()
    left = loop()
    assert left is not None
    left.evict()


def test_newest_first_in_own_task_and_context(noise: list[Any]) -> None:
    var: contextvars.ContextVar[str] = contextvars.ContextVar("var")
    out: list[Any] = []

    async def child(name: str) -> None:
        var.set(name)
        try:
            await activity(name)
        finally:
            out.append((name, var.get(), asyncio.current_task().get_name(), type(sys.exception())))  # type: ignore[union-attr]

    async def main() -> None:
        var.set("main")
        try:
            async with asyncio.TaskGroup() as group:
                for name in "abc":
                    group.create_task(child(name), name=name)
        finally:
            out.append(("main", var.get(), [task.done() for task in asyncio.all_tasks()]))

    run = Driven(main)
    run.close()
    run.close()
    assert out == [*((name, name, name, Sealed) for name in "cba"), ("main", "main", [False])]
    assert run.task.cancelled()


def test_hostile_cleanup(noise: list[Any]) -> None:
    log: list[str] = []

    async def attempt(act: Callable[[], Any]) -> None:
        try:
            result = act()
            if asyncio.iscoroutine(result):
                await result
        except BaseException as error:
            log.append(type(error).__name__)

    async def child() -> None:
        try:
            await activity("k")
        finally:
            loop = current().loop
            await attempt(lambda: activity("never"))
            await attempt(lambda: asyncio.create_task(asyncio.sleep(1)))
            await attempt(lambda: loop.spawn(asyncio.sleep(1), loop.root))
            await attempt(lambda: asyncio.sleep(5))
            await attempt(lambda: loop.durable_future("x", note))
            await attempt(lambda: loop.add_condition(lambda: True))
            await attempt(lambda: asyncio.get_running_loop().call_later(1, note, 1))
            await attempt(lambda: asyncio.gather(asyncio.sleep(0), asyncio.sleep(0)))
            loop.call_soon(log.append, "never")
            await asyncio.Event().wait()

    async def main() -> None:
        task = asyncio.create_task(child())
        while True:
            try:
                await task
            except BaseException as error:
                log.append(type(error).__name__)
                if len(log) > 15:
                    return
            if task.done():
                await activity("again")

    run = Driven(main)
    run.close()
    assert log[:8] == ["Sealed"] * 8
    assert "never" not in log
    assert run.log == ["activity 0/1:a1 k"]


def test_what_cannot_be_closed_is_kept_and_quiet(noise: list[Any]) -> None:
    async def main() -> None:
        while True:
            try:
                await asyncio.Event().wait()
            except BaseException:
                continue

    async def hostile_generator() -> AsyncIterator[int]:
        while True:
            try:
                yield 1
                await asyncio.sleep(0)
            except BaseException:
                continue

    async def with_generator() -> None:
        await anext(hostile_generator())
        await main()

    for flow in (main, with_generator):
        run = Driven(flow)
        run.close()
        assert run.task.cancelled()


def test_cleanup_of_other_runs_is_not_touched(noise: list[Any]) -> None:
    one, two = Driven(groups, key=b"1"), Driven(groups, key=b"2")
    with two.loop.entered():
        one.close()
        assert asyncio.get_running_loop() is two.loop
    assert two.finish() is None
    two.close()


async def test_inside_a_running_loop(noise: list[Any]) -> None:
    run = Driven(generators)
    run.complete("0:a1")
    run.close()
    assert (await asyncio.gather(asyncio.sleep(0, "unharmed")))[0] == "unharmed"


def test_generators_are_closed_in_order_when_asked() -> None:
    async def traced(name: str) -> AsyncIterator[int]:
        try:
            yield 1
            yield 2
        finally:
            await activity(f"clean-{name}")
            if name == "b":
                raise ValueError("reported")

    async def main() -> None:
        for name in "abc":
            async for _ in traced(name):
                break
        await current().loop.shutdown_asyncgens()

    run = Driven(main)
    run.finish()
    assert [entry.rpartition(" ")[2] for entry in run.log] == ["clean-a", "clean-b", "clean-c"]
    assert [str(one["exception"]) for one in run.failures] == ["reported"]
    run.close()


def test_the_collector_decides_nothing() -> None:
    async def main() -> None:
        for _ in range(200):
            async for _ in numbers(2):
                break
        gc.collect()
        await activity("last")

    run = Driven(main)
    for _ in range(200):
        run.complete(next(iter(run.pending)))
    assert run.log[-1].endswith("last")
    assert not [entry for entry in run.log if "clean" in entry]
    run.close()
