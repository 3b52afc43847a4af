"""What a session and a worker guard against when answers are lost or late, and whom they tell what they did."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import asyncpg
import pytest

from aioflow import RetryPolicy, Workflow, activity, await_signal
from aioflow.client import Client
from aioflow.core.fault import set_fault_hook
from aioflow.core.keys import InstanceKey
from aioflow.core.registry import Registry
from aioflow.errors import DatabaseUnavailable
from aioflow.store.activities import Activities
from aioflow.store.notify import DONE
from aioflow.store.queries import sql as statement
from aioflow.store.rows import Commit, CommitOutcome
from aioflow.store.store import Store
from aioflow.worker.committer import Committer
from aioflow.worker.session import Profile, Session
from tests.support import eventually
from tests.worker.conftest import QUICK, worker


@activity.defn(retry=RetryPolicy(max_attempts=1))
async def one(x: int) -> int:
    return x + 1


@activity.defn
async def endless() -> None:
    STARTED.set()
    try:
        await asyncio.Event().wait()
    finally:
        STOPPED.set()


STARTED, STOPPED = asyncio.Event(), asyncio.Event()


class Stepping(Workflow):
    async def handle(self, x: int) -> int:
        return await one(x)


class Cancelling(Workflow):
    async def handle(self) -> str:
        task = asyncio.ensure_future(endless())
        await await_signal("stop")
        task.cancel()
        await await_signal("end")
        return "ended"


class Plain(Workflow):
    async def handle(self, x: int) -> int:
        return x


@pytest.fixture
async def session(store: Store) -> AsyncIterator[Session]:
    """A registered session that knows one workflow; nothing claims in it but the test."""
    profile = Profile(
        identity="test",
        namespace="default",
        queues=("default",),
        registry=Registry(workflows=[Plain], activities=[]),
        settings=QUICK,
    )
    made = Session(store, profile)
    await made.register()
    yield made
    set_fault_hook(None)


async def test_each_claim_has_a_token_of_its_own(session: Session, client: Client) -> None:
    """By one for two, a commit that was fenced would be taken for an earlier one that was not."""
    for n in range(3):
        await client.start(Plain, n)
    claimed = [one for _ in range(3) for one in await session.claim_runs(1)]
    assert len({one.token for one in claimed}) == 3


async def test_what_a_lost_claim_takes_after_all_is_given_back(
    session: Session, client: Client, store: Store, sql: asyncpg.Connection[Any]
) -> None:
    """The claim is on its way in a connection that nobody reads any more: it must end, or find itself void, first."""
    await client.start(Plain, 1)
    transaction = sql.transaction()
    await transaction.start()
    taken = await sql.fetch(
        statement("claim_runs"), session.worker_id, 0, ["default"], ["Plain"], 5, session.ids(), False
    )
    assert len(taken) == 1
    recovering = asyncio.create_task(session.recover())
    await asyncio.wait({recovering}, timeout=0.2)
    await transaction.commit()
    await recovering
    assert await sql.fetchval("select owner from aioflow.instance_hot") is None
    assert len(await session.claim_runs(5)) == 1
    assert await store.invariants() == []


async def test_a_claim_is_not_taken_back_before_its_answer_is_known(
    session: Session, client: Client, sql: asyncpg.Connection[Any]
) -> None:
    await client.start(Plain, 1)
    answered, heard = asyncio.Event(), asyncio.Event()

    async def hook(point: str) -> None:
        if point == "claim_runs.after_send":
            answered.set()
            await heard.wait()

    set_fault_hook(hook)
    claiming = asyncio.create_task(session.claim_runs(1))
    await answered.wait()
    recovering = asyncio.create_task(session.recover())
    await asyncio.wait({recovering}, timeout=0.2)
    heard.set()
    (run,) = await claiming
    await recovering
    assert await sql.fetchval("select token from aioflow.instance_hot") == run.token


async def test_a_close_is_announced(client: Client, sql: asyncpg.Connection[Any]) -> None:
    heard: list[str] = []
    await sql.add_listener(DONE, lambda *told: heard.append(str(told[3])))
    async with worker(client, Plain):
        instance = await client.start(Plain, 1)
        assert instance.run_id is not None
        await eventually(lambda: instance.run_id is not None and instance.run_id.hex in ",".join(heard).split(","))


async def test_a_cancelled_activity_is_told_without_a_heartbeat(client: Client) -> None:
    for event in (STARTED, STOPPED):
        event.clear()
    async with worker(client, Cancelling, endless, settings=replace(QUICK, heartbeat_interval=3600.0)):
        instance = await client.start(Cancelling)
        await eventually(STARTED.is_set)
        await instance.signal("stop")
        await eventually(STOPPED.is_set)
        await instance.signal("end")
        assert await instance.result() == "ended"


async def test_a_completion_outlasts_a_database_that_is_away(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else what the activity has done is told as a failure of ours."""
    complete, away = Activities.complete_activities, [DatabaseUnavailable("away")]

    async def completing(self: Activities, outcomes: Any) -> Any:
        if away:
            raise away.pop()
        return await complete(self, outcomes)

    monkeypatch.setattr(Activities, "complete_activities", completing)
    async with worker(client, Stepping, one):
        assert await (await client.start(Stepping, 1)).result() == 2
    assert not away


async def test_a_commit_outlasts_a_database_that_is_away(session: Session) -> None:
    """Given up, nobody would know whether it took effect."""
    away = [DatabaseUnavailable("away")] * 3
    ok = CommitOutcome("ok", 1, None, False, False)
    sent: list[Commit] = []

    class Away:
        async def commit(self, commits: list[Commit]) -> list[CommitOutcome]:
            sent.extend(commits)
            if away:
                raise away.pop()
            return [ok for _ in commits]

    commit = Commit(
        key=InstanceKey.of("default", "i"),
        run_id=session.ids(),
        owner=session.worker_id,
        token=session.ids(),
        next_token=session.ids(),
        base_seq=1,
        gen=1,
        records=[],
    )
    assert await Committer(Away()).commit([commit]) == [ok]  # type: ignore[arg-type]  # as much of a store as it needs
    assert sent == [commit] * 4
