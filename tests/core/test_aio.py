"""gather, wait_for, as_completed and wait inside workflows: 3.13's behaviour as literals."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

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
