"""Which workflow is running here, if any: the one whose loop is the running loop of this thread."""

from __future__ import annotations

from asyncio import _get_running_loop
from typing import TYPE_CHECKING, cast

from aioflow.core.loop import WorkflowLoop
from aioflow.errors import NotInWorkflow

if TYPE_CHECKING:
    from aioflow.core.context import Context


def current() -> Context | None:
    """The context of the workflow that is running in this thread, None outside of one."""
    loop = _get_running_loop()
    if type(loop) is WorkflowLoop:
        return cast("Context", loop.host)  # the context is the host of its loop
    return None


def require(what: str) -> Context:
    """The context of the running workflow; raises `NotInWorkflow` naming ``what`` outside of one."""
    context = current()
    if context is None:
        raise NotInWorkflow(f"{what} works only inside a running workflow")
    return context
