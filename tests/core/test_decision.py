"""Order of inputs, and what a batch nets to."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from aioflow import Workflow, activity, await_signal, timer
from aioflow.core import commands as cmd
from aioflow.core import events as ev
from aioflow.core.decision import MESSAGES, Decision, generation_after, messages_first, place
from aioflow.core.payload import encode_value
from tests.core.sizes import sized
from tests.core.world import Driver, at, message, started


def result(ref: str, when: float) -> ev.ActivityCompleted:
    return ev.ActivityCompleted(at=at(when), ref=ref, payload=encode_value(1))


def fired(ref: str, when: float) -> ev.TimerFired:
    return ev.TimerFired(at=at(when), ref=ref)


def start(when: float) -> ev.RunStarted:
    return ev.RunStarted(at=at(when), workflow="w", queue="q", seed="s")


# -- where a due timer stands ---------------------------------------------------------------------


def refs(inputs: list[ev.Input]) -> list[str | None]:
    return [one.ref for one in inputs]


def test_a_timer_stands_after_the_last_input_accepted_before_it_is_due() -> None:
    inputs = [result("a", 1), result("b", 3), result("c", 5)]
    assert refs(place(inputs, [fired("t", 4)])) == ["a", "b", "t", "c"]
    assert refs(place(inputs, [fired("t", 0)])) == ["t", "a", "b", "c"]
    assert refs(place(inputs, [fired("t", 9)])) == ["a", "b", "c", "t"]
    assert refs(place([], [fired("t", 9)])) == ["t"]
    assert place([], []) == []


def test_a_timer_due_when_an_input_was_accepted_comes_before_it() -> None:
    assert refs(place([result("a", 4)], [fired("t", 4)])) == ["t", "a"]


def test_inputs_keep_their_order_whatever_their_times() -> None:
    inputs = [result("a", 5), result("b", 1), result("c", 9), result("d", 2)]
    assert refs(place(inputs, [])) == ["a", "b", "c", "d"]
    # after the *last* one accepted before it, though an earlier one was accepted later
    assert refs(place(inputs, [fired("t", 3)])) == ["a", "b", "c", "d", "t"]
    assert refs(place(inputs[:3], [fired("t", 3)])) == ["a", "b", "t", "c"]


def test_timers_stand_by_due_time_then_address() -> None:
    due = [fired("0:t2", 3), fired("0:t1", 3), fired("0:t3", 2)]
    assert refs(place([result("a", 2.5)], due)) == ["0:t3", "a", "0:t1", "0:t2"]


def test_the_start_comes_first_whatever_reached_the_reserved_instance() -> None:
    inputs = [message("x", when=1, ref="m1"), message("y", when=2, ref="m2"), start(3)]
    assert [one.kind for one in place(inputs, [])] == ["RunStarted", "SignalReceived", "SignalReceived"]
    assert refs(place(inputs, []))[1:] == ["m1", "m2"]


@sized(200)
@given(st.lists(st.integers(0, 9), max_size=8), st.lists(st.integers(0, 9), max_size=4))
def test_placing_loses_nothing_and_sorts_no_input(times: list[int], dues: list[int]) -> None:
    inputs: list[ev.Input] = [result(str(n), when) for n, when in enumerate(times)]
    timers = [fired(f"t{n}", when) for n, when in enumerate(dues)]
    placed = place(inputs, timers)
    assert [one for one in placed if not isinstance(one, ev.TimerFired)] == inputs
    fires = [one for one in placed if isinstance(one, ev.TimerFired)]
    assert fires == sorted(timers, key=lambda one: (one.at, one.ref or ""))
    for timer_ in fires:
        behind = placed[placed.index(timer_) + 1 :]
        assert not [one for one in behind if isinstance(one, ev.ActivityCompleted) and one.at < timer_.at]
    assert place(list(inputs), reversed(timers)) == placed


def test_messages_first_keeps_the_order_within_each_kind() -> None:
    inputs = [result("a", 1), message("x", ref="m1"), fired("t", 2), start(0), message("y", ref="m2"), result("b", 2)]
    assert refs(messages_first(inputs)) == [None, "m1", "m2", "a", "t", "b"]
    cancel = ev.CancelRequested(at=at(1))
    assert messages_first([result("a", 1), cancel])[0] is cancel
    assert set(MESSAGES) == {ev.SignalReceived, ev.UpdateAccepted, ev.CancelRequested}


# -- netting --------------------------------------------------------------------------------------


def test_what_starts_and_ends_in_one_batch_reaches_no_table() -> None:
    decision = Decision()
    schedule: Any = cmd.ScheduleActivity(ref="0:a1", activity="a", execution_id=None, queue="q", payload=b"")  # type: ignore[arg-type]  # no id needed
    for command in (
        schedule,
        cmd.CancelActivity(ref="0:a1"),
        cmd.CancelActivity(ref="0:a0"),
        cmd.StartTimer(ref="0:t1", due_at=at(1)),
        cmd.CancelTimer(ref="0:t1"),
        cmd.CancelTimer(ref="0:t0"),
        cmd.StartTimer(ref="0:t2", due_at=at(2)),
        cmd.RecordSideEffect(ref="0:s1", payload=b""),
    ):
        decision.take(command)
    decision.timer_gone("0:t2")
    assert (decision.activities, decision.cancelled_activities) == ({}, ["0:a0"])
    assert (decision.timers, decision.gone_timers) == ({}, ["0:t0"])


@activity.defn
async def step(x: int) -> int:
    return x


class Racing(Workflow):
    """An activity against a signal, and then a timer."""

    async def handle(self) -> str:
        task = asyncio.create_task(step(1))
        await await_signal("go")
        task.cancel()
        await timer(10)
        return "done"


def test_a_batch_is_cut_only_where_the_rest_has_later_generations() -> None:
    a, b, c, begin, due = message("a"), message("b"), message("c"), start(9), fired("t", 5)
    gens = {id(a): 1, id(b): 2, id(c): 2, id(begin): 3}

    def after(*inputs: ev.Input) -> list[int | None]:
        return [generation_after(inputs, gens, 7, n) for n in range(1, len(inputs) + 1)]

    assert after(a, b, c) == [1, None, 7]  # b and c were accepted together
    assert after(a, due, b) == [1, 1, 7]
    assert after(due, b) == [1, 7]
    assert after(a, due) == [7, 7]  # a timer that is due comes again
    assert after(begin, a, b) == [None, None, 7]  # or the start would be consumed last
    assert after(b, a) == [None, 7]  # decided again, messages first


def test_a_batch_records_every_event_and_nets_the_tables() -> None:
    driver = Driver(Racing)
    decision = driver.apply(started(driver.definition), message("go", when=2))
    assert [one.kind for one in decision.events] == [
        "RunStarted",
        "ActivityScheduled",
        "SignalReceived",
        "ActivityCancelRequested",
        "TimerStarted",
    ]
    assert (decision.activities, decision.cancelled_activities) == ({}, [])
    assert decision.timers == {"0:t1": at(12)}
    assert decision.next_due == at(12)


def test_start_and_cancel_within_one_event_leave_no_trace() -> None:
    class Within(Workflow):
        async def handle(self) -> str:
            task = asyncio.create_task(step(1))
            await asyncio.sleep(0)
            task.cancel()
            async with asyncio.timeout(60):
                await asyncio.sleep(0)
            return "done"

    driver = Driver(Within)
    driver.start()
    assert [one.kind for one in driver.history] == ["RunStarted", "RunCompleted"]


def test_a_timer_that_an_earlier_input_of_the_batch_cancelled_does_not_fire() -> None:
    class Limited(Workflow):
        async def handle(self) -> Any:
            async with asyncio.timeout(5):
                await await_signal("go")
            await timer(100)

    driver = Driver(Limited)
    driver.start()
    decision = driver.apply(message("go", when=5), fired("0:t1", 5))
    assert [one.kind for one in decision.events] == ["SignalReceived", "TimerCancelled", "TimerStarted"]
    assert decision.gone_timers == ["0:t1"]
    assert decision.timers == {"0:t2": at(105)}


def test_a_timer_set_and_fired_in_one_batch() -> None:
    class Twice(Workflow):
        async def handle(self) -> None:
            await await_signal("go")
            await timer(1)
            await timer(50)

    driver = Driver(Twice)
    decision = driver.apply(started(driver.definition), message("go", when=1), fired("0:t1", 2))
    assert decision.gone_timers == []
    assert decision.timers == {"0:t2": at(52)}
