"""The authoring face of activities: plain functions outside of a workflow, durable steps inside."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Coroutine
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest
from structlog.testing import capture_logs

from aioflow import RetryPolicy, Workflow, activity
from aioflow.api.attempt import ATTEMPT, ActivityContext, ActivityInfo
from aioflow.core import events as ev
from aioflow.core.commands import ScheduleActivity
from aioflow.core.decision import Decision
from aioflow.core.keys import InstanceKey
from aioflow.core.payload import encode_value
from aioflow.core.registry import workflow_definition
from aioflow.core.replay import Execution
from aioflow.errors import ArgumentError, DefinitionError, NotDurable, NotInActivity, NotInWorkflow

AT = datetime(2024, 1, 1, tzinfo=UTC)
KEY = InstanceKey.of("default", "a")


@activity.defn(retry=RetryPolicy(max_attempts=2), start_to_close=30)
async def charge(amount: int, *, note: str = "") -> str:
    return f"{amount}{note}"


@activity.defn
def render(n: int) -> bytes:
    return bytes(n)


class Gateway:
    @activity.defn(queue="bank")
    async def pay(self, n: int) -> int:
        return n + 1


async def plain(n: int) -> int:
    return n


class Steps(Workflow):
    """Runs the function that the test puts here."""

    steps: Any = None

    async def handle(self) -> Any:
        return await type(self).steps()


def run(steps: Any) -> tuple[Execution, Decision]:
    """The first decision of a workflow that runs ``steps``."""
    Steps.steps = staticmethod(steps)
    execution = Execution(workflow_definition(Steps), KEY, UUID(int=1))
    started = ev.RunStarted(at=AT, workflow="Steps", queue="orders", seed="s", payload=b"\x01[]")
    return execution, execution.apply([started])


def scheduled(decision: Decision) -> list[ev.ActivityScheduled]:
    return [event for event in decision.events if isinstance(event, ev.ActivityScheduled)]


def failure(decision: Decision) -> str:
    closed = decision.events[-1]
    assert isinstance(closed, ev.RunFailed)
    return (closed.payload or b"").decode()


# -- outside of a workflow --------------------------------------------------------------------------


async def test_outside_it_is_the_plain_function() -> None:
    assert await charge(3, note="x") == "3x"
    assert render(2) == b"\x00\x00"
    assert await Gateway().pay(1) == 2
    assert await charge.options(queue="q")(1) == "1"
    assert charge.__doc__ is None
    assert repr(charge) == "<activity charge>"


async def test_activity_is_for_workflows() -> None:
    pending = activity(charge, 1)
    assert asyncio.iscoroutine(pending)
    with pytest.raises(NotInWorkflow, match=r"activity\(charge, \.\.\.\) works only inside a running workflow"):
        await pending
    with pytest.raises(DefinitionError, match="plain is not an activity: decorate it"):
        await activity(plain, 1)  # type: ignore[arg-type]


async def test_a_method_is_called_on_an_instance() -> None:
    with pytest.raises(TypeError, match=r"Gateway\.pay is a method: call it on an instance"):
        await Gateway.pay(1)


# -- inside of a workflow ---------------------------------------------------------------------------


def test_a_call_schedules() -> None:
    async def steps() -> str:
        return await charge(3, note="x")

    execution, decision = run(steps)
    [event] = scheduled(decision)
    assert (event.activity, event.queue, event.start_to_close) == ("charge", "orders", 30.0)
    assert event.retry == RetryPolicy(max_attempts=2).to_data()
    assert event.payload == b'\x01{"args":[3],"kwargs":{"note":"x"}}'
    result = ev.ActivityCompleted(at=AT, ref=event.ref, payload=encode_value("ok", str))
    closed = execution.apply([result]).events[-1]
    assert isinstance(closed, ev.RunCompleted)
    assert closed.payload == b'\x01"ok"'


@pytest.mark.parametrize(
    ("step", "name", "queue"),
    [
        (lambda: activity(charge, 1), "charge", "orders"),
        (lambda: activity(render, 1), "render", "orders"),
        (lambda: activity(charge.options(queue="gpu"), 1), "charge", "gpu"),
        (lambda: charge.options(queue="gpu")(1), "charge", "gpu"),
        (lambda: activity(Gateway().pay, 1), "pay", "bank"),
        (lambda: activity(Gateway.pay, 1), "pay", "bank"),
        (lambda: Gateway().pay(1), "pay", "bank"),
        (lambda: Gateway.pay(1), "pay", "bank"),
    ],
)
def test_every_way_to_say_it(step: Any, name: str, queue: str) -> None:
    async def steps() -> None:
        await step()

    [event] = scheduled(run(steps)[1])
    assert (event.activity, event.queue, event.payload) == (name, queue, b"\x01[1]")


def test_nothing_is_scheduled_before_it_is_awaited() -> None:
    made: list[Coroutine[Any, Any, Any]] = []

    async def steps() -> None:
        made.extend([activity(charge, 1), charge(2)])
        await asyncio.sleep(60)

    _, decision = run(steps)
    assert scheduled(decision) == []
    for one in made:
        one.close()


def test_a_task_schedules_too() -> None:
    async def steps() -> None:
        await asyncio.gather(activity(charge, 1), asyncio.create_task(charge(2)), charge(3))

    payloads = {event.payload for event in scheduled(run(steps)[1])}
    assert payloads == {b"\x01[1]", b"\x01[2]", b"\x01[3]"}


def test_a_second_await_is_an_error() -> None:
    async def steps() -> None:
        pending = activity(charge, 1)
        first = asyncio.create_task(pending)
        await asyncio.sleep(0)
        first.cancel()
        await pending

    assert "already" in failure(run(steps)[1])


def test_wrong_arguments_schedule_nothing() -> None:
    async def steps() -> None:
        await activity(charge, "1")  # type: ignore[arg-type]

    _, decision = run(steps)
    assert scheduled(decision) == []
    assert "ArgumentError" in failure(decision)
    assert "argument 'amount'" in failure(decision)
    assert issubclass(ArgumentError, TypeError)


def test_a_sync_activity_cannot_be_called() -> None:
    async def steps() -> None:
        render(1)

    with pytest.raises(NotDurable, match=r"render is a sync activity.*`await activity\(render, \.\.\.\)`"):
        run(steps)


def test_a_function_that_is_no_activity() -> None:
    async def steps() -> None:
        await activity(plain, 1)  # type: ignore[arg-type]

    assert "plain is not an activity" in failure(run(steps)[1])


def test_commands_carry_all_options() -> None:
    every = charge.options(queue="q", schedule_to_start=1, schedule_to_close=2, start_to_close=3, heartbeat=4)

    async def steps() -> None:
        await activity(every, 1)

    [event] = scheduled(run(steps)[1])
    told = (event.queue, event.schedule_to_start, event.schedule_to_close, event.start_to_close)
    assert told == ("q", 1.0, 2.0, 3.0)
    assert (event.heartbeat, event.priority) == (4.0, None)
    assert set(ScheduleActivity.__dataclass_fields__) > set(every.definition.options.__dataclass_fields__)


# -- inside of an activity --------------------------------------------------------------------------


def context(beats: list[tuple[Any, ...]]) -> ActivityContext:
    info = ActivityInfo(
        execution_id=UUID(int=1),
        attempt_id=uuid4(),
        attempt=2,
        activity="charge",
        instance_id="order-1",
        run_id=UUID(int=2),
        workflow="Order",
        queue="q",
        heartbeat_details=("half", 1),
    )
    return ActivityContext(info=info, heartbeat=beats.append)


async def test_what_an_attempt_knows_and_says() -> None:
    beats: list[tuple[Any, ...]] = []
    attempt = context(beats)
    token = ATTEMPT.set(attempt)
    try:
        assert activity.info() is attempt.info
        activity.heartbeat()
        activity.heartbeat("row", 7)
        assert beats == [(), ("row", 7)]
        assert not activity.cancelled()
        attempt.cancelled.set()
        assert activity.cancelled()
        with capture_logs() as logs:
            activity.logger.info("charged", amount=1)
            activity.logger.info("again")
        assert logs[0]["event"] == "charged"
        assert logs[0]["activity"] == "charge"
        assert logs[0]["attempt"] == 2
        assert logs[0]["execution_id"] == str(UUID(int=1))
    finally:
        ATTEMPT.reset(token)


def test_threads_see_the_attempt_through_a_copied_context() -> None:
    beats: list[tuple[Any, ...]] = []
    token = ATTEMPT.set(context(beats))
    try:
        copied = contextvars.copy_context()
    finally:
        ATTEMPT.reset(token)
    thread = threading.Thread(target=copied.run, args=(activity.heartbeat, 1))
    thread.start()
    thread.join()
    assert beats == [(1,)]


@pytest.mark.parametrize(
    ("use", "name"),
    [
        (activity.info, "info"),
        (activity.heartbeat, "heartbeat"),
        (activity.cancelled, "cancelled"),
        (lambda: activity.logger, "logger"),
    ],
)
def test_outside_of_an_attempt(use: Any, name: str) -> None:
    with pytest.raises(NotInActivity, match=rf"activity\.{name}.* works only inside a running activity"):
        use()


def test_a_workflow_is_no_attempt() -> None:
    async def steps() -> None:
        activity.info()

    token = ATTEMPT.set(context([]))
    try:
        assert "NotInActivity" in failure(run(steps)[1])
    finally:
        ATTEMPT.reset(token)
