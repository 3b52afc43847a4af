"""anyio's task groups and cancel scopes inside workflows."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import anyio
import anyio._backends._asyncio
import pytest

from aioflow.core import scopes
from aioflow.core.ordered import OrderedSet
from tests.core.loop_driver import Driven, activity, note, outcome


@pytest.fixture(autouse=True)
def installed() -> Iterator[None]:
    assert scopes.install()
    assert scopes.install()
    yield
    scopes.uninstall()


async def step(name: str, clean: bool = False) -> None:
    try:
        await activity(name)
    finally:
        if clean:
            with anyio.CancelScope(shield=True):
                await activity(f"clean-{name}")


def test_group_is_cancelled_in_order() -> None:
    async def main() -> None:
        async with anyio.create_task_group() as group:
            for name in "abcdefgh":
                group.start_soon(step, name, True)
            await activity("body")
            group.cancel_scope.cancel()

    run = Driven(main)
    assert run.complete("0:a1") == [
        *(f"cancel 0/{number}:a1" for number in range(1, 9)),
        *(f"activity 0/{number}:a2 clean-{name}" for number, name in enumerate("abcdefgh", 1)),
    ]
    assert run.finish() is None
    run.close()


def test_failing_member_and_the_outer_cancellation() -> None:
    async def main() -> None:
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(step, "a", True)
                group.start_soon(step, "b")
        except* ValueError as caught:
            note(str(caught.exceptions[0]))

    run = Driven(main)
    assert run.fail("0/2:a1", ValueError("b")) == ["cancel 0/1:a1", "activity 0/1:a2 clean-a"]
    run.complete("0/1:a2")
    assert run.notes == ["b"]
    assert run.task.exception() is None
    run.close()
    run = Driven(main)
    run.cancel()
    run.complete("0/1:a2")
    assert run.task.cancelled()
    run.close()


def test_time_limits() -> None:
    async def main() -> list[object]:
        out: list[object] = []
        with anyio.move_on_after(3) as scope:
            await anyio.sleep(9)
        out.append(scope.cancelled_caught)
        try:
            with anyio.fail_after(1):
                await anyio.sleep_forever()
        except TimeoutError:
            out.append("timeout")
        with anyio.move_on_after(5) as scope:
            await anyio.sleep(1)
        return [*out, scope.cancelled_caught, anyio.current_time()]

    assert outcome(main) == [True, "timeout", False, 5.0]


def test_scope_around_a_group_of_asyncio_is_parked_between_events() -> None:
    async def child() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await activity("cleanup")

    async def main() -> bool:
        with anyio.move_on_after(3) as scope:
            async with asyncio.TaskGroup() as group:
                group.create_task(child())
        return scope.cancelled_caught

    run = Driven(main)
    assert run.fire("0:t1") == ["activity 0/1:a1 cleanup"]
    assert not run.task.done()
    assert ["_deliver_cancellation" in repr(handle) for handle in run.loop.parked()] == [True]
    run.event()
    run.complete("0/1:a1")
    assert run.task.result() is True
    run.close()


def test_locks_events_and_streams() -> None:
    async def main() -> list[object]:
        send, receive = anyio.create_memory_object_stream[int](0)
        event, lock, limiter = anyio.Event(), anyio.Lock(), anyio.CapacityLimiter(1)
        out: list[object] = []

        async def producer(*, task_status: anyio.abc.TaskStatus[str]) -> None:
            task_status.started("ready")
            async with send, lock:
                for number in range(3):
                    await anyio.sleep(1)
                    await send.send(number)
            event.set()

        async with anyio.create_task_group() as group:
            out.append(await group.start(producer))
            async with receive, limiter:
                out.extend([number async for number in receive])
            await event.wait()
        return out

    assert outcome(main) == ["ready", 0, 1, 2]


def test_evicted_scopes_are_quiet() -> None:
    async def main() -> None:
        with anyio.move_on_after(50):
            async with anyio.create_task_group() as group:
                group.start_soon(step, "a", True)
                await anyio.sleep_forever()

    run = Driven(main)
    before = list(run.log)
    run.close()
    assert run.log == before


async def test_outside_scopes_keep_their_sets() -> None:
    async with anyio.create_task_group() as group:
        assert type(group.cancel_scope._child_scopes) is set  # type: ignore[attr-defined]
        group.start_soon(anyio.sleep, 0)

    async def main() -> bool:
        return isinstance(anyio.CancelScope()._child_scopes, OrderedSet)  # type: ignore[attr-defined]

    assert await anyio.to_thread.run_sync(outcome, main)


def test_same_order_in_fresh_processes() -> None:
    script = (
        "import anyio, anyio._backends._asyncio\n"
        "from aioflow.core import scopes\n"
        "from tests.core.test_loop_anyio import Driven, step, activity\n"
        "scopes.install()\n"
        "async def main():\n"
        "    async with anyio.create_task_group() as outer:\n"
        "        async with anyio.create_task_group() as group:\n"
        "            for name in 'abcdefgh':\n"
        "                (outer if name in 'bd' else group).start_soon(step, name, True)\n"
        "run = Driven(main)\n"
        "run.fail('0/5:a1', ValueError('x'))\n"
        "print(run.log)\n"
    )
    root = Path(__file__).parents[2]
    printed = set()
    for seed in "123":
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(root)}
        command = [sys.executable, "-c", f"spread = [object() for _ in range({seed}00)]\n{script}"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=root)
        assert done.returncode == 0, done.stderr
        printed.add(done.stdout)
    assert len(printed) == 1
