"""Starting and reserving: a call becomes a request, an answer an instance or an error."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Final, NamedTuple
from uuid import UUID

from aioflow.client.known import Target
from aioflow.client.outcomes import refused_start
from aioflow.client.session import RETRY_KEY_KEPT, Session
from aioflow.core.events import RunStarted
from aioflow.core.keys import InstanceKey, check_id
from aioflow.core.versions import encode
from aioflow.errors import ArgumentError
from aioflow.store.rows import ReserveRequest, StartRequest
from aioflow.telemetry import get_logger

_UNSET_TIME: Final = datetime(1970, 1, 1, tzinfo=UTC)  # the database says when

log = get_logger("aioflow.client")


class Started(NamedTuple):
    """A run that was started or found."""

    key: InstanceKey
    run_id: UUID


async def start(
    session: Session,
    target: Target,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    reserved: InstanceKey | None = None,
) -> Started:
    """Start a run of ``target``, of a ``reserved`` instance if given; raises what `Client.start` raises."""
    payload = session.known.encode(target, args, kwargs)
    options = target.options
    if options.request_key and options.id is None and reserved is None:
        raise ArgumentError("a request key works together with an id: options(id=..., request_key=...)")
    key = reserved or _key(session, options.id)
    run_id = session.ids()
    request = StartRequest(
        namespace=key.namespace,
        instance_id=key.instance_id,
        run_id=run_id,
        workflow=target.name,
        queue=target.queue,
        record=encode(_started(session, target, payload)),
        conflict="fail" if reserved else options.conflict,
        reuse="reject" if reserved else options.reuse,
        key=options.request_key,
        digest=digest("start", target.name, payload) if options.request_key else None,
        # A generated id is nobody else's: such starts share a transaction. Its run id makes a repeated call harmless.
        alone=options.id is not None or reserved is not None or options.request_key is not None,
    )
    answer = await session.start(request)
    if answer.outcome not in ("started", "existing") or answer.run_id is None:
        raise refused_start(key, answer.outcome, answer.run_id, request.reuse)
    if answer.again:
        log.debug("request_repeated", instance_id=key.instance_id, run_id=str(answer.run_id))
    if answer.outcome == "started":
        session.wake(target.queue)
        session.known.note(key, target.name)
    return Started(key, answer.run_id)


async def reserve(session: Session, target: Target) -> InstanceKey:
    """Reserve an instance id; raises what `Client.reserve` raises."""
    options = target.options
    key = _key(session, options.id)
    request = ReserveRequest(
        namespace=key.namespace,
        instance_id=key.instance_id,
        workflow=target.name,
        queue=target.queue,
        reuse=options.reuse,
        key=options.request_key or session.ids().hex,
        digest=digest("reserve", target.name, b""),
        keep=None if options.request_key else RETRY_KEY_KEPT,
        alone=options.id is not None or options.request_key is not None,
    )
    (answer,) = await session.store.reserve([request])
    if answer.outcome != "reserved":
        raise refused_start(key, answer.outcome, answer.run_id, request.reuse)
    session.known.note(key, target.name)
    return key


def _key(session: Session, instance_id: str | None) -> InstanceKey:
    chosen = str(session.ids()) if instance_id is None else check_id(instance_id)
    return InstanceKey.of(session.namespace, chosen)


def _started(session: Session, target: Target, payload: bytes) -> RunStarted:
    return RunStarted(
        at=_UNSET_TIME,
        payload=payload,
        workflow=target.name,
        queue=target.queue,
        seed=secrets.token_hex(16),
        identity=session.identity,
    )


def digest(kind: str, name: str, payload: bytes) -> bytes:
    """What a request key stands for: the same key with another digest is a conflict."""
    return sha256(b"\x00".join((kind.encode(), name.encode(), payload))).digest()
