"""A thread lent to runs of the workflow loop: nothing leaks, and runs do not meet."""

from __future__ import annotations

import asyncio
import contextvars
import sys
import threading

import pytest

from aioflow.core.branch import Branch
from aioflow.core.loop import WorkflowLoop
from aioflow.errors import NotDurable
from tests.core.loop_driver import Driven, activity, current, note, outcome


async def steps(name: str, count: int = 2) -> str:
    for number in range(count):
        await activity(f"{name}{number}")
    return name


# -- entering ---------------------------------------------------------------------------------------


def test_nothing_leaks_when_the_inside_fails() -> None:
    async def main() -> None:
        await activity("a")

    run = Driven(main)
    hooks = sys.get_asyncgen_hooks()

    def fail() -> None:
        with run.loop.entered():
            assert asyncio.get_running_loop() is run.loop
            assert run.loop.is_running()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert sys.get_asyncgen_hooks() == hooks
    assert not run.loop.is_running()
    with pytest.raises(RuntimeError, match="no running event loop"):
        asyncio.get_running_loop()
    with pytest.raises(RuntimeError, match="inside entered"):
        run.loop.drain()
    with pytest.raises(NotDurable):
        run.loop.call_soon(note, 1)
    run.close()


async def test_inside_a_running_loop() -> None:
    async def main() -> str:
        await asyncio.sleep(3)
        return await asyncio.wait_for(steps("a"), 5)

    outer, me = asyncio.get_running_loop(), asyncio.current_task()
    assert outcome(main) == "a"
    assert asyncio.get_running_loop() is outer
    assert asyncio.current_task() is me
    await asyncio.sleep(0)


def test_two_runs_interleaved_in_one_thread() -> None:
    async def main() -> list[str]:
        return await asyncio.gather(steps("a"), steps("b"))

    one, two = Driven(main, key=b"1"), Driven(main, key=b"2")
    for ref in ("0/1:a1", "0/2:a1", "0/2:a2", "0/1:a2"):
        one.complete(ref)
        two.complete(ref)
    assert one.task.result() == two.task.result() == ["a", "b"]
    assert one.log == two.log
    with one.loop.entered(), two.loop.entered():
        assert asyncio.get_running_loop() is two.loop
    one.close()
    two.close()


def test_runs_in_threads() -> None:
    async def main() -> list[str]:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(steps(str(number))) for number in range(5)]
        return [task.result() for task in tasks]

    logs: list[list[str]] = []

    def step() -> None:
        for number in range(20):
            run = Driven(main, key=str(number).encode())
            run.finish()
            run.close()
            logs.append(run.log)

    threads = [threading.Thread(target=step) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(logs) == 60
    assert all(log == logs[0] for log in logs)


def test_a_run_is_stepped_by_one_thread_at_a_time() -> None:
    async def main() -> None:
        await activity("a")

    run = Driven(main)
    problems: list[BaseException] = []

    def intrude() -> None:
        try:
            run.event()
        except RuntimeError as error:
            problems.append(error)

    with run.loop.entered():
        thread = threading.Thread(target=intrude)
        thread.start()
        thread.join()
    assert "being stepped by another thread" in str(problems[0])
    run.close()


def test_spawn_starts_from_an_empty_context() -> None:
    var: contextvars.ContextVar[str] = contextvars.ContextVar("var", default="unset")
    given = contextvars.copy_context()
    given.run(var.set, "given")

    async def look() -> str:
        return var.get()

    async def main() -> list[str]:
        loop = current().loop
        var.set("main")
        handler = loop.spawn(look(), Branch("h1"))
        other = loop.spawn(look(), Branch("h2"), given)
        return [await handler, await other, handler.branch.path]

    assert outcome(main) == ["unset", "given", "h1"]


def test_loop_tells_about_itself() -> None:
    async def main() -> None:
        await activity("a")

    run = Driven(main)
    assert isinstance(run.loop, WorkflowLoop)
    assert repr(run.loop) == "<WorkflowLoop open now=0.0 branches=1>"
    assert run.loop.get_debug() is run.loop.is_closed() is False
    run.close()
    assert run.loop.is_closed()
    assert "evicted" in repr(run.loop)
