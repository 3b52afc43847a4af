"""What would not come back from storage is refused where it is given; codecs are undone by their tags."""

from __future__ import annotations

import string
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, SecretStr, field_serializer

from aioflow.core.payload import CodecChain, decode_value, encode_value, frame, shape_of, unframe
from aioflow.errors import (
    ConfigurationError,
    DecodeError,
    DefinitionError,
    EncodeError,
    PayloadTooLarge,
)
from tests.core.values import (
    ATOMS,
    OBJECTS,
    Box,
    Color,
    Leaf,
    Plain,
    Positive,
    Row,
    Tree,
    round_trip,
)

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
