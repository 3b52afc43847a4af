"""Queries and results as callers see them: encoded, sent, decoded by the hints of the code at hand."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

from aioflow.api.messages import QueryDef
from aioflow.client.arguments import encode_call
from aioflow.client.session import Session
from aioflow.core.definition import HandlerDefinition, WorkflowDefinition
from aioflow.core.durations import Duration, optional_seconds
from aioflow.core.events import Event, RunCancelled, RunCompleted, RunFailed, RunTerminated, RunTimedOut
from aioflow.core.failure import Failure
from aioflow.core.keys import InstanceKey
from aioflow.core.payload import decode_value
from aioflow.core.registry import workflow_definition
from aioflow.core.versions import decode
from aioflow.errors import (
    ArgumentError,
    ClientError,
    DefinitionError,
    ResultTimeout,
    UnknownQuery,
    UnknownWorkflow,
    WorkflowCancelled,
    WorkflowError,
    WorkflowFailed,
    WorkflowTerminated,
    WorkflowTimedOut,
)
from aioflow.store.rows import ResultRow

# -- queries --------------------------------------------------------------------------------------


async def query(
    session: Session,
    key: InstanceKey,
    run_id: UUID | None,
    definition: WorkflowDefinition | None,
    asked: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """Ask one query; raises what `Client.query` raises."""
    if not isinstance(asked, QueryDef | str):
        raise ArgumentError(f"a query is Class.method or its name, not {type(asked).__name__}")
    name = asked if isinstance(asked, str) else asked.name
    patience = None if isinstance(asked, str) else asked.timeout
    if definition is not None:
        _handler(definition, name)
    if isinstance(asked, QueryDef):
        encode_call(asked.signature, name, args, kwargs, session.limits.payload)
        definition = definition or _owner(asked)

    def prepare(workflow: str) -> tuple[WorkflowDefinition, bytes]:
        code = _code(session, workflow, definition, key)
        payload = encode_call(_handler(code, name).signature, name, args, kwargs, session.limits.payload)
        return code, payload

    code, answer = await session.queries.ask(key, run_id, name, prepare, patience=patience)
    what = f"the answer of {name}()"
    return decode_value(answer, _handler(code, name).signature.result_hint, what=what)


def _owner(asked: QueryDef[..., Any]) -> WorkflowDefinition | None:
    try:
        return workflow_definition(asked.owner)
    except DefinitionError:
        return None  # a mixin: any class that has it may be meant


def _handler(definition: WorkflowDefinition, name: str) -> HandlerDefinition:
    handler = definition.queries.get(name)
    if handler is None:
        known = ", ".join(sorted(definition.queries)) or "none"
        raise UnknownQuery(f"workflow {definition.name} has no query {name!r} (it has: {known})")
    return handler


def _code(session: Session, workflow: str, given: WorkflowDefinition | None, key: InstanceKey) -> WorkflowDefinition:
    if given is not None and given.name == workflow:
        return given
    if (found := session.known.code(workflow)) is not None:
        return found
    raise UnknownWorkflow(
        f"instance {key.instance_id!r} runs workflow {workflow!r}, whose code a query needs and this client does "
        "not have: pass its class, as in client.instance(id, TheClass) or Client.connect(..., workflows=[TheClass])"
    )


# -- results --------------------------------------------------------------------------------------


async def result(session: Session, key: InstanceKey, run_id: UUID | None, hint: Any, timeout: Duration | None) -> Any:
    """Wait for a result; raises what `Instance.result` raises. ``timeout`` in seconds or as ``timedelta``."""
    limit = None if timeout is None else optional_seconds(timeout, "result(timeout=)", positive=False)
    if limit == 0:
        return outcome(key, await _look(session, key, run_id), hint)
    try:
        async with asyncio.timeout(limit) as scope:
            row = await session.result(key, run_id)
    except TimeoutError as exc:
        if not scope.expired():
            raise
        raise ResultTimeout(f"instance {key.instance_id!r} was still open after {limit:g} s; it goes on") from exc
    return outcome(key, row, hint)


async def _look(session: Session, key: InstanceKey, run_id: UUID | None) -> ResultRow:
    """The row of the run that ends the chain, without waiting for anything but the database."""
    row = await session.result_so_far(key, run_id)
    if row is None:
        raise ResultTimeout(f"instance {key.instance_id!r} is still open; it goes on")
    return row


def outcome(key: InstanceKey, row: ResultRow, hint: Any) -> Any:
    """The result in the row of a closed run, or its error raised."""
    if row.record is None:
        raise ClientError(f"run {row.run_id} is {row.status}, yet its last event is missing")
    event = decode(row.record)
    if isinstance(event, RunCompleted):
        return decode_value(event.payload or b"", hint, what=f"the result of instance {key.instance_id!r}")
    raise _ended(key, row, event)


def _ended(key: InstanceKey, row: ResultRow, event: Event) -> WorkflowError:
    kind: type[WorkflowError]
    name = f"instance {key.instance_id!r}"
    match event:
        case RunFailed():
            kind, message = WorkflowFailed, f"{name} failed"
        case RunCancelled(reason=reason):
            kind, message = WorkflowCancelled, f"{name} was cancelled{_because(reason)}"
        case RunTerminated(reason=reason, origin=origin):
            how = "" if origin == "terminate" else f" ({origin})"
            kind, message = WorkflowTerminated, f"{name} was terminated{how}{_because(reason)}"
        case RunTimedOut(timeout=timeout):
            kind, message = WorkflowTimedOut, f"{name} ran into its {timeout} timeout"
        case _:
            kind, message = WorkflowError, f"{name} ended with {event.kind}"
    cause = Failure.from_payload(event.payload).to_error() if event.payload else None
    if cause is not None:
        message = f"{message}: {cause}"
    return kind(message, cause=cause, instance_id=key.instance_id, run_id=row.run_id)


def _because(reason: str | None) -> str:
    return f": {reason}" if reason else ""
