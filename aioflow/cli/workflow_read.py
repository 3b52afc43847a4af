"""Commands that only look: list, show, history, result."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from typing import TYPE_CHECKING, Any
from uuid import UUID

import click

from aioflow.cli.exits import ExitCode
from aioflow.cli.options import (
    database_options,
    instance_argument,
    json_option,
    run_option,
    settings_of,
)
from aioflow.cli.output import cell, document, fields, json_text, note, table

if TYPE_CHECKING:
    from aioflow.client import Description, Instance
    from aioflow.errors import RemoteError, WorkflowError

__all__ = ["COMMANDS", "tell_result"]

_LOOK_EVERY = 3.0
"""Seconds between looks at an instance whose result is waited for."""


@click.command("list")
@click.option("--status", metavar="STATUS", help="reserved, running, completed, failed, cancelled, terminated, ...")
@click.option("--workflow", metavar="NAME", help="Only instances of this workflow.")
@click.option("-q", "--queue", metavar="NAME", help="Only instances on this queue.")
@click.option("--prefix", metavar="TEXT", help="Only instances whose id begins with this.")
@click.option("--limit", type=click.IntRange(1), metavar="N", default=100, show_default=True, help="At most so many.")
@database_options
@json_option
def list_(
    status: str | None,
    workflow: str | None,
    queue: str | None,
    prefix: str | None,
    limit: int,
    as_json: bool,
    **flags: Any,
) -> None:
    """List instances, the most recently started first."""
    from aioflow.cli.connecting import connected

    settings = settings_of(**flags)

    async def read() -> list[Any]:
        async with connected(settings) as client:
            found = client.list(status=status, workflow=workflow, queue=queue, prefix=prefix, limit=limit + 1)
            return [one async for one in found]

    found = asyncio.run(read())
    shown = found[:limit]
    if as_json:
        document(shown)
    elif shown:
        rows = [
            (one.instance_id, one.workflow, one.queue, one.status, one.started_at, one.closed_at, one.blocked_reason)
            for one in shown
        ]
        headers = ["instance", "workflow", "queue", "status", "started", "closed", "blocked"]
        columns = len(headers) if any(one.blocked_reason for one in shown) else len(headers) - 1
        table(headers[:columns], [row[:columns] for row in rows])
    if len(found) > limit:
        note(f"there are more than {limit}: --limit shows more, filters fewer")
    elif not shown:
        note("no instance fits")


@click.command("show")
@instance_argument
@run_option
@database_options
@json_option
def show(instance_id: str, run_id: UUID | None, as_json: bool, **flags: Any) -> None:
    """Show how INSTANCE stands, and what it waits for."""
    from aioflow.cli.connecting import connected

    settings = settings_of(**flags)

    async def read() -> Description:
        async with connected(settings) as client:
            return await client.instance(instance_id, run_id=run_id).describe()

    found = asyncio.run(read())
    if as_json:
        document(found)
        return
    fields(_told(found))
    if found.pending:
        click.echo()
        headers = ["activity", "address", "state", "attempt", "since", "worker", "last failure"]
        table(headers, [_pending(one) for one in found.pending], right=[3])


def _told(found: Description) -> list[tuple[str, object]]:
    took = found.closed_at - found.started_at if found.closed_at and found.started_at else None
    served = "a live worker serves it" if found.served else "no live worker serves it"
    return [
        ("instance", found.instance_id),
        ("namespace", found.namespace if found.namespace != "default" else None),
        ("workflow", found.workflow),
        ("status", found.status),
        ("waits for", found.waiting_for),
        ("blocked", found.blocked_reason),
        ("attempts", found.attempt if found.open and found.attempt > 1 else None),
        ("queue", f"{found.queue} ({served})" if found.open else found.queue),
        ("run", found.run_id),
        ("runs", f"{found.number} of {found.run_count}" if found.run_count > 1 else None),
        ("build", found.build),
        ("started", found.started_at or found.created_at),
        ("closed", found.closed_at),
        ("took", took),
        ("cancel asked", found.cancel_requested_at),
        ("history", f"{found.history_length} events"),
        ("not consumed", f"{found.unconsumed} messages" if found.unconsumed else None),
        ("timers", found.timers or None),
        ("next timer", found.next_wake_at if found.timers else None),
    ]


def _pending(one: Any) -> tuple[object, ...]:
    state = "running" if one.running else "quarantined" if one.quarantined else "waiting"
    since = one.started_at if one.running else one.scheduled_at
    return one.name, one.ref, state, one.attempt, since, one.worker, one.last_failure


@click.command("history")
@instance_argument
@run_option
@database_options
@json_option
def history(instance_id: str, run_id: UUID | None, as_json: bool, **flags: Any) -> None:
    """Print the history of INSTANCE as a timeline; with --json the events as they are stored."""
    from aioflow.cli.connecting import connected

    settings = settings_of(**flags)

    async def read() -> list[Any]:
        async with connected(settings) as client:
            return await client.instance(instance_id, run_id=run_id).history()

    events = asyncio.run(read())
    from aioflow.cli.timeline import HEADERS, event_data, timeline

    if as_json:
        document([event_data(one) for one in events])
    elif events:
        table(HEADERS, timeline(events), right=[0, 1])
    else:
        note("nothing has run yet")


@click.command("result")
@instance_argument
@run_option
@click.option("--timeout", type=float, metavar="SECONDS", help="Exit code 5 when it takes longer.  [default: wait]")
@database_options
@json_option
def result(instance_id: str, run_id: UUID | None, timeout: float | None, as_json: bool, **flags: Any) -> None:
    """Wait for the result of INSTANCE, and print it as JSON.

    Exit code 1 when it ended without one; --json prints the error too.
    """
    from aioflow.cli.connecting import connected

    settings = settings_of(**flags)

    async def wait() -> None:
        async with connected(settings) as client:
            await tell_result(client.instance(instance_id, run_id=run_id), timeout=timeout, as_json=as_json)

    asyncio.run(wait())


async def tell_result(instance: Instance[Any], *, timeout: float | None, as_json: bool) -> None:
    """Wait for a result and print it, or the error it ended with and leave with code 1."""
    from aioflow.errors import WorkflowError

    telling = asyncio.create_task(_tell_obstacles(instance))
    try:
        value = await instance.result(timeout)
    except WorkflowError as error:
        if as_json:
            document(_ended(instance, error))
        note(f"aioflow: {cell(error)}")
        _tell_causes(error.cause)
        sys.exit(ExitCode.FAILED)
    finally:
        telling.cancel()
    if as_json:
        run_id = instance.run_id or (await instance.describe()).run_id
        document({"instance_id": instance.id, "run_id": run_id, "status": "completed", "result": value})
    else:
        click.echo(json_text(value, indent=2))


async def _tell_obstacles(instance: Instance[Any]) -> None:
    """Say so, once for each, when what is waited for cannot come without somebody doing something."""
    from aioflow.errors import AioflowError

    said: set[str] = set()
    while True:
        await asyncio.sleep(_LOOK_EVERY)
        with contextlib.suppress(AioflowError):  # the wait itself tells
            found = await instance.describe()
            stuck = found.open and (found.blocked_reason or not found.served)
            if stuck and (what := f"{instance.id} waits for {found.waiting_for}") not in said:
                said.add(what)
                note(cell(what))


def _ended(instance: Instance[Any], error: WorkflowError) -> dict[str, Any]:
    kinds = {
        "WorkflowFailed": "failed",
        "WorkflowCancelled": "cancelled",
        "WorkflowTerminated": "terminated",
        "WorkflowTimedOut": "timed_out",
    }
    status = kinds.get(type(error).__name__, "failed")
    told: dict[str, Any] = {"instance_id": instance.id, "run_id": error.run_id, "status": status}
    return told | {"error": {"message": str(error), "cause": _as_data(error.cause)}}


def _as_data(error: BaseException | None) -> dict[str, Any] | None:
    from aioflow.errors import RemoteError

    if not isinstance(error, RemoteError):
        return None
    data = {"type": error.type, "message": error.message, "details": error.details, "traceback": error.traceback}
    if error.errors:
        data["errors"] = [_as_data(one) for one in error.errors]
    return data | {"cause": _as_data(error.__cause__)}


def _tell_causes(error: RemoteError | None) -> None:
    """What it was raised from, one a line; the first is told already."""
    cause = error.__cause__ if error is not None else None
    while cause is not None:
        note(f"  from {cell(cause)}")
        cause = cause.__cause__


COMMANDS = (list_, show, history, result)
