"""The parts of a worker by themselves, without a database."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import anyio
import pytest
from structlog.testing import capture_logs

from aioflow.core.keys import InstanceKey
from aioflow.errors import DatabaseUnavailable
from aioflow.worker import stepper as stepper_module
from aioflow.worker.backoff import backoff, persist
from aioflow.worker.cache import RunCache
from aioflow.worker.claimer import Claimer, Work
from aioflow.worker.slots import Slots
from aioflow.worker.stepper import Stepper, StepTooLong, Unit
from aioflow.worker.wakeup import Wake
from tests.support import eventually

NOW = datetime(2030, 1, 1, tzinfo=UTC)


class Suspended:
    """Looks like an execution to the cache."""

    def __init__(self, name: str, *, size: int = 10, seq: int = 3) -> None:
        self.key, self.run_id = InstanceKey.of("default", name), uuid4()
        self.history_bytes, self.seq = size, seq


def cache(runs: int = 10, size: int = 1_000) -> tuple[RunCache, list[Any]]:
    gone: list[Any] = []
    return RunCache(runs, size, gone.append), gone


def put(into: RunCache, run: Suspended) -> UUID:
    head = uuid4()
    into.put(run, head)  # type: ignore[arg-type]  # as much of one as is needed
    return head


def test_a_run_is_taken_out_at_the_state_it_was_put_in() -> None:
    kept, gone = cache()
    run = Suspended("a")
    head = put(kept, run)
    assert run.key in kept
    assert kept.take(run.key, run.run_id, head, 4) is run
    assert kept.take(run.key, run.run_id, head, 4) is None
    assert gone == []


@pytest.mark.parametrize("wrong", ["run", "head", "seq"])
def test_a_run_at_another_state_is_thrown_out(wrong: str) -> None:
    kept, gone = cache()
    run = Suspended("a")
    head = put(kept, run)
    run_id = uuid4() if wrong == "run" else run.run_id
    assert kept.take(run.key, run_id, uuid4() if wrong == "head" else head, 9 if wrong == "seq" else 4) is None
    assert gone == [run]


def test_the_least_recently_used_go_first() -> None:
    kept, gone = cache(runs=2)
    a, b, c = Suspended("a"), Suspended("b"), Suspended("c")
    for run in (a, b, c):
        put(kept, run)
    assert gone == [a]
    put(kept, replacement := Suspended("b"))
    assert gone == [a, b]
    kept.clear()
    assert gone == [a, b, c, replacement]
    assert len(kept) == 0


def test_large_histories_push_others_out() -> None:
    kept, gone = cache(size=100)
    small, large, huge = Suspended("a", size=50), Suspended("b", size=60), Suspended("c", size=101)
    put(kept, small)
    put(kept, large)
    assert gone == [small]
    put(kept, huge)
    assert gone == [small, large, huge]


# -- stepping -------------------------------------------------------------------------------------


async def test_units_run_in_order_on_one_thread_and_keep_their_errors() -> None:
    stepper = Stepper(5.0, 0, lambda: None)
    seen: list[object] = []

    def fail() -> None:
        raise KeyError("x")

    units = [Unit(lambda: seen.append(threading.get_ident())), Unit(fail), Unit(lambda: seen.append("last"))]
    await stepper.run(units)
    stepper.close()
    assert isinstance(units[1].error, KeyError)
    assert seen[0] != threading.get_ident()
    assert seen[1] == "last"


async def test_a_unit_that_blocks_loses_its_thread_and_the_rest_goes_on() -> None:
    lost: list[str] = []
    stepper = Stepper(0.1, 0, lambda: lost.append("exhausted"))
    release, disposed = threading.Event(), threading.Event()

    def block() -> None:
        release.wait(20)

    units = [Unit(block, dispose=disposed.set), Unit(lambda: lost.append("ran"))]
    async with anyio.create_task_group() as group:
        group.start_soon(stepper.watch)
        await stepper.run(units)
        group.cancel_scope.cancel()
    assert isinstance(units[0].error, StepTooLong)
    assert "test_parts.py" in units[0].error.where
    assert units[1].error is None
    assert sorted(lost) == ["exhausted", "ran"]
    assert not disposed.is_set()
    release.set()
    await eventually(disposed.is_set)
    stepper.close()


async def test_a_long_replay_that_gets_on_is_not_blocked() -> None:
    stepper = Stepper(0.1, 0, lambda: None)
    turns = 0
    stop = threading.Event()

    def work() -> None:
        nonlocal turns
        for turns in range(40):  # noqa: B007  # looked at from outside
            stop.wait(0.01)

    unit = Unit(work, progress=lambda: turns)
    async with anyio.create_task_group() as group:
        group.start_soon(stepper.watch)
        await stepper.run([unit])
        group.cancel_scope.cancel()
    assert unit.error is None
    stepper.close()


async def test_a_step_is_not_blamed_for_a_process_that_stood_still(monkeypatch: pytest.MonkeyPatch) -> None:
    ahead, looks, ended = [0.0], [0], threading.Event()

    class Clock:
        def monotonic(self) -> float:
            looks[0] += 1
            return time.monotonic() + ahead[0]

    def step() -> None:
        ended.wait(20)

    monkeypatch.setattr(stepper_module, "time", Clock())
    stepper = Stepper(0.8, 3, lambda: None)
    unit = Unit(step)
    async with anyio.create_task_group() as group:
        group.start_soon(stepper.watch)
        running = asyncio.ensure_future(stepper.run([unit]))
        await eventually(lambda: looks[0] > 3)
        ahead[0] = 3_600.0
        seen = looks[0]
        await eventually(lambda: looks[0] > seen + 1)
        ended.set()
        await running
        group.cancel_scope.cancel()
    stepper.close()
    assert unit.error is None


# -- claiming -------------------------------------------------------------------------------------


class Source:
    """Claims from a list."""

    def __init__(self, slots: int = 4) -> None:
        self.ready: list[int] = []
        self.started: list[int] = []
        self.limits: list[int] = []
        self.due: float | None = None
        self.lost = 0
        self.recovered = 0
        self.slots, self.wake = Slots(slots), Wake()

    async def claim(self, limit: int) -> Sequence[int]:
        self.limits.append(limit)
        if self.lost:
            self.lost -= 1
            raise DatabaseUnavailable("the answer was lost")
        taken, self.ready = self.ready[:limit], self.ready[limit:]
        return taken

    async def next_due(self) -> float | None:
        return self.due

    async def recover(self) -> None:
        self.recovered += 1

    def claimer(self, poll: float = 60.0) -> Claimer[int]:
        work = Work(
            name="test",
            slots=self.slots,
            wake=self.wake,
            claim=self.claim,
            start=lambda items: self.started.extend(items),
            next_due=self.next_due,
            recover=self.recover,
        )
        return Claimer(work, poll_interval=poll, batch=100)


async def test_nothing_is_claimed_without_a_place() -> None:
    source = Source(slots=3)
    source.ready = [1, 2, 3, 4]
    claimer = source.claimer()
    async with anyio.create_task_group() as group:
        group.start_soon(claimer.run)
        await eventually(lambda: source.started == [1, 2, 3])
        assert source.limits == [3]
        source.slots.release()
        await eventually(lambda: source.started == [1, 2, 3, 4])
        assert source.limits[1] == 1
        claimer.stop()
        source.slots.release()


async def test_places_are_given_to_all_who_wait() -> None:
    slots = Slots(3)
    order: list[str] = []
    assert await slots.reserve(5) == 3

    async def reserve() -> None:
        slots.release(await slots.reserve(1))
        order.append("reserved")

    async def empty() -> None:
        await slots.empty()
        order.append("empty")

    async with anyio.create_task_group() as group:
        for waiting in (reserve, empty):
            group.start_soon(waiting)
        await anyio.wait_all_tasks_blocked()
        slots.release(2)
        await eventually(lambda: order == ["reserved"])
        slots.release()
    assert order[-1] == "empty"
    assert slots.free == 3


async def test_shut_places_are_not_reserved() -> None:
    slots = Slots(2)
    slots.shut()
    reserved: list[int] = []

    async def reserve() -> None:
        reserved.append(await slots.reserve(5))

    async with anyio.create_task_group() as group:
        group.start_soon(reserve)
        await anyio.wait_all_tasks_blocked()
        slots.take()
        slots.release()
        await anyio.wait_all_tasks_blocked()
        assert (reserved, slots.busy) == ([], 0)
        slots.open()
    assert reserved == [2]


async def test_a_wake_up_a_due_time_and_a_poll_all_lead_to_a_look() -> None:
    source = Source()
    claimer = source.claimer()
    async with anyio.create_task_group() as group:
        group.start_soon(claimer.run)
        await eventually(lambda: len(source.limits) == 1)
        source.ready = [1]
        source.wake.set()
        await eventually(lambda: source.started == [1])
        source.ready, source.due = [2], 0.01
        source.wake.set()
        await eventually(lambda: source.started == [1, 2])
        looked = len(source.limits)
        await eventually(lambda: len(source.limits) > looked)
        group.cancel_scope.cancel()
    polling = Source()
    async with anyio.create_task_group() as group:
        group.start_soon(polling.claimer(poll=0.01).run)
        await eventually(lambda: len(polling.limits) > 3)
        group.cancel_scope.cancel()


@pytest.mark.parametrize(("woken", "due"), [(True, None), (False, 0.01), (False, None)])
async def test_what_a_poll_finds_though_nobody_woke_it_is_told(woken: bool, due: float | None) -> None:
    source = Source()
    source.due = due
    with capture_logs() as logs:
        async with anyio.create_task_group() as group:
            group.start_soon(source.claimer(poll=0.1 if (woken, due) == (False, None) else 60.0).run)
            await eventually(lambda: source.limits)
            source.ready = [1]
            if woken:
                source.wake.set()
            await eventually(lambda: source.started == [1])
            group.cancel_scope.cancel()
    assert [one["event"] for one in logs] == ([] if woken or due else ["poll_found"])


async def test_work_that_stays_due_is_not_asked_for_all_the_time() -> None:
    """Something of a type that is not known here is due for ever."""
    source = Source()
    source.due = 0.0
    async with anyio.create_task_group() as group:
        group.start_soon(source.claimer().run)
        await eventually(lambda: len(source.limits) == 2)
        await asyncio.sleep(0.05)
        assert len(source.limits) == 2
        group.cancel_scope.cancel()


async def test_a_lost_claim_is_recovered_from() -> None:
    source = Source()
    source.lost, source.ready = 2, [1]
    async with anyio.create_task_group() as group:
        group.start_soon(source.claimer(poll=0.01).run)
        await eventually(lambda: source.started == [1])
        group.cancel_scope.cancel()
    assert source.recovered == 2


async def test_a_wake_is_due_at_the_earliest_time_asked_for() -> None:
    wake = Wake()
    wake.due(60)
    wake.due(0.01)
    wake.due(30)
    assert await wake.wait(20)
    wake.clear()
    assert not await wake.wait(0.001)


def test_back_off_grows_up_to_its_bound() -> None:
    spans = [backoff(attempt, 1.0, 60.0) for attempt in (1, 2, 3, 10, 10_000)]
    for span, most in zip(spans, (1, 2, 4, 60, 60), strict=True):
        assert most * 2 / 3 <= span <= most


async def test_a_call_is_repeated_until_the_database_is_back() -> None:
    tries = 0

    async def call() -> str:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise DatabaseUnavailable("away")
        return "here"

    assert await persist(call) == "here"
