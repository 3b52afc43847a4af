"""Task groups and timeouts inside workflows: 3.13's behaviour as literals."""

from __future__ import annotations

import asyncio
from typing import Any

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
