"""Functions of the standard library that act differently while a workflow loop is running.

The code of the function object itself is replaced, so that names bound early (``from asyncio import
gather``) are caught as well. The new code looks at the running loop of the thread; anywhere but inside a
workflow it calls a copy of the original, at the cost of one more call.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any, Final, final

from aioflow.core.loop import WorkflowLoop
from aioflow.core.private import get_running_loop_or_none

__all__ = ["Diversion"]

_PREFIX: Final = "_aioflow_"
_installed: Final[set[Diversion]] = set()


@final
class Diversion:
    """One diverted function: ``owner.name``, and ``ours``, called with the same arguments inside workflows.

    ``saved`` behaves as the function did; ``ours`` may call it.
    """

    def __init__(self, owner: object, name: str, ours: Callable[..., Any]) -> None:
        function = vars(owner)[name]
        if not isinstance(function, FunctionType) or function.__closure__ is not None:
            raise TypeError(f"{owner!r}.{name} is not a plain function")
        self._function = function
        self._ours = ours
        self._code = function.__code__
        self._key = _PREFIX + function.__qualname__.replace(".", "_") + "_"
        copy = FunctionType(self._code, function.__globals__, function.__name__, function.__defaults__)
        copy.__kwdefaults__ = function.__kwdefaults__
        copy.__qualname__ = function.__qualname__
        self.saved: Callable[..., Any] = copy

    def install(self) -> None:
        """Divert the function; does nothing the second time."""
        if self in _installed:
            return
        function = self._function
        names = {
            "ours": self._ours,
            "saved": self.saved,
            "running": get_running_loop_or_none,
            "loop": WorkflowLoop,
        }
        function.__globals__.update({self._key + name: value for name, value in names.items()})
        if not hasattr(function, "__signature__"):
            vars(function)["__signature__"] = inspect.signature(function)
        # Defaults stay where they are: they do not count for a function that only takes *args and **kwargs.
        function.__code__ = self._dispatcher()
        _installed.add(self)

    def uninstall(self) -> None:
        """Put the function back as it was."""
        if self in _installed:
            _installed.remove(self)
            self._function.__code__ = self._code
            vars(self._function).pop("__signature__", None)

    def _dispatcher(self) -> CodeType:
        template = _async_template if inspect.iscoroutinefunction(self._function) else _template
        code = template.__code__
        names = tuple(
            self._key + name.removeprefix(_PREFIX) if name.startswith(_PREFIX) else name for name in code.co_names
        )
        return code.replace(co_names=names, co_name=self._code.co_name, co_qualname=self._code.co_qualname)


# Only their code is used; each function gets names of its own for these four in the globals of its module.
_aioflow_running: Any = None
_aioflow_loop: Any = None
_aioflow_ours: Any = None
_aioflow_saved: Any = None


def _template(*args: Any, **kwargs: Any) -> Any:
    if type(_aioflow_running()) is _aioflow_loop:
        return _aioflow_ours(*args, **kwargs)
    return _aioflow_saved(*args, **kwargs)


async def _async_template(*args: Any, **kwargs: Any) -> Any:
    if type(_aioflow_running()) is _aioflow_loop:
        return await _aioflow_ours(*args, **kwargs)
    return await _aioflow_saved(*args, **kwargs)
