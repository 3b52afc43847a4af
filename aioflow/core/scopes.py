"""anyio's cancel scopes inside workflows: members in the order they joined, and no endless redelivery.

A scope keeps its children in a set hashed by address and cancels in that order; and it delivers a
cancellation again on every pass of the loop. anyio itself is not imported here: it is looked up, once
somebody else has loaded it.
"""

from __future__ import annotations

import sys
from typing import Any, Final

from aioflow.core.divert import Diversion
from aioflow.core.ordered import OrderedSet
from aioflow.core.parking import park_repeats_of
from aioflow.errors import ConfigurationError

__all__ = ["install", "uninstall"]

_BACKEND: Final = "anyio._backends._asyncio"
_SETS: Final = ("_child_scopes", "_tasks")
_diversions: Final[list[Diversion]] = []


def install() -> bool:
    """Divert anyio's cancel scopes; whether anyio's asyncio backend is loaded. Call it before the first run.

    ``ConfigurationError`` for an anyio whose scopes are built differently.
    """
    backend: Any = sys.modules.get(_BACKEND)
    if backend is None:
        return False
    if not _diversions:
        scope_type = backend.CancelScope
        scope = scope_type()
        missing = [name for name in (*_SETS, "_deliver_cancellation") if not hasattr(scope, name)]
        if missing:
            raise ConfigurationError(f"this anyio is unknown, its cancel scopes lack {', '.join(missing)}")
        park_repeats_of(scope_type._deliver_cancellation)

        def ordered(self: Any, *args: Any, **kwargs: Any) -> None:
            diversion.saved(self, *args, **kwargs)
            for name in _SETS:
                setattr(self, name, OrderedSet())

        diversion = Diversion(scope_type, "__init__", ordered)
        _diversions.append(diversion)
    for one in _diversions:
        one.install()
    return True


def uninstall() -> None:
    """Give anyio its own scopes back; for tests."""
    for diversion in _diversions:
        diversion.uninstall()
