"""Values come back from storage as what they were."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, computed_field

from aioflow.core.payload import decode_value, encode_value
from aioflow.errors import (
    DecodeError,
    EncodeError,
)
from tests.core.values import (
    ATOMS,
    NESTED,
    OBJECTS,
    Box,
    GenericPlain,
    Leaf,
    Plain,
    Row,
    Settled,
    Tree,
    WithoutEquality,
    floats,
    offsets,
    round_trip,
    texts,
)


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


class Late(BaseModel):
    model_config = ConfigDict(defer_build=True)
    data: bytes
    next: Late | None = None


def test_models_built_late() -> None:
    assert round_trip(Late(data=b"\xff", next=Late(data=b"")), Late).next == Late(data=b"")


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
