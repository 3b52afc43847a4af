"""Tasks and futures of a run: CPython 3.13's semantics, as literals, on every Python."""

from __future__ import annotations

import asyncio
import contextvars
import sys
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from aioflow.core.loop import Sealed
from aioflow.core.private import missing_private_names, verify_private_names
from aioflow.core.tasks import Task
from aioflow.errors import ConfigurationError, NotDurable
from tests.core.loop_driver import Driven, activity, note, outcome

Program = Callable[[list[Any]], Coroutine[Any, Any, Any]]


def test_private_names_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    verify_private_names()
    monkeypatch.delattr(asyncio.TaskGroup, "_abort")
    assert missing_private_names() == ["asyncio.TaskGroup._abort"]
    with pytest.raises(ConfigurationError, match=r"asyncio\.TaskGroup\._abort"):
        verify_private_names()


def test_task_passes_for_one_of_asyncio() -> None:
    async def main() -> list[Any]:
        task = asyncio.current_task()
        child = asyncio.create_task(asyncio.sleep(0, "x"), name="named")
        everything = [one.get_name() for one in asyncio.all_tasks()]
        assert isinstance(task, asyncio.Task)
        assert isinstance(task, asyncio.Future)
        assert asyncio.isfuture(task)
        assert type(task) is Task
        return [task.get_name(), child.get_name(), everything, await child, repr(child)]

    run = Driven(main)
    assert run.finish() == ["0", "named", ["0", "named"], "x", "<Task 'named' finished branch=0/1>"]
    assert run.task not in asyncio.tasks.__dict__.get("_scheduled_tasks", asyncio.tasks.__dict__.get("_all_tasks"))
    run.close()


def test_hash_comes_from_the_run_key() -> None:
    async def main() -> list[int]:
        tasks = [asyncio.create_task(asyncio.sleep(0)) for _ in range(3)]
        return [hash(one) for one in [*tasks, asyncio.get_running_loop().create_future()]]

    first, again, other = (Driven(main, key=key) for key in (b"one", b"one", b"two"))
    assert first.task.result() == again.task.result() != other.task.result()
    assert hash(first.task) == 8762830113823569
    assert first.task.result() == [8762830113823570, 8762830113823571, 8762830113823572, 8762830113823573]
    for run in (first, again, other):
        run.close()


# -- programs that run the same on the loop and, with 3.13's tasks, on asyncio's own -----------------


async def swallow_then_end(out: list[Any]) -> None:
    async def stubborn() -> str:
        try:
            await asyncio.sleep(0)
            await asyncio.Event().wait()
        except asyncio.CancelledError as error:
            out.append(("caught", error.args, asyncio.current_task().cancelling()))  # type: ignore[union-attr]
        return "survived"

    task = asyncio.create_task(stubborn())
    await asyncio.sleep(0)
    out.append(task.cancel("first"))
    out.append(await task)
    out.append((task.cancelling(), task.cancelled(), task.cancel(), task.done()))


async def cancel_before_start(out: list[Any]) -> None:
    async def never() -> None:
        out.append("started")

    task = asyncio.create_task(never())
    task.cancel("early")
    try:
        await task
    except asyncio.CancelledError as error:
        out.append(("cancelled", error.args, task.cancelled()))


async def uncancel_clears_what_is_not_delivered(out: list[Any]) -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    out.append(task.uncancel())
    await asyncio.sleep(0)
    out.append("not delivered")
    task.cancel()
    task.cancel()
    out.append(task.uncancel())
    try:
        await asyncio.sleep(0)
    except asyncio.CancelledError:
        out.append(("delivered", task.cancelling(), task.uncancel()))


async def cancel_as_it_ends(out: list[Any]) -> None:
    async def ends() -> str:
        asyncio.current_task().cancel("late")  # type: ignore[union-attr]
        return "result"

    task = asyncio.create_task(ends())
    await asyncio.wait([task])
    out.append(task.cancelled())
    try:
        task.result()
    except asyncio.CancelledError as error:
        out.append(error.args)


async def cancel_an_awaited_task(out: list[Any]) -> None:
    async def inner() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            out.append("inner")
            await asyncio.sleep(0)
            raise

    async def outer(task: asyncio.Task[None]) -> None:
        try:
            await task
        except asyncio.CancelledError:
            out.append("outer")
            raise

    first = asyncio.create_task(inner())
    second = asyncio.create_task(outer(first))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.wait([first, second])
    out.append((first.cancelled(), second.cancelled(), first.cancelling(), second.cancelling()))


async def cancel_when_the_waiter_is_done(out: list[Any]) -> None:
    future = asyncio.get_running_loop().create_future()

    async def waits() -> None:
        try:
            out.append(await future)
        except asyncio.CancelledError:
            out.append("cancel wins")
            raise

    task = asyncio.create_task(waits())
    await asyncio.sleep(0)
    future.set_result("resolved")
    out.append(task.cancel())
    await asyncio.wait([task])
    out.append(task.cancelled())


async def wrong_yields(out: list[Any]) -> None:
    class Yields:
        def __init__(self, what: Any) -> None:
            self.what = what

        def __await__(self) -> Any:
            yield self.what

    me = asyncio.current_task()
    for what in (1, me, (one for one in ())):
        try:
            await Yields(what)
        except RuntimeError as error:
            out.append(str(error).replace(repr(me), "task").replace(repr(what), "…")[:60])
    try:
        await me  # type: ignore[misc]
    except RuntimeError as error:
        out.append(str(error).replace(repr(me), "task"))


PROGRAMS: list[tuple[Program, list[Any]]] = [
    (swallow_then_end, [True, ("caught", ("first",), 1), "survived", (1, False, False, True)]),
    (cancel_before_start, [("cancelled", ("early",), True)]),
    (uncancel_clears_what_is_not_delivered, [0, "not delivered", 1, ("delivered", 1, 0)]),
    (cancel_as_it_ends, [True, ("late",)]),
    (cancel_an_awaited_task, ["inner", "outer", (True, True, 1, 1)]),
    (cancel_when_the_waiter_is_done, [True, "cancel wins", True]),
    (
        wrong_yields,
        [
            "Task got bad yield: …",
            "yield was used instead of yield from in task task with task",
            "yield was used instead of yield from for generator in task t",
            "Task cannot await on itself: task",
        ],
    ),
]


@pytest.mark.parametrize(("program", "expected"), PROGRAMS, ids=lambda one: getattr(one, "__name__", ""))
def test_semantics(program: Program, expected: list[Any]) -> None:
    out: list[Any] = []
    outcome(program, out)
    assert out == expected


@pytest.mark.skipif(sys.version_info < (3, 13), reason="older tasks differ, which is why there is one of our own")
@pytest.mark.parametrize(("program", "expected"), PROGRAMS, ids=lambda one: getattr(one, "__name__", ""))
def test_semantics_are_those_of_3_13(program: Program, expected: list[Any]) -> None:
    out: list[Any] = []
    asyncio.run(program(out))
    if program is not wrong_yields:
        assert out == expected


def test_exceptions_keep_their_identity() -> None:
    error = ValueError("x")

    async def fails() -> None:
        raise error

    async def main() -> bool:
        task = asyncio.create_task(fails())
        try:
            await task
        except ValueError as caught:
            return caught is error is task.exception()
        return False

    assert outcome(main)


def test_cancelled_error_of_a_task_is_its_own() -> None:
    async def main() -> bool:
        mine = asyncio.CancelledError("mine")

        async def raises() -> None:
            raise mine

        task = asyncio.create_task(raises())
        try:
            await task
        except asyncio.CancelledError as caught:
            return caught is mine and task.cancelled()
        return False

    assert outcome(main)


def test_stop_iteration_becomes_a_runtime_error() -> None:
    async def main() -> str:
        future = asyncio.get_running_loop().create_future()
        future.set_exception(StopIteration("x"))
        try:
            await future
        except RuntimeError as error:
            return repr(error.__cause__)
        return ""

    assert outcome(main) == "StopIteration('x')"


class Own(BaseException):
    pass


ENDING = pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, GeneratorExit, Own])


@ENDING
def test_what_would_end_a_program_stays_inside(kind: type[BaseException]) -> None:
    async def main() -> None:
        await activity("a")
        raise kind

    run = Driven(main)
    run.complete("0:a1")
    assert isinstance(run.task.exception(), kind)
    run.close()


@ENDING
def test_a_condition_that_would_end_a_program_fails_its_waiter(kind: type[BaseException]) -> None:
    def ends() -> bool:
        raise kind

    async def main() -> str:
        loop: Any = asyncio.get_running_loop()
        try:
            await loop.add_condition(ends)
        except kind:
            return "caught"
        return ""

    run = Driven(main)
    assert run.task.result() == "caught"
    run.close()


def test_foreign_future_is_a_typed_error() -> None:
    other = asyncio.new_event_loop()
    future: asyncio.Future[None] = other.create_future()

    async def main() -> None:
        await future

    run = Driven(main)
    with pytest.raises(NotDurable, match="cannot be shared"):
        run.task.result()
    run.close()
    other.close()


def test_eager_start_is_refused() -> None:
    async def main() -> None:
        asyncio.get_running_loop().create_task(asyncio.sleep(0), eager_start=True)  # type: ignore[call-arg]

    run = Driven(main)
    with pytest.raises(NotDurable, match="eager"):
        run.task.result()
    run.close()


def test_not_a_coroutine() -> None:
    async def main() -> str:
        try:
            await asyncio.create_task(asyncio.get_running_loop().create_future())  # type: ignore[arg-type]
        except TypeError as error:
            return str(error)[:24]
        return ""

    assert outcome(main) == "a coroutine was expected"


def test_stack_follows_what_is_awaited() -> None:
    async def inner() -> None:
        await activity("a")

    async def main() -> None:
        await inner()

    run = Driven(main)
    assert [frame.f_code.co_name for frame in run.task.get_stack()] == ["main", "inner", "activity"]
    assert [frame.f_code.co_name for frame in run.task.get_stack(limit=1)] == ["activity"]
    ((path, frames),) = run.loop.stacks()
    assert path == "0"
    assert [frame.name.rpartition(".")[2] for frame in frames] == ["main", "inner", "activity"]
    run.complete("0:a1")
    assert run.task.get_stack() == []
    run.close()


def test_context_of_a_task() -> None:
    var: contextvars.ContextVar[str] = contextvars.ContextVar("var", default="unset")
    var.set("of the caller")

    async def child() -> str:
        seen = var.get()
        var.set("of the child")
        return seen

    async def main() -> list[str]:
        seen = [var.get()]
        var.set("of main")
        seen.append(await asyncio.create_task(child()))
        seen.append(var.get())
        return seen

    assert outcome(main) == ["unset", "of main", "of main"]
    assert var.get() == "of the caller"


def test_cancelled_durable_future_reports_once_and_first() -> None:
    async def main() -> None:
        try:
            await activity("a")
        except asyncio.CancelledError:
            note("cancelled")
            asyncio.current_task().uncancel()  # type: ignore[union-attr]
        await activity("b")

    run = Driven(main)
    future = run.pending["0:a1"]
    assert run.cancel() == ["cancel 0:a1", "activity 0:a2 b"]
    assert future.cancel() is False
    run.loop.seal()
    assert run.pending["0:a2"].cancel() is True
    with pytest.raises(Sealed):
        run.loop.current_branch()
    run.close()
