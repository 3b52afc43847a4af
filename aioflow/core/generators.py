"""Async generators of a run: held from their first iteration, so that the collector decides nothing."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine
from contextvars import Context, copy_context
from types import AsyncGeneratorType
from typing import Any, Final

from aioflow.core.tasks import Sealed
from aioflow.core.unwind import ends, give_up, throw_sealed

__all__ = ["Generators"]

_SWEEP: Final = 64


class Generators:
    """The async generators that were begun, in that order, each with the context it was begun in."""

    __slots__ = ("_held", "_sweep_at")

    def __init__(self) -> None:
        self._held: dict[AsyncGeneratorType[Any, Any], Context] = {}
        self._sweep_at = _SWEEP

    def hold(self, agen: AsyncGenerator[Any, Any]) -> None:
        """Keep a generator; the hook of its first iteration."""
        assert isinstance(agen, AsyncGeneratorType)
        if len(self._held) >= self._sweep_at:
            self._held = {one: context for one, context in self._held.items() if one.ag_frame is not None}
            self._sweep_at = max(_SWEEP, 2 * len(self._held))
        self._held[agen] = copy_context()

    async def close(self, failed: Callable[[dict[str, Any]], None]) -> None:
        """Close the generators left open, oldest first; what their cleanup raises goes to ``failed``."""
        for agen in list(self._held):
            if agen.ag_frame is None or agen.ag_running:
                continue
            try:
                await agen.aclose()
            except (Exception, SystemExit, KeyboardInterrupt) as error:
                message = f"an error occurred while closing asynchronous generator {agen.__qualname__}"
                failed({"message": message, "exception": error, "asyncgen": agen})

    def unwind(self) -> None:
        """Throw ``Sealed`` into every open generator, newest first, and forget them all."""
        for agen, context in reversed(self._held.items()):
            if agen.ag_frame is not None and not agen.ag_running:
                _unwind(agen, context)
        self._held.clear()


def _unwind(agen: AsyncGeneratorType[Any, Any], context: Context) -> None:
    throwing: Coroutine[Any, Any, Any] = agen.athrow(Sealed())
    if ends(lambda: throwing.send(None), context) or throw_sealed(throwing.throw, context):
        return
    closing: Coroutine[Any, Any, Any] = agen.aclose()
    if not ends(lambda: closing.send(None), context):
        give_up(agen, throwing, closing)
