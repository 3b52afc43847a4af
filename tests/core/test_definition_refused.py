"""Workflows that cannot run are refused where they are written."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator

import pytest

from aioflow import Workflow, query, signal
from aioflow.errors import DefinitionError


class Counter(Workflow):
    @signal
    def add(self, n: int) -> None: ...

    async def handle(self) -> None: ...


def sync_handle() -> None:
    class W(Workflow):
        def handle(self) -> None: ...


def generator_handle() -> None:
    class W(Workflow):
        async def handle(self) -> AsyncIterator[int]:
            yield 1


def static_handle() -> None:
    class W(Workflow):
        @staticmethod
        async def handle() -> None: ...


def class_handle() -> None:
    class W(Workflow):
        @classmethod
        async def handle(cls) -> None: ...


def no_method() -> None:
    class W(Workflow):
        handle = 3


def star_args() -> None:
    class W(Workflow):
        async def handle(self, *args: int) -> None: ...


def star_kwargs() -> None:
    class W(Workflow):
        async def handle(self, **kwargs: int) -> None: ...


def no_self() -> None:
    class W(Workflow):
        async def handle() -> None: ...  # type: ignore[misc]


def init_parameters() -> None:
    class W(Workflow):
        def __init__(self, n: int = 1) -> None: ...

        async def handle(self) -> None: ...


def unknown_keyword() -> None:
    class W(Workflow, queu="x"):
        async def handle(self) -> None: ...


def bad_queue() -> None:
    class W(Workflow, queue=""):
        async def handle(self) -> None: ...


def bad_name() -> None:
    class W(Workflow, name="a\x00b"):
        async def handle(self) -> None: ...


def long_name() -> None:
    class W(Workflow, name="x" * 256):
        async def handle(self) -> None: ...


def bad_blocking() -> None:
    class W(Workflow, blocking=("Missing",)):  # type: ignore[arg-type]
        async def handle(self) -> None: ...


def async_query() -> None:
    class W(Workflow):
        @query
        async def q(self) -> int:
            return 1

        async def handle(self) -> None: ...


def generator_signal() -> None:
    class W(Workflow):
        @signal  # type: ignore[arg-type]
        def s(self) -> Iterator[int]:
            yield 1

        async def handle(self) -> None: ...


def signal_without_self() -> None:
    class W(Workflow):
        @signal  # type: ignore[arg-type]
        def s() -> None: ...  # type: ignore[misc]

        async def handle(self) -> None: ...


def static_signal() -> None:
    class W(Workflow):
        @signal  # type: ignore[arg-type]
        @staticmethod
        def s() -> None: ...

        async def handle(self) -> None: ...


def one_name_twice() -> None:
    class W(Workflow):
        @signal(name="x")
        def a(self) -> None: ...

        @signal(name="x")
        def b(self) -> None: ...

        async def handle(self) -> None: ...


def signal_and_query_of_one_name() -> None:
    class W(Workflow):
        @signal(name="x")
        def a(self) -> None: ...

        @query
        def x(self) -> int:
            return 1

        async def handle(self) -> None: ...


def bare_override() -> None:
    class W(Counter):
        def add(self, n: int) -> None: ...  # type: ignore[override]


def other_kind() -> None:
    class W(Counter):
        @query
        def add(self, n: int) -> int:  # type: ignore[override]
            return n


@pytest.mark.parametrize(
    ("declare", "words"),
    [
        (sync_handle, r"W: handle\(\) must be `async def`"),
        (generator_handle, "async generator"),
        (static_handle, "plain method"),
        (class_handle, "plain method"),
        (no_method, "plain method"),
        (star_args, r"named parameters only, not \*args"),
        (star_kwargs, r"named parameters only, not \*\*kwargs"),
        (no_self, "takes self first"),
        (init_parameters, r"W: __init__ takes nothing but self \('n' found\)"),
        (unknown_keyword, "unknown class keyword 'queu'"),
        (bad_queue, "name of a queue"),
        (bad_name, "name of a workflow"),
        (long_name, "at most 255"),
        (bad_blocking, "takes exception classes, not 'Missing'"),
        (async_query, "query 'q' is async"),
        (generator_signal, "signal 's' is a generator"),
        (signal_without_self, "takes self first"),
        (static_signal, "plain method"),
        (one_name_twice, r"two handlers named 'x': a \(signal\) and b \(signal\)"),
        (signal_and_query_of_one_name, r"two handlers named 'x': a \(signal\) and x \(query\)"),
        (bare_override, "add overrides a signal; decorate it with @signal too"),
        (other_kind, "add is a query here and a signal in a base class"),
    ],
)
def test_workflows_that_cannot_run(declare: Callable[[], None], words: str) -> None:
    with pytest.raises(DefinitionError, match=words):
        declare()
