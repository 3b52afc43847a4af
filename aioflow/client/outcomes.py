"""What the database answered, as errors of the caller. Nothing was stored when one of these is raised."""

from __future__ import annotations

from uuid import UUID

from aioflow.core.keys import InstanceKey
from aioflow.errors import (
    ClientError,
    InstanceAlreadyExists,
    InstanceClosed,
    InstanceClosing,
    InstanceFull,
    InstanceNotFound,
    RequestConflict,
    UnknownNamespace,
)

_REUSE = {
    "reject": "its reuse policy is 'reject'",
    "allow_failed_only": "it completed, and the reuse policy is 'allow_failed_only'",
}


def refused_start(key: InstanceKey, outcome: str, run_id: UUID | None, reuse: str) -> ClientError:
    """The error for a start or reservation that was refused."""
    name = repr(key.instance_id)
    if outcome == "exists":
        state = f"open (run {run_id})" if run_id else "reserved"
        return InstanceAlreadyExists(f"instance {name} is {state} already", run_id=run_id)
    if outcome == "closed":
        why = _REUSE.get(reuse, "the reuse policy refuses another run")
        return InstanceAlreadyExists(f"instance {name} was used before, and {why}", run_id=run_id)
    return refused(key, outcome)


def refused(key: InstanceKey, outcome: str) -> ClientError:
    """The error for a message or request that was refused."""
    name = f"instance {key.instance_id!r}"
    match outcome:
        case "closed" | "already":
            return InstanceClosed(f"{name} is closed and takes no more messages")
        case "closing":
            return InstanceClosing(f"{name} is about to close; try again")
        case "full":
            return InstanceFull(f"too many signals wait for {name} already; try again when its run has taken some")
        case "conflict":
            return RequestConflict(f"the request key was used before on {name}, with another body")
        case "unknown":
            return InstanceNotFound(f"there is no {name} in namespace {key.namespace!r}")
        case "unknown_namespace":
            return UnknownNamespace(f"namespace {key.namespace!r} does not exist in this database")
    return ClientError(f"{name}: the database answered {outcome!r}, which this version does not know")
