"""asyncio's helpers inside workflows: 3.13's behaviour as literals; outside, the originals."""

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
from tests.core.loop_driver import Driven, activity, note, outcome


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


# -- gather -----------------------------------------------------------------------------------------


def test_gather_gives_results_in_order_and_duplicates_once() -> None:
    async def main() -> list[Any]:
        coro = later(3, "slow")
        future = asyncio.ensure_future(later(1, "quick"))
        out: list[Any] = await asyncio.gather(coro, future, coro, future)
        out.append(await asyncio.gather())
        error = ValueError("x")
        out.append(await asyncio.gather(later(1, error), later(2, 2), return_exceptions=True) == [error, 2])
        return out

    assert outcome(main) == ["slow", "quick", "slow", "quick", [], True]


def test_gather_of_members_already_done_takes_no_pass() -> None:
    async def main() -> list[bool]:
        loop = asyncio.get_running_loop()
        done, failed = loop.create_future(), loop.create_future()
        done.set_result(1)
        failed.set_exception(ValueError("x"))
        gathered = asyncio.gather(done, done)
        broken = asyncio.gather(done, failed)
        seen = [gathered.done(), broken.done(), isinstance(broken.exception(), ValueError)]
        seen.append(await gathered == [1, 1])
        return seen

    assert outcome(main) == [True, True, True, True]


def test_gather_leaves_siblings_running_after_a_failure() -> None:
    async def main() -> list[Any]:
        sibling = asyncio.create_task(later(5, "finished"))
        try:
            await asyncio.gather(later(1, ValueError("x")), sibling, later(3, KeyError("seen too")))
        except ValueError as error:
            return [str(error), sibling.done(), await sibling, asyncio.get_running_loop().time()]
        return []

    assert outcome(main) == ["x", False, "finished", 5.0]


@pytest.mark.parametrize("return_exceptions", [False, True])
def test_cancelled_gather_cancels_its_members_in_order(return_exceptions: bool) -> None:
    async def main() -> None:
        try:
            await asyncio.gather(
                *(step(f"g{number}", clean=True) for number in range(4)), return_exceptions=return_exceptions
            )
        except asyncio.CancelledError:
            note("cancelled")
            raise

    run = Driven(main)
    assert run.cancel() == [
        "cancel 0/1:a1",
        "cancel 0/2:a1",
        "cancel 0/3:a1",
        "cancel 0/4:a1",
        "activity 0/1:a2 clean-g0",
        "activity 0/2:a2 clean-g1",
        "activity 0/3:a2 clean-g2",
        "activity 0/4:a2 clean-g3",
    ]
    for number in (2, 1, 4, 3):
        run.complete(f"0/{number}:a2")
    assert run.task.cancelled()
    assert run.notes == ["cancelled"]
    run.close()


def test_gather_with_a_cancelled_member() -> None:
    async def main() -> list[Any]:
        task = asyncio.create_task(later(9, "never"))
        asyncio.get_running_loop().call_later(1, task.cancel, "why")
        mixed = await asyncio.gather(task, later(2, 2), return_exceptions=True)
        outer = asyncio.gather(later(9, 1), asyncio.create_task(later(9, 2)))
        out = [type(mixed[0]).__name__, mixed[0].args, mixed[1], outer.cancelled()]
        outer.cancel()
        try:
            await outer
        except asyncio.CancelledError:
            out.append("cancelled")
        return out

    assert outcome(main) == ["CancelledError", ("",), 2, False, "cancelled"]


# -- wait_for ---------------------------------------------------------------------------------------


def test_wait_for_makes_no_branch() -> None:
    async def main() -> list[Any]:
        return [await asyncio.wait_for(step("a", 2), 5), await asyncio.wait_for(later(1, "x"), None)]

    run = Driven(main)
    assert run.finish() == ["a", "x"]
    assert run.log == [
        "timer 0:t1 5",
        "activity 0:a1 a0",
        "activity 0:a2 a1",
        "cancel 0:t1",
        "timer 0:t2 1",
    ]
    run.close()


def test_wait_for_times_out() -> None:
    async def main() -> list[Any]:
        out: list[Any] = []
        for timeout in (1, 0, -1):
            try:
                out.append(await asyncio.wait_for(step("a", clean=timeout > 0), timeout))
            except TimeoutError as error:
                out.append((type(error.__cause__).__name__, asyncio.current_task().cancelling()))  # type: ignore[union-attr]
        done = asyncio.get_running_loop().create_future()
        done.set_result("at hand")
        out.append(await asyncio.wait_for(done, 0))
        return out

    run = Driven(main)
    assert run.log == ["timer 0:t1 1", "activity 0:a1 a0"]
    assert run.fire("0:t1") == ["cancel 0:a1", "activity 0:a2 clean-a"]
    run.complete("0:a2")
    assert run.task.result() == [("CancelledError", 0)] * 3 + ["at hand"]
    run.close()


def test_cancellation_and_timeout_in_one_event() -> None:
    async def main() -> str:
        try:
            await asyncio.wait_for(step("a"), 5)
        except TimeoutError:
            return "timeout"
        except asyncio.CancelledError:
            note("cancelled")
            raise
        return "done"

    async def resolved() -> str:
        return await main()

    run = Driven(main)
    run.event(lambda: (run.loop.fire_timer("0:t1"), run.task.cancel()))
    assert run.task.cancelled()  # the cancellation from outside is not swallowed by the timeout
    assert run.notes == ["cancelled"]
    run.close()
    run = Driven(resolved)
    run.event(lambda: (run.pending["0:a1"].set_result(1), run.loop.fire_timer("0:t1")))
    assert run.task.result() == "done"  # a result that was first stands
    run.close()
    run = Driven(main)
    run.event(lambda: (run.pending["0:a1"].set_result(1), run.task.cancel()))
    assert run.task.cancelled()  # a cancellation in the event of the completion is not lost
    run.close()


# -- as_completed and wait --------------------------------------------------------------------------


def test_as_completed_both_ways() -> None:
    async def main() -> list[Any]:
        out: list[Any] = []
        for awaited in asyncio.as_completed([later(delay, delay) for delay in (3, 1, 2)]):
            out.append(await awaited)
        tasks = [asyncio.create_task(later(delay, delay)) for delay in (3, 1, 2)]
        async for task in asyncio.as_completed(tasks):  # type: ignore[attr-defined]
            out.append(tasks.index(task))
        try:
            for awaited in asyncio.as_completed([later(1, "in time"), later(5, "late")], timeout=2):
                out.append(await awaited)
        except TimeoutError:
            out.append("timeout")
        with pytest.raises(TypeError, match="iterable of awaitables"):
            asyncio.as_completed(tasks[0])  # type: ignore[arg-type]
        return out

    assert outcome(main) == [1, 2, 3, 1, 2, 0, "in time", "timeout"]


def test_wait_first_completed() -> None:
    async def main() -> list[Any]:
        pending: set[asyncio.Task[str]] = {asyncio.create_task(step(str(number))) for number in range(5)}
        out = []
        while pending:
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED, timeout=9)
            out.append(sorted(task.result() for task in done))
        return out

    run = Driven(main)
    run.event(lambda: [run.pending[f"0/{number}:a1"].set_result(None) for number in (2, 4)])
    for number in (1, 3, 5):
        run.complete(f"0/{number}:a1")
    assert run.task.result() == [["1", "3"], ["0"], ["2"], ["4"]]
    run.close()


# -- task groups ------------------------------------------------------------------------------------


def test_group_cancels_siblings_in_order_and_collects_failures() -> None:
    async def main() -> Any:
        try:
            async with asyncio.TaskGroup() as group:
                for number in range(8):
                    group.create_task(step(f"t{number}", clean=True))
        except* ValueError as caught:
            note([str(error) for error in caught.exceptions])
        note(asyncio.current_task().cancelling())  # type: ignore[union-attr]

    run = Driven(main)
    others = [1, 2, 3, 5, 6, 7, 8]
    assert run.fail("0/4:a1", ValueError("four")) == ["activity 0/4:a2 clean-t3"]
    assert run.complete("0/4:a2") == [
        *(f"cancel 0/{number}:a1" for number in others),
        *(f"activity 0/{number}:a2 clean-t{number - 1}" for number in others),
    ]
    run.fail("0/7:a2", ValueError("seven"))
    for number in (8, 5, 3, 6, 1, 2):
        run.complete(f"0/{number}:a2")
    assert run.task.result() is None
    assert run.notes == [["four", "seven"], 0]
    run.close()


def test_parent_cancelled_while_a_child_fails() -> None:
    """Before 3.13 the cancellation of the parent was swallowed here."""

    async def main() -> str:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(step("child"))
                await step("body")
        except* ValueError:
            note(("group", asyncio.current_task().cancelling()))  # type: ignore[union-attr]
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            note("still cancelled")
            raise
        return "swallowed"

    run = Driven(main)
    run.event(lambda: (run.pending["0/1:a1"].set_exception(ValueError("x")), run.task.cancel()))
    assert run.notes == [("group", 1), "still cancelled"]
    assert run.task.cancelled()
    run.close()


def test_nested_groups_with_a_parent_cancel_that_meets_a_failing_child() -> None:
    async def inner(name: str) -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(2):
                group.create_task(step(f"{name}{number}-", clean=number == 0))

    async def main() -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for name in "ab":
                    group.create_task(inner(name))
                await asyncio.sleep(3)
        except* ValueError as caught:
            note(str(caught))
        finally:
            note(asyncio.current_task().cancelling())  # type: ignore[union-attr]

    run = Driven(main)
    assert run.log[0] == "timer 0:t1 3"
    commands = run.event(lambda: (run.pending["0/1/2:a1"].set_exception(ValueError("a1")), run.task.cancel()))
    assert commands == [
        "cancel 0:t1",
        "cancel 0/1/1:a1",
        "cancel 0/2/1:a1",
        "cancel 0/2/2:a1",
        "activity 0/1/1:a2 clean-a0-",
        "activity 0/2/1:a2 clean-b0-",
    ]
    run.complete("0/2/1:a2")
    run.complete("0/1/1:a2")
    assert run.task.done()
    assert run.notes == ["unhandled errors in a TaskGroup (1 sub-exception)", 1]
    run.close()


def test_group_refuses_as_3_13_does() -> None:
    async def main() -> list[str]:
        out = []
        group = asyncio.TaskGroup()
        try:
            group.create_task(later(1, 1))
        except RuntimeError as error:
            out.append(str(error))
        async with group:
            task = group.create_task(later(1, 1), name="named")
        out.append(task.get_name())
        try:
            group.create_task(later(1, 1))
        except RuntimeError as error:
            out.append(str(error))
        try:
            async with group:
                pass
        except RuntimeError as error:
            out.append(str(error))
        return out

    assert outcome(main) == [
        "TaskGroup <TaskGroup> has not been entered",
        "named",
        "TaskGroup <TaskGroup entered> is finished",
        "TaskGroup <TaskGroup entered> has already been entered",
    ]


def test_subclass_of_task_group() -> None:
    class Counting(asyncio.TaskGroup):
        count = 0

        def create_task(self, coro: Any, **options: Any) -> Any:
            self.count += 1
            return super().create_task(coro, **options)

    async def main() -> int:
        async with Counting() as group:
            group.create_task(later(1, 1))
            group.create_task(later(2, 2))
        return group.count

    assert outcome(main) == 2
    assert asyncio.run(main_with_short_waits(Counting)) == 2


async def main_with_short_waits(group_type: type[Any]) -> int:
    async with group_type() as group:
        group.create_task(later(0, 1))
        group.create_task(later(0, 2))
    return int(group.count)


def test_system_exit_of_a_member_is_raised_by_the_group() -> None:
    async def leave() -> None:
        raise SystemExit(2)

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(leave())
            await asyncio.sleep(9)

    run = Driven(main)
    error = run.task.exception()
    assert isinstance(error, SystemExit)
    assert error.code == 2
    run.close()


# -- timeouts ---------------------------------------------------------------------------------------


def test_timeout_shows_in_what_its_cancellation_caused() -> None:
    async def main() -> str:
        try:
            async with asyncio.timeout(1):
                try:
                    await asyncio.sleep(9)
                finally:
                    raise ValueError("while cancelling")
        except ValueError as error:
            return f"{type(error.__context__).__name__} {asyncio.current_task().cancelling()}"  # type: ignore[union-attr]
        return ""

    assert outcome(main) == "TimeoutError 0"


def test_nested_timeouts_and_a_group() -> None:
    async def main() -> list[str]:
        out = []
        try:
            async with asyncio.timeout(10), asyncio.TaskGroup() as group:
                group.create_task(later(99, 1))
                try:
                    async with asyncio.timeout(5):
                        await asyncio.sleep(99)
                except TimeoutError:
                    out.append("inner")
                await asyncio.sleep(99)
        except TimeoutError:
            out.append("outer")
        return [*out, str(asyncio.get_running_loop().time())]

    assert outcome(main) == ["inner", "outer", "10.0"]


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
        before = {
            name: inspect.signature(getattr(asyncio, name)) for name in ("gather", "wait_for", "as_completed")
        }
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
