"""A look through the code of a workflow for what the refusals at run time cannot see.

``datetime.now()`` is a method of a C type, and ``from time import time`` binds the function before it can
be wrapped. Both stand in the code objects: a name, what it is bound to, and the attribute taken from it.
"""

from __future__ import annotations

import dis
import functools
import inspect
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from types import CodeType, FunctionType, ModuleType
from typing import Any, Final

from aioflow.core.nondurable import DIVERTED, METHODS, WRAPPED

__all__ = ["Finding", "scan_code"]

_LOADS: Final = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FAST", "LOAD_FAST_CHECK"})
_ATTRIBUTES: Final = frozenset({"LOAD_ATTR", "LOAD_METHOD"})
_NOISE: Final = frozenset({"CACHE", "PUSH_NULL", "RESUME", "EXTENDED_ARG", "NOP", "PRECALL", "COPY_FREE_VARS"})
# What is handed to it runs once and is recorded, so it may use anything.
_RECORDING: Final = "side_effect"
_UNKNOWN: Final = object()


@dataclass(frozen=True, slots=True)
class Finding:
    """A use of something that cannot be replayed."""

    file: str
    line: int
    what: str
    """As it is written there, such as ``datetime.now``."""
    helper: str
    """The durable helper to use, such as ``now()``."""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.what}() is not durable; use {self.helper}"


def scan_code(target: Callable[..., Any] | type) -> list[Finding]:
    """The findings in a function, or in the functions of a class and of its bases, by file and line.

    Nested functions are looked through too, except those handed to ``side_effect()``. Functions that are
    merely called are not: they may be activities.
    """
    findings: dict[Finding, None] = {}
    functions = list(_functions(target))
    recorded = frozenset().union(*(_handed_over(_instructions(one.__code__))[1] for one in functions))
    for function in functions:
        if function.__name__ in recorded:
            continue
        names = _Names(function)
        for value in [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]:
            if (known := _known(value)) is not None:
                code = function.__code__
                findings[Finding(code.co_filename, code.co_firstlineno, *known)] = None
        findings.update(dict.fromkeys(_scan(function.__code__, names, recorded)))
    return sorted(findings, key=lambda finding: (finding.file, finding.line, finding.what))


# -- which functions --------------------------------------------------------------------------------


def _functions(target: Callable[..., Any] | type) -> Iterator[FunctionType]:
    if not isinstance(target, type):
        yield from _unwrapped(target)
        return
    for owner in target.__mro__:
        if owner is object or owner.__module__.partition(".")[0] in {"aioflow", "typing"}:
            continue
        for value in vars(owner).values():
            yield from _unwrapped(value)


def _unwrapped(value: Any) -> Iterator[FunctionType]:
    if isinstance(value, staticmethod | classmethod):
        value = value.__func__
    elif isinstance(value, functools.cached_property):
        value = value.func
    if isinstance(value, property):
        for accessor in (value.fget, value.fset, value.fdel):
            yield from _unwrapped(accessor)
        return
    if not isinstance(value, FunctionType):
        # Handlers and decorated functions keep the function they stand for under one of these names.
        value = getattr(value, "__func__", None) or getattr(value, "__wrapped__", None)
    if isinstance(value, FunctionType):
        value = inspect.unwrap(value)
    if isinstance(value, FunctionType):
        yield value


# -- what is known not to be durable ----------------------------------------------------------------


@functools.cache
def _known_functions() -> dict[int, tuple[str, str]]:
    known: dict[int, tuple[str, str]] = {}
    for module, names in WRAPPED.items():
        for name, helper in names.items():
            function = getattr(import_module(module), name, None)
            known[id(_bare(function))] = (f"{module}.{name}", helper)
    for where, name, helper in DIVERTED:
        module, _, owner = where.partition(":")
        if not owner:
            known[id(getattr(import_module(module), name))] = (f"{module}.{name}", helper)
    known.pop(id(None), None)
    return known


def _known(value: object) -> tuple[str, str] | None:
    """Name and helper of a function that cannot be replayed."""
    if not callable(value):
        return None
    return _known_functions().get(id(_bare(value)))


def _bare(function: object) -> object:
    """The function under the replacements that the refusals at run time put in its place."""
    for _ in range(3):
        function = getattr(function, "__wrapped__", function)
    return function


def _method(value: object, name: str) -> tuple[str, str] | None:
    if not isinstance(value, type):
        return None
    for base in value.__mro__:
        if (helper := METHODS.get((f"{base.__module__}.{base.__qualname__}", name))) is not None:
            return f"{base.__qualname__}.{name}", helper
    return None


# -- the code ---------------------------------------------------------------------------------------


class _Names:
    """What the names of a function are bound to."""

    def __init__(self, function: FunctionType) -> None:
        self._globals = function.__globals__
        self._cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))

    def value(self, instruction: dis.Instruction, local: dict[str, object]) -> object:
        name = instruction.argval
        if instruction.opname in {"LOAD_GLOBAL", "LOAD_NAME"}:
            return self._globals.get(name, _UNKNOWN)
        if name in local:
            return local[name]
        try:
            return self._cells[name].cell_contents
        except (KeyError, ValueError):
            return _UNKNOWN


def _instructions(code: CodeType) -> list[dis.Instruction]:
    return [one for one in dis.get_instructions(code) if one.opname not in _NOISE]


def _scan(code: CodeType, names: _Names, recorded: frozenset[str]) -> Iterator[Finding]:
    instructions = _instructions(code)
    exempt, more = _handed_over(instructions)
    recorded |= more
    local = _local_imports(instructions)
    line = code.co_firstlineno
    for position, instruction in enumerate(instructions):
        if instruction.positions is not None and instruction.positions.lineno is not None:
            line = instruction.positions.lineno
        if position in exempt:
            continue
        if isinstance(instruction.argval, CodeType):
            if instruction.argval.co_name not in recorded:
                yield from _scan(instruction.argval, names, recorded)
        elif instruction.opname in _LOADS:
            found = _follow(names.value(instruction, local), instruction.argval, instructions[position + 1 :])
            if found is not None:
                yield Finding(code.co_filename, line, *found)


def _follow(value: object, written: str, rest: list[dis.Instruction]) -> tuple[str, str] | None:
    """The finding in a chain of attributes that starts with a name bound to ``value``."""
    if (known := _known(value)) is not None:
        return written, known[1]
    for instruction in rest:
        if instruction.opname not in _ATTRIBUTES:
            return None
        name = instruction.argval
        written = f"{written}.{name}"
        if (known := _method(value, name)) is not None:
            return written, known[1]
        if not isinstance(value, ModuleType):  # the attributes of anything else may run code
            return None
        value = vars(value).get(name)
        if (known := _known(value)) is not None:
            return written, known[1]
    return None


def _handed_over(instructions: list[dis.Instruction]) -> tuple[set[int], frozenset[str]]:
    """Places and names of what is handed to ``side_effect()`` as its first argument."""
    places: set[int] = set()
    names: set[str] = set()
    for position, instruction in enumerate(instructions):
        if instruction.argval != _RECORDING or instruction.opname not in _LOADS | _ATTRIBUTES:
            continue
        first = position + 1
        if first < len(instructions) and instructions[first].opname in _LOADS:
            places.add(first)
            names.add(instructions[first].argval)
            method = instructions[first + 1] if first + 1 < len(instructions) else None
            if method is not None and method.opname in _ATTRIBUTES:
                names.add(method.argval)  # self.look_up
        # A function made on the spot: its defaults and what it closes over come first.
        made = next((at for at in range(first, len(instructions)) if not _builds(instructions[at])), None)
        if made is not None and instructions[made].opname == "MAKE_FUNCTION":
            places.add(made - 1)
    return places, frozenset(names)


def _builds(instruction: dis.Instruction) -> bool:
    opname = instruction.opname
    return opname in {"LOAD_CONST", "LOAD_CLOSURE", "BUILD_TUPLE"} or opname.startswith("LOAD_FAST")


def _local_imports(instructions: list[dis.Instruction]) -> dict[str, object]:
    """Names bound by ``import`` inside the function; only modules loaded already are known."""
    local: dict[str, object] = {}
    module: ModuleType | None = None
    for instruction, following in itertools.pairwise(instructions):
        if instruction.opname == "IMPORT_NAME":
            module = _loaded(instruction.argval)
            bound: object = module
        elif instruction.opname == "IMPORT_FROM" and module is not None:
            bound = vars(module).get(instruction.argval, _UNKNOWN)
        else:
            continue
        if following.opname in {"STORE_FAST", "STORE_DEREF", "STORE_NAME"}:
            local[following.argval] = bound
    return local


def _loaded(name: str) -> ModuleType | None:
    tables = {*WRAPPED, *(where.partition(":")[0] for where, _, _ in DIVERTED), "datetime"}
    return import_module(name) if name in tables else None
