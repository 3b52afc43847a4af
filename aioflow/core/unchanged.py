"""Does a value come back from storage as what it was? The comparison behind `Shape.encode`.

JSON has fewer types than Python. Where a hint does not say which type to restore (``Any``, ``str |
datetime``, a base class), the value would come back as something else and nobody would notice; here somebody
does.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from datetime import datetime
from typing import Any

Path = tuple[str | int, ...]


def difference(before: Any, after: Any, loose: bool) -> tuple[Path, str] | None:
    """The first place where ``after`` is not what ``before`` was, and how; None when nothing changed.

    ``loose`` allows a list where a tuple was: hints such as ``Sequence`` promise no more.
    """
    if type(before) is type(after):
        try:
            if before == after:
                return None
        except Exception:  # a user's __eq__, or a signalling NaN: look closer instead
            pass
    return _walk(before, after, loose, ())


def made_up(before: Any, after: Any) -> tuple[Path, type, Any] | None:
    """The first object in ``after`` that was made of a dict, list or tuple in ``before``: place, class, what it was."""
    return _made_up(before, after, ())


def _made_up(before: Any, after: Any, path: Path) -> tuple[Path, type, Any] | None:
    if before is after:
        return None
    kind = type(after)
    pairs: Iterable[tuple[Any, Any, Any]]
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        pairs = ((str(key), old, after.get(key)) for key, old in before.items())
    elif isinstance(before, list | tuple) and isinstance(after, list | tuple):
        if type(before) is not kind and hasattr(kind, "_fields"):
            return path, kind, before
        pairs = ((index, old, new) for index, (old, new) in enumerate(zip(before, after, strict=False)))
    else:
        made = isinstance(before, Mapping | list | tuple) and type(before) is not kind
        return (path, kind, before) if made and not isinstance(after, Collection) else None
    return next((found for key, old, new in pairs if (found := _made_up(old, new, (*path, key)))), None)


def _walk(before: Any, after: Any, loose: bool, path: Path) -> tuple[Path, str] | None:
    kind = type(before)
    if kind is not type(after):
        if loose and isinstance(before, Sequence) and type(after) is list:
            return _sequence(before, after, loose, path)
        if _stands_in(before, after):
            return None
        return path, f"a {kind.__qualname__} would come back as {type(after).__qualname__}"
    if isinstance(before, Mapping):
        return _mapping(before, after, loose, path)
    if isinstance(before, list | tuple):
        return _sequence(before, after, loose, path)
    if isinstance(before, Set):
        return None if len(before) == len(after) else (path, "elements would be lost")
    state = _state(before)
    if state is not None:
        return _mapping(state, _state(after) or {}, loose, path)
    return None if _same_leaf(before, after) else (path, f"a {kind.__qualname__} would come back changed")


def _stands_in(before: Any, after: Any) -> bool:
    """A subclass of a plain type (pendulum's datetime, a str enum) may come back as the type it equals."""
    if type(after).__module__ not in ("builtins", "datetime", "decimal", "uuid", "pathlib"):
        return False
    return isinstance(before, type(after)) and type(after) is not object and _same_leaf(before, after)


def _sequence(before: Any, after: Any, loose: bool, path: Path) -> tuple[Path, str] | None:
    if len(before) != len(after):
        return path, "items would be lost"
    for index, (old, new) in enumerate(zip(before, after, strict=True)):
        if found := _walk(old, new, loose, (*path, index)):
            return found
    return None


def _mapping(before: Any, after: Any, loose: bool, path: Path) -> tuple[Path, str] | None:
    if len(before) != len(after):
        return path, "entries would be lost"
    for (key, old), (twin, new) in zip(before.items(), after.items(), strict=True):
        if type(key) is not type(twin):
            names = type(key).__qualname__, type(twin).__qualname__
            return (*path, str(key)), "a key of type {} would come back as {}".format(*names)
        if found := _walk(old, new, loose, (*path, str(key))):
            return found
    return None


def _state(value: Any) -> dict[str, Any] | None:
    """Fields of a model or dataclass that are meant to be stored, None for anything else."""
    fields = getattr(type(value), "__pydantic_fields__", None)
    if fields is not None and not dataclasses.is_dataclass(value):
        extra = getattr(value, "__pydantic_extra__", None) or {}
        kept = {name: getattr(value, name, None) for name, field in fields.items() if not field.exclude}
        return {**kept, **extra}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: getattr(value, f.name, None) for f in dataclasses.fields(value) if f.init}
    return None


def _same_leaf(before: Any, after: Any) -> bool:
    if isinstance(before, datetime) and isinstance(
        after, datetime
    ):  # two zones never compare equal inside a fold, so compare what is stored
        naive = before.replace(tzinfo=None) == after.replace(tzinfo=None)
        return naive and before.utcoffset() == after.utcoffset()
    try:
        if before == after or (before != before and after != after):
            return True
    except Exception:
        return repr(before) == repr(after)
    own: Any = type(before).__eq__
    return own is object.__eq__  # no equality of its own: the type is all there is to compare
