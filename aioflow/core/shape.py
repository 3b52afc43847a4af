"""Shapes: how the values of one type hint are written and read, built once per hint.

pydantic writes JSON for web pages: bytes as UTF-8 text, NaN as null, sets in the order of their hashes. A
shape takes pydantic's schema of the hint and changes that, down to the models nested in it, unless a model
says how it wants its values: bytes as base64, NaN and infinities as constants, sets in the order of their
JSON.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from inspect import Parameter
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic_core import (
    PydanticCustomError,
    PydanticSerializationError,
    SchemaSerializer,
    SchemaValidator,
    to_json,
)

from aioflow.core.unchanged import difference, made_up
from aioflow.errors import DecodeError, DefinitionError, EncodeError

_CONFIG: dict[str, Any] = {
    "ser_json_bytes": "base64",
    "val_json_bytes": "base64",
    "ser_json_inf_nan": "constants",
    "ser_json_timedelta": "iso8601",
}
_OBJECTS = frozenset({"model", "call", "named-tuple"})  # models and named tuples
_CONFIGURED = frozenset({"model", "dataclass", "typed-dict"})
_USER_DATA = frozenset({"metadata", "default", "expected", "members", "cls", "config"})
_UNEXPECTED = re.compile(
    r"UnexpectedValue\((?P<expected>Expected `[^`]*`).*?(?:field_name='(?P<field>\w+)', )?input_value=.*?"
    r"input_type=(?P<met>[\w.]+)"
)
_MAPPINGS = frozenset({"fields", "computed_fields_by_name"})
# Nodes of concrete types; others may stand for an abstract type (Sequence), of which less is promised.
_EXACT = frozenset(
    {
        *("any", "none", "bool", "int", "float", "decimal", "str", "bytes", "literal", "enum", "uuid"),
        *("date", "time", "datetime", "timedelta", "nullable", "union", "tagged-union", "default"),
        *("list", "tuple", "set", "frozenset", "dict", "call", "arguments", "definitions", "definition-ref"),
        *("named-tuple", "named-tuple-field", "typed-dict", "typed-dict-field"),
        *("model", "model-fields", "model-field"),
        *("dataclass", "dataclass-args", "dataclass-field"),
    }
)


class Shape:
    """Reads and writes the values of one type hint. Immutable; `shape_of` gives the one of a hint."""

    __slots__ = ("_loose", "_objects", "_serialize", "_validate", "_validate_json", "hint")

    def __init__(self, hint: Any) -> None:
        self.hint = hint
        try:
            adapter = TypeAdapter(hint)
            if not isinstance(adapter.core_schema, dict):
                adapter.rebuild(force=True)  # a model with defer_build
            schema = adapter.core_schema
            nodes = set(_types(schema))
            if "generator" in nodes:
                raise TypeError("an Iterable is read once and lazily; use a list, Sequence or set")
            patched: Any = _patch(schema)
            validator, serializer = _build(patched)
        except Exception as exc:  # pydantic raises many kinds, all of which mean the same here
            why = _first_line(exc)
            raise DefinitionError(f"values of type {describe(hint)} cannot be stored: {why}") from exc
        self._validate, self._validate_json = validator.validate_python, validator.validate_json
        self._serialize = serializer.to_json
        self._loose = not nodes <= _EXACT
        self._objects = not nodes.isdisjoint(_OBJECTS)

    def check(self, value: Any) -> Any:
        """The value, if it strictly is of this type; raises pydantic's `ValidationError`."""
        checked = self._validate(value, strict=True)
        if self._objects and checked is not value and (found := made_up(value, checked)) is not None:
            path, cls, given = found  # strict mode makes models of dicts all the same
            text: Any = "Input should be an instance of {name}"
            error = PydanticCustomError("instance", text, {"name": cls.__qualname__})
            details: Any = {"type": error, "loc": path, "input": given}
            raise ValidationError.from_exception_data(describe(self.hint), [details])
        return checked

    def dump(self, value: Any, what: str) -> bytes:
        """JSON of a checked value; raises `EncodeError` when it would not come back as it is."""
        try:
            text: bytes = self._serialize(value, by_alias=False, round_trip=True, warnings="error")
        except (PydanticSerializationError, ValueError, TypeError, RecursionError) as exc:
            raise EncodeError(f"{what} cannot be stored: {_readable(exc)}") from exc
        except Exception as exc:  # a user's own serializer
            raise EncodeError(f"{what} cannot be stored: {type(exc).__name__}: {_readable(exc)}") from exc
        try:
            found = difference(value, self._validate_json(text, by_alias=True, by_name=True), self._loose)
        except ValidationError as exc:
            raise EncodeError(f"{what} could not be read back: {explain(exc)}") from exc
        except Exception as exc:
            why = f"{type(exc).__name__}: {_readable(exc)}"
            raise EncodeError(f"{what} could not be read back: {why}") from exc
        if found is not None:
            path, change = found
            place = f"{what} at {locate(path)}" if path else what
            raise EncodeError(
                f"{place} cannot be stored as {describe(self.hint)}: {change}; "
                "give it a type hint that says what it is, or turn it into plain data first"
            )
        return text

    def encode(self, value: Any, what: str = "the value") -> bytes:
        """JSON of a value; raises `EncodeError` naming the place when it does not strictly fit the hint."""
        try:
            checked = self.check(value)
        except ValidationError as exc:
            raise EncodeError(f"{what} is not a valid {describe(self.hint)}: {explain(exc)}") from exc
        except Exception as exc:
            raise EncodeError(f"{what} cannot be checked: {type(exc).__name__}: {_readable(exc)}") from exc
        return self.dump(checked, what)

    def decode(self, text: bytes, what: str = "the stored value") -> Any:
        """The value of stored JSON; raises `DecodeError` when it does not fit the hint."""
        try:
            return self._validate_json(text, by_alias=True, by_name=True)
        except ValidationError as exc:
            raise DecodeError(f"{what} is not a valid {describe(self.hint)}: {explain(exc)}") from exc
        except Exception as exc:
            raise DecodeError(f"{what} cannot be read: {type(exc).__name__}: {_readable(exc)}") from exc

    def parse(self, text: str | bytes) -> Any:
        """The value of JSON written by a person, strictly; raises pydantic's `ValidationError`."""
        return self._validate_json(text, strict=True, by_alias=True, by_name=True)


def shape_of(hint: Any) -> Shape:
    """The shape of a type hint; a missing one is ``Any``, ``None`` the type of None."""
    if hint is Parameter.empty:
        hint = Any
    if type(hint) is type:
        return _shape(hint, "")
    try:
        return _shape(hint, repr(hint))  # ``A | B == B | A``, yet they read differently
    except TypeError:
        return Shape(hint)  # unhashable metadata


@lru_cache(maxsize=4096)
def _shape(hint: Any, text: str) -> Shape:
    return Shape(hint)


# -- schema ---------------------------------------------------------------------------------------


def _build(schema: Any) -> tuple[Any, Any]:
    """Validator and serializer that do not fall back to the ones nested classes were built with."""
    config: Any = _CONFIG
    try:
        flags: dict[str, Any] = {"_use_prebuilt": False}
        return SchemaValidator(schema, config, **flags), SchemaSerializer(schema, config, **flags)
    except TypeError:  # a pydantic without the flag: `Shape.dump` still notices what does not come back
        return SchemaValidator(schema, config), SchemaSerializer(schema, config)


def _children(node: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    return ((key, value) for key, value in node.items() if key not in _USER_DATA)


def _types(node: Any) -> Iterator[str]:
    """Types of all nodes of a core schema."""
    if isinstance(node, dict):
        if isinstance(kind := node.get("type"), str):
            yield kind
        for key, value in _children(node):
            if (key in _MAPPINGS or key == "choices") and isinstance(value, dict):
                value = list(value.values())
            if key != "serialization":
                yield from _types(value)
    elif isinstance(node, list | tuple):
        for item in node:
            yield from _types(item)


def _patch(node: Any) -> Any:
    """A copy of a core schema with our configuration in every node that has one, and with sets in order."""
    if isinstance(node, list | tuple):
        return type(node)(map(_patch, node)) if type(node) in (list, tuple) else node
    if not isinstance(node, dict):
        return node
    made = dict(node)
    for key, value in _children(node):
        if (key in _MAPPINGS or key == "choices") and isinstance(value, dict):
            made[key] = {name: _patch(child) for name, child in value.items()}
        else:
            made[key] = _patch(value)
    kind = node.get("type")
    if kind in _CONFIGURED:
        made["config"] = _configured(node.get("config") or {})
    elif kind in ("set", "frozenset") and "serialization" not in node:
        made["serialization"] = {"type": "function-wrap", "function": _in_order, "when_used": "json"}
    elif kind == "decimal" and not {"allow_inf_nan", "max_digits", "decimal_places"} & node.keys():
        made["allow_inf_nan"] = True
    return made


def _configured(config: dict[str, Any]) -> dict[str, Any]:
    made = {**_CONFIG, **config}
    if "ser_json_bytes" in config and "val_json_bytes" not in config:
        made["val_json_bytes"] = config["ser_json_bytes"]  # what a model writes, it must read
    return made


def _in_order(value: Any, handler: Any) -> list[Any]:
    """Elements of a set in the order of their JSON: the same bytes in every process."""
    return sorted(handler(value), key=_sort_key)


def _sort_key(value: Any) -> bytes:
    return to_json(value, inf_nan_mode="constants")


# -- words ----------------------------------------------------------------------------------------


def describe(hint: Any) -> str:
    """A type hint as people write it."""
    if isinstance(hint, type) and not hasattr(hint, "__args__"):
        return hint.__qualname__
    return str(hint).replace("typing.", "")


def explain(exc: ValidationError) -> str:
    """The first complaint of a `ValidationError` with its place and the type it met; never the value."""
    errors = exc.errors(include_url=False)
    first = errors[0]
    place, met = locate(first["loc"]), type(first.get("input")).__name__
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    text = first["msg"] if first["type"] == "json_invalid" else f"{first['msg']}, not {met}"
    return f"{place}: {text}{more}" if place else f"{text}{more}"


def locate(path: tuple[str | int, ...]) -> str:
    """A path as people write it: ``items[3].price``."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


def _readable(exc: BaseException) -> str:
    """Text of an error on one line, without the values pydantic quotes."""
    text = " ".join(str(exc).removeprefix("Error serializing to JSON: ").split())
    if found := _UNEXPECTED.search(text):
        place = f"{found['field']}: " if found["field"] else ""
        return f"{place}{found['expected']}, not {found['met']}"
    return text[:500] or type(exc).__name__


def _first_line(exc: BaseException) -> str:
    lines = str(exc).strip().splitlines()
    return lines[0] if lines else type(exc).__name__
