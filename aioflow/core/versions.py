"""Events to records and back: the one place where stored shapes are read and written.

An event whose stored version is older than the code's is lifted by the upcasters registered for each version in
between; one that is newer than the code is refused, since guessing would rewrite history.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from datetime import datetime
from typing import Any, get_type_hints
from uuid import UUID

from pydantic_core import from_json, to_json

from aioflow.core.events import KINDS, Event, Record
from aioflow.errors import DecodeError

Attrs = dict[str, Any]
Upcaster = Callable[[Attrs, bytes | None], tuple[Attrs, bytes | None]]

_COLUMNS = frozenset({"at", "ref", "payload"})
_Field = tuple[str, Any, Callable[[Any], Any] | None]
_known_fields: dict[type[Event], tuple[_Field, ...]] = {}
_upcasters: dict[tuple[str, int], Upcaster] = {}


def upcaster(kind: str, version: int) -> Callable[[Upcaster], Upcaster]:
    """Register a function that lifts ``(attrs, payload)`` of ``kind`` from ``version`` to the next one."""

    def register(fn: Upcaster) -> Upcaster:
        if (kind, version) in _upcasters:
            raise ValueError(f"{kind} version {version} has an upcaster already")
        _upcasters[kind, version] = fn
        return fn

    return register


def _fields(cls: type[Event]) -> tuple[_Field, ...]:
    """Fields that live in ``attrs``: name, default, and how a JSON value becomes the field's type."""
    if (known := _known_fields.get(cls)) is None:
        hints = get_type_hints(cls)
        known = tuple(
            (field.name, field.default, _reader(hints[field.name]))
            for field in dataclasses.fields(cls)
            if field.name not in _COLUMNS
        )
        _known_fields[cls] = known
    return known


def _reader(hint: Any) -> Callable[[Any], Any] | None:
    members = getattr(hint, "__args__", (hint,))
    if UUID in members:
        return UUID
    if datetime in members:
        return datetime.fromisoformat
    return None


def encode(event: Event) -> Record:
    """An event as it is stored; fields that equal their default are left out."""
    cls = type(event)
    attrs = {}
    for name, default, _ in _fields(cls):
        value = getattr(event, name)
        if value is not None and value != default:
            attrs[name] = value
    text = to_json(attrs).decode() if attrs else None
    return Record(cls.__name__, cls.VERSION, event.ref, event.at, text, event.payload)


def decode(record: Record) -> Event:
    """An event read back; raises `DecodeError` for a kind, version or shape this code does not know."""
    cls = KINDS.get(record.kind)
    if cls is None or record.version > cls.VERSION:
        raise DecodeError(
            f"event {record.kind} version {record.version} was written by a newer aioflow; run a worker of that version"
        )
    try:
        attrs: Attrs = from_json(record.attrs) if record.attrs else {}
        payload = record.payload
        for version in range(record.version, cls.VERSION):
            attrs, payload = _upcasters[record.kind, version](attrs, payload)
        values: Attrs = {"at": record.at, "ref": record.ref, "payload": payload}
        for name, _, reader in _fields(cls):
            if (value := attrs.get(name)) is not None:
                values[name] = reader(value) if reader else value
        return cls(**values)
    except (TypeError, ValueError, AttributeError, LookupError) as exc:
        raise DecodeError(f"event {record.kind} version {record.version} cannot be read: {exc}") from exc
