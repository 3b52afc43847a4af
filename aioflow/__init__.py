"""aioflow: durable workflows for asyncio on nothing but PostgreSQL.

Authoring names only; what runs them is in `aioflow.client` and `aioflow.worker`. ``import aioflow as af`` is the idiom
beside ``from aioflow import …``.

The names are loaded together, at the first use of any: the command line, which only passes through here, stays quick.
"""

import importlib
import typing

if typing.TYPE_CHECKING:
    from aioflow.api.activity import activity
    from aioflow.api.attempt import ActivityInfo
    from aioflow.api.durable import (
        all_,
        any_,
        await_condition,
        await_signal,
        logger,
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
        NotInActivity,
        NotInWorkflow,
        RemoteError,
        StructuralLimitExceeded,
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
    "ActivityInfo",
    "ActivityTimedOut",
    "AioflowError",
    "ApplicationError",
    "NotDurable",
    "NotInActivity",
    "NotInWorkflow",
    "RemoteError",
    "RetryPolicy",
    "StructuralLimitExceeded",
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
    "logger",
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

_HOMES = (
    "api.activity",
    "api.attempt",
    "api.durable",
    "api.messages",
    "api.workflow",
    "core.context",
    "core.retry",
    "errors",
)

if not typing.TYPE_CHECKING:  # else a type checker would take any name

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module 'aioflow' has no attribute {name!r}")
        homes = [vars(importlib.import_module(f"aioflow.{home}")) for home in _HOMES]
        for each in __all__:
            globals()[each] = next(home[each] for home in homes if each in home)
        return globals()[name]

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
