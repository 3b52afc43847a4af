"""asyncio's names act as ours inside workflows, the same in every process; outside they are the originals."""

from __future__ import annotations

import asyncio
import inspect
import os
import subprocess
import sys
from asyncio import TaskGroup as EarlyGroup
from asyncio import as_completed as early_as_completed
from asyncio import gather as early_gather
from asyncio import wait_for as early_wait_for
from pathlib import Path
from typing import Any

import pytest

from aioflow.core import aio
from aioflow.errors import NotDurable
from tests.core.loop_driver import activity, outcome


async def step(name: str, count: int = 1, clean: bool = False) -> str:
    try:
        for number in range(count):
            await activity(f"{name}{number}")
        return name
    finally:
        if clean:
            await activity(f"clean-{name}")


async def later(delay: float, value: Any) -> Any:
    await asyncio.sleep(delay)
    if isinstance(value, Exception):
        raise value
    return value


# -- diversion --------------------------------------------------------------------------------------


def test_names_bound_early_are_ours_inside_only() -> None:
    async def main() -> list[str]:
        async with EarlyGroup() as group:
            group.create_task(later(0, 1))
        return [
            type(early_gather()).__name__,
            type(early_as_completed([])).__name__,
            await early_wait_for(later(0, "x"), 1),
        ]

    assert outcome(main) == ["_Gathering", "AsCompleted", "x"]
    gathered, completed, value = asyncio.run(main())
    assert (gathered, value) == ("Future", "x")
    assert completed != "AsCompleted"


def test_diverted_functions_look_the_same() -> None:
    aio.uninstall()
    try:
        before = {name: inspect.signature(getattr(asyncio, name)) for name in ("gather", "wait_for", "as_completed")}
        codes = asyncio.gather.__code__
    finally:
        aio.install()
    aio.install()
    assert {name: inspect.signature(getattr(asyncio, name)) for name in before} == before
    assert inspect.iscoroutinefunction(asyncio.wait_for)
    assert not inspect.iscoroutinefunction(asyncio.gather)
    assert asyncio.gather.__code__ is not codes
    assert asyncio.gather.__code__.co_name == "gather"
    with pytest.raises(TypeError, match="unexpected keyword"):
        asyncio.gather(wrong=1)  # type: ignore[call-overload]


async def test_outside_everything_is_the_original() -> None:
    try:
        async with asyncio.timeout(9), asyncio.TaskGroup() as group:
            group.create_task(later(0, ValueError("x")))
            assert type(group._tasks) is set
            await asyncio.wait_for(asyncio.Event().wait(), 9)
    except* ValueError:
        pass
    else:
        raise AssertionError("the failure of the child was lost")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.Event().wait(), 0)
    assert asyncio.current_task() in asyncio.all_tasks()
    lock = asyncio.Lock()
    async with lock:
        waiter = asyncio.ensure_future(lock.acquire())
        await asyncio.sleep(0)
    assert await waiter


def test_shared_members_are_a_typed_error() -> None:
    other = asyncio.new_event_loop()
    foreign: asyncio.Future[None] = other.create_future()

    async def main() -> list[str]:
        out = []
        for attempt in (asyncio.gather, lambda one: asyncio.as_completed([one])):
            try:
                await attempt(foreign)
            except NotDurable:
                out.append("refused")
        return out

    assert outcome(main) == ["refused", "refused"]
    other.close()


# -- the same order in every process ----------------------------------------------------------------

ORDERS = """
import asyncio
from tests.core.loop_driver import Driven, activity

async def step(name):
    try:
        await activity(name)
    finally:
        await activity("clean-" + name)

async def cancelled_group():
    async with asyncio.TaskGroup() as group:
        for number in range(8):
            group.create_task(step(str(number)))

async def first_completed():
    pending = {asyncio.create_task(step(str(number))) for number in range(8)}
    gathered = {asyncio.gather(step("x"), step("y")) for _ in range(3)}
    while pending:
        done, pending = await asyncio.wait(pending | gathered, return_when=asyncio.FIRST_COMPLETED)
        pending -= gathered
        gathered -= done
        for task in done:
            await activity("note")
        for task in pending:
            task.cancel()

async def completed():
    for awaited in asyncio.as_completed({step(str(number)) for number in range(1)} | {asyncio.sleep(1)}):
        await awaited
    for awaited in asyncio.as_completed([step(str(number)) for number in range(8)]):
        await awaited
        await activity("next")

for main in (cancelled_group, first_completed, completed):
    run = Driven(main, key=b"the same run")
    run.complete(list(run.pending)[3] if len(run.pending) > 3 else list(run.pending)[0])
    if main is cancelled_group:
        run.cancel()
    while not run.task.done():
        if run.pending:
            run.complete(list(run.pending)[-1])
        else:
            run.fire(list(run.loop.pending_timers())[0])
    run.close()
    print(main.__name__, *run.log, sep="\\n")
"""


def test_same_order_in_fresh_processes() -> None:
    root = Path(__file__).parents[2]
    printed = set()
    for seed in ("0", "1", "2", "33"):
        # Something of another size first, so that addresses differ too.
        command = [sys.executable, "-c", f"spread = [object() for _ in range(1{seed}0)]\n" + ORDERS]
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(root)}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=root)
        assert done.returncode == 0, done.stderr
        printed.add(done.stdout)
    assert len(printed) == 1
