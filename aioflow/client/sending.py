"""Messages to instances: signals, cancellation, termination."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final
from uuid import UUID

from aioflow.client.outcomes import refused
from aioflow.client.plain import check_reason
from aioflow.client.session import RETRY_KEY_KEPT, Session
from aioflow.client.starting import digest
from aioflow.core.definition import WorkflowDefinition
from aioflow.core.events import CancelRequested, RunTerminated, SignalReceived
from aioflow.core.keys import InstanceKey
from aioflow.core.versions import encode
from aioflow.errors import InstanceNotFound
from aioflow.store.rows import CancelRequest, DeliveryOutcome, SignalRequest, TerminateRequest
from aioflow.telemetry import get_logger

_UNSET_TIME: Final = datetime(1970, 1, 1, tzinfo=UTC)  # the database says when
CLOSING_PATIENCE: Final = 3.0
_PAUSE: Final = 0.02

log = get_logger("aioflow.client")


async def signal(
    session: Session,
    key: InstanceKey,
    definition: WorkflowDefinition | None,
    wanted: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> None:
    """Deliver one signal, once."""
    name, payload, request_key = await session.known.message(key, definition, wanted, args, kwargs)
    own = request_key or session.ids().hex
    event = SignalReceived(at=_UNSET_TIME, ref=own, payload=payload, name=name, identity=session.identity)
    request = SignalRequest(
        namespace=key.namespace,
        instance_id=key.instance_id,
        record=encode(event),
        key=own,
        digest=digest("signal", name, payload),
        keep=None if request_key else RETRY_KEY_KEPT,
        alone=request_key is not None,
    )
    await _deliver(session, key, partial(session.signal, request))


async def cancel(session: Session, key: InstanceKey, reason: str | None, grace: float | None) -> None:
    """Ask for cancellation; asking again changes nothing."""
    reason = check_reason(reason, "cancel(reason=)")
    own = session.ids().hex
    event = CancelRequested(at=_UNSET_TIME, ref=own, reason=reason, identity=session.identity, grace=grace)
    request = CancelRequest(
        namespace=key.namespace,
        instance_id=key.instance_id,
        record=encode(event),
        grace=grace,
        key=own,
        keep=RETRY_KEY_KEPT,
        alone=False,
    )

    async def send() -> DeliveryOutcome:
        return (await session.store.request_cancel([request]))[0]

    await _deliver(session, key, send)


async def terminate(session: Session, key: InstanceKey, run_id: UUID | None, reason: str | None) -> UUID:
    """Close a run by force; gives the run that was closed."""
    reason = check_reason(reason, "terminate(reason=)")
    own = session.ids()
    event = RunTerminated(at=_UNSET_TIME, reason=reason, identity=session.identity)
    request = TerminateRequest(
        namespace=key.namespace,
        instance_id=key.instance_id,
        run_id=run_id,
        commit=own,
        record=encode(event),
        key=own.hex,
        keep=RETRY_KEY_KEPT,
        alone=False,
    )
    (answer,) = await session.store.terminate([request])
    if answer.outcome == "unknown" and run_id is not None:
        raise InstanceNotFound(f"there is no run {run_id} of instance {key.instance_id!r}")
    if answer.outcome not in ("closed", "duplicate") or answer.run_id is None:
        raise refused(key, answer.outcome)
    session.done(answer.run_id)
    return answer.run_id


async def release(session: Session, key: InstanceKey) -> bool:
    """Let an instance and its activities out of quarantine; whether anything was in it."""
    (answer,) = await session.store.release_quarantined([key])
    if answer.outcome in ("closed", "unknown"):
        raise refused(key, answer.outcome)
    return answer.outcome == "released"


async def _deliver(session: Session, key: InstanceKey, send: Callable[[], Awaitable[DeliveryOutcome]]) -> None:
    """Send until taken or refused; an instance that is about to close is asked again for a few seconds."""
    loop = asyncio.get_running_loop()
    deadline, pause = loop.time() + CLOSING_PATIENCE, _PAUSE
    while (answer := await send()).outcome == "closing" and loop.time() + pause <= deadline:
        await asyncio.sleep(pause)
        pause *= 1.5
    if answer.outcome not in ("accepted", "duplicate"):
        raise refused(key, answer.outcome)
    if answer.outcome == "duplicate":
        log.debug("request_repeated", instance_id=key.instance_id, run_id=str(answer.run_id))
    if answer.ready and answer.queue is not None:
        session.wake(answer.queue)
