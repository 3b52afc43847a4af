"""Definitions: what a workflow class or an activity function is, as the runtime sees it.

Shapes that cannot run are refused where they are written (`DefinitionError`); what needs the whole program,
such as type hints and a look through the code, waits for `check`, at registration.
"""

from __future__ import annotations

import copy
import inspect
import types
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from inspect import Parameter
from typing import Any, Final, Literal

from aioflow.core.arguments import Signature
from aioflow.core.payload import MAX_PAYLOAD, Payload, frame
from aioflow.core.retry import RetryPolicy
from aioflow.core.shape import shape_of
from aioflow.errors import DefinitionError

DEFAULT_QUEUE: Final = "default"
MAX_NAME: Final = 255
_WAITING: Final = "await_signal"

Kind = Literal["signal", "query"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivityOptions:
    """How an activity is run; durations in seconds, None where nothing was said."""

    queue: str | None = None
    retry: RetryPolicy | None = None
    start_to_close: float | None = None
    schedule_to_start: float | None = None
    schedule_to_close: float | None = None
    heartbeat: float | None = None

    def changed(self, **given: Any) -> ActivityOptions:
        """A copy with those of ``given`` that are not None."""
        return replace(self, **{name: value for name, value in given.items() if value is not None})


class Definition:
    """What workflows, activities and handlers share: a name in history, a function, its signature."""

    def __init__(self, name: str, fn: Callable[..., Any], *, what: str, skip_self: bool) -> None:
        self.name = check_name(name, what)
        self.fn = fn
        self.signature = Signature(fn, name, skip_self=skip_self)

    def encode_result(self, value: Any, hint: Any = None, limit: int = MAX_PAYLOAD) -> Payload:
        """A result as a payload; raises `EncodeError` when it is not of the type the annotation promises."""
        shape = self.signature.result if hint is None else shape_of(hint)
        what = f"the result of {self.name}()"
        return frame(shape.encode(value, what), what=what, limit=limit)

    def check(self) -> None:
        """Resolve all type hints; raises `DefinitionError` for one whose values cannot be stored."""
        self.signature.prepare()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"


# -- activities -----------------------------------------------------------------------------------


class ActivityDefinition(Definition):
    """An activity: ``fn`` runs in a worker, on its loop when ``is_async``, else in a thread.

    ``bound`` is false for a method that was reached through its class: it can be scheduled, not run.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        *,
        name: str | None = None,
        options: ActivityOptions | None = None,
        bound: bool = True,
    ) -> None:
        found = _activity_name(fn, name)
        _refuse_generators(fn, f"activity {found}")
        super().__init__(found, fn, what="an activity", skip_self=not bound)
        self.options, self.bound = options or ActivityOptions(), bound
        self.is_async = is_async(fn)

    def with_options(self, options: ActivityOptions) -> ActivityDefinition:
        """A copy with other options; it shares the signature, which is dear to build."""
        made = copy.copy(self)
        made.options = options
        made.__dict__.pop("method", None)  # made of the old options
        return made

    @cached_property
    def method(self) -> ActivityDefinition:
        """The same function as a method of a class, reached without an instance."""
        return ActivityDefinition(self.fn, name=self.name, options=self.options, bound=False)

    def bind(self, obj: object) -> ActivityDefinition:
        """A method reached through an instance; it shares the signature of the method."""
        made = copy.copy(self.method)
        made.fn, made.bound = self.fn.__get__(obj), True
        return made


def is_async(fn: Callable[..., Any]) -> bool:
    """Whether calling ``fn`` gives something to await, also behind a decorator."""
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(inspect.unwrap(fn))


def _activity_name(fn: Any, name: str | None) -> str:
    if isinstance(fn, staticmethod | classmethod):
        raise DefinitionError(f"put @{type(fn).__name__} above @activity.defn, not below it")
    if isinstance(fn, type) or not callable(fn):
        shown = f"class {fn.__name__}" if isinstance(fn, type) else f"a {type(fn).__name__}"
        raise DefinitionError(f"an activity is a function (`def` or `async def`), not {shown}")
    if name is not None:
        return name
    own = getattr(fn, "__name__", None)
    if not isinstance(own, str) or own == "<lambda>":
        raise DefinitionError("an activity without a name of its own, such as a lambda, needs name=")
    return own


def _refuse_generators(fn: Callable[..., Any], what: str) -> None:
    inner = inspect.unwrap(fn)
    if inspect.isasyncgenfunction(inner) or inspect.isgeneratorfunction(inner):
        raise DefinitionError(f"{what} is a generator; it must return its result, not yield it")


# -- workflows ------------------------------------------------------------------------------------


class HandlerDefinition(Definition):
    """A signal or query of a workflow; ``fn`` takes the workflow instance first."""

    def __init__(self, fn: Callable[..., Any], kind: Kind, *, name: str | None = None) -> None:
        if isinstance(fn, staticmethod | classmethod) or not callable(fn):
            raise DefinitionError(f"@{kind} belongs on a plain method")
        found = str(getattr(fn, "__name__", "")) if name is None else name
        what = f"{kind} {found!r}"
        _refuse_generators(fn, what)
        if not inspect.signature(fn).parameters:
            raise DefinitionError(f"{what} must be a method: it takes self first")
        super().__init__(found, fn, what=f"a {kind}", skip_self=True)
        self.kind: Kind = kind
        self.is_async = is_async(fn)
        if kind == "query" and self.is_async:
            raise DefinitionError(f"{what} is async; a query only reads, so it is a plain `def`")


class WorkflowDefinition(Definition):
    """A workflow class.

    ``blocking`` are exception types that leave the run open and blocked instead of failing it, as errors of
    the engine do: for what a deploy is expected to mend.
    """

    def __init__(
        self,
        cls: type,
        *,
        name: str | None = None,
        queue: str | None = None,
        blocking: Iterable[type[BaseException]] = (),
        handlers: Iterable[HandlerDefinition] = (),
    ) -> None:
        handle = _check_handle(cls)
        _check_init(cls)
        super().__init__(cls.__name__ if name is None else name, handle, what="a workflow", skip_self=True)
        self.cls: Any = cls
        self.signature.owner = cls
        self.queue = check_name(DEFAULT_QUEUE if queue is None else queue, "a queue")
        self.blocking = _exception_types(blocking, self.name)
        self.signals: dict[str, HandlerDefinition] = {}
        self.queries: dict[str, HandlerDefinition] = {}
        taken: dict[str, HandlerDefinition] = {}
        for handler in handlers:
            if (other := taken.setdefault(handler.name, handler)) is not handler:
                raise DefinitionError(
                    f"workflow {self.name} has two handlers named {handler.name!r}: "
                    f"{other.fn.__name__} ({other.kind}) and {handler.fn.__name__} ({handler.kind})"
                )
            (self.signals if handler.kind == "signal" else self.queries)[handler.name] = handler

    def check(self) -> None:
        """Everything that needs the whole program: type hints, handlers, and what the code uses.

        Raises `DefinitionError` with every use of something that cannot be replayed.
        """
        from aioflow.core.scanning import scan_code  # loads dis and more, of use to workers only

        _check_init(self.cls)  # again: @dataclass adds one after the class is made
        for part in (self.signature, *(one.signature for one in self._handlers())):
            part.prepare()
        if findings := scan_code(self.cls):
            listed = "\n  ".join(map(str, findings))
            raise DefinitionError(f"workflow {self.name} cannot be replayed:\n  {listed}")

    def _handlers(self) -> Iterator[HandlerDefinition]:
        yield from self.signals.values()
        yield from self.queries.values()

    @cached_property
    def open_signals(self) -> bool:
        """Whether signals beyond the declared ones may be awaited: code at hand uses ``await_signal``."""
        return any(_WAITING in _names(fn) for fn in _functions_near(self.cls))


def _check_handle(cls: type) -> Callable[..., Any]:
    where = f"workflow {cls.__name__}"
    handle: Any = inspect.getattr_static(cls, "handle", None)
    if handle is None:
        raise DefinitionError(f"{where} has no handle(): add `async def handle(self, ...)`")
    if isinstance(handle, staticmethod | classmethod) or not callable(handle):
        raise DefinitionError(f"{where}: handle must be a plain method, `async def handle(self, ...)`")
    if inspect.isasyncgenfunction(inspect.unwrap(handle)):
        raise DefinitionError(f"{where}: handle() is an async generator; it must return, not yield")
    if not is_async(handle):
        raise DefinitionError(f"{where}: handle() must be `async def`")
    parameters = list(inspect.signature(handle).parameters.values())
    if not parameters:
        raise DefinitionError(f"{where}: handle() takes self first")
    for parameter in parameters:
        if parameter.kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD):
            raise DefinitionError(f"{where}: handle() takes named parameters only, not {parameter}")
    checked: Callable[..., Any] = handle
    return checked


def _check_init(cls: type) -> None:
    init: Any = cls.__init__  # type: ignore[misc]  # the one that will run
    if init is object.__init__:
        return
    for parameter in list(inspect.signature(init).parameters.values())[1:]:
        if parameter.kind not in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD):
            raise DefinitionError(
                f"workflow {cls.__name__}: __init__ takes nothing but self ({parameter.name!r} found); "
                "arguments come through handle()"
            )


def _exception_types(kinds: Any, name: str) -> tuple[type[BaseException], ...]:
    found = (kinds,) if isinstance(kinds, type) else tuple(kinds)
    for kind in found:
        if not (isinstance(kind, type) and issubclass(kind, BaseException)):
            raise DefinitionError(f"workflow {name}: blocking= takes exception classes, not {kind!r}")
    return found


def _functions_near(cls: type) -> Iterator[types.FunctionType]:
    """Functions of a workflow class and its bases, and those its modules define or import."""
    for owner in cls.__mro__:
        if owner is object or owner.__module__.partition(".")[0] == "aioflow":
            continue
        for value in [*vars(owner).values(), *_globals_of(owner)]:
            value = getattr(value, "__wrapped__", None) or getattr(value, "fn", None) or value
            value = getattr(value, "__func__", value)
            if isinstance(value, types.FunctionType) and not value.__module__.startswith("aioflow."):
                yield value


def _globals_of(owner: type) -> list[Any]:
    for value in vars(owner).values():
        if isinstance(value, types.FunctionType):
            return list(value.__globals__.values())
    return []


def _names(fn: types.FunctionType) -> set[str]:
    """Names that the code of a function uses, with imported ones by the name they were defined under."""
    found: set[str] = set()
    codes = [fn.__code__]
    while codes:
        code = codes.pop()
        found.update(code.co_names)
        codes += [const for const in code.co_consts if isinstance(const, types.CodeType)]
    known = (getattr(fn.__globals__.get(name), "__name__", name) for name in list(found))
    return found | set(known)


# -- names ----------------------------------------------------------------------------------------


def check_name(name: Any, what: str) -> str:
    """A name as history keeps it: 1 to 255 printable characters; anything else is a `DefinitionError`."""
    if not isinstance(name, str) or not name:
        raise DefinitionError(f"the name of {what} is a non-empty text, not {name!r}")
    if len(name) > MAX_NAME or not name.isprintable():
        raise DefinitionError(f"the name of {what} has at most {MAX_NAME} printable characters: {ascii(name)[:80]}")
    return name
