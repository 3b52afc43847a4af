"""aioflow: durable workflows for asyncio on nothing but PostgreSQL.

Authoring names only; what runs them is in `aioflow.client` and `aioflow.worker`. ``import aioflow as af`` is the idiom
beside ``from aioflow import …``.
"""

from aioflow.api.activity import activity
from aioflow.api.durable import (
    all_,
    any_,
    await_condition,
    await_signal,
    now,
    rng,
    side_effect,
    timer,
    uuid4,
    uuid7,
    workflow_info,
)
from aioflow.api.messages import query, signal
from aioflow.api.workflow import Workflow
from aioflow.core.context import WorkflowInfo
from aioflow.core.retry import RetryPolicy
from aioflow.errors import (
    ActivityCancelled,
    ActivityError,
    ActivityFailed,
    ActivityTimedOut,
    AioflowError,
    ApplicationError,
    NotDurable,
    NotInWorkflow,
    RemoteError,
    WorkflowCancelled,
    WorkflowFailed,
    WorkflowTerminated,
    WorkflowTimedOut,
)

__version__ = "0.1.0"

__all__ = [
    "ActivityCancelled",
    "ActivityError",
    "ActivityFailed",
    "ActivityTimedOut",
    "AioflowError",
    "ApplicationError",
    "NotDurable",
    "NotInWorkflow",
    "RemoteError",
    "RetryPolicy",
    "Workflow",
    "WorkflowCancelled",
    "WorkflowFailed",
    "WorkflowInfo",
    "WorkflowTerminated",
    "WorkflowTimedOut",
    "activity",
    "all_",
    "any_",
    "await_condition",
    "await_signal",
    "now",
    "query",
    "rng",
    "side_effect",
    "signal",
    "timer",
    "uuid4",
    "uuid7",
    "workflow_info",
]
