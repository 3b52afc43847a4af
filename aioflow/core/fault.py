"""Named points at which a test makes something go wrong; nothing happens unless a hook is set.

A point stands wherever a step can be lost: ``commit.before_send``, ``commit.after_send``, … A hook may wait,
raise, or kill its process.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

Hook = Callable[[str], Awaitable[None]]
_hook: Hook | None = None


def set_fault_hook(hook: Hook | None) -> None:
    """Call ``hook(point)`` at every fault point from now on; None stops that."""
    global _hook
    _hook = hook


async def fault(point: str) -> None:
    """A step named ``point`` is about to happen (or has just happened)."""
    if _hook is not None:
        await _hook(point)
