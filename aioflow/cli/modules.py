"""Code of users, named on the command line: ``pkg.mod`` for all that a module holds, ``pkg.mod:name`` for one thing."""

from __future__ import annotations

import importlib
import os
import re
import sys
import traceback
from collections.abc import Iterable
from types import ModuleType
from typing import TYPE_CHECKING

from aioflow.errors import ConfigurationError

if TYPE_CHECKING:
    from aioflow.core.registry import Registry

__all__ = ["load_modules", "looks_like_code"]

_NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*(:[^\W\d]\w*(\.[^\W\d]\w*)*)?")


def load_modules(names: Iterable[str]) -> Registry:
    """Workflows and activities of these modules, checked; the working directory is where they are looked for first.

    Raises `ConfigurationError` (no such module or name, its import fails, nothing in it), `DefinitionError`.
    """
    from aioflow.core.registry import Registry

    registry = Registry()
    for name in names:
        if not (targets := _targets(name)):
            raise ConfigurationError(f"{name} holds no workflow and no activity")
        for target in targets:
            registry.add(target)
    return registry


def looks_like_code(name: str) -> bool:
    """Whether a name says where code is: ``pkg.mod:Class``."""
    return ":" in name and _NAME.fullmatch(name) is not None


def _targets(name: str) -> list[object]:
    """What a name on the command line stands for, as `Registry.add` takes it."""
    if not _NAME.fullmatch(name) or name.endswith(".py"):
        hint = name.removesuffix(".py").strip("./").replace("/", ".")
        raise ConfigurationError(f"{name!r} is not the name of a module: write it like {hint or 'pkg.mod'}")
    where, _, attribute = name.partition(":")
    found: object = _import(where)
    for part in filter(None, attribute.split(".")):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise ConfigurationError(f"{name}: there is no {attribute} in {where}") from None
    if isinstance(found, list | tuple | set | frozenset):
        return list(found)
    if isinstance(found, ModuleType):
        return [found] if _holds_something(found) else []
    return [found]


def _holds_something(module: ModuleType) -> bool:
    from aioflow.core.registry import Registry

    probe = Registry()
    probe.add(module)
    return bool(probe.workflows or probe.activities)


def _import(where: str) -> ModuleType:
    folder = os.getcwd()
    if folder not in sys.path and "" not in sys.path:
        sys.path.insert(0, folder)
    try:
        return importlib.import_module(where)
    except ModuleNotFoundError as error:
        if error.name is not None and (where == error.name or where.startswith(f"{error.name}.")):
            raise ConfigurationError(
                f"there is no module {error.name!r}: looked in {folder} and where Python's packages are"
            ) from error
        raise ConfigurationError(f"importing {where} failed:\n{_told(error)}") from error
    except (Exception, SystemExit) as error:
        raise ConfigurationError(f"importing {where} failed:\n{_told(error)}") from error


def _told(error: BaseException) -> str:
    """The traceback without the frames of the import machinery and our own."""
    told = traceback.TracebackException.from_exception(error)
    told.stack = traceback.StackSummary.from_list(
        [frame for frame in told.stack if "importlib" not in frame.filename and frame.filename != __file__]
    )
    return "".join(told.format(chain=False)).rstrip()
