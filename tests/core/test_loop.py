"""The workflow loop: order, time, addresses, conditions, and what it refuses."""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import math
import sys
from typing import Any

import pytest

from aioflow.core.branch import Branch
from aioflow.errors import NotDurable, WorkflowLivelock
from tests.core.loop_driver import Driven, activity, current, note, outcome


async def steps(name: str, count: int = 2) -> str:
    for number in range(count):
        await activity(f"{name}{number}")
    return name


# -- branches ---------------------------------------------------------------------------------------


def test_addresses() -> None:
    root = Branch("0")
    first, second = root.child(), root.child()
    assert [first.path, second.path, second.child().path] == ["0/1", "0/2", "0/2/1"]
    assert [second.command_id("a"), second.command_id("t"), second.command_id("a")] == [
        "0/2:a1",
        "0/2:t1",
        "0/2:a2",
    ]
    assert [root.child("pay").path, root.child("pay").path, root.child().path] == [
        "0/=pay",
        "0/=pay~2",
        "0/3",
    ]
    for name in ("", "a/b", "a:b", "=a", "a~2"):
        with pytest.raises(ValueError, match="branch name"):
            root.child(name)


def test_addresses_do_not_follow_the_order_of_completion() -> None:
    async def main() -> list[str]:
        return await asyncio.gather(steps("a", 3), steps("b"), asyncio.wait_for(steps("c"), 99))

    ids = set()
    for turn in range(6):
        run = Driven(main)
        while run.pending:
            run.complete(sorted(run.pending)[(turn * 7) % len(run.pending)])
        ids.add(tuple(sorted(run.log)))
        assert run.task.result() == ["a", "b", "c"]
        run.close()
    assert len(ids) == 1
    assert ("activity 0/3:a2 c1") in ids.pop()


# -- order and time ---------------------------------------------------------------------------------


def test_first_in_first_out() -> None:
    async def main() -> list[int]:
        loop, out = asyncio.get_running_loop(), []
        for number in range(5):
            loop.call_soon(out.append, number)
        loop.call_later(0, out.append, 5)
        loop.call_at(-1, out.append, 6)
        loop.call_soon(out.append, 99).cancel()
        await asyncio.sleep(0)
        return out

    assert outcome(main) == [0, 1, 2, 3, 4, 5, 6]


def test_time_only_moves_forward_and_timers_are_never_early() -> None:
    async def main() -> list[float]:
        loop = asyncio.get_running_loop()
        seen = [loop.time()]
        await asyncio.sleep(10)
        seen.append(loop.time())
        return seen

    run = Driven(main)
    assert run.log == ["timer 0:t1 10"]
    run.event(at=4)
    run.event(at=2)
    assert run.loop.now == run.loop.time() == 4
    assert run.fire("0:t9") == []
    run.fire("0:t1", at=5)  # recorded earlier than due: time moves to the due time
    assert run.task.result() == [0, 10]
    assert run.loop.fire_timer("0:t1") is False
    run.close()


def test_timer_started_and_cancelled() -> None:
    async def main() -> None:
        async with asyncio.timeout(5):
            await asyncio.sleep(0)
        async with asyncio.timeout(100) as limit:
            limit.reschedule(asyncio.get_running_loop().time() + 200)
            await activity("a")

    run = Driven(main)
    assert run.log == ["timer 0:t3 200", "activity 0:a1 a"]
    assert dict(run.loop.pending_timers()) == {"0:t3": 200.0}
    assert run.complete("0:a1") == ["cancel 0:t3"]
    assert dict(run.loop.pending_timers()) == {}
    run.close()


def test_timers_without_a_command() -> None:
    async def main() -> str:
        loop = asyncio.get_running_loop()
        assert loop.call_later(math.inf, note, "never").when() == math.inf
        with pytest.raises(ValueError, match="NaN"):
            loop.call_later(math.nan, note, "never")
        await asyncio.sleep(-3)
        return "done"

    run = Driven(main)
    assert (run.task.result(), run.log) == ("done", [])
    run.close()


def interrupt() -> None:
    raise KeyboardInterrupt


def test_callback_errors_go_to_the_host() -> None:
    async def main() -> str:
        loop = asyncio.get_running_loop()
        loop.call_soon(lambda: 1 / 0)
        loop.call_soon(sys.exit)
        loop.call_soon(interrupt)
        await asyncio.sleep(0)
        return "unharmed"

    run = Driven(main)
    assert run.task.result() == "unharmed"
    assert [type(one["exception"]) for one in run.failures] == [ZeroDivisionError, SystemExit, KeyboardInterrupt]
    assert "Exception in callback <Handle" in run.failures[0]["message"]
    run.close()


def test_ordinary_synchronisation() -> None:
    async def main() -> list[Any]:
        out: list[Any] = []
        lock, event, gate = asyncio.Lock(), asyncio.Event(), asyncio.Semaphore(2)
        condition, barrier = asyncio.Condition(), asyncio.Barrier(3)
        queue: asyncio.Queue[int] = asyncio.Queue(1)

        async def worker(number: int) -> None:
            async with lock:
                out.append(("lock", number))
                await asyncio.sleep(1)
            async with gate:
                await asyncio.sleep(1)
            await barrier.wait()
            await event.wait()
            async with condition:
                await condition.wait()
            await queue.put(number)

        tasks = [asyncio.create_task(worker(number)) for number in range(3)]
        await asyncio.sleep(10)
        event.set()
        await asyncio.sleep(0)
        async with condition:
            condition.notify_all()
        out.extend([await queue.get() for _ in tasks])
        out.append(await asyncio.shield(asyncio.create_task(asyncio.sleep(1, "shielded"))))
        done, pending = await asyncio.wait(tasks)
        return [*out, len(done), len(pending), asyncio.get_running_loop().time()]

    assert outcome(main) == [("lock", 0), ("lock", 1), ("lock", 2), 2, 0, 1, "shielded", 3, 0, 11.0]


# -- conditions -------------------------------------------------------------------------------------


def test_conditions_are_tried_in_order_one_at_a_time() -> None:
    async def main() -> None:
        state = {"tokens": 0}
        current().notes.append(state)

        async def take(name: str) -> None:
            assert await current().loop.add_condition(lambda: state["tokens"] > 0) is True
            state["tokens"] -= 1
            note(name)

        await asyncio.gather(take("first"), take("second"), take("third"))

    run = Driven(main)
    state = run.notes[0]
    run.event(lambda: state.update(tokens=1))
    assert run.notes[1:] == ["first"]
    run.event(lambda: state.update(tokens=2))
    assert run.notes[1:] == ["first", "second", "third"]
    assert run.task.done()
    run.close()


def test_condition_that_raises_or_is_given_up() -> None:
    async def main() -> list[Any]:
        state: dict[str, Any] = {"there": 1}
        current().notes.append(state)
        out: list[Any] = []
        try:
            await asyncio.wait_for(current().loop.add_condition(lambda: False), 5)
        except TimeoutError:
            out.append("timeout")
        try:
            await current().loop.add_condition(lambda: state["there"] != 1)
        except KeyError as error:
            out.append(repr(error))
        return out

    run = Driven(main)
    run.fire("0:t1")
    run.event(run.notes[0].clear)
    assert run.task.result() == ["timeout", "KeyError('there')"]
    run.close()


def test_condition_sees_the_context_of_its_branch() -> None:
    var: contextvars.ContextVar[int] = contextvars.ContextVar("var", default=0)

    async def main() -> int:
        var.set(7)
        await current().loop.add_condition(lambda: var.get() == 7)
        return var.get()

    assert outcome(main) == 7


# -- limits and refusals ----------------------------------------------------------------------------


async def spin() -> None:
    for _ in itertools.count():
        await asyncio.sleep(0)


def test_livelock() -> None:
    async def main() -> None:
        await asyncio.gather(*(spin() for _ in range(3)))

    with pytest.raises(WorkflowLivelock, match=r"200000 callbacks after one event.*branch=0/"):
        Driven(main)


def test_every_method_is_durable_or_refused() -> None:
    kept = {
        *("call_at", "call_exception_handler", "call_later", "call_soon", "create_future", "create_task"),
        *("default_exception_handler", "get_debug", "get_exception_handler", "get_task_factory"),
        *("is_closed", "is_running", "shutdown_asyncgens", "time"),
    }
    names = {name for name in dir(asyncio.AbstractEventLoop) if not name.startswith("_")}

    async def main() -> list[str]:
        loop, refused = asyncio.get_running_loop(), []
        for name in sorted(names - kept):
            with pytest.raises(NotDurable, match=rf"loop\.{name}\(\) cannot be replayed; in a workflow use "):
                getattr(loop, name)(1)
            refused.append(name)
        return refused

    refused = outcome(main)
    assert {"run_in_executor", "create_connection", "set_task_factory", "call_soon_threadsafe"} <= set(refused)


def test_refusal_reaches_the_helpers_of_asyncio() -> None:
    async def main() -> list[str]:
        out = []
        for make in (
            lambda: asyncio.open_connection("x", 1),
            lambda: asyncio.create_subprocess_exec("true"),
            lambda: asyncio.start_server(note, "x", 1),
        ):
            try:
                await make()
            except NotDurable as error:
                out.append(str(error).partition("(")[0])
        return out

    assert outcome(main) == ["loop.create_connection", "loop.subprocess_exec", "loop.create_server"]


def test_lock_shared_by_two_runs_is_a_typed_error_in_both() -> None:
    shared = asyncio.Lock()

    async def holder() -> None:
        async with shared:
            await activity("hold")

    async def waiter() -> None:
        async with shared:
            pass

    first, second = Driven(holder, key=b"1"), Driven(waiter, key=b"2")
    first.complete("0:a1")
    with pytest.raises(NotDurable, match="cannot be shared"):
        first.task.result()
    with pytest.raises(NotDurable, match="cannot be shared"):
        second.event()
    third = Driven(holder, key=b"3")  # the lock is free again, but bound to the second run
    fourth = Driven(waiter, key=b"4")
    with pytest.raises(NotDurable, match="belongs to another workflow"):
        fourth.task.result()
    for run in (first, second, third, fourth):
        run.close()


def test_seal_stops_a_drain() -> None:
    async def main() -> None:
        note("sealing")
        current().loop.seal()
        await asyncio.sleep(0)
        note("never")

    run = Driven(main)
    assert run.loop.sealed
    assert run.notes == ["sealing"]
    run.close()
    assert run.notes == ["sealing"]


def test_a_condition_that_keeps_coming_true_is_a_livelock() -> None:
    async def main() -> None:
        for _ in itertools.count():
            await current().loop.add_condition(lambda: True)

    with pytest.raises(WorkflowLivelock):
        Driven(main)
