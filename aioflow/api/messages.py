"""Signals and queries: methods of a workflow that others call from outside.

On the class a handler is a reference to send to (``client.signal(id, OrderWorkflow.approve, "ann")``), on
``self`` it is the plain method.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar, overload

from aioflow.core.arguments import Signature
from aioflow.core.definition import HandlerDefinition, Kind, check_name
from aioflow.core.durations import Duration, optional_seconds

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
B_co = TypeVar("B_co", covariant=True)  # the method as it is seen on self


class AsyncMethod(Protocol[P, R_co]):
    """An async method, as it is seen on ``self``."""

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Run the handler."""
        ...


class Handler:
    """A message handler of a workflow class. ``owner`` is the class whose body holds it."""

    owner: type | None = None

    def __init__(self, fn: Callable[..., Any], kind: Kind, name: str | None) -> None:
        self.definition = HandlerDefinition(fn, kind, name=name)
        functools.update_wrapper(self, fn)  # type: ignore[arg-type]  # for help() and scans

    def __set_name__(self, owner: type, attribute: str) -> None:
        self.owner = self.signature.owner = owner

    @property
    def name(self) -> str:
        """What senders call it."""
        return self.definition.name

    @property
    def signature(self) -> Signature:
        """Its parameters, without ``self``."""
        return self.definition.signature

    def _on(self, obj: object | None, owner: type) -> Any:
        return self if obj is None else self.definition.fn.__get__(obj, owner)

    def __repr__(self) -> str:
        where = f"{self.owner.__name__}." if self.owner else ""
        return f"<{self.definition.kind} {where}{self.name}>"


class SignalDef(Handler, Generic[P]):
    """A signal, to send to."""

    key: str | None = None

    def options(self, *, key: str | None = None) -> Self:
        """This signal with options for one sending; the same ``key`` is delivered once per instance."""
        changed = copy.copy(self)
        changed.key = None if key is None else check_name(key, "a signal key")
        return changed


class QueryDef(Handler, Generic[P, R_co]):
    """A query, to ask."""

    timeout: float | None = None

    def options(self, *, timeout: Duration | None = None) -> Self:
        """This query with options for one call: ``timeout`` is how long to wait for the answer."""
        changed = copy.copy(self)
        changed.timeout = optional_seconds(timeout, "a query's timeout")
        return changed


class Signal(SignalDef[P], Generic[P, B_co]):
    """What ``@signal`` makes of a method."""

    def __init__(self, fn: Callable[Concatenate[Any, P], Any], name: str | None = None) -> None:
        super().__init__(fn, "signal", name)

    @overload
    def __get__(self, obj: None, owner: type, /) -> SignalDef[P]: ...
    @overload
    def __get__(self, obj: object, owner: type, /) -> B_co: ...
    def __get__(self, obj: object | None, owner: type, /) -> Any:
        return self._on(obj, owner)


class Query(QueryDef[P, R_co], Generic[P, R_co, B_co]):
    """What ``@query`` makes of a method."""

    def __init__(self, fn: Callable[Concatenate[Any, P], R_co], name: str | None = None) -> None:
        super().__init__(fn, "query", name)

    @overload
    def __get__(self, obj: None, owner: type, /) -> QueryDef[P, R_co]: ...
    @overload
    def __get__(self, obj: object, owner: type, /) -> B_co: ...
    def __get__(self, obj: object | None, owner: type, /) -> Any:
        return self._on(obj, owner)


class _SignalDecorator(Protocol):
    @overload
    def __call__(
        self, fn: Callable[Concatenate[Any, P], Coroutine[Any, Any, None]], /
    ) -> Signal[P, AsyncMethod[P, None]]: ...
    @overload
    def __call__(self, fn: Callable[Concatenate[Any, P], None], /) -> Signal[P, Callable[P, None]]: ...


class _QueryDecorator(Protocol):
    def __call__(self, fn: Callable[Concatenate[Any, P], R], /) -> Query[P, R, Callable[P, R]]: ...


@overload
def signal(fn: Callable[Concatenate[Any, P], Coroutine[Any, Any, None]], /) -> Signal[P, AsyncMethod[P, None]]: ...
@overload
def signal(fn: Callable[Concatenate[Any, P], None], /) -> Signal[P, Callable[P, None]]: ...
@overload
def signal(*, name: str | None = None) -> _SignalDecorator: ...
def signal(fn: Any = None, /, *, name: str | None = None) -> Any:
    """Make a method a signal: others send to it, it changes the workflow's state and returns nothing.

    It may be ``async def`` and await durable helpers; then it runs as a branch beside ``handle()``. ``name``
    is what senders and history call it, the method's name by default.
    """
    return _decorator(Signal[..., Any], fn, name)


@overload
def query(fn: Callable[Concatenate[Any, P], R], /) -> Query[P, R, Callable[P, R]]: ...
@overload
def query(*, name: str | None = None) -> _QueryDecorator: ...
def query(fn: Any = None, /, *, name: str | None = None) -> Any:
    """Make a method a query: others ask it, it looks at the workflow's state and changes nothing.

    A plain ``def``, since it cannot wait. ``name`` is what callers call it, the method's name by default.
    """
    return _decorator(Query[..., Any, Any], fn, name)


def _decorator(kind: Callable[[Any, str | None], Any], fn: Any, name: str | None) -> Any:
    return (lambda given: kind(given, name)) if fn is None else kind(fn, name)
