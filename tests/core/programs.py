"""Workflow programs as plain data, and the one workflow that runs them.

A program is a block: a list of steps, each ``[name, *arguments]``, where an argument may be a block again. Whatever a
branch sees it notes in ``log``, which is the result of the run, so two runs that agree saw the same in the same order.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable
from typing import Any
from zlib import crc32

from aioflow import (
    ActivityError,
    ApplicationError,
    RemoteError,
    RetryPolicy,
    Workflow,
    activity,
    all_,
    any_,
    await_condition,
    await_signal,
    now,
    query,
    rng,
    side_effect,
    signal,
    timer,
    uuid4,
    uuid7,
    workflow_info,
)
from aioflow.core.current import current

Block = list[list[Any]]

FEATURES: Counter[str] = Counter()
"""How often live code came to each step, and how it went on there."""


@activity.defn
async def fast(x: int) -> int:
    return x


@activity.defn(retry=RetryPolicy(max_attempts=3), start_to_close=30)
async def slow(x: int) -> int:
    return x


@activity.defn
def plain(x: int) -> str:
    return str(x)


class Program(Workflow, name="program"):
    def __init__(self) -> None:
        self.log: list[Any] = []
        self.pokes = 0
        self.tasks: dict[int, asyncio.Task[None]] = {}
        self.events = [asyncio.Event() for _ in range(2)]
        self.locks = [asyncio.Lock() for _ in range(2)]
        self.semaphores = [asyncio.Semaphore(1), asyncio.Semaphore(2)]
        self.conditions = [asyncio.Condition() for _ in range(2)]
        self.queues: list[asyncio.Queue[int]] = [asyncio.Queue(1), asyncio.Queue()]

    async def handle(self, program: Block) -> Any:
        await self.run(program)
        return self.log

    @signal
    def poke(self, n: int) -> None:
        self.pokes += n
        self.note("poke", n)

    @signal
    async def work(self, n: int) -> None:
        self.note("work", await fast(n))
        self.pokes += 1

    @signal
    def boom(self, text: str) -> None:
        self.note("boom")
        raise ApplicationError(text)

    @query
    def seen(self) -> Any:
        return self.log

    def note(self, what: str, value: Any = None) -> None:
        context, task = current(), asyncio.current_task()
        assert context is not None
        assert task is not None
        if not context.replaying:
            FEATURES[what] += 1
        self.log.append([task.get_name(), what, value])

    async def run(self, block: Block) -> None:
        for name, *arguments in block:
            await getattr(self, "do_" + name)(*arguments)

    # -- durable helpers --------------------------------------------------------------------------

    async def do_activity(self, n: int) -> None:
        try:
            self.note("activity", await activity(fast, n))
        except ActivityError as error:
            self.note("activity error", [type(error).__name__, error.type, error.message])

    async def do_call(self, n: int) -> None:
        self.note("call", await slow(n))

    async def do_plain(self, n: int) -> None:
        self.note("plain", await activity(plain.options(queue="other", heartbeat=5), n))

    async def do_timer(self, seconds: float) -> None:
        await timer(seconds)
        self.note("timer", now().isoformat())

    async def do_sleep(self, seconds: float) -> None:
        self.note("sleep", await asyncio.sleep(seconds, "slept"))

    async def do_channel(self, name: str, timeout: float | None) -> None:
        try:
            self.note("channel", await await_signal(name, type=int, timeout=timeout))
        except TimeoutError:
            self.note("channel timeout")

    async def do_condition(self, n: int, timeout: float | None) -> None:
        held = await await_condition(lambda: self.pokes >= n, timeout=timeout)
        self.note("condition" if held else "condition timeout")

    async def do_effect(self) -> None:
        self.note("effect", await side_effect(self.effect, type=int))

    def effect(self) -> int:
        context = current()
        assert context is not None
        assert not context.replaying, "called on replay"
        return crc32(f"{context.loop.current_branch().path} {len(self.log)}".encode())

    async def do_bad_effect(self) -> None:
        def fails() -> int:
            self.effect()
            raise KeyError("nothing there")

        try:
            await side_effect(fails)
        except RemoteError as error:
            self.note("bad effect", str(error))

    async def do_coin(self, heads: Block, tails: Block) -> None:
        side = rng().random() < 0.5
        self.note("coin", side)
        await self.run(heads if side else tails)

    async def do_ids(self) -> None:
        self.note("ids", [str(uuid4()), str(uuid7()), workflow_info().history_length])

    async def do_clock(self, even: Block, odd: Block) -> None:
        self.note("clock", now().isoformat())
        await self.run(odd if now().second % 2 else even)

    # -- several branches -------------------------------------------------------------------------

    async def do_gather(self, blocks: list[Block], tolerant: bool) -> None:
        results = await asyncio.gather(*map(self.run, blocks), return_exceptions=tolerant)
        self.note("gather", [type(one).__name__ for one in results])

    async def do_all(self, blocks: list[Block]) -> None:
        await all_(tuple(map(self.run, blocks)))  # type: ignore[arg-type]  # any number of them
        self.note("all")

    async def do_any(self, blocks: list[Block]) -> None:
        await any_([self.run(block) for block in blocks])
        self.note("any")

    async def do_group(self, blocks: list[Block]) -> None:
        async with asyncio.TaskGroup() as group:
            for block in blocks:
                group.create_task(self.run(block))
        self.note("group")

    async def do_first(self, blocks: list[Block], cancel: bool) -> None:
        tasks = [asyncio.create_task(self.run(block)) for block in blocks]
        done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        self.note("first", [[one.get_name() for one in some] for some in (done, pending)])
        if cancel:
            for one in pending:
                one.cancel()
            await asyncio.gather(*pending, return_exceptions=True)

    async def do_completed(self, blocks: list[Block], timeout: float | None) -> None:
        try:
            for one in asyncio.as_completed([self.run(block) for block in blocks], timeout=timeout):
                await one
                self.note("completed")
        except TimeoutError:
            self.note("completed timeout")

    async def do_spawn(self, slot: int, block: Block) -> None:
        self.tasks[slot] = asyncio.create_task(self.run(block))
        self.note("spawn")

    async def do_cancel(self, slot: int) -> None:
        if slot in self.tasks:
            self.note("cancel", self.tasks[slot].cancel())

    async def do_join(self, slot: int) -> None:
        task = self.tasks.get(slot)
        if task is not None and task is not asyncio.current_task():
            await asyncio.wait([task])
            self.note("join", "cancelled" if task.cancelled() else type(task.exception()).__name__)

    async def do_shield(self, block: Block) -> None:
        await asyncio.shield(self.run(block))
        self.note("shield")

    # -- time limits ------------------------------------------------------------------------------

    async def do_wait_for(self, seconds: float, block: Block) -> None:
        try:
            await asyncio.wait_for(self.run(block), seconds)
            self.note("wait_for")
        except TimeoutError:
            self.note("wait_for timeout")

    async def do_timeout(self, seconds: float, block: Block) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self.run(block)
            self.note("timeout")
        except TimeoutError:
            self.note("timeout timeout")

    async def _within(self, what: str, awaitable: Awaitable[Any], timeout: float | None) -> None:
        try:
            self.note(what, await asyncio.wait_for(awaitable, timeout))
        except TimeoutError:
            self.note(what + " timeout")

    # -- locks and queues -------------------------------------------------------------------------

    async def do_set(self, which: int) -> None:
        self.events[which].set()
        self.note("set")

    async def do_clear(self, which: int) -> None:
        self.events[which].clear()

    async def do_wait(self, which: int, timeout: float | None) -> None:
        await self._within("wait", self.events[which].wait(), timeout)

    async def do_lock(self, which: int, block: Block) -> None:
        async with self.locks[which]:
            self.note("lock")
            await self.run(block)

    async def do_semaphore(self, which: int, timeout: float | None, block: Block) -> None:
        semaphore = self.semaphores[which]
        try:
            await asyncio.wait_for(semaphore.acquire(), timeout)
        except TimeoutError:
            self.note("semaphore timeout")
            return
        try:
            self.note("semaphore")
            await self.run(block)
        finally:
            semaphore.release()

    async def do_notify(self, which: int, n: int) -> None:
        async with self.conditions[which]:
            self.conditions[which].notify(n)
            self.note("notify")

    async def do_hear(self, which: int, timeout: float | None) -> None:
        async with self.conditions[which]:
            await self._within("hear", self.conditions[which].wait(), timeout)

    async def do_put(self, which: int, n: int) -> None:
        await self.queues[which].put(n)
        self.note("put")

    async def do_get(self, which: int, timeout: float | None) -> None:
        await self._within("get", self.queues[which].get(), timeout)

    # -- failures and cleanup ---------------------------------------------------------------------

    async def do_try(self, block: Block, otherwise: Block) -> None:
        try:
            await self.run(block)
        except ActivityError as error:
            self.note("try", f"{type(error).__name__} {error}")
            await self.run(otherwise)

    async def do_star(self, block: Block) -> None:
        try:
            await self.run(block)
        except* (ActivityError, ApplicationError) as group:
            self.note("star", [type(one).__name__ for one in group.exceptions])

    async def do_finally(self, block: Block, cleanup: Block) -> None:
        try:
            await self.run(block)
        finally:
            self.note("finally")
            await self.run(cleanup)

    async def do_swallow(self, block: Block) -> None:
        try:
            await self.run(block)
        except asyncio.CancelledError:
            self.note("swallow")

    async def do_fail(self) -> None:
        self.note("fail")
        raise ApplicationError("as planned", details={"n": 1})

    async def do_generate(self, n: int, block: Block) -> None:
        async def rounds() -> AsyncIterator[int]:
            try:
                for i in range(3):
                    await self.run(block)
                    yield i
            finally:
                self.note("generator closed")
                await fast(n)

        async for i in rounds():
            self.note("generate", i)
            if i == n:
                break
