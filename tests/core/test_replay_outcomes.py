"""How activities, side effects and runs end: results, failures, what blocks a run, and limits."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Any

import pytest

from aioflow import (
    ActivityCancelled,
    ActivityError,
    ActivityFailed,
    ActivityTimedOut,
    ApplicationError,
    NotDurable,
    RemoteError,
    Workflow,
    activity,
    await_signal,
    signal,
)
from aioflow.core import events as ev
from aioflow.core.failure import Failure
from aioflow.core.payload import encode_value
from aioflow.errors import (
    ArgumentError,
    DecodeError,
    WorkflowLivelock,
)
from tests.core.world import Driver, at


@activity.defn
async def step(x: int) -> int:
    return x


def flow(code: Callable[[], Any], **options: Any) -> type[Workflow]:
    class Flow(Workflow, **options):
        async def handle(self) -> Any:
            return await code()

    return Flow


def run(code: Callable[[], Any], **options: Any) -> Driver:
    driver = Driver(flow(code, **options))
    driver.start()
    return driver


# -- exceptions as data ---------------------------------------------------------------------------


class NeedsKeywords(Exception):
    def __init__(self, *, code: int, why: str) -> None:
        super().__init__(f"{why} ({code})")
        self.code, self.why = code, why


def chained() -> Exception:
    try:
        try:
            raise KeyError("inner")
        except KeyError as inner:
            raise ValueError("outer") from inner
    except ValueError as outer:
        return outer


async def told() -> Any:
    try:
        await step(1)
    except ActivityError as error:
        causes, one = [], error.__cause__
        while one is not None:
            assert isinstance(one, RemoteError)
            causes.append([one.type, one.message, one.details])
            one = one.__cause__
        members = [[one.type, one.message] for one in error.cause.errors] if error.cause else []
        return [type(error).__name__, error.activity, causes, members]


def test_an_exception_with_required_keywords_reaches_the_code_as_data() -> None:
    driver = run(told)
    driver.fail("0:a1", NeedsKeywords(code=7, why="because"))
    kind, name, causes, members = driver.result()
    assert (kind, name, members) == ("ActivityFailed", "step", [])
    assert causes[0][:2] == ["NeedsKeywords", "because (7)"]
    assert causes[0][2] == {"code": 7, "why": "because"}


def test_a_chain_of_causes_reaches_the_code() -> None:
    driver = run(told)
    driver.fail("0:a1", chained())
    assert driver.result()[2] == [["ValueError", "outer", None], ["KeyError", "'inner'", None]]


def test_a_group_reaches_the_code() -> None:
    driver = run(told)
    driver.fail("0:a1", ExceptionGroup("many", [ValueError("a"), ExceptionGroup("more", [KeyError("b")])]))
    assert driver.result()[2:] == [
        [["ExceptionGroup", "many", None]],
        [["ValueError", "a"], ["ExceptionGroup", "more"]],
    ]


async def stepped() -> Any:
    return await step(1)


@pytest.mark.parametrize(
    ("error", "type_", "message"),
    [
        (NeedsKeywords(code=1, why="x"), "NeedsKeywords", "x (1)"),
        (ApplicationError("mine", type="Declined", details={"a": [1, None]}), "Declined", "mine"),
        (ExceptionGroup("many", [ValueError("a"), KeyError("b")]), "ExceptionGroup", "many"),
        (SystemExit(3), "SystemExit", "3"),
        (KeyboardInterrupt("mine"), "KeyboardInterrupt", "mine"),
        (BaseExceptionGroup("many", [KeyboardInterrupt()]), "BaseExceptionGroup", "many"),
    ],
)
def test_a_failed_run_tells_its_exception_as_data(error: BaseException, type_: str, message: str) -> None:
    async def raises() -> Any:
        raise error

    async def handled() -> Any:
        await await_signal("never")

    class Handling(Workflow):
        @signal
        def sync(self) -> None:
            raise error

        @signal
        async def slow(self) -> None:
            await step(1)
            raise error

        async def handle(self) -> Any:
            return await handled()

    ends = [run(raises), Driver(Handling), Driver(Handling)]
    ends[1].start()
    ends[1].signal("sync")
    ends[2].start()
    ends[2].signal("slow")
    ends[2].complete("h1:a1", 1)
    for end in ends:
        failure = end.failure()
        assert (end.closed, failure.type, failure.message) == ("failed", type_, message)
        assert end.loaded().closed  # and its history can be replayed
    if isinstance(error, ExceptionGroup):
        assert [one.type for one in failure.errors] == ["ValueError", "KeyError"]
    if isinstance(error, ApplicationError):
        assert failure.details == {"a": [1, None]}


def test_a_task_group_tells_the_member_that_failed_and_cancels_the_rest() -> None:
    async def grouped() -> Any:
        async with asyncio.TaskGroup() as group:
            group.create_task(step(1))
            group.create_task(step(2))

    driver = run(grouped)
    first, second = (
        ev.ActivityFailed(at=at(1), ref=ref, payload=Failure.of(ValueError(ref)).to_payload())
        for ref in ("0/1:a1", "0/2:a1")
    )
    driver.apply(first, second)
    failure = driver.failure()
    assert [(one.type, one.cause and one.cause.message) for one in failure.errors] == [("ActivityFailed", "0/1:a1")]


@pytest.mark.parametrize(
    ("outcome", "kind", "timeout"),
    [
        (ev.ActivityTimedOut(at=at(1), ref="0:a1", timeout="heartbeat"), ActivityTimedOut, "heartbeat"),
        (ev.ActivityCancelled(at=at(1), ref="0:a1"), ActivityCancelled, None),
        (ev.ActivityFailed(at=at(1), ref="0:a1"), ActivityFailed, None),
    ],
)
def test_other_ends_of_an_activity(outcome: ev.Input, kind: type[ActivityError], timeout: str | None) -> None:
    async def caught() -> Any:
        try:
            await step(1)
        except ActivityError as error:
            known = error.execution_id is not None
            return [type(error).__name__, getattr(error, "timeout", None), error.cause is None, known]

    driver = run(caught)
    driver.apply(outcome)
    assert driver.result() == [kind.__name__, timeout, True, True]


# -- what blocks instead of failing ---------------------------------------------------------------


async def not_durable() -> Any:
    raise NotDurable("no")


async def not_durable_in_a_group() -> Any:
    async with asyncio.TaskGroup() as group:
        group.create_task(not_durable())


async def real_time() -> Any:
    import time

    time.time()


async def endless() -> Any:
    for _ in itertools.repeat(None):
        await asyncio.sleep(0)


async def own_blocking() -> Any:
    raise LookupError("price list")


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (not_durable, NotDurable),
        (not_durable_in_a_group, ExceptionGroup),
        (real_time, NotDurable),
        (endless, WorkflowLivelock),
        (own_blocking, LookupError),
    ],
)
def test_what_a_deploy_can_mend_blocks_the_run(code: Callable[[], Any], kind: type[Exception]) -> None:
    driver = Driver(flow(code, blocking=LookupError))
    with pytest.raises(kind):
        driver.start()
    assert driver.history == []
    assert driver.execution is None


def test_only_the_types_that_were_named_block() -> None:
    driver = run(own_blocking, blocking=ValueError)
    assert driver.failure().type == "LookupError"


# -- values ---------------------------------------------------------------------------------------


def test_a_result_that_does_not_fit_fails_the_task_and_never_reaches_the_code() -> None:
    async def catches() -> Any:
        try:
            return await step(1)
        except BaseException:
            return "caught"

    driver = run(catches)
    for payload in (encode_value("text"), b"\x01{", b"\x02x", b"", None):
        with pytest.raises(DecodeError):
            driver.apply(ev.ActivityCompleted(at=at(1), ref="0:a1", payload=payload))
        assert len(driver.history) == 2
    driver.complete("0:a1", 5)
    assert driver.result() == 5


def test_arguments_of_the_run_that_do_not_fit_fail_the_task() -> None:
    driver = Driver(flow(stepped))
    bad = ev.RunStarted(at=at(0), payload=encode_value([1, 2], list), workflow="Flow", queue="q", seed="s")
    with pytest.raises(DecodeError):
        driver.apply(bad)


def test_arguments_of_an_activity_that_do_not_fit_are_raised_at_the_call() -> None:
    async def wrong() -> Any:
        found = []
        for args in (("x",), (1, 2), ()):
            try:
                await activity(step, *args)  # type: ignore[arg-type, call-arg]  # wrong on purpose
            except ArgumentError as error:
                found.append(str(error).partition(":")[0])
        return [found, await step(3)]

    driver = run(wrong)
    assert list(driver.activities) == ["0:a1"]
    driver.complete("0:a1", 3)
    assert driver.result() == [["step()"] * 3, 3]


def test_a_result_of_the_run_that_cannot_be_stored_fails_it() -> None:
    async def opaque() -> Any:
        return object()

    assert run(opaque).failure().type == "EncodeError"
