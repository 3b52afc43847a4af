"""Short ways to do the usual things with a store."""

from __future__ import annotations

import asyncio
import os
import time
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import asyncpg

from aioflow.core import events as ev
from aioflow.core.decision import place
from aioflow.core.events import Event, Record
from aioflow.core.ids import IdSource
from aioflow.core.keys import InstanceKey
from aioflow.core.versions import decode, encode
from aioflow.store import rows
from aioflow.store.store import Store
from tests.support import eventually

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ids = IdSource(time.time, os.urandom)


def record(event: Event) -> Record:
    return encode(event)


def started(payload: bytes = b"\x01[]") -> Record:
    return record(ev.RunStarted(at=NOW, workflow="W", queue="q", seed="s", payload=payload))


async def later(conn: asyncpg.Connection, seconds: float) -> None:
    """Move the database's clock."""
    await conn.execute(
        "create or replace function aioflow.clock() returns timestamptz language plpgsql stable as "
        f"$$ begin return pg_catalog.clock_timestamp() + interval '{float(seconds)} s'; end $$"
    )


def signalled(name: str = "approve", payload: bytes | None = b"\x01[1]", ref: str | None = None) -> Record:
    return record(ev.SignalReceived(at=NOW, ref=ref or ids().hex, name=name, payload=payload))


def completed(token: UUID | None, payload: bytes = b"\x011", ref: str = "a") -> Record:
    return record(ev.ActivityCompleted(at=NOW, ref=ref, attempt_id=token, payload=payload))


def key(instance_id: str = "i") -> InstanceKey:
    return InstanceKey.of("default", instance_id)


def activity(ref: str = "a", **options: Any) -> rows.NewActivity:
    options = {"queue": "q", "payload": b"\x01[]", "activity": "act", **options}
    return rows.NewActivity(ref=ref, execution_id=ids(), **options)


def scheduled(new: rows.NewActivity) -> Record:
    return record(
        ev.ActivityScheduled(at=NOW, ref=new.ref, activity=new.activity, execution_id=new.execution_id, queue=new.queue)
    )


def inputs(loaded: rows.Loaded) -> list[Record]:
    """What was loaded in the order in which it is applied."""
    timers = [event for event in map(decode, loaded.timers) if isinstance(event, ev.TimerFired)]
    inbox = [event for event in map(decode, loaded.inbox) if isinstance(event, ev.Input)]
    assert (len(timers), len(inbox)) == (len(loaded.timers), len(loaded.inbox))
    return [encode(event) for event in place(inbox, timers)]


class Bench:
    """One worker on a store."""

    def __init__(self, store: Store, conn: asyncpg.Connection) -> None:
        self.store, self.conn = store, conn
        self.worker, self.epoch = ids(), 0

    async def add_worker(self, lease: float = 60.0) -> UUID:
        self.worker = ids()
        await self.store.register_worker(
            rows.WorkerRow(worker_id=self.worker, identity="test", queues=("q",), lease=lease)
        )
        return self.worker

    async def start(self, instance_id: str = "i", **options: Any) -> rows.StartOutcome:
        options = {"run_id": ids(), "workflow": "W", "queue": "q", "record": started(), **options}
        options.setdefault("namespace", "default")
        request = rows.StartRequest(instance_id=instance_id, **options)
        return (await self.store.start([request]))[0]

    async def signal(self, instance_id: str = "i", **options: Any) -> rows.DeliveryOutcome:
        options = {"record": signalled(), **options}
        request = rows.SignalRequest(namespace="default", instance_id=instance_id, **options)
        return (await self.store.signal([request]))[0]

    async def cancel(self, instance_id: str = "i", **options: Any) -> rows.DeliveryOutcome:
        event = record(ev.CancelRequested(at=NOW, reason="enough"))
        request = rows.CancelRequest(namespace="default", instance_id=instance_id, record=event, **options)
        return (await self.store.request_cancel([request]))[0]

    async def terminate(self, instance_id: str = "i", **options: Any) -> rows.TerminateOutcome:
        options = {"commit": ids(), "record": record(ev.RunTerminated(at=NOW, reason="off")), **options}
        request = rows.TerminateRequest(namespace="default", instance_id=instance_id, **options)
        return (await self.store.terminate([request]))[0]

    async def claim(self, limit: int = 10) -> list[rows.ClaimedRun]:
        return await self.store.claim_runs(self.worker, self.epoch, ["q"], ["W"], limit, ids())

    async def claim_one(self) -> rows.ClaimedRun:
        (run,) = await self.claim(1)
        return run

    async def load(self, run: rows.ClaimedRun) -> rows.Loaded:
        (loaded,) = await self.store.load([run])
        assert loaded is not None
        return loaded

    async def claim_activities(self, limit: int = 10) -> list[rows.ClaimedActivity]:
        return await self.store.claim_activities(self.worker, self.epoch, ["q"], ["act"], [ids() for _ in range(limit)])

    def decide(self, loaded: rows.Loaded, **options: Any) -> rows.Commit:
        """A commit that consumes what was loaded."""
        run = loaded.run
        records = inputs(loaded) + options.pop("records", [])
        records += [scheduled(new) for new in options.get("activities", [])]
        records += [record(ev.TimerStarted(at=NOW, ref=ref, due_at=due)) for ref, due in options.get("timers", [])]
        if (close := options.get("close")) is not None:
            terminal = {"completed": ev.RunCompleted, "failed": ev.RunFailed}[close]
            records.append(record(terminal(at=NOW, payload=b"\x0142")))
        return rows.Commit(
            key=run.key,
            run_id=run.run_id,
            owner=run.owner,
            token=run.token,
            next_token=ids(),
            base_seq=loaded.next_seq,
            gen=loaded.gen,
            records=records,
            **options,
        )

    async def step(self, **options: Any) -> rows.CommitOutcome:
        """Claim, load and commit one run."""
        commit = self.decide(await self.load(await self.claim_one()), **options)
        return (await self.store.commit([commit]))[0]

    async def complete(self, attempt: rows.ClaimedActivity, **options: Any) -> rows.Recorded:
        options = {"token": attempt.token, "record": completed(attempt.token, ref=attempt.ref), **options}
        outcome = rows.ActivityOutcome(key=attempt.key, run_id=attempt.run_id, ref=attempt.ref, **options)
        return (await self.store.complete_activities([outcome]))[0]

    async def result(self, instance_id: str = "i") -> rows.ResultRow:
        (found,) = await self.store.results([rows.InstanceRef(key(instance_id))])
        assert found is not None
        return found

    async def hot(self, instance_id: str = "i") -> Any:
        return await self.conn.fetchrow("select * from aioflow.instance_hot where instance_id = $1", instance_id)

    async def kinds(self, run_id: UUID | None, instance_id: str = "i") -> list[str]:
        assert run_id is not None
        return [e.record.kind for e in await self.store.read_history(key(instance_id), run_id)]

    async def leftovers(self) -> int:
        """Rows that only open instances have."""
        return await self.conn.fetchval(
            "select (select count(*) from aioflow.activity) + (select count(*) from aioflow.timer)"
            " + (select count(*) from aioflow.inbox) + (select count(*) from aioflow.instance_hot)"
        )

    async def healthy(self) -> None:
        assert await self.store.invariants() == []

    async def waiting(self, task: asyncio.Future[Any] | None = None, count: int = 1) -> None:
        """Until ``count`` backends of this database wait for a lock (or the task ended)."""

        async def check() -> bool:
            blocked = await self.conn.fetchval(
                "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
            )
            return blocked >= count or (task is not None and task.done())

        await eventually(check, within=5)
