"""aioflow's typed errors as answers of HTTP. The first row that fits counts."""

from aioflow import RemoteError, WorkflowCancelled, WorkflowFailed, WorkflowTerminated, WorkflowTimedOut
from aioflow.errors import (
    AioflowError,
    ArgumentError,
    DatabaseUnavailable,
    InstanceAlreadyExists,
    InstanceClosed,
    InstanceClosing,
    InstanceFull,
    InstanceNotFound,
    InvalidInstanceId,
    PayloadError,
    QueryFailed,
    RequestConflict,
    ResultTimeout,
)

_STATUS: tuple[tuple[tuple[type[AioflowError], ...], int], ...] = (
    ((InstanceNotFound,), 404),
    ((InstanceAlreadyExists, InstanceClosed, RequestConflict), 409),
    ((WorkflowCancelled, WorkflowTerminated), 410),
    ((WorkflowFailed, WorkflowTimedOut), 422),
    ((ArgumentError, InvalidInstanceId, PayloadError), 422),
    ((ResultTimeout,), 202),  # no error: the order is still open
    ((DatabaseUnavailable, InstanceClosing, InstanceFull, QueryFailed), 503),  # worth another try
)


def status_of(error: AioflowError) -> int:
    return next((status for kinds, status in _STATUS if isinstance(error, kinds)), 500)


def body_of(error: AioflowError) -> dict[str, object]:
    """What the caller is told. Of a failed order also what the workflow raised: its type, text and details."""
    told: dict[str, object] = {"error": type(error).__name__, "message": str(error)}
    if isinstance(error, WorkflowFailed) and error.cause is not None:
        cause = error.cause
        while cause.type.startswith("Activity") and isinstance(cause.__cause__, RemoteError):
            cause = cause.__cause__  # what the activity raised
        told |= {"type": cause.type, "message": cause.message, "details": cause.details}
    return told
