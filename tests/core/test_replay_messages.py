"""Signals, channels and queries of one run."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from aioflow import (
    ApplicationError,
    NotDurable,
    Workflow,
    activity,
    all_,
    await_condition,
    await_signal,
    now,
    query,
    rng,
    side_effect,
    signal,
    timer,
    uuid4,
)
from aioflow.core import events as ev
from aioflow.core.payload import decode_value, encode_value
from aioflow.core.replay import Execution
from aioflow.errors import DecodeError, UnknownQuery
from tests.core.world import Driver, at, message, started


@activity.defn
async def step(x: int) -> int:
    return x


class Inbox(Workflow):
    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.done = False

    @signal
    def add(self, what: Any) -> None:
        self.seen.append(what)

    @signal
    async def work(self, n: int) -> None:
        self.seen.append(await step(n))

    @signal
    def boom(self) -> None:
        raise ApplicationError("from a handler", details=[1])

    @signal
    async def late_boom(self) -> None:
        await timer(1)
        raise ApplicationError("from a handler, later")

    @signal
    def stop(self) -> None:
        self.done = True

    async def handle(self) -> list[Any]:
        self.seen.append("started")
        await await_condition(lambda: self.done)
        return self.seen


def test_signals_before_the_start_are_handled_right_behind_it() -> None:
    from aioflow.core.decision import place

    driver = Driver(Inbox)
    start = started(driver.definition, when=at(3))
    driver.apply(*place([message("add", 1), message("work", 2), start], []))
    driver.complete("h2:a1", 2)
    driver.signal("stop")
    assert driver.result() == ["started", 1, 2]


def test_an_input_before_the_start_is_an_error() -> None:
    from aioflow.errors import NondeterminismError

    driver = Driver(Inbox)
    with pytest.raises(NondeterminismError):
        driver.apply(message("add", 1), started(driver.definition))


def test_async_handlers_run_beside_handle_and_each_other() -> None:
    driver = Driver(Inbox)
    driver.start()
    driver.signal("work", 1)
    driver.signal("work", 2)
    assert list(driver.activities) == ["h1:a1", "h2:a1"]
    driver.evict()
    driver.complete("h2:a1", 20)
    driver.complete("h1:a1", 10)
    driver.signal("stop")
    assert driver.result() == ["started", 20, 10]


@pytest.mark.parametrize("name", ["boom", "late_boom"])
def test_an_exception_of_a_handler_fails_the_run(name: str) -> None:
    driver = Driver(Inbox)
    driver.start()
    driver.signal(name)
    if name == "late_boom":
        driver.fire("h1:t1")
    assert driver.closed == "failed"
    assert driver.failure().message.startswith("from a handler")
    driver.evict()
    driver.loaded()


def test_a_signal_that_cannot_be_read_fails_the_task_and_not_the_run() -> None:
    driver = Driver(Inbox)
    driver.start()
    with pytest.raises(DecodeError):
        driver.signal("work", "not a number")
    driver.signal("stop")
    assert driver.closed == "completed"


# -- channels -------------------------------------------------------------------------------------


class Channels(Workflow):
    async def handle(self) -> list[Any]:
        async def one(name: str, timeout: float | None) -> Any:
            try:
                return [name, await await_signal("go", timeout=timeout)]
            except TimeoutError:
                return [name, "timeout"]

        return list(await all_((one("a", None), one("b", 5), one("c", None))))


def test_waiters_are_served_in_the_order_they_asked_past_those_that_timed_out() -> None:
    driver = Driver(Channels)
    driver.start()
    driver.fire("0/2:t1")
    driver.signal("go", 1)
    driver.signal("go", 2)
    assert driver.result() == [["a", 1], ["b", "timeout"], ["c", 2]]


def test_a_waiter_that_is_served_in_time_drops_its_timer() -> None:
    driver = Driver(Channels)
    driver.start()
    driver.apply(*(message("go", n) for n in range(3)))
    assert driver.result() == [["a", 0], ["b", 1], ["c", 2]]


def test_signals_wait_for_the_one_who_asks() -> None:
    class Later(Workflow):
        async def handle(self) -> list[Any]:
            await timer(10)
            first = [await await_signal("x"), await await_signal("x", type=int), await await_signal("x")]
            return [*first, await await_signal("x", timeout=0)]

    driver = Driver(Later)
    driver.start()
    for args in ([], [1], ["a", "b"], [None]):
        driver.signal("x", *args)
    driver.fire("0:t1")
    assert driver.result() == [None, 1, ["a", "b"], None]


def test_a_signal_for_a_waiter_that_is_cancelled_meanwhile_goes_to_the_next() -> None:
    class Handing(Workflow):
        async def handle(self) -> Any:
            task = asyncio.create_task(await_signal("x"))
            await asyncio.sleep(0)
            context: Any = asyncio.get_running_loop()
            context.host.deliver("x", encode_value([7], list))  # delivered, and cancelled before it wakes
            task.cancel()
            await asyncio.wait([task])
            return [task.cancelled(), await await_signal("x")]

    driver = Driver(Handing)
    driver.start()
    assert driver.result() == [True, 7]


def test_a_channel_value_of_another_type_fails_the_task_and_stays_for_fitting_code() -> None:
    class Typed(Workflow, name="typed"):
        async def handle(self) -> Any:
            try:
                return await await_signal("x", type=int)
            except BaseException:
                return "caught"

    class Fitting(Workflow, name="typed"):
        async def handle(self) -> Any:
            return await await_signal("x", type=str)

    driver = Driver(Typed)
    driver.start()
    with pytest.raises(DecodeError):
        driver.signal("x", "text")
    mended = Driver(Fitting)
    mended.history = driver.history
    mended.signal("x", "text")
    assert mended.result() == "text"


# -- queries --------------------------------------------------------------------------------------


class Asked(Workflow):
    def __init__(self) -> None:
        self.state = {"n": 0}
        self.event = asyncio.Event()

    @signal
    def add(self, n: int) -> None:
        self.state["n"] += n

    @query
    def state_of(self, key: str) -> int:
        return self.state[key]

    @query
    def chance(self) -> list[str]:
        return [str(uuid4()), str(rng().random()), str(now())]

    @query
    def schedules(self) -> None:
        asyncio.create_task(step(1))  # noqa: RUF006  # it must not get that far

    @query
    def wakes(self) -> None:
        self.event.set()

    @query
    def records(self) -> None:
        side_effect(lambda: 1).send(None)

    @query
    def waits(self) -> None:
        with suppress(NotDurable):
            asyncio.get_running_loop().call_later(5, self.state.clear)

    async def handle(self) -> list[Any]:
        before = str(uuid4())
        await asyncio.wait(
            [asyncio.ensure_future(step(1)), asyncio.ensure_future(self.event.wait())], return_when="FIRST_COMPLETED"
        )
        return [before, str(uuid4()), self.state["n"]]


def ask(execution: Execution, name: str, *args: Any) -> Any:
    return decode_value(execution.query(name, encode_value(list(args), list)), Any)


def asked() -> Driver:
    driver = Driver(Asked)
    driver.start()
    driver.signal("add", 3)
    return driver


def test_queries_answer_from_an_open_run_and_from_a_closed_one() -> None:
    driver = asked()
    assert ask(driver.loaded(), "state_of", "n") == 3
    driver.evict()
    assert ask(driver.loaded(), "state_of", "n") == 3
    driver.complete("0/1:a1", 1)
    execution = driver.loaded()
    assert execution.closed
    assert ask(execution, "state_of", "n") == 3
    execution.evict()


def test_queries_of_runs_that_failed_were_terminated_or_hit_a_limit() -> None:
    for end in (
        ev.RunTerminated(at=at(9), reason="because"),
        ev.RunTimedOut(at=at(9), timeout="run"),
        ev.RunFailed(at=at(9), limit="history_events"),
    ):
        driver = asked()
        driver.evict()
        driver.history.append(end)
        execution = driver.loaded()
        assert execution.closed
        assert execution.seq == len(driver.history)
        assert ask(execution, "state_of", "n") == 3
        driver.evict()


def test_wrong_queries_are_typed_errors_and_leave_the_run_alone() -> None:
    driver = asked()
    execution = driver.loaded()
    with pytest.raises(UnknownQuery, match=r"has no query 'state'.*chance, records, schedules, state_of, waits, wakes"):
        ask(execution, "state")
    with pytest.raises(DecodeError):
        ask(execution, "state_of")
    with pytest.raises(DecodeError):
        ask(execution, "state_of", 5)
    with pytest.raises(KeyError):
        ask(execution, "state_of", "m")
    with pytest.raises(UnknownQuery, match="has not started yet"):
        ask(
            Execution(driver.definition, execution.key, execution.run_id),
            "chance",
        )
    driver.complete("0/1:a1", 1)
    assert driver.closed == "completed"


@pytest.mark.parametrize("name", ["schedules", "wakes", "records", "waits"])
def test_a_query_that_does_more_than_read_is_refused(name: str) -> None:
    driver = asked()
    execution = driver.loaded()
    with pytest.raises(NotDurable, match="only reads"):
        ask(execution, name)
    if execution.closed:
        driver.execution = None  # it was spoiled, and is replayed
    driver.complete("0/1:a1", 1)
    assert driver.result()[2] == 3


def test_queries_disturb_no_randomness() -> None:
    quiet, noisy = asked(), asked()
    ask(noisy.loaded(), "chance")
    ask(noisy.loaded(), "chance")
    for driver in (quiet, noisy):
        driver.complete("0/1:a1", 1)
    assert quiet.history == noisy.history
