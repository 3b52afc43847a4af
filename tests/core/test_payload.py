"""Values come back from storage as what they were, or are refused where they are given."""

from __future__ import annotations

import dataclasses
import enum
import math
import string
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, NamedTuple, NewType, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, SecretStr, computed_field, field_serializer
from typing_extensions import TypedDict

from aioflow.core.payload import CodecChain, decode_value, encode_value, frame, shape_of, unframe
from aioflow.errors import (
    ConfigurationError,
    DecodeError,
    DefinitionError,
    EncodeError,
    PayloadTooLarge,
)

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


@st.composite
def hints_and_values(draw: st.DrawFn) -> tuple[Any, Any]:
    hint, values = draw(st.sampled_from(ATOMS + OBJECTS))
    for wrap in draw(st.lists(st.sampled_from(NESTED), max_size=3)):
        hint, values = wrap(hint, values)
    return hint, draw(values)


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(hints_and_values())
def test_values_come_back_equal_and_of_the_same_type(case: tuple[Any, Any]) -> None:
    hint, value = case
    assert round_trip(value, hint) == value


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_sets_of_anything_hashable(data: st.DataObject) -> None:
    hint, values = data.draw(st.sampled_from([*ATOMS, (GenericPlain[bytes], OBJECTS[-2][1])]))
    value = data.draw(st.sets(values, max_size=4))
    assert round_trip(value, set[hint]) == value
    assert round_trip(frozenset(value), frozenset[hint]) == value


@settings(max_examples=100, deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | floats | texts,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    )
)
def test_json_values_need_no_hint(value: Any) -> None:
    for hint in (Any, object):
        assert round_trip(value, hint) == value


@settings(max_examples=200, deadline=None)
@given(st.datetimes(timezones=st.timezones() | offsets))
def test_the_offset_of_a_zone_is_kept_or_the_value_refused(value: datetime) -> None:
    offset = value.utcoffset()
    assert offset is not None
    if offset.seconds % 60:
        with pytest.raises(EncodeError, match="changed"):
            encode_value(value, datetime)
    else:
        back = round_trip(value, datetime)
        assert back.utcoffset() == offset
        assert back.replace(tzinfo=None) == value.replace(tzinfo=None, fold=0)


# -- single values ----------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_numbers_that_json_does_not_know(number: float) -> None:
    for value, hint in (
        (number, float),
        (number, Any),
        ([number], list[float]),
        (Row(b"\xff", number), Row),
        (Leaf(data=b"\xff", number=number, span=timedelta(1)), Leaf),
        (Box[Row](item=Row(b"", number)), Box[Row]),
        ({"a": number}, dict[str, Any]),
    ):
        assert repr(round_trip(value, hint)) == repr(value)
    assert repr(round_trip(Decimal(number), Decimal)) == repr(Decimal(number))


@pytest.mark.parametrize("value", [None, 0, "", [], {}, False, 0.0])
def test_falsy_values(value: Any) -> None:
    assert round_trip(value, Any) == value
    assert round_trip(value, type(value)) == value


def test_none_is_a_value() -> None:
    assert encode_value(None, None) == b"\x01null"
    assert decode_value(b"\x01null", None) is None
    with pytest.raises(EncodeError, match="None"):
        encode_value(1, None)
    with pytest.raises(DecodeError):
        decode_value(b"\x01null", int)


def test_zones_are_kept_as_offsets() -> None:
    summer = datetime(2024, 10, 27, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=0)
    winter = summer.replace(fold=1)
    assert round_trip(summer, datetime).utcoffset() == timedelta(hours=2)
    assert round_trip(winter, datetime).utcoffset() == timedelta(hours=1)


def test_models_within_models_within_dataclasses() -> None:
    leaf = Leaf(data=b"\xff\x00\xfe", number=math.inf, span=timedelta(microseconds=-1))
    value = Plain(b"\xff", None, Settled(leaf=leaf, leaves=(leaf,)), {"x": Decimal("1.10")})
    assert round_trip(value, Plain) == value
    assert round_trip({"a": [Box[Plain](item=value)]}, dict[str, list[Box[Plain]]])["a"][0].item == value
    assert round_trip(Tree(kids=[Tree(blob=b"\xff", kids=[Tree()])]), Tree).kids[0].blob == b"\xff"
    assert round_trip(WithoutEquality(b"\xff"), WithoutEquality).data == b"\xff"


def test_aliases_computed_fields_and_own_configuration() -> None:
    class Own(BaseModel):
        model_config = ConfigDict(ser_json_bytes="hex", extra="forbid", serialize_by_alias=True)
        data: bytes = Field(alias="theData")
        out: int = Field(serialization_alias="o", validation_alias="i")

        @computed_field
        def size(self) -> int:
            return len(self.data)

    value = Own(theData=b"\xff\x01", i=3)
    payload = encode_value(value, Own)
    assert b"ff01" in payload
    assert b"size" not in payload
    assert decode_value(payload, Own) == value


def test_abstract_hints() -> None:
    assert round_trip({"a": b"\xff"}, Mapping[str, bytes]) == {"a": b"\xff"}
    assert round_trip([b"\xff"], Sequence[bytes]) == [b"\xff"]
    assert decode_value(encode_value((1, 2), Sequence[int]), Sequence[int]) == [1, 2]
    assert round_trip(Path("/a/b"), Path) == Path("/a/b")


def test_sets_are_written_in_the_same_order_in_every_process() -> None:
    code = (
        "from aioflow.core.payload import encode_value\n"
        "words = {f'w{n}' for n in range(50)}\n"
        "print(encode_value((words, frozenset(words)), tuple[set[str], frozenset[str]]))"
    )
    seen = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("0", "1", "2")
    }
    assert len(seen) == 1


# -- refusals ---------------------------------------------------------------------------------------


class Base(BaseModel):
    a: int = 0


class Child(Base):
    b: int = 0


class Lopsided(BaseModel):
    n: int

    @field_serializer("n")
    def write(self, n: int) -> str:
        return f"number {n}"


@pytest.mark.parametrize(
    ("value", "hint", "words"),
    [
        ("1", int, "valid integer, not str"),
        (1, str, "valid string, not int"),
        (True, int, "not bool"),
        (1, bool, "not int"),
        ([1, "2"], list[int], r"\[1\]: .*not str"),
        ({"a": {"b": "c"}}, dict[str, dict[str, int]], r"a\.b: "),
        ((1,), list[int], "not tuple"),
        ([1], set[int], "not list"),
        ("red", Color, "Color"),
        ("2020-01-01", date, "not str"),
        (datetime(2020, 1, 1), date, "date"),
        ({"data": b"", "number": 1.0, "span": timedelta(1)}, Leaf, "instance of Leaf, not dict"),
        ([(b"", 1.0)], list[Row], r"\[0\]: .*instance of Row, not tuple"),
        (0, Positive, "greater than 0"),
        (Leaf.model_construct(data="no", number=1.0, span=timedelta(1)), Leaf, "bytes"),
        (Plain(b"", "soon"), Plain, "str"),  # type: ignore[arg-type]
        ([Base(), Child()], list[Base], r"\[1\].*a Child would come back as Base"),
        (Lopsided(n=1), Lopsided, "read back: n: "),
        ({"s": SecretStr("x")}, dict[str, SecretStr], "at s .*changed"),
        (datetime(2020, 1, 1), str | datetime, "a datetime would come back as str"),
        (datetime(2020, 1, 1), Any, "a datetime would come back as str; give it a type hint"),
        ({"a": [b"x"]}, Any, r"at a\[0\] .*a bytes would come back as str"),
        ((1,), Any, "a tuple would come back as list"),
        ({1: 2}, Any, "a key of type int"),
        (Box[Any](item={1}), Box[Any], "at item .*set"),
        (object(), Any, "cannot be stored"),
        ("\ud800", str, "surrogates"),
        (["\ud800"], Any, "surrogates"),
        ({(1, 2): 3}, dict[tuple[int, int], int], "read back"),
    ],
)
def test_what_would_not_come_back_is_refused_by_place(value: Any, hint: Any, words: str) -> None:
    with pytest.raises(EncodeError, match=words):
        encode_value(value, hint)


def test_integers_have_a_limit_of_their_own() -> None:
    assert round_trip(10**4000, int) == 10**4000
    with pytest.raises(EncodeError, match="read back"):
        encode_value(10**5000, int)


def test_cycles_and_depth() -> None:
    circle: list[Any] = []
    circle.append(circle)
    deep: list[Any] = []
    for _ in range(5_000):
        deep = [deep]
    loop = Tree()
    loop.kids.append(loop)
    for value, hint in ((circle, Any), (deep, Any), (loop, Tree)):
        with pytest.raises(EncodeError):
            encode_value(value, hint)


def test_values_of_the_user_stay_out_of_messages() -> None:
    with pytest.raises(EncodeError) as caught:
        encode_value(Leaf.model_construct(data="hunter2", number=1.0, span=timedelta(1)), Leaf)
    assert "hunter2" not in str(caught.value)
    with pytest.raises(DecodeError) as refused:
        decode_value(b'\x01{"data": "hunter2!"}', Leaf)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("hint", [bytearray, Iterable[int], type("Custom", (), {}), "NotThere"])
def test_hints_that_cannot_be_stored(hint: Any) -> None:
    with pytest.raises(DefinitionError, match="cannot be stored"):
        shape_of(hint)


def test_size_limit() -> None:
    assert len(encode_value("x" * 7, str, limit=10)) == 10
    with pytest.raises(PayloadTooLarge, match="the invoice takes 11 bytes, the limit is 10"):
        encode_value("x" * 8, str, limit=10, what="the invoice")
    with pytest.raises(PayloadTooLarge, match="2,097,152"):
        encode_value("x" * 2**21, str)


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        (b"", "empty"),
        (b"\x01", "valid str"),
        (b"\x01{", "valid str"),
        (b"\x01\xff", "valid str"),
        (b'\x01"\\ud800"', "valid str"),
        (b"\x01" + b"[" * 10_000, "valid str"),
        (b"\x011", "string, not int"),
        (b"\x02x", "newer aioflow"),
        (b"\x90x", "codec that is not configured"),
    ],
)
def test_stored_bytes_that_do_not_fit(payload: bytes, words: str) -> None:
    with pytest.raises(DecodeError, match=words):
        decode_value(payload, str)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=40), st.sampled_from([hint for hint, _ in ATOMS + OBJECTS]))
def test_any_bytes_are_a_value_or_a_typed_error(body: bytes, hint: Any) -> None:
    with suppress(DecodeError):
        decode_value(b"\x01" + body, hint)


def test_unions_of_another_order_are_other_shapes() -> None:
    assert shape_of(bytes | str) is not shape_of(str | bytes)
    assert shape_of(list[int]) is shape_of(list[int])
    assert shape_of(Annotated[int, ["unhashable"]]).decode(b"1") == 1


# -- codecs -----------------------------------------------------------------------------------------


class Reverse:
    tag = 0x90

    def encode(self, frame: bytes, context: Mapping[str, str]) -> bytes:
        return bytes([self.tag]) + context["id"].encode() + frame[::-1]

    def decode(self, frame: bytes, context: Mapping[str, str]) -> bytes:
        prefix = context["id"].encode()
        if not frame[1:].startswith(prefix):
            raise DecodeError("the payload belongs to another value")
        return frame[1 + len(prefix) :][::-1]


class Again(Reverse):
    tag = 0xFF


def test_a_chain_of_codecs_is_undone_by_tag() -> None:
    payload = encode_value({"a": 1}, dict[str, int])
    chain = CodecChain([Reverse(), Again()])
    sealed = chain.encode(payload, {"id": "p1"})
    assert sealed[0] == 0xFF
    assert chain.decode(sealed, {"id": "p1"}) == payload
    assert CodecChain([Again(), Reverse()]).decode(sealed, {"id": "p1"}) == payload
    assert CodecChain().encode(payload, {}) == payload == CodecChain().decode(payload, {})
    with pytest.raises(DecodeError, match="another value"):
        chain.decode(sealed, {"id": "p2"})
    with pytest.raises(DecodeError, match="no codec"):
        CodecChain([Reverse()]).decode(sealed, {"id": "p1"})


def test_tags_of_codecs() -> None:
    with pytest.raises(ConfigurationError, match="same tag"):
        CodecChain([Reverse(), Reverse()])
    low = Reverse()
    low.tag = 0x10
    with pytest.raises(ConfigurationError, match="between"):
        CodecChain([low])
    assert unframe(frame(b"1")) == b"1"


def test_letters() -> None:
    assert round_trip(string.printable + "\x00ü€𝄞", str) == string.printable + "\x00ü€𝄞"
    assert round_trip(datetime.now(UTC), datetime).tzinfo is not None
