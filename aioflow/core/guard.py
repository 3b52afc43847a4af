"""Refusals of what cannot be replayed: the clock, randomness, files, sockets, processes, threads.

Active only on a thread that is running a workflow loop, for workflow code, outside ``allowed()``. Three
nets, because none catches all: an audit hook for I/O, replaced functions of the standard library, and
``scan_code()`` at definition for what neither can see. ``datetime.now()`` is of that kind: the methods of a
C type cannot be replaced, and no audit event tells of them.

In a workflow ``print()`` and ``logging`` stay possible, whatever they do underneath; so do imports, and the
finalizers of other objects and the ``gc.callbacks`` that the collector happens to run there.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import update_wrapper
from importlib import import_module
from types import FrameType, ModuleType
from typing import Any, Final, final

from aioflow.core.divert import Diversion
from aioflow.core.loop import WorkflowLoop
from aioflow.core.nondurable import (
    AUDITED,
    DIVERTED,
    DIVERTED_WITHOUT_ARGUMENT,
    WRAPPED,
    WRAPPED_WITHOUT_ARGUMENT,
)
from aioflow.core.private import get_running_loop_or_none
from aioflow.core.scanning import Finding, scan_code
from aioflow.errors import NotDurable

__all__ = ["Finding", "allowed", "install", "scan_code", "uninstall"]

# Packages that may do anything in a workflow, and so may what they call: the run sees nothing of it.
_TRUSTED: Final = frozenset(
    {
        "_frozen_importlib",
        "_frozen_importlib_external",
        "bdb",
        "importlib",
        "linecache",
        "logging",
        "pdb",
        "structlog",
        "warnings",
        "weakref",
    }
)
_STEPPING: Final = WorkflowLoop.__module__
_wrapped: Final[list[_Guarded]] = []
_diversions: Final[list[Diversion]] = []
_hook: Final = {"added": False, "active": False}


@contextmanager
def allowed() -> Iterator[None]:
    """Lift the refusals for the code inside: side effects, and the engine's own work during a step."""
    loop = get_running_loop_or_none()
    if not isinstance(loop, WorkflowLoop):
        yield
        return
    loop.unguarded += 1
    try:
        yield
    finally:
        loop.unguarded -= 1


def install() -> None:
    """Set up the refusals in this process; does nothing the second time."""
    if _hook["active"]:
        return
    for module, names in WRAPPED.items():
        for name, helper in names.items():
            _wrap(module, name, helper, None)
    for name, place in WRAPPED_WITHOUT_ARGUMENT.items():
        _wrap("time", name, "now()", place)
    if not _diversions:
        _diversions.extend(_diversion(*row, None) for row in DIVERTED)
        _diversions.extend(_diversion(*row) for row in DIVERTED_WITHOUT_ARGUMENT)
    for diversion in _diversions:
        diversion.install()
    if not _hook["added"]:  # it stays for the life of the process
        _hook["added"] = True
        sys.addaudithook(_audit)
    _hook["active"] = True


def uninstall() -> None:
    """Give the standard library its functions back and let the audit hook pass everything; for tests."""
    _hook["active"] = False
    for guarded in _wrapped:
        guarded.restore()
    _wrapped.clear()
    for diversion in _diversions:
        diversion.uninstall()


# -- what is refused --------------------------------------------------------------------------------


def refuse(what: str, helper: str) -> None:
    """Raise ``NotDurable`` if it is workflow code of the running loop that does this."""
    loop = get_running_loop_or_none()
    if isinstance(loop, WorkflowLoop) and not loop.unguarded and _by_workflow_code(sys._getframe(1)):
        raise NotDurable(f"{what} cannot be replayed; in a workflow use {helper}")


def _by_workflow_code(frame: FrameType | None) -> bool:
    """Whether the loop is stepping, and no trusted code stands between it and the call."""
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module == _STEPPING:
            return True
        if module.partition(".")[0] in _TRUSTED or frame.f_code.co_name == "__del__" or _of_collector(frame):
            return False
        frame = frame.f_back
    return False  # the driver of the run, between two steps


def _of_collector(frame: FrameType) -> bool:
    """Whether the garbage collector called this code: it comes whenever it likes, in the middle of anything."""
    return any(getattr(callback, "__code__", None) is frame.f_code for callback in gc.callbacks)


def _audit(event: str, args: tuple[Any, ...]) -> None:
    if event in AUDITED and type(get_running_loop_or_none()) is WorkflowLoop and _hook["active"]:
        refuse(event, AUDITED[event])


# -- functions of the standard library --------------------------------------------------------------


@final
class _Guarded:
    """Stands in for a built-in function; no function, or it would turn into a method as a class attribute."""

    def __init__(self, module: ModuleType, name: str, helper: str, optional: int | None) -> None:
        self._module = module
        found = getattr(module, name)
        self._original: Callable[..., Any] = found._original if isinstance(found, _Guarded) else found
        self._what = f"{module.__name__}.{name}()"
        self._helper = helper
        self._optional = optional
        update_wrapper(self, self._original)
        self.__name__ = name
        self.__module__ = module.__name__

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        if type(get_running_loop_or_none()) is WorkflowLoop and not _given(self._optional, args, kwargs):
            refuse(self._what, self._helper)
        return self._original(*args, **kwargs)

    def __reduce__(self) -> str:
        return self.__name__

    def __repr__(self) -> str:
        return repr(self._original)

    def restore(self) -> None:
        """Put the original back, unless somebody else replaced it since."""
        if getattr(self._module, self.__name__) is self:
            setattr(self._module, self.__name__, self._original)


def _given(place: int | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether the argument is there that makes a function durable."""
    return place is not None and (bool(kwargs) or (len(args) > place and args[place] is not None))


def _wrap(module_name: str, name: str, helper: str, optional: int | None) -> None:
    module = import_module(module_name)
    if hasattr(module, name):
        guarded = _Guarded(module, name, helper, optional)
        _wrapped.append(guarded)
        setattr(module, name, guarded)


def _diversion(where: str, name: str, helper: str, optional: int | None) -> Diversion:
    module, _, owner_name = where.partition(":")
    owner: Any = import_module(module)
    if owner_name:
        owner = getattr(owner, owner_name)
    shown = f"{owner_name or module.partition('.')[0]}.{name}()"

    def guarded(*args: Any, **kwargs: Any) -> Any:
        try:
            if not _given(optional, args, kwargs):
                refuse(shown, helper)
        except NotDurable:
            for arg in args:
                if asyncio.iscoroutine(arg):
                    arg.close()
            raise
        return diversion.saved(*args, **kwargs)

    diversion = Diversion(owner, name, guarded)
    return diversion
