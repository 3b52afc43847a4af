"""Signatures: how the arguments of a workflow, activity or message handler are written and read.

Arguments are stored as a JSON array of positional values; ``{"args": [...], "kwargs": {...}}`` only when a
keyword-only parameter is given, or a default before a given parameter is left to the callee.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from inspect import Parameter
from typing import Any, get_type_hints

from pydantic import ValidationError
from pydantic_core import from_json
from typing_extensions import TypedDict

from aioflow.core.payload import MAX_PAYLOAD, Payload, frame, unframe
from aioflow.core.shape import Shape, describe, explain, locate, shape_of
from aioflow.errors import ArgumentError, DecodeError, DefinitionError, EncodeError

Arguments = tuple[tuple[Any, ...], dict[str, Any]]
Names = tuple[str, ...] | None  # None: stored as a bare array
_POSITIONAL = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


class _Text:
    """An annotation that prints as it was written."""

    def __init__(self, parameter: Parameter) -> None:
        hint = parameter.annotation
        self._text = hint if isinstance(hint, str) else describe(hint)

    def __repr__(self) -> str:
        return self._text


def _plain(parameter: Parameter) -> Parameter:
    return parameter if parameter.annotation is Parameter.empty else parameter.replace(annotation=_Text(parameter))


def _count(text: bytes, what: str) -> tuple[int, Names]:
    """How many positional values stored arguments have, and which names."""
    try:
        raw = from_json(text)
    except ValueError as exc:
        raise DecodeError(f"{what} is not JSON: {exc}") from exc
    if isinstance(raw, list):
        return len(raw), None
    if isinstance(raw, dict) and isinstance(raw.get("args"), list) and isinstance(raw.get("kwargs"), dict):
        return len(raw["args"]), tuple(raw["kwargs"])
    raise DecodeError(f"{what} is neither an array nor args and kwargs")


class Signature:
    """What a function takes and returns, by its type hints. Hints are resolved at first use, once.

    ``name`` is how messages call the function; ``skip_self`` leaves the first parameter out.
    """

    def __init__(self, fn: Callable[..., Any], name: str, *, skip_self: bool = False) -> None:
        self.fn, self.name = fn, name
        self.owner: type | None = None  # the class of a method: hints may name classes nested in it
        parameters = list(inspect.signature(fn).parameters.values())[1 if skip_self else 0 :]
        self._call = inspect.Signature(parameters)
        self.parameters: tuple[Parameter, ...] = tuple(parameters)
        self._positional = [p for p in parameters if p.kind in _POSITIONAL]
        self._variadic = next((p for p in parameters if p.kind is Parameter.VAR_POSITIONAL), None)
        self._named = {p.name: p for p in parameters if p.kind is Parameter.KEYWORD_ONLY}
        self._extra = next((p for p in parameters if p.kind is Parameter.VAR_KEYWORD), None)
        self._required = sum(p.default is Parameter.empty for p in self._positional)
        self._most = sys.maxsize if self._variadic else len(self._positional)
        self._simple = not any(p.default is Parameter.empty for p in self._named.values())
        self._shapes: dict[tuple[int, Names], Shape] = {}
        self._usual: Shape | None = None  # of the number of values seen last, to read without counting first

    def __str__(self) -> str:
        """The function as people write it: ``charge(order: Order, copies: int = 1)``."""
        plain = inspect.Signature(list(map(_plain, self.parameters)))
        return f"{self.name}{plain}"

    @cached_property
    def hints(self) -> dict[str, Any]:
        """Type hints by parameter name and ``return``; raises `DefinitionError` for a name not found."""
        target = inspect.unwrap(self.fn)
        while hasattr(target, "func"):  # functools.partial
            target = target.func
        try:
            return get_type_hints(target, include_extras=True, localns=self._nested())
        except Exception as exc:
            raise DefinitionError(
                f"the type hints of {self.name} cannot be resolved: {exc}; "
                "names used in them must be importable at run time (not only under TYPE_CHECKING)"
            ) from exc

    def _nested(self) -> dict[str, Any]:
        """Classes in the body of the owner and its bases; module-level names go before them."""
        known = getattr(inspect.unwrap(self.fn), "__globals__", {})
        found: dict[str, Any] = {}
        for cls in reversed(self.owner.__mro__ if self.owner else ()):
            found |= {name: one for name, one in vars(cls).items() if isinstance(one, type) and name not in known}
        return found

    @property
    def result_hint(self) -> Any:
        """Type hint of the result, ``Any`` when there is none."""
        return self.hints.get("return", Any)

    @cached_property
    def result(self) -> Shape:
        """Shape of the result."""
        return self._guard(partial(shape_of, self.result_hint), "the result")

    def prepare(self) -> None:
        """Resolve everything now: a hint whose values cannot be stored is a `DefinitionError`."""
        for parameter in self.parameters:
            self._guard(partial(shape_of, self._hint(parameter)), f"parameter {parameter.name!r}")
        _ = self.result

    # -- writing ----------------------------------------------------------------------------------

    def encode(self, args: Sequence[Any], kwargs: dict[str, Any], *, limit: int = MAX_PAYLOAD) -> Payload:
        """Arguments of a call as a payload.

        Raises `ArgumentError` naming function and parameter when count, names or types do not fit,
        `EncodeError` when a value would not come back as it is, `PayloadTooLarge`.
        """
        positional, named = self._bind(args, kwargs)
        shape = self._shape(len(positional), tuple(named) or None)
        value: Any = {"args": positional, "kwargs": named} if named else positional
        try:
            checked = shape.check(value)
        except ValidationError as exc:
            raise ArgumentError(self._complaint(exc, named)) from exc
        except Exception as exc:
            raise ArgumentError(f"{self.name}(): an argument cannot be checked: {exc}") from exc
        what = f"an argument of {self.name}()"
        try:
            text = shape.dump(checked, what)
        except EncodeError:
            self._blame(positional, named)
            raise
        return frame(text, what=f"the arguments of {self.name}()", limit=limit)

    def encode_json(self, text: str | bytes, *, limit: int = MAX_PAYLOAD) -> Payload:
        """Arguments written as JSON by a person: an array, or an object of parameters by name.

        The value of a single parameter may stand alone when it is neither. Types are as strict as JSON
        allows. Raises as `encode`.
        """
        return self.encode(*self._parse(text), limit=limit)

    def _bind(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Arguments:
        """Positional values without a gap, and the rest by name."""
        count = len(args)
        if not kwargs and self._simple and self._required <= count <= self._most:
            return tuple(args), {}
        try:
            bound = self._call.bind(*args, **kwargs)
        except TypeError as exc:
            raise ArgumentError(f"{self.name}(): {exc}; it is {self}") from None
        positional, named, gap = [], {}, False
        for parameter in self._positional:
            if parameter.name not in bound.arguments:
                gap = True
            elif gap:
                named[parameter.name] = bound.arguments[parameter.name]
            else:
                positional.append(bound.arguments[parameter.name])
        if self._variadic is not None:
            positional += bound.arguments.get(self._variadic.name, ())
        named |= {name: bound.arguments[name] for name in self._named if name in bound.arguments}
        if self._extra is not None:
            named |= bound.arguments.get(self._extra.name, {})
        return tuple(positional), named

    # -- reading ----------------------------------------------------------------------------------

    def decode(self, payload: Payload) -> Arguments:
        """Positional and named arguments of a payload; left out ones take the defaults of the function.

        Raises `DecodeError` when there are more than the function knows, one without a default is missing, or
        a value does not fit its hint.
        """
        what = f"the stored argument list of {self.name}()"
        text = unframe(payload, what)
        if self._usual is not None and text[:1] == b"[":
            try:
                return self._usual.decode(text), {}
            except DecodeError:
                pass  # another number of values, or a misfit that is explained below
        count, names = _count(text, what)
        if problem := self._misfit(count, names or ()):
            raise DecodeError(f"{what} does not fit {self}: {problem}")
        shape = self._shape(count, names)
        value = shape.decode(text, what)
        if names is not None:
            return tuple(value["args"]), value["kwargs"]
        self._usual = shape
        return tuple(value), {}

    def _misfit(self, count: int, names: tuple[str, ...]) -> str | None:
        """What is wrong with a number of positional and these named arguments, None when nothing is."""
        if count > len(self._positional) and self._variadic is None:
            return f"{count} values for {len(self._positional)} positional parameters"
        later = {p.name for p in self._positional[count:] if p.kind is not Parameter.POSITIONAL_ONLY}
        for name in names:
            if name not in later and name not in self._named and self._extra is None:
                return f"no parameter {name!r} is left to fill"
        left = [*self._positional[count:], *self._named.values()]
        missing = [p.name for p in left if p.default is Parameter.empty and p.name not in names]
        return f"nothing for {', '.join(missing)}" if missing else None

    def _parse(self, text: str | bytes) -> Arguments:
        try:
            raw = from_json(text)
        except ValueError as exc:
            raise ArgumentError(f"the arguments of {self.name}() are not JSON: {exc}") from None
        names: tuple[str, ...] = ()
        if isinstance(raw, dict) and self._by_name(raw):
            args, names = [], tuple(raw)
        elif isinstance(raw, list):
            args = raw
        else:
            args = [raw]
        if problem := self._misfit(len(args), names):
            raise ArgumentError(f"{self.name}(): {problem}; it is {self}")
        shape = self._shape(len(args), names or None)
        if names:
            text = b'{"args":[],"kwargs":' + (text.encode() if isinstance(text, str) else text) + b"}"
        elif args is not raw:
            text = b"[" + (text.encode() if isinstance(text, str) else text) + b"]"
        try:
            value = shape.parse(text)
        except ValidationError as exc:
            raise ArgumentError(self._complaint(exc, dict.fromkeys(names))) from exc
        return ((), value["kwargs"]) if names else (tuple(value), {})

    def _by_name(self, raw: dict[str, Any]) -> bool:
        """Whether a JSON object names the parameters, rather than being the value of the only one."""
        known = {p.name for p in self._positional if p.kind is not Parameter.POSITIONAL_ONLY} | self._named.keys()
        return bool(raw) and raw.keys() <= known

    # -- shapes -----------------------------------------------------------------------------------

    def _shape(self, count: int, names: Names) -> Shape:
        """Shape of this many positional values and these named ones; cached."""
        shape = self._shapes.get((count, names))
        if shape is None:
            if len(self._shapes) > 256:  # a function of ``*args`` or ``**kwargs``
                self._shapes.clear()
            shape = self._shapes[count, names] = self._guard(
                partial(Shape, self._joint_hint(count, names)), "a parameter"
            )
        return shape

    def _joint_hint(self, count: int, names: Names) -> Any:
        hints = [self._hint(p) for p in self._positional[:count]]
        if self._variadic is not None:
            hints += [self._hint(self._variadic)] * (count - len(hints))
        args: Any = tuple[tuple(hints)] if hints else tuple[()]  # type: ignore[misc]  # made at run time
        if names is None:
            return args
        known = {p.name: p for p in self.parameters}
        fields = {name: self._hint(known.get(name, self._extra)) for name in names}
        make: Any = TypedDict
        return make("arguments", {"args": args, "kwargs": make("named", fields)})

    def _hint(self, parameter: Parameter | None) -> Any:
        return Any if parameter is None else self.hints.get(parameter.name, Any)

    def _guard(self, make: Callable[[], Shape], part: str) -> Shape:
        try:
            return make()
        except DefinitionError as exc:
            raise DefinitionError(f"{self.name}(), {part}: {exc}") from exc.__cause__

    # -- words ------------------------------------------------------------------------------------

    def _blame(self, positional: tuple[Any, ...], named: dict[str, Any]) -> None:
        """Raise `EncodeError` for the one argument that cannot be stored, naming its parameter."""
        for index, value in enumerate(positional):
            hint = self._hint(self._positional[index] if index < len(self._positional) else self._variadic)
            shape_of(hint).encode(value, f"argument {self._label(index)} of {self.name}()")
        for name, value in named.items():
            hint = self._hint({p.name: p for p in self.parameters}.get(name, self._extra))
            shape_of(hint).encode(value, f"argument {name!r} of {self.name}()")

    def _label(self, index: int) -> str:
        if index < len(self._positional):
            return repr(self._positional[index].name)
        return f"{index + 1}" if self._variadic is None else f"'*{self._variadic.name}'"

    def _complaint(self, exc: ValidationError, named: dict[str, Any]) -> str:
        """A validation error in the words of the call: function, parameter, place, what was met."""
        loc = exc.errors(include_url=False, include_input=False)[0]["loc"]
        text = explain(exc)
        if named and loc:
            loc = loc[1:] if loc[0] in ("args", "kwargs") else loc
        if not loc:
            return f"{self.name}(): {text}"
        label = self._label(loc[0]) if isinstance(loc[0], int) else repr(loc[0])
        place = f" at {locate(loc[1:])}" if loc[1:] else ""
        detail = text.split(": ", 1)[1] if ": " in text else text
        return f"{self.name}(): argument {label}{place}: {detail}"
