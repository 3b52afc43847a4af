"""Values through everything: a client, Postgres, a worker, workflows, activities, signals, queries."""

import asyncio
import math
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from types import NoneType
from typing import Any, Generic, Literal, NamedTuple, TypeVar
from uuid import UUID

import pytest
from pydantic import BaseModel
from typing_extensions import TypedDict

from aioflow import (
    ActivityFailed,
    RetryPolicy,
    Workflow,
    WorkflowFailed,
    activity,
    await_condition,
    query,
    signal,
)
from aioflow.client import Client
from aioflow.core.limits import Limits
from aioflow.errors import EncodeError, PayloadTooLarge
from aioflow.worker import Worker, WorkerSettings

T = TypeVar("T")
QUICK = WorkerSettings(poll_interval=0.2, backoff_first=0.05, backoff_max=0.3, connections=4)
ONCE = RetryPolicy(max_attempts=1)


class Color(Enum):
    RED = "red"
    BLUE = 2


class Level(IntEnum):
    LOW = 1


class Word(StrEnum):
    YES = "yes"


class Line(BaseModel):
    sku: str
    price: Decimal
    tags: set[str] = set()


class Order(BaseModel):
    id: UUID
    lines: list[Line]
    placed: datetime
    note: str | None = None


class Box(BaseModel, Generic[T]):
    items: dict[str, list[tuple[int, T]]]


@dataclass(frozen=True)
class Point:
    x: float
    y: float = 0.0
    seen: tuple[date, ...] = field(default=())


class Pair(NamedTuple):
    left: int
    right: str


class Card(TypedDict):
    name: str
    age: int | None


ID = UUID("0190a3f0-0000-7000-8000-000000000001")
LINE = Line(sku="tea", price=Decimal("12.50"), tags={"a", "b"})
EAST = timezone(timedelta(hours=5, minutes=45))

VALUES: dict[str, tuple[Any, Any]] = {
    "model": (Order, Order(id=ID, lines=[LINE], placed=datetime(2026, 1, 2, 3, 4, 5, 678901, EAST))),
    "generic model": (Box[Line], Box[Line](items={"a": [(1, LINE), (2, LINE)]})),
    "nested generics": (dict[UUID, list[tuple[int, Line | None]]], {ID: [(1, LINE), (2, None)]}),
    "dataclass": (Point, Point(1.5, -0.0, (date(2026, 1, 2),))),
    "optional dataclass": (Point | None, None),
    "enum": (list[Color], [Color.RED, Color.BLUE]),
    "int enum": (Level, Level.LOW),
    "str enum": (Word, Word.YES),
    "named tuple": (Pair, Pair(1, "x")),
    "typed dict": (Card, {"name": "x", "age": None}),
    "literal": (Literal["a", 7], 7),
    "datetime utc": (datetime, datetime(2026, 1, 2, 3, 4, 5, 1, UTC)),
    "datetime with zone": (datetime, datetime(2026, 1, 2, 3, 4, 5, 1, EAST)),
    "date": (date, date(1, 1, 1)),
    "time": (time, time(23, 59, 59, 999999)),
    "timedelta": (timedelta, timedelta(days=-3, microseconds=1)),
    "uuid": (UUID, ID),
    "decimal": (Decimal, Decimal("0.10000000000000000000000000000000000001")),
    "set": (set[int], {3, 1, 2}),
    "frozenset": (frozenset[str], frozenset({"a", ""})),
    "tuple": (tuple[int, ...], (1, 2, 3)),
    "mixed tuple": (tuple[int, str, None], (1, "1", None)),
    "empty tuple": (tuple[()], ()),
    "bytes": (bytes, bytes(range(256))),
    "empty bytes": (bytes, b""),
    "none": (NoneType, None),
    "zero": (int, 0),
    "empty text": (str, ""),
    "empty list": (list[int], []),
    "empty dict": (dict[str, int], {}),
    "false": (bool, False),
    "text like a date": (str, "2026-01-02T03:04:05Z"),
    "texts of any kind": (Any, ["2026-01-02", "NaN", "null", "1", "0190a3f0-0000-7000-8000-000000000001"]),
    "text or a date": (str | date, "2026-01-02"),
    "a number or text": (int | str, "1"),
    "text with NUL": (str, "a\x00b\x00"),
    "text of all planes": (str, "ä\u2028\U0001f600\x7f\x1b"),
    "nan": (float, math.nan),
    "infinity": (list[float], [math.inf, -math.inf]),
    "nan in anything": (Any, {"x": [math.nan, math.inf, {"y": -math.inf}]}),
    "smallest float": (float, 5e-324),
    "long integer": (int, 2**64 + 1),
    "very long integer": (list[int], [-(2**200), 2**63]),
    "long integer in anything": (Any, {"n": 2**100}),
    "integer keys": (dict[int, str], {1: "a", -(2**70): "b"}),
    "mapping": (Mapping[str, int], {"b": 1, "a": 2}),
    "sequence": (Sequence[int], [3, 1]),
    "ordered": (OrderedDict[str, int], OrderedDict([("b", 1), ("a", 2)])),
}


def same(one: object, other: object) -> bool:
    """Equal, of one type, with the same zone; NaN is itself."""
    return type(one) is type(other) and repr(one) == repr(other) if isinstance(one, float) else _same(one, other)


def _same(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        pairs = zip(one.items(), other.items(), strict=False)
        return len(one) == len(other) and all(same(a, c) and same(b, d) for (a, b), (c, d) in pairs)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, datetime):
        return one == other and one.utcoffset() == other.utcoffset()
    return bool(one == other)


def echo_of(name: str, hint: Any) -> tuple[Any, Any]:
    """A workflow that passes a value of a type through everything, and its activity."""

    async def echo(value: hint) -> hint:  # type: ignore[valid-type]  # made at run time, as are all below
        return value

    async def handle(self: Any, value: hint) -> tuple[hint, hint]:  # type: ignore[valid-type]  # as above
        passed = await activity(made, value)
        await await_condition(lambda: len(self.got) > 0)
        return passed, self.got[0]

    def put(self: Any, value: hint) -> None:  # type: ignore[valid-type]  # as above
        self.got.append(value)

    def last(self: Any, value: hint) -> hint:  # type: ignore[valid-type]  # as above
        return self.got[-1] if self.got else value

    def begin(self: Any) -> None:
        self.got = []

    made = activity.defn(name=f"echo {name}", retry=ONCE)(echo)
    parts = {"__init__": begin, "handle": handle, "put": signal(put), "last": query(last)}
    return type(f"Echo {name}", (Workflow,), parts), made


async def test_values_come_back_as_they_were(client: Client) -> None:
    made = {name: echo_of(name, hint) for name, (hint, _) in VALUES.items()}
    workflows, activities = ([one[n] for one in made.values()] for n in (0, 1))
    wrong: list[tuple[str, str, Any]] = []

    async def pass_through(name: str) -> None:
        workflow, value = made[name][0], VALUES[name][1]
        instance = await client.start(workflow.options(id=name), value)
        found = {"query": await instance.query(workflow.last, value)}
        await instance.signal(workflow.put, value)
        found["run and activity"], found["signal"] = await instance.result(timeout=30)
        found["kept state"] = await instance.query(workflow.last, value)
        found["another look"] = (await client.instance(name, workflow).result())[0]
        wrong.extend((name, where, got) for where, got in found.items() if not same(got, value))

    async with Worker(client, workflows=workflows, activities=activities, settings=QUICK):
        await asyncio.gather(*map(pass_through, VALUES))
    assert wrong == []


# -- values that cannot pass ----------------------------------------------------------------------


@activity.defn(retry=RetryPolicy(initial_interval=0.01))
async def answer(how: str) -> int:
    if how == "object":
        return object()  # type: ignore[return-value]  # the point
    if how == "text":
        return "1"  # type: ignore[return-value]  # the point
    return 10 ** (1_000 if how == "large" else 1)


@activity.defn(retry=ONCE)
async def take(text: str) -> int:
    return len(text)


class Strict(Workflow):
    async def handle(self, how: str) -> Any:
        match how:
            case "object" | "text" | "large":
                try:
                    return await activity(answer, how)
                except ActivityFailed as error:
                    return [error.type, error.cause is not None and error.cause.non_retryable]
            case "given object":
                given: Any = object()
            case "given large":
                given = "x" * 2_000
            case "given surrogate":
                given = "\ud800"
            case "result":
                return object()
            case "large result":
                return "x" * 2_000
            case _:
                return None
        try:
            return await activity(take, given)
        except (EncodeError, PayloadTooLarge, TypeError) as error:
            return type(error).__name__


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("object", ["EncodeError", True]),
        ("text", ["EncodeError", True]),
        ("large", ["PayloadTooLarge", True]),
        ("given object", "ArgumentError"),
        ("given large", "PayloadTooLarge"),
        ("given surrogate", "EncodeError"),
    ],
)
async def test_what_cannot_pass_is_a_typed_error_where_it_was_given(client: Client, how: str, told: Any) -> None:
    async with Worker(client, workflows=[Strict], activities=[answer, take], settings=small()):
        assert await (await client.start(Strict, how)).result(timeout=20) == told


@pytest.mark.parametrize(("how", "told"), [("result", "EncodeError"), ("large result", "PayloadTooLarge")])
async def test_a_result_that_cannot_pass_fails_the_run(client: Client, how: str, told: str) -> None:
    async with Worker(client, workflows=[Strict], activities=[answer, take], settings=small()):
        with pytest.raises(WorkflowFailed) as caught:
            await (await client.start(Strict, how)).result(timeout=20)
        assert caught.value.type == told


def small() -> WorkerSettings:
    """Settings with little room for a value."""
    return replace(QUICK, limits=Limits(payload=1_000))
