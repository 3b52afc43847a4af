"""Cancellation of a run: where it reaches the code, what cleanup may do, and how the run ends."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from aioflow import Workflow, activity, await_signal, signal, timer
from aioflow.core import events as ev
from aioflow.core.failure import Failure
from tests.core.world import Driver, at, message, started


@activity.defn
async def step(x: int) -> int:
    return x


@activity.defn
async def undo(x: int) -> int:
    return x


class Careful(Workflow):
    async def handle(self) -> int:
        try:
            return await step(1)
        finally:
            await undo(1)
            await timer(5)


def test_cleanup_schedules_activities_and_timers_before_the_run_is_cancelled() -> None:
    driver = Driver(Careful)
    driver.start()
    driver.cancel("enough")
    assert driver.kinds()[-3:] == ["CancelRequested", "ActivityCancelRequested 0:a1", "ActivityScheduled 0:a2"]
    assert driver.decisions[-1].cancelled_activities == ["0:a1"]
    driver.complete("0:a2", 1)
    assert list(driver.timers) == ["0:t1"]
    driver.fire("0:t1")
    assert driver.closed == "cancelled"
    assert driver.history[-1] == ev.RunCancelled(at=at(6), reason="enough")


def test_a_second_cancel_is_recorded_and_changes_nothing() -> None:
    driver = Driver(Careful)
    driver.start()
    driver.cancel("one")
    assert driver.cancel("two").events == [ev.CancelRequested(at=at(1), reason="two")]
    driver.complete("0:a2", 1)
    driver.fire("0:t1")
    assert driver.history[-1] == ev.RunCancelled(at=at(6), reason="one")


def test_cancelled_right_behind_the_start() -> None:
    driver = Driver(Careful)
    driver.apply(started(driver.definition), ev.CancelRequested(at=at(0), reason=None))
    assert driver.kinds() == [
        "RunStarted",
        "ActivityScheduled 0:a1",
        "CancelRequested",
        "ActivityCancelRequested 0:a1",
        "ActivityScheduled 0:a2",
    ]
    assert list(driver.activities) == ["0:a2"]


@pytest.mark.parametrize("cold", [False, True])
def test_a_result_that_came_before_the_cancel_counts(cold: bool) -> None:
    class Plain(Workflow):
        async def handle(self) -> list[int]:
            first = await step(1)
            try:
                return [first, await step(2)]
            except asyncio.CancelledError:
                return [first]

    driver = Driver(Plain)
    driver.start()
    if cold:
        driver.evict()
    completed = ev.ActivityCompleted(at=at(1), ref="0:a1", payload=b"\x0141")
    driver.apply(completed, ev.CancelRequested(at=at(1)))
    assert driver.result() == [41]


def test_a_result_behind_the_cancel_is_recorded_and_dropped() -> None:
    driver = Driver(Careful)
    driver.start()
    driver.apply(ev.CancelRequested(at=at(1)), ev.ActivityCompleted(at=at(1), ref="0:a1", payload=b"\x011"))
    assert "ActivityCompleted 0:a1" in driver.kinds()
    assert driver.activities.keys() == {"0:a2"}


def test_a_cancel_that_is_caught_lets_the_run_complete() -> None:
    class Stubborn(Workflow):
        async def handle(self) -> str:
            with suppress(asyncio.CancelledError):
                await step(1)
            await step(2)
            return "done"

    driver = Driver(Stubborn)
    driver.start()
    driver.cancel()
    driver.complete("0:a2", 2)
    assert driver.result() == "done"


def test_an_exception_out_of_cleanup_fails_the_run() -> None:
    class Broken(Workflow):
        async def handle(self) -> None:
            try:
                await step(1)
            finally:
                raise RuntimeError("broken cleanup")

    driver = Driver(Broken)
    driver.start()
    driver.cancel()
    assert (driver.closed, driver.failure().message) == ("failed", "broken cleanup")


def test_a_cancelled_error_without_a_request_fails_the_run() -> None:
    class Gives(Workflow):
        async def handle(self) -> None:
            task = asyncio.create_task(step(1))
            await asyncio.sleep(0)
            task.cancel()
            await task

    class Raises(Workflow):
        async def handle(self) -> None:
            raise asyncio.CancelledError

    for workflow in (Gives, Raises):
        driver = Driver(workflow)
        driver.start()
        assert (driver.closed, driver.failure().type) == ("failed", "CancelledError")


def test_every_branch_of_a_group_is_cancelled_in_order() -> None:
    seen: list[int] = []

    class Group(Workflow):
        async def handle(self) -> None:
            async def one(n: int) -> None:
                try:
                    await step(n)
                finally:
                    seen.append(n)
                    await undo(n)

            async with asyncio.TaskGroup() as group:
                for n in range(5):
                    group.create_task(one(n))

    driver = Driver(Group)
    driver.start()
    driver.cancel()
    assert seen == [0, 1, 2, 3, 4]
    assert list(driver.activities) == [f"0/{n}:a2" for n in range(1, 6)]
    for ref in list(driver.activities):
        driver.complete(ref, 1)
    assert driver.closed == "cancelled"


def test_a_shielded_branch_goes_on() -> None:
    class Shielded(Workflow):
        async def handle(self) -> int:
            inner = asyncio.ensure_future(step(1))
            try:
                return await asyncio.shield(inner)
            except asyncio.CancelledError:
                return await inner

    driver = Driver(Shielded)
    driver.start()
    driver.cancel()
    assert driver.decisions[-1].cancelled_activities == []
    driver.complete("0/1:a1", 7)
    assert driver.result() == 7


# -- a close that is refused here -----------------------------------------------------------------


class Counting(Workflow):
    """Returns when the activity is done; a signal handler counts."""

    def __init__(self) -> None:
        self.count = 0

    @signal
    def more(self, n: int) -> None:
        self.count += n

    async def handle(self) -> int:
        await step(1)
        return self.count


def test_a_close_with_a_message_behind_it_is_refused_and_decided_again_messages_first() -> None:
    driver = Driver(Counting)
    driver.start()
    batch: list[Any] = [ev.ActivityCompleted(at=at(1), ref="0:a1", payload=b"\x011"), message("more", 5)]
    decision = driver.decide(batch)
    assert (decision.refused, decision.events, decision.close) == (True, [], None)
    assert driver.execution is None
    driver.apply(*batch)
    assert driver.result() == 5
    assert driver.kinds()[2:] == ["SignalReceived m", "ActivityCompleted 0:a1", "RunCompleted"]


@pytest.mark.parametrize("late", [message("more", 1), ev.CancelRequested(at=at(1))])
def test_a_message_behind_the_start_does_not_refuse_a_run_that_returns_at_once(late: ev.Input) -> None:
    # Nothing can go before the start, so deciding again would refuse for ever.
    class AtOnce(Counting):
        async def handle(self) -> int:
            return 3

    driver = Driver(AtOnce)
    decision = driver.decide([started(driver.definition), late])
    assert not decision.refused
    driver.write(decision)
    assert driver.result() == 3
    assert [one.kind for one in driver.history] == ["RunStarted", late.kind, "RunCompleted"]
    driver.evict()
    driver.loaded()


def test_a_return_on_a_message_still_applies_what_is_left() -> None:
    class OnSignal(Counting):
        async def handle(self) -> int:
            await await_signal("go")
            return self.count

    driver = Driver(OnSignal)
    driver.start()
    decision = driver.decide([message("go"), message("more", 2), ev.CancelRequested(at=at(1))])
    assert (decision.refused, decision.close) == (False, "completed")
    assert [one.kind for one in decision.events][:3] == ["SignalReceived", "SignalReceived", "CancelRequested"]
    driver.write(decision)
    assert driver.result() == 0


def test_a_result_behind_the_return_does_not_refuse() -> None:
    class First(Workflow):
        async def handle(self) -> None:
            asyncio.ensure_future(step(2))  # noqa: RUF006  # left over on purpose
            await step(1)

    driver = Driver(First)
    driver.start()
    both = [ev.ActivityCompleted(at=at(1), ref=ref, payload=b"\x011") for ref in ("0:a1", "0/1:a1")]
    assert driver.apply(*both).close == "completed"
    assert driver.activities == {}


def test_a_failure_that_is_written_at_the_end_can_be_read() -> None:
    driver = Driver(Careful)
    driver.start()
    driver.fail("0:a1", ValueError("no"))
    driver.complete("0:a2", 1)
    driver.fire("0:t1")
    failure = driver.failure()
    assert (failure.type, failure.message) == ("ActivityFailed", "activity step failed: ValueError: no")
    assert isinstance(failure.cause, Failure)
    assert (failure.cause.type, failure.cause.message) == ("ValueError", "no")
