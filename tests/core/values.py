"""Values of every kind, and Hypothesis strategies for them."""

from __future__ import annotations

import dataclasses
import enum
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Annotated, Any, Generic, Literal, NamedTuple, NewType, TypeVar
from uuid import UUID

from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

from aioflow.core.payload import decode_value, encode_value

T = TypeVar("T")
OrderId = NewType("OrderId", str)
Positive = Annotated[int, Field(gt=0)]


class Color(enum.Enum):
    RED = "red"
    TWO = 2


class Level(enum.IntEnum):
    LOW = 1


class Word(enum.StrEnum):
    A = "a"


class Flags(enum.Flag):
    X = 1
    Y = 2


class Leaf(BaseModel):
    data: bytes
    number: float
    span: timedelta
    ids: set[UUID] = set()


class Settled(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")
    leaf: Leaf
    leaves: tuple[Leaf, ...] = ()


class Tree(BaseModel):
    kids: list[Tree] = []
    blob: bytes = b""


class Box(BaseModel, Generic[T]):
    item: T


@dataclasses.dataclass
class Plain:
    data: bytes
    when: datetime | None
    inner: Settled | None = None
    kept: dict[str, Decimal] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True)
class GenericPlain(Generic[T]):
    item: T


@dataclasses.dataclass(eq=False)
class WithoutEquality:
    data: bytes


class Row(NamedTuple):
    data: bytes
    number: float


class Doc(TypedDict, total=False):
    data: bytes
    rows: list[Row]


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"
    claws: bytes


class Dog(BaseModel):
    kind: Literal["dog"] = "dog"
    bark: float


Pet = Annotated[Cat | Dog, Field(discriminator="kind")]


def round_trip(value: Any, hint: Any) -> Any:
    back = decode_value(encode_value(value, hint), hint)
    assert type(back) is type(value)
    return back


# -- strategies -------------------------------------------------------------------------------------

offsets = st.integers(-14 * 60 + 1, 14 * 60 - 1).map(lambda minutes: timezone(timedelta(minutes=minutes)))
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
floats = st.floats(allow_nan=False)
decimals = st.decimals(allow_nan=False, places=None) | st.sampled_from([Decimal("1.10"), Decimal("1E+40")])
aware = st.datetimes(timezones=offsets)
leaves = st.builds(
    Leaf, data=st.binary(max_size=8), number=floats, span=st.timedeltas(), ids=st.sets(st.uuids(), max_size=3)
)
settled = st.builds(Settled, leaf=leaves, leaves=st.lists(leaves, max_size=2).map(tuple))
plains = st.builds(
    Plain,
    data=st.binary(max_size=8),
    when=st.none() | aware,
    inner=st.none() | settled,
    kept=st.dictionaries(texts, decimals, max_size=3),
)
rows = st.builds(Row, data=st.binary(max_size=8), number=floats)
docs = st.fixed_dictionaries({}, optional={"data": st.binary(), "rows": st.lists(rows, max_size=3)})

ATOMS: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (bool, st.booleans()),
    (int, st.integers() | st.integers(-(10**300), 10**300)),
    (float, floats),
    (str, texts | st.sampled_from(["", "\x00", "2020-01-01", "null", "NaN", "aGk="])),
    (bytes, st.binary(max_size=20)),
    (Decimal, decimals),
    (datetime, aware | st.datetimes()),
    (date, st.dates()),
    (time, st.times() | st.times(timezones=offsets)),
    (timedelta, st.timedeltas()),
    (UUID, st.uuids()),
    (Color, st.sampled_from(Color)),
    (Level, st.sampled_from(Level)),
    (Word, st.sampled_from(Word)),
    (Flags, st.sampled_from([Flags.X, Flags.Y, Flags.X | Flags.Y])),
    (Literal["a", 2], st.sampled_from(["a", 2])),
    (OrderId, texts),
    (Positive, st.integers(1, 10**30)),
]
OBJECTS: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (Leaf, leaves),
    (Settled, settled),
    (Plain, plains),
    (Row, rows),
    (Doc, docs),
    (Pet, st.builds(Cat, claws=st.binary()) | st.builds(Dog, bark=floats)),
    (Box[bytes], st.builds(Box[bytes], item=st.binary())),
    (Box[Settled], st.builds(Box[Settled], item=settled)),
    (Box[list[Row]], st.builds(Box[list[Row]], item=st.lists(rows, max_size=3))),
    (GenericPlain[bytes], st.builds(GenericPlain, item=st.binary())),
    (GenericPlain[Plain], st.builds(GenericPlain, item=plains)),
]
NESTED = [
    lambda hint, values: (hint | None, st.none() | values),
    lambda hint, values: (list[hint], st.lists(values, max_size=3)),
    lambda hint, values: (tuple[hint, int], st.tuples(values, st.integers())),
    lambda hint, values: (tuple[hint, ...], st.lists(values, max_size=3).map(tuple)),
    lambda hint, values: (dict[str, hint], st.dictionaries(texts, values, max_size=3)),
    lambda hint, values: (dict[UUID, list[hint]], st.dictionaries(st.uuids(), st.lists(values, max_size=2))),
]
