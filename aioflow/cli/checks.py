"""What `aioflow doctor` looks at. Each check says how it stands; none changes anything."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from aioflow.cli.exits import ExitCode, exit_code
from aioflow.cli.output import span
from aioflow.errors import AioflowError, MigrationError, SchemaTooNew
from aioflow.store import migrations
from aioflow.store.inspection import OLDEST_SERVER, ServerFacts, hints_arrive, server_facts
from aioflow.store.pool import Database
from aioflow.store.rows import Violation, WorkerInfo
from aioflow.store.store import Store

__all__ = ["Check", "checks", "violations"]

_SKEW = 1.0
_FULL = 0.9
_SHOWN = 5
State = Literal["ok", "warning", "error"]


@dataclass(frozen=True, slots=True)
class Check:
    """One finding; ``code`` is what an error ends the command with."""

    name: str
    state: State
    detail: str
    code: ExitCode = ExitCode.OK


async def checks(dsn: str, listen_dsn: str) -> AsyncIterator[Check]:
    """All checks in order; the first that fails for good ends them, as those behind it need it."""
    try:
        facts = await server_facts(dsn)
        for check in _server(facts):
            yield check
        schema = await _schema(dsn)
        yield schema
        yield await _listen(listen_dsn)
        if schema.state == "error":
            return
        async with await Database.connect(dsn, max_size=1, application_name="aioflow doctor") as database:
            store = Store(database)
            yield await _clock(store)
            for check in [*await _queues(store), *await _workers(store), await _quarantine(store)]:
                yield check
    except AioflowError as error:
        yield Check("database", "error", str(error), exit_code(error))


async def violations(dsn: str) -> list[Violation]:
    """What contradicts the protocol; reads whole tables."""
    async with await Database.connect(dsn, max_size=1, application_name="aioflow doctor") as database:
        return await Store(database).invariants()


def _server(facts: ServerFacts) -> list[Check]:
    old = facts.version_number < OLDEST_SERVER * 10_000
    found = [
        Check("server", "error", f"Postgres {facts.version} is too old: {OLDEST_SERVER} is needed", ExitCode.FAILED)
        if old
        else Check("server", "ok", f"Postgres {facts.version}")
    ]
    if facts.standby:
        found.append(Check("server", "error", "it is a standby: nothing can be written", ExitCode.FAILED))
    risks = {
        "fsync": "a crash of the machine can destroy the database",
        "full_page_writes": "a crash of the machine can destroy pages",
    }
    for name, risk in risks.items():
        value = getattr(facts, name)
        found.append(Check(name, "ok", value) if value == "on" else Check(name, "warning", f"{value}: {risk}"))
    commit = facts.synchronous_commit
    risky = commit in ("off", "local")
    why = ": what other sessions commit can be lost in a crash (workers and clients turn it on for themselves)"
    found.append(Check("synchronous_commit", "warning" if risky else "ok", commit + why if risky else commit))
    used = f"{facts.connections} of {facts.max_connections} in use"
    full = facts.connections > _FULL * facts.max_connections
    found.append(Check("connections", "warning" if full else "ok", used))
    return found


async def _schema(dsn: str) -> Check:
    try:
        pending = await migrations.pending(dsn)
        if pending:
            what = f"{len(pending)} migration(s) missing, from {pending[0].number:04} on: run `aioflow migrate`"
            return Check("schema", "error", what, ExitCode.SCHEMA)
        async with await Database.connect(dsn, max_size=1) as database:
            await migrations.check_schema(database)
    except (MigrationError, SchemaTooNew) as error:
        return Check("schema", "error", str(error), ExitCode.SCHEMA)
    return Check("schema", "ok", f"migration {migrations.known()[-1].number:04}")


async def _listen(dsn: str) -> Check:
    problem = await hints_arrive(dsn)
    if problem is None:
        return Check("listen", "ok", "notifications arrive")
    return Check("listen", "warning", f"no notifications, workers fall back to polling: {problem}")


async def _clock(store: Store) -> Check:
    before = datetime.now(UTC)
    there = await store.clock()
    took = datetime.now(UTC) - before
    skew = (there - before - took / 2).total_seconds()
    unsure = took.total_seconds() / 2
    said = f"the database is {abs(skew):.3f} s {'ahead of' if skew > 0 else 'behind'} this machine (± {unsure:.3f} s)"
    return Check("clock", "warning" if abs(skew) - unsure > _SKEW else "ok", said)


async def _queues(store: Store) -> list[Check]:
    found = []
    for queue in await store.backlog():
        waiting = f"{queue.runs} runs and {queue.activities} activities wait, the oldest for {span(queue.oldest)}"
        if queue.workers:
            found.append(Check(f"queue {queue.queue}", "ok", f"{waiting}; {queue.workers} workers"))
        else:
            found.append(Check(f"queue {queue.queue}", "warning", f"{waiting}, and no worker serves it"))
    return found or [Check("queues", "ok", "nothing waits")]


async def _workers(store: Store) -> list[Check]:
    workers = await store.workers(dead=True)
    live = [one for one in workers if one.live]
    late = [one for one in workers if not one.live and not one.dead]
    gone = sum(one.dead for one in workers)
    found = [Check("workers", "ok", f"{_told(live) or 'none'} live; {gone} gone in the last day")]
    if late:
        what = f"{_told(late)}: lease over, and no live worker has taken over yet"
        found.append(Check("workers", "warning", what))
    return found


async def _quarantine(store: Store) -> Check:
    found = await store.quarantined(limit=_SHOWN + 1)
    if not found:
        return Check("quarantine", "ok", "nothing is in quarantine")
    names = [one.instance_id if one.activity is None else f"{one.activity} of {one.instance_id}" for one in found]
    more = ", …" if len(found) > _SHOWN else ""
    how = "they killed workers; mend the code, then `aioflow workflow release INSTANCE`"
    return Check("quarantine", "warning", f"{', '.join(names[:_SHOWN])}{more}: {how}")


def _told(workers: list[WorkerInfo]) -> str:
    names = ", ".join(one.identity for one in workers[:5])
    more = f" and {len(workers) - 5} more" if len(workers) > 5 else ""
    return f"{len(workers)} ({names}{more})" if workers else ""
