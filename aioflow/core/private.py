"""The private names of asyncio that the workflow loop leans on, in one place.

CPython promises none of them. ``verify_private_names()`` says so at once, by name, on an interpreter that
lacks one; the alternative is a run that behaves differently there.
"""

from __future__ import annotations

import asyncio
import platform
from asyncio import mixins, tasks, timeouts
from asyncio.events import _get_running_loop as get_running_loop_or_none
from asyncio.events import _set_running_loop as set_running_loop
from asyncio.tasks import _enter_task as enter_task
from asyncio.tasks import _leave_task as leave_task
from types import FunctionType
from typing import Any, Final

from aioflow.errors import ConfigurationError

__all__ = ["enter_task", "get_running_loop_or_none", "leave_task", "set_running_loop", "verify_private_names"]

_ATTRIBUTES: Final[tuple[tuple[str, object, tuple[str, ...]], ...]] = (
    (
        "asyncio.Future",
        asyncio.Future,
        ("_asyncio_future_blocking", "_make_cancelled_error", "_log_traceback"),
    ),
    ("asyncio.TaskGroup", asyncio.TaskGroup, ("_abort", "_on_task_done", "_is_base_error")),
    ("asyncio.Timeout", asyncio.Timeout, ("_on_timeout", "reschedule")),
    ("asyncio.timeouts", timeouts, ("_State",)),
    ("asyncio.mixins._LoopBoundMixin", getattr(mixins, "_LoopBoundMixin", None), ("_get_loop", "_loop")),
)
# Replaced by their code, so they have to be plain functions without a closure.
_FUNCTIONS: Final[tuple[tuple[object, str], ...]] = (
    (tasks, "gather"),
    (tasks, "wait_for"),
    (tasks, "as_completed"),
    (tasks, "all_tasks"),
    (asyncio.TaskGroup, "__aenter__"),
    (asyncio.TaskGroup, "__aexit__"),
    (asyncio.TaskGroup, "create_task"),
    (asyncio.Timeout, "__aenter__"),
    (asyncio.Timeout, "__aexit__"),
    (asyncio.Condition, "wait"),
    (asyncio.Condition, "notify"),
    (asyncio.Semaphore, "acquire"),
    (asyncio.Semaphore, "release"),
)
_GROUP_STATE: Final = (
    "_entered",
    "_exiting",
    "_aborting",
    "_loop",
    "_parent_task",
    "_parent_cancel_requested",
    "_tasks",
    "_errors",
    "_base_error",
    "_on_completed_fut",
)


def missing_private_names() -> list[str]:
    """The private names this interpreter's asyncio lacks; empty on every supported Python."""
    missing = [f"{where}.{name}" for where, owner, names in _ATTRIBUTES for name in names if not hasattr(owner, name)]
    for owner, name in _FUNCTIONS:
        function: Any = vars(owner).get(name)
        if not isinstance(function, FunctionType) or function.__closure__ is not None:
            missing.append(f"{getattr(owner, '__name__', owner)}.{name} as a plain function")
    missing += [f"Condition().{name}" for name in ("_lock", "_waiters") if not hasattr(asyncio.Condition(), name)]
    missing += [f"Semaphore().{name}" for name in ("_value", "_waiters") if not hasattr(asyncio.Semaphore(), name)]
    missing += [f"TaskGroup().{name}" for name in _GROUP_STATE if not hasattr(asyncio.TaskGroup(), name)]
    timeout: Any = asyncio.Timeout(None)
    missing += [f"Timeout().{name}" for name in ("_state", "_timeout_handler", "_task") if not hasattr(timeout, name)]
    return missing


def verify_private_names() -> None:
    """Raise ``ConfigurationError`` when a private name of asyncio that workflows need is not there."""
    if missing := missing_private_names():
        raise ConfigurationError(
            f"this asyncio is unknown, Python {platform.python_version()} lacks {', '.join(missing)}; "
            "use a Python that this release supports"
        )
