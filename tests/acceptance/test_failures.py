"""Exceptions on their way from an activity, through `handle()`, to the caller of `result()`: data all the way."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aioflow import ActivityFailed, RetryPolicy, Workflow, WorkflowFailed, activity
from aioflow.client import Client
from aioflow.errors import RemoteError
from aioflow.worker import Worker, WorkerSettings

QUICK = WorkerSettings(poll_interval=0.2, backoff_first=0.05, backoff_max=0.3, connections=4)
ONCE = RetryPolicy(max_attempts=1)


class Refused(Exception):
    """Cannot be made again from its text alone."""

    def __init__(self, *, code: int, reason: str) -> None:
        super().__init__(f"{reason} ({code})")
        self.code, self.reason = code, reason


@activity.defn(retry=ONCE)
async def fails(how: str) -> None:
    if how == "keywords":
        raise Refused(code=7, reason="no funds")
    if how == "chain":
        try:
            try:
                raise KeyError("deep")
            except KeyError as exc:
                raise ConnectionError("middle") from exc
        except ConnectionError as exc:
            raise Refused(code=8, reason="top") from exc
    raise ExceptionGroup("several", [Refused(code=9, reason="one"), ExceptionGroup("inner", [ValueError("two")])])


@activity.defn(name="fails_in_a_thread", retry=ONCE)
def fails_in_a_thread(how: str) -> None:
    raise Refused(code=7, reason="no funds")


class Fails(Workflow):
    async def handle(self, how: str, catch: bool, thread: bool = False) -> list[Any]:
        try:
            await activity(fails_in_a_thread if thread else fails, how)
        except ActivityFailed as error:
            if not catch:
                raise
            return [error.activity, *shape(error.cause)]
        return []


def shape(error: BaseException | None) -> list[Any]:
    """What an exception says as data, with its causes and members."""
    assert isinstance(error, RemoteError)
    cause = error.__cause__
    members = [shape(one) for one in error.errors]
    return [error.type, error.message, error.details, shape(cause) if cause is not None else None, members]


REFUSED = ["Refused", "no funds (7)", {"code": 7, "reason": "no funds"}, None, []]
SHAPES: dict[str, list[Any]] = {
    "keywords": REFUSED,
    "chain": [
        "Refused",
        "top (8)",
        {"code": 8, "reason": "top"},
        ["ConnectionError", "middle", None, ["KeyError", "'deep'", None, None, []], []],
        [],
    ],
    "group": [
        "ExceptionGroup",
        "several",
        None,
        None,
        [
            ["Refused", "one (9)", {"code": 9, "reason": "one"}, None, []],
            ["ExceptionGroup", "inner", None, None, [["ValueError", "two", None, None, []]]],
        ],
    ],
}


@pytest.mark.parametrize("how", SHAPES)
async def test_an_exception_reaches_handle_and_the_caller_as_data(client: Client, how: str) -> None:
    async with Worker(client, workflows=[Fails], activities=[fails, fails_in_a_thread], settings=QUICK):
        caught = await (await client.start(Fails, how, True)).result(timeout=20)
        assert caught == ["fails", *SHAPES[how]]
        instance = await client.start(Fails.options(id="fails"), how, False)
        with pytest.raises(WorkflowFailed) as raised:
            await instance.result(timeout=20)
    error = raised.value
    assert (error.type, error.instance_id) == ("ActivityFailed", "fails")
    assert error.cause is not None
    assert shape(error.cause.__cause__) == SHAPES[how]  # the run's failure is caused by the activity's exception
    assert "Refused" in traceback_of(error.cause.__cause__)
    failed = next(one for one in await instance.history() if one.kind == "ActivityFailed")
    assert failed.failure is not None
    assert shape(failed.failure.to_error()) == SHAPES[how]


async def test_an_exception_of_a_thread_is_the_same(client: Client) -> None:
    async with Worker(client, workflows=[Fails], activities=[fails, fails_in_a_thread], settings=QUICK):
        caught = await (await client.start(Fails, "keywords", True, True)).result(timeout=20)
        assert caught == ["fails_in_a_thread", *REFUSED]


class Raises(Workflow):
    async def handle(self, how: str) -> None:
        if how == "keywords":
            raise Refused(code=7, reason="no funds")
        if how == "chain":
            try:
                raise KeyError("deep")
            except KeyError as exc:
                raise Refused(code=8, reason="top") from exc
        async with asyncio.TaskGroup() as group:
            group.create_task(self.fail(1))
            group.create_task(self.fail(2))

    async def fail(self, code: int) -> None:
        raise Refused(code=code, reason="member")


async def test_exceptions_of_handle_itself_reach_the_caller(client: Client) -> None:
    async with Worker(client, workflows=[Raises], settings=QUICK):
        found = {}
        for how in ("keywords", "chain", "group"):
            with pytest.raises(WorkflowFailed) as raised:
                await (await client.start(Raises, how)).result(timeout=20)
            found[how] = shape(raised.value.cause)
    assert found["keywords"] == REFUSED
    assert found["chain"][3] == ["KeyError", "'deep'", None, None, []]
    assert found["group"][0] == "ExceptionGroup"
    assert [one[1] for one in found["group"][4]] == ["member (1)", "member (2)"]


def traceback_of(error: BaseException | None) -> str:
    assert isinstance(error, RemoteError)
    return error.traceback
