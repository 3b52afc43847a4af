"""all_, any_, and values on their way through activities, signals, side effects and results."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import Any, Generic, TypeVar
from uuid import UUID

import pytest
from pydantic import BaseModel

from aioflow import Workflow, activity, all_, any_, await_signal, side_effect
from aioflow.core import events as ev
from aioflow.core.payload import decode_value, encode_value
from tests.core.world import Driver, at

T = TypeVar("T")


@activity.defn
async def step(x: int) -> int:
    return x


def run(code: Callable[[], Any]) -> Driver:
    class Flow(Workflow):
        async def handle(self) -> Any:
            return await code()

    driver = Driver(Flow)
    driver.start()
    return driver


# -- all_ and any_ --------------------------------------------------------------------------------


def test_all_gives_results_in_order_a_tuple_for_a_tuple() -> None:
    async def code() -> Any:
        pair = await all_((step(1), step(2)))
        many = await all_([step(3), step(4)])
        return [type(pair).__name__, list(pair), type(many).__name__, many, await all_([])]

    driver = run(code)
    driver.complete("0/2:a1", 2)
    driver.complete("0/1:a1", 1)
    driver.complete("0/4:a1", 4)
    driver.complete("0/3:a1", 3)
    assert driver.result() == ["tuple", [1, 2], "list", [3, 4], []]


def test_all_raises_the_first_failure_and_the_others_go_on() -> None:
    async def code() -> Any:
        others = [asyncio.ensure_future(step(n)) for n in range(3)]
        try:
            await all_(others)
        except Exception as error:
            return [str(error.__cause__), await others[0]]

    driver = run(code)
    driver.fail("0/2:a1", ValueError("two"))
    assert driver.decisions[-1].cancelled_activities == []
    driver.complete("0/1:a1", 1)
    assert driver.result() == ["ValueError: two", 1]


async def race() -> Any:
    try:
        won = await any_([step(1), step(2), step(3)])
    except ExceptionGroup as group:
        return [group.message, [str(one.__cause__) for one in group.exceptions]]
    await step(4)
    return won


def test_any_gives_the_first_result_and_cancels_the_others() -> None:
    driver = run(race)
    driver.fail("0/1:a1", ValueError("one"))
    driver.complete("0/3:a1", 3)
    assert driver.decisions[-1].cancelled_activities == ["0/2:a1"]
    driver.complete("0:a1", 4)
    assert driver.result() == 3


def test_any_raises_when_all_have_failed_in_order() -> None:
    driver = run(race)
    for ref in ("0/2:a1", "0/3:a1", "0/1:a1"):
        driver.fail(ref, ValueError(ref))
    assert driver.result() == ["all of any_() failed", [f"ValueError: 0/{n}:a1" for n in (1, 2, 3)]]


def test_a_cancel_of_any_cancels_every_member() -> None:
    driver = run(race)
    driver.cancel()
    assert driver.closed == "cancelled"
    assert driver.kinds()[5:8] == [f"ActivityCancelRequested 0/{n}:a1" for n in (1, 2, 3)]


def test_any_of_nothing_is_refused() -> None:
    async def code() -> Any:
        return await any_([])

    assert run(code).failure().type == "ValueError"


# -- values ---------------------------------------------------------------------------------------


class Colour(Enum):
    RED = "red"
    BLUE = 2


@dataclass
class Point:
    x: int
    tags: set[str]


class Order(BaseModel):
    id: UUID
    total: Decimal
    due: datetime | None = None
    lines: dict[str, list[Point]] = {}


class Box(BaseModel, Generic[T]):
    content: T


DUE = datetime(2026, 1, 2, tzinfo=UTC)
ORDER = Order(id=UUID(int=5), total=Decimal("1.10"), due=DUE, lines={"a": [Point(1, {"x"})]})
EAST = timezone(timedelta(hours=5, minutes=30))
VALUES: list[tuple[Any, Any]] = [
    (ORDER, Order),
    (Point(2, {"a", "b"}), Point),
    (Colour.RED, Colour),
    (Colour.BLUE, Colour),
    (datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=EAST), datetime),
    (date(2026, 1, 2), date),
    (timedelta(days=-1, microseconds=3), timedelta),
    (UUID(int=2**100), UUID),
    (Decimal("NaN"), Decimal),
    (Decimal("1.000"), Decimal),
    ({1, 2}, set[int]),
    (frozenset({"a"}), frozenset[str]),
    ((1, "a", None), tuple[int, str, None]),
    (b"\x00\xff", bytes),
    ([{"a": (Colour.RED, [ORDER])}], list[dict[str, tuple[Colour, list[Order]]]]),
    (Box[list[Point]](content=[Point(1, set())]), Box[list[Point]]),
    (None, int | None),
    (0, int),
    (0, int | None),
    ("", str),
    ([], list[int]),
    (False, bool | None),
    ("2026-01-02", str),
    ("2026-01-02T03:04:05Z", str | datetime),
    ("a\x00b\ud7ff", str),
    (math.nan, float),
    (-math.inf, float),
    (2**80, int),
    (-(2**70), int | str),
    ({"plain": [1, 2.5, None, "x", True]}, Any),
]


def same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and (one == other or (one != one and other != other))


@pytest.mark.parametrize(
    ("value", "hint"), VALUES, ids=[f"{n}-{type(row[0]).__name__}" for n, row in enumerate(VALUES)]
)
def test_a_value_is_the_same_behind_an_activity_a_side_effect_and_a_signal(value: Any, hint: Any) -> None:
    async def echo(x: Any) -> Any:
        return x

    echo.__annotations__ = {"x": hint, "return": hint}
    echoing = activity.defn(echo)
    seen: list[Any] = []

    class Echo(Workflow, name="echo"):
        async def handle(self, x: Any) -> Any:
            seen.append(x)
            seen.append(await side_effect(lambda: x, type=hint))
            seen.append(await echoing(x))
            seen.append(await await_signal("x", type=hint))
            return seen[-1]

        handle.__annotations__.update({"x": hint, "return": hint})

    driver = Driver(Echo)
    driver.start(value)
    scheduled = driver.history[2]
    assert isinstance(scheduled, ev.ActivityScheduled)
    args, kwargs = echoing.definition.signature.decode(scheduled.payload or b"")
    assert same(args[0], value)
    assert kwargs == {}
    driver.complete("0:a1", value, hint)
    driver.evict()
    driver.loaded()
    driver.apply(ev.SignalReceived(at=at(2), ref="s", name="x", payload=encode_value((value,), tuple[hint])))
    assert all(same(one, value) for one in seen)
    assert len(seen) == 3 + 4
    assert same(decode_value(driver.history[-1].payload or b"", hint), value)
