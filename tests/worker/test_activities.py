"""Attempts: retries, deadlines, heartbeats, cancellation."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from aioflow import (
    ActivityFailed,
    ActivityTimedOut,
    ApplicationError,
    RetryPolicy,
    Workflow,
    WorkflowFailed,
    activity,
    all_,
    await_signal,
)
from aioflow.client import Client
from aioflow.errors import StoreError
from aioflow.store.activities import Activities
from tests.support import eventually
from tests.worker.conftest import worker

FAST = RetryPolicy(initial_interval=0.01, max_interval=0.02)


class Seen:
    """What activities saw, by instance id."""

    def __init__(self) -> None:
        self.infos: list[Any] = []
        self.events: list[str] = []
        self.started = asyncio.Event()


seen = Seen()


@pytest.fixture(autouse=True)
def _fresh() -> None:
    global seen
    seen = Seen()


@activity.defn(retry=FAST)
async def flaky(failures: int) -> int:
    info = activity.info()
    seen.infos.append(info)
    if info.attempt <= failures:
        raise ConnectionError(f"attempt {info.attempt}")
    return info.attempt


@activity.defn(retry=FAST)
def flaky_in_a_thread(failures: int) -> list[int]:
    info = activity.info()
    if info.attempt <= failures:
        raise ConnectionError("not yet")
    return [info.attempt, int(threading.current_thread() is threading.main_thread())]


class Retrying(Workflow):
    async def handle(self, failures: int) -> list[Any]:
        return list(await all_((flaky(failures), activity(flaky_in_a_thread, failures))))


async def test_failed_attempts_are_retried_with_one_execution_id(client: Client) -> None:
    async with worker(client, Retrying, flaky, flaky_in_a_thread):
        assert await (await client.start(Retrying.options(id="i"), 2)).result() == [3, [3, 0]]
    assert [info.attempt for info in seen.infos] == [1, 2, 3]
    assert len({info.execution_id for info in seen.infos}) == 1
    assert len({info.attempt_id for info in seen.infos}) == 3
    first = seen.infos[0]
    assert (first.activity, first.instance_id, first.workflow, first.queue) == ("flaky", "i", "Retrying", "default")
    assert isinstance(first.run_id, UUID)


@activity.defn(retry=FAST)
async def failing(how: str) -> None:
    seen.infos.append(how)
    match how:
        case "application":
            raise ApplicationError("no", non_retryable=True, details={"why": 1})
        case "by type":
            raise LookupError("never")
        case "exhausted":
            raise OSError("again")
        case "exit":
            raise SystemExit(3)
        case "interrupt":  # asyncio would let it end the loop, and every neighbour with it
            raise KeyboardInterrupt("mine")


@activity.defn(retry=RetryPolicy(max_attempts=1))
def leaving(how: str) -> None:
    seen.infos.append(how)
    raise {"sync exit": SystemExit(3), "sync interrupt": KeyboardInterrupt("mine")}[how]


@activity.defn(retry=FAST)
async def bad_result() -> int:
    seen.infos.append("ran")
    return "text"  # type: ignore[return-value]  # that is the point


class Failing(Workflow):
    async def handle(self, how: str) -> str:
        policy = {
            "by type": RetryPolicy(non_retryable=(LookupError,)),
            "exhausted": RetryPolicy(initial_interval=0.01, max_attempts=3),
            "exit": RetryPolicy(max_attempts=1),
            "interrupt": RetryPolicy(max_attempts=1),
        }.get(how, FAST)
        try:
            if how == "result":
                await bad_result()
            elif how.startswith("sync"):
                await activity(leaving, how)
            else:
                await activity(failing.options(retry=policy), how)
        except ActivityFailed as error:
            return f"{error.type}: {error.message}"
        return "done"


@pytest.mark.parametrize(
    ("how", "runs", "told"),
    [
        ("application", 1, "ApplicationError: no"),
        ("by type", 1, "LookupError: never"),
        ("exhausted", 3, "OSError: again"),
        ("exit", 1, "SystemExit: 3"),
        ("interrupt", 1, "KeyboardInterrupt: mine"),
        ("sync exit", 1, "SystemExit: 3"),
        ("sync interrupt", 1, "KeyboardInterrupt: mine"),
        ("result", 1, "EncodeError: "),
    ],
)
async def test_what_ends_the_retries(client: Client, how: str, runs: int, told: str) -> None:
    async with worker(client, Failing, failing, leaving, bad_result):
        assert (await (await client.start(Failing, how)).result()).startswith(told)
    assert len(seen.infos) == runs


@activity.defn(retry=RetryPolicy(initial_interval=0.01, max_attempts=2))
async def hanging() -> None:
    seen.infos.append(activity.info().attempt)
    try:
        await asyncio.Event().wait()
    finally:
        seen.events.append("unwound")


@activity.defn(retry=RetryPolicy(max_attempts=1))
def hanging_in_a_thread() -> None:
    while not activity.cancelled():
        threading.Event().wait(0.01)
    seen.events.append("told")


class TimingOut(Workflow):
    async def handle(self, timeout: str, queue: str | None = None) -> str:
        options: dict[str, Any] = {timeout: timedelta(seconds=0.2)}
        try:
            await activity(hanging.options(queue=queue, **options))
        except ActivityTimedOut as error:
            return error.timeout
        return "done"


class TimingOutInAThread(Workflow):
    async def handle(self) -> str:
        try:
            await activity(hanging_in_a_thread.options(start_to_close=0.1))
        except ActivityTimedOut as error:
            return error.timeout
        return "done"


@pytest.mark.parametrize(
    ("timeout", "attempts"), [("start_to_close", [1, 2]), ("heartbeat", [1, 2]), ("schedule_to_close", [1])]
)
async def test_running_attempts_are_timed_out(client: Client, timeout: str, attempts: list[int]) -> None:
    async with worker(client, TimingOut, hanging):
        assert await (await client.start(TimingOut, timeout)).result() == timeout
        assert seen.infos == attempts
        await eventually(lambda: len(seen.events) == len(attempts))


async def test_an_attempt_in_a_thread_is_timed_out_and_told(client: Client) -> None:
    async with worker(client, TimingOutInAThread, hanging_in_a_thread):
        assert await (await client.start(TimingOutInAThread)).result() == "start_to_close"
        await eventually(lambda: seen.events == ["told"])


@pytest.mark.parametrize("timeout", ["schedule_to_start", "schedule_to_close"])
async def test_waiting_activities_are_timed_out(client: Client, timeout: str) -> None:
    async with worker(client, TimingOut, hanging):
        assert await (await client.start(TimingOut, timeout, "nobody")).result() == timeout
    assert seen.infos == []


async def test_a_sweep_finds_the_attempt_of_a_worker_that_does_not_answer(
    client: Client, sql: asyncpg.Connection[Any]
) -> None:
    """The deadline holds by the database's clock, whatever the process that runs the attempt does."""
    async with worker(client, TimingOut, hanging):
        instance = await client.start(TimingOut, "start_to_close")
        await eventually(lambda: seen.infos == [1])
        await sql.execute("update aioflow.activity set deadline = aioflow.clock()")
        assert await instance.result() == "start_to_close"


@activity.defn(retry=FAST, heartbeat=5)
async def counting(upto: int) -> list[int]:
    """Goes on where the last attempt stopped."""
    info = activity.info()
    done = info.heartbeat_details[0] if info.heartbeat_details else 0
    for number in range(done + 1, upto + 1):
        activity.heartbeat(number)
        seen.infos.append(number)
        if number % 2 == 0:
            raise ConnectionError("broken")
    return [info.attempt, done]


class Counting(Workflow):
    async def handle(self) -> list[int]:
        return await counting(5)


async def test_the_next_attempt_finds_the_last_heartbeat(client: Client) -> None:
    async with worker(client, Counting, counting):
        assert await (await client.start(Counting)).result() == [3, 4]
    assert seen.infos == [1, 2, 3, 4, 5]


@activity.defn(heartbeat=0.3, retry=RetryPolicy(max_attempts=1))
async def beating() -> str:
    for _ in range(40):
        await asyncio.sleep(0.02)
        activity.heartbeat()
    return "alive"


class Beating(Workflow):
    async def handle(self) -> str:
        return await beating()


async def test_heartbeats_keep_an_attempt_alive(client: Client) -> None:
    async with worker(client, Beating, beating):
        assert await (await client.start(Beating)).result() == "alive"


@activity.defn
async def stubborn(swallow: bool) -> str:
    seen.started.set()
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        await asyncio.sleep(0)  # the clean-up may await: the cancellation comes once
        seen.events.append("cleaned up")
        if not swallow:
            raise
    return "too late"


class Cancelling(Workflow):
    async def handle(self, swallow: bool) -> str:
        task = asyncio.ensure_future(stubborn(swallow))
        await await_signal("stop")
        task.cancel()
        return "cancelled"


@pytest.mark.parametrize("swallow", [False, True])
async def test_a_cancelled_activity_is_told_at_once(client: Client, swallow: bool) -> None:
    async with worker(client, Cancelling, stubborn):
        instance = await client.start(Cancelling, swallow)
        await seen.started.wait()
        await instance.signal("stop")
        assert await instance.result() == "cancelled"
        await eventually(lambda: seen.events == ["cleaned up"])
        assert await (await client.start(Cancelling.options(id="next"), True)).describe()  # it goes on working


class Waiting(Workflow):
    async def handle(self) -> str:
        return await stubborn(False)


async def test_closing_a_run_from_outside_cancels_what_runs_for_it(client: Client) -> None:
    """Nobody told this process: it learns it by asking whether the attempt is still its own."""
    async with worker(client, Waiting, stubborn):
        instance = await client.start(Waiting)
        await seen.started.wait()
        await instance.terminate("enough")
        await eventually(lambda: seen.events == ["cleaned up"])


@activity.defn
def polite() -> str:
    seen.started.set()
    while not activity.cancelled():
        threading.Event().wait(0.01)
    seen.events.append("stopped")
    return "too late"


class WaitingForAThread(Workflow):
    async def handle(self) -> str:
        return await activity(polite)


async def test_a_sync_activity_sees_its_cancellation(client: Client) -> None:
    async with worker(client, WaitingForAThread, polite):
        instance = await client.start(WaitingForAThread)
        await eventually(seen.started.is_set)
        await instance.cancel("enough")
        await eventually(lambda: seen.events == ["stopped"])


@activity.defn(name="elsewhere")
async def elsewhere() -> str:
    return "found"


class Elsewhere(Workflow):
    async def handle(self) -> str:
        return await elsewhere()


async def test_an_activity_nobody_knows_stays_queued(client: Client, sql: asyncpg.Connection[Any]) -> None:
    async with worker(client, Elsewhere, flaky):
        instance = await client.start(Elsewhere)
        await eventually(lambda: sql.fetchval("select count(*) from aioflow.activity"))
        assert await sql.fetchval("select deliveries from aioflow.activity") == 0
        async with worker(client, elsewhere):
            assert await instance.result() == "found"


@activity.defn
async def takes_a_number(value: int) -> int:
    return value


class SendsText(Workflow):
    async def handle(self) -> int:
        old = activity.defn(name="takes_a_number")(_takes_text)
        return await activity(old.options(retry=RetryPolicy(max_attempts=1)), "text")


async def _takes_text(value: str) -> int:
    return 0


async def test_arguments_that_do_not_fit_fail_the_attempt(client: Client) -> None:
    async with worker(client, SendsText, takes_a_number):
        instance = await client.start(SendsText)
        with pytest.raises(WorkflowFailed) as caught:
            await instance.result()
    assert "takes_a_number" in str(caught.value)


class Single(Workflow):
    async def handle(self) -> int:
        return await flaky(0)


async def test_an_attempt_whose_outcome_is_refused_is_given_back(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("complete_activities", "retry_activities"):
        write = getattr(Activities, name)

        async def refuse(store: Activities, items: Any, write: Any = write) -> Any:
            if len({info.attempt_id for info in seen.infos}) < 2:
                raise StoreError("refused")
            return await write(store, items)

        monkeypatch.setattr(Activities, name, refuse)
    async with worker(client, Single, flaky):
        assert await (await client.start(Single)).result(timeout=20) == 1
    assert [info.attempt for info in seen.infos] == [1, 1]
