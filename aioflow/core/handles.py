"""What the workflow loop queues: a callback, its context, and the branch it belongs to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context, copy_context
from typing import Any, final

from aioflow.core.branch import Branch

__all__ = ["Handle"]


@final
class Handle(asyncio.TimerHandle):
    """One scheduled callback; a timer is one too, so that a timer already due is a plain callback.

    ``due`` is the loop's time in seconds; ``ref`` is the address of the timer command, ``None`` without one.
    """

    __slots__ = ("args", "branch", "callback", "context", "dead", "due", "ref", "release")

    def __init__(
        self,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: Context | None,
        branch: Branch,
        due: float,
    ) -> None:
        # Not asyncio's __init__: it keeps a loop and debug state, and costs more than all of this.
        self.callback: Callable[..., object] | None = callback
        self.args = args
        self.context = copy_context() if context is None else context
        self.branch = branch
        self.due = due
        self.dead = False
        self.ref: str | None = None
        self.release: Callable[[str], None] | None = None

    def cancel(self) -> None:
        """Never run it; a pending timer is taken back from the run."""
        if self.dead:
            return
        self.dead = True
        self.callback, self.args = None, ()
        if self.release is not None and self.ref is not None:
            self.release(self.ref)

    def cancelled(self) -> bool:
        """Whether ``cancel()`` was called."""
        return self.dead

    def when(self) -> float:
        """Due time in the loop's seconds; the time of scheduling for a plain callback."""
        return self.due

    def get_context(self) -> Context:
        """The context the callback runs in."""
        return self.context

    def __hash__(self) -> int:
        return object.__hash__(self)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __repr__(self) -> str:
        what = "cancelled" if self.dead else getattr(self.callback, "__qualname__", type(self.callback).__name__)
        return f"<Handle {what} branch={self.branch.path}{f' timer={self.ref}' if self.ref else ''}>"
