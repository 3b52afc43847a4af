"""Taking a run out of memory: its coroutines are unwound, and nothing comes out of them.

Left to garbage collection, a suspended coroutine is closed wherever the collector happens to run, inside
another run for instance, and its ``finally`` blocks act there. So a run is unwound on purpose: on its own
loop, each task in its own context, newest first.
"""

from __future__ import annotations

import atexit
from collections import deque
from collections.abc import Callable
from contextvars import Context
from typing import TYPE_CHECKING, Any, Final

from aioflow.core.private import enter_task, leave_task
from aioflow.core.tasks import Sealed, Task, await_chain

if TYPE_CHECKING:
    from aioflow.core.loop import WorkflowLoop

__all__ = ["ends", "give_up", "throw_sealed", "unwind_task"]

_ROUNDS: Final = 8
_UNCLOSABLE: Final[deque[object]] = deque(maxlen=4096)


def unwind_task(loop: WorkflowLoop, task: Task[Any]) -> None:
    """Throw ``Sealed`` into the task until it ends, at most 8 times, then close it and drop the task."""
    coro, context = task.get_coro(), task.get_context()
    enter_task(loop, task)
    loop.active = task
    try:
        if not throw_sealed(coro.throw, context):
            chain = [awaited for awaited, _ in await_chain(coro)]
            if not ends(coro.close, context):
                give_up(*chain)
    finally:
        loop.active = None
        leave_task(loop, task)
    task.drop()


def throw_sealed(throw: Callable[[BaseException], object], context: Context) -> bool:
    """Throw ``Sealed`` at most 8 times; whether the coroutine came to its end."""
    # Sealed and not GeneratorExit: before 3.13 close() does not reach the frame of an async generator being
    # iterated.
    return any(ends(lambda: throw(Sealed()), context) for _ in range(_ROUNDS))


def ends(act: Callable[[], object], context: Context) -> bool:
    """Whether the coroutine came to its end; a ``finally`` that awaits something did not."""
    try:
        context.run(act)
    except RuntimeError as error:
        return "ignored GeneratorExit" not in str(error)
    except BaseException:
        return True
    return False


def give_up(*coroutines: object) -> None:
    """Keep what cannot be closed: the collector would complain about it on stderr, for each."""
    if not _UNCLOSABLE:
        atexit.register(_leak)
    _UNCLOSABLE.extend(coroutines)


def _leak() -> None:
    """Let nobody close them at exit either: with no loop left, such code goes round for ever and the process stays."""
    import ctypes  # only here

    for one in _UNCLOSABLE:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(one))
