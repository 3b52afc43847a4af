"""Arguments by signature: what fits is stored and read back, what does not is named by function and parameter."""

from __future__ import annotations

import functools
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Optional
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from aioflow.core.arguments import Signature
from aioflow.errors import ArgumentError, DecodeError, DefinitionError, EncodeError, PayloadTooLarge

if TYPE_CHECKING:
    from decimal import Decimal as OnlyForCheckers


class Order(BaseModel):
    id: str
    lines: list[int] = []


def charge(order: Order, copies: int = 1, note: Optional[str] = None, *, when: datetime | None = None) -> bytes:  # noqa: UP045  # both spellings
    return b""


def untyped(x, y=None):  # type: ignore[no-untyped-def]  # no hints, on purpose
    return x


def only(order: Order, /) -> None: ...


def many(*items: int, **named: str) -> None: ...


def listed(items: list[int]) -> set[str]:
    return set()


def required(*, key: UUID) -> None: ...


class Workflow:
    async def handle(self, order: Order, n: int = 0) -> list[Order]:
        return []


ORDER = Order(id="1")
CHARGE = Signature(charge, "charge")


@pytest.mark.parametrize(
    ("fn", "args", "kwargs", "stored"),
    [
        (charge, (ORDER,), {}, '[{"id":"1","lines":[]}]'),
        (charge, (ORDER, 2, "n"), {}, '[{"id":"1","lines":[]},2,"n"]'),
        (charge, (), {"order": ORDER, "copies": 3}, '[{"id":"1","lines":[]},3]'),
        (charge, (ORDER,), {"note": "n"}, '{"args":[{"id":"1","lines":[]}],"kwargs":{"note":"n"}}'),
        (
            charge,
            (ORDER, 1),
            {"when": datetime(2020, 1, 1, tzinfo=UTC)},
            '{"args":[{"id":"1","lines":[]},1],"kwargs":{"when":"2020-01-01T00:00:00Z"}}',
        ),
        (many, (1, 2), {"a": "x"}, '{"args":[1,2],"kwargs":{"a":"x"}}'),
        (many, (), {}, "[]"),
        (untyped, ({"a": [1, None]},), {}, '[{"a":[1,null]}]'),
        (required, (), {"key": UUID(int=1)}, '{"args":[],"kwargs":{"key":"00000000-0000-0000-0000-000000000001"}}'),
    ],
)
def test_what_fits_is_stored_and_read(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], stored: str
) -> None:
    signature = Signature(fn, fn.__name__)
    payload = signature.encode(args, kwargs)
    assert payload == b"\x01" + stored.encode()
    back = signature.decode(payload)
    given_call = signature._call.bind(*args, **kwargs)
    assert signature._call.bind(*back[0], **back[1]).arguments == given_call.arguments


@pytest.mark.parametrize(
    ("args", "kwargs", "words"),
    [
        ((), {}, r"charge\(\): missing a required argument: 'order'; it is charge\(order: Order, copies: int = 1"),
        ((ORDER, 1, "n", 4), {}, "too many positional"),
        ((ORDER,), {"nope": 1}, "unexpected keyword argument 'nope'"),
        ((ORDER,), {"order": ORDER}, "multiple values for argument 'order'"),
        (("x",), {}, r"charge\(\): argument 'order': .*instance of Order, not str"),
        (({"id": "1"},), {}, "argument 'order': .*instance of Order, not dict"),
        ((ORDER, "2"), {}, "argument 'copies': .*valid integer, not str"),
        ((ORDER, True), {}, "argument 'copies': .*not bool"),
        ((ORDER,), {"copies": 2.0}, "argument 'copies': .*not float"),
        ((ORDER,), {"note": 5}, "argument 'note': .*not int"),
        ((ORDER,), {"when": "2020-01-01"}, "argument 'when': .*not str"),
        ((None,), {}, "argument 'order'"),
    ],
)
def test_what_does_not_fit_is_named(args: tuple[Any, ...], kwargs: dict[str, Any], words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        CHARGE.encode(args, kwargs)
    assert issubclass(ArgumentError, TypeError)


def test_values_that_cannot_be_stored_are_named_too() -> None:
    with pytest.raises(EncodeError, match=r"argument 'note' of charge\(\) cannot be stored.*surrogates"):
        CHARGE.encode((ORDER, 1, "\ud800"), {})
    with pytest.raises(EncodeError, match=r"argument 'note' of charge\(\)"):
        CHARGE.encode((ORDER,), {"note": "\ud800"})
    plain = Signature(untyped, "untyped")
    with pytest.raises(EncodeError, match=r"argument 'x' of untyped\(\) at a\[0\] .*give it a type hint"):
        plain.encode(({"a": [datetime.now(UTC)]},), {})
    with pytest.raises(EncodeError, match=r"argument 'order' of charge\(\)"):
        CHARGE.encode((Order.model_construct(id=5),), {})
    with pytest.raises(ArgumentError, match=r"many\(\): argument '\*items'"):
        Signature(many, "many").encode((1, "2"), {})
    with pytest.raises(PayloadTooLarge, match=r"the arguments of charge\(\)"):
        CHARGE.encode((Order(id="x" * 100),), {}, limit=50)


@pytest.mark.parametrize(
    ("fn", "payload", "words"),
    [
        (charge, b"", "empty"),
        (charge, b"\x01", "not JSON"),
        (charge, b"\x01{}", "neither an array nor"),
        (charge, b'\x01{"args":1,"kwargs":{}}', "neither an array nor"),
        (charge, b'\x01{"args":[{"id":"1"}],"kwargs":{"x":1}}', "no parameter 'x' is left"),
        (charge, b'\x01{"args":[{"id":"1"}],"kwargs":{"order":1}}', "no parameter 'order' is left"),
        (charge, b'\x01[{"id":"1"},1,"n",4]', "4 values for 3 positional parameters"),
        (charge, b"\x01[]", r"nothing for order"),
        (charge, b'\x01[{"id":1}]', r"\[0\]\.id: .*not int"),
        (only, b'\x01{"args":[],"kwargs":{"order":{"id":"1"}}}', "no parameter 'order'"),
        (required, b"\x01[]", "nothing for key"),
        (charge, b"\x81", "codec"),
        (charge, b"\x01" + b"[" * 9_000, "not JSON"),
    ],
)
def test_stored_arguments_that_do_not_fit(fn: Callable[..., Any], payload: bytes, words: str) -> None:
    with pytest.raises(DecodeError, match=words):
        Signature(fn, fn.__name__).decode(payload)


def test_arguments_of_older_code_take_defaults() -> None:
    assert CHARGE.decode(b'\x01[{"id":"1"}]') == ((ORDER,), {})
    assert CHARGE.decode(b'\x01[{"id":"1"},5]') == ((ORDER, 5), {})
    assert CHARGE.decode(b'\x01[{"id":"1"}]') == ((ORDER,), {})
    assert CHARGE.decode(b'\x01{"args":[{"id":"1"}],"kwargs":{}}') == ((ORDER,), {})


@pytest.mark.parametrize(
    ("fn", "text", "args", "kwargs"),
    [
        (charge, '[{"id":"1"}, 2]', (ORDER, 2), {}),
        (charge, '{"order": {"id":"1"}, "note": "a"}', (ORDER,), {"note": "a"}),
        (charge, '{"id":"1"}', (ORDER,), {}),
        (
            charge,
            b'{"order":{"id":"1"},"when":"2020-01-01T00:00:00Z"}',
            (ORDER,),
            {"when": datetime(2020, 1, 1, tzinfo=UTC)},
        ),
        (listed, "[[1, 2]]", ([1, 2],), {}),
        (listed, '{"items": [1]}', ([1],), {}),
        (untyped, '"x"', ("x",), {}),
        (untyped, "{}", ({},), {}),
        (many, "[]", (), {}),
    ],
)
def test_arguments_written_as_json(
    fn: Callable[..., Any], text: str | bytes, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    signature = Signature(fn, fn.__name__)
    assert signature.encode_json(text) == signature.encode(args, kwargs)


@pytest.mark.parametrize(
    ("fn", "text", "words"),
    [
        (charge, "nope", "not JSON"),
        (charge, '"\\ud800"', "not JSON"),
        (charge, "[]", "nothing for order"),
        (charge, "[1,2,3,4]", "4 values for 3"),
        (charge, '[{"id":1}]', "argument 'order' at id: .*not int"),
        (charge, '[{"id":"1"},"2"]', "argument 'copies': .*not str"),
        (charge, '{"order":{"id":"1"},"when":5}', "argument 'when'"),
        (listed, "[1]", "argument 'items': .*not int"),
    ],
)
def test_json_that_does_not_fit(fn: Callable[..., Any], text: str, words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        Signature(fn, fn.__name__).encode_json(text)


def test_methods_decorated_functions_and_partials() -> None:
    signature = Signature(Workflow.handle, "W", skip_self=True)
    assert signature.decode(signature.encode((ORDER, 3), {})) == ((ORDER, 3), {})
    assert signature.result_hint == list[Order]
    bound = Signature(Workflow().handle, "W")
    assert [p.name for p in bound.parameters] == ["order", "n"]

    @functools.wraps(charge)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return charge(*args, **kwargs)

    assert Signature(wrapped, "w").encode((ORDER,), {}) == CHARGE.encode((ORDER,), {})
    part = Signature(functools.partial(charge, ORDER), "part")
    assert part.decode(part.encode((2,), {})) == ((2,), {})
    assert str(CHARGE).startswith("charge(order: Order, copies: int = 1, note: Optional[str] = None, *")
    assert str(Signature(untyped, "u")) == "u(x, y=None)"
    assert Signature(untyped, "u").result_hint is Any


def test_hints_that_cannot_be_resolved_or_stored() -> None:
    def hidden(amount: OnlyForCheckers) -> None: ...

    def custom(thing: Callable[[], int], other: type[Any] | bytearray | None = None) -> None: ...

    def lazy() -> bytearray:
        return bytearray()

    with pytest.raises(DefinitionError, match=r"hints of hidden cannot be resolved: .*OnlyForCheckers.*TYPE_CHECKING"):
        Signature(hidden, "hidden").prepare()
    with pytest.raises(DefinitionError, match=r"custom\(\), parameter 'other': .*bytearray"):
        Signature(custom, "custom").prepare()
    with pytest.raises(DefinitionError, match=r"lazy\(\), the result: .*bytearray"):
        Signature(lazy, "lazy").prepare()
    CHARGE.prepare()


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.integers() | st.text(max_size=5) | st.none() | st.builds(Order, id=st.text(max_size=3)), max_size=5),
    st.dictionaries(st.sampled_from(["order", "copies", "note", "when", "x"]), st.none() | st.integers(), max_size=3),
)
def test_any_call_is_stored_as_python_would_bind_it_or_refused(args: list[Any], kwargs: dict[str, Any]) -> None:
    try:
        payload = CHARGE.encode(args, kwargs)
    except (ArgumentError, EncodeError):
        return
    back_args, back_kwargs = CHARGE.decode(payload)
    assert CHARGE._call.bind(*back_args, **back_kwargs).arguments == CHARGE._call.bind(*args, **kwargs).arguments


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=60))
def test_any_bytes_are_arguments_or_a_typed_error(body: bytes) -> None:
    for text in (body, b'[{"id":' + body + b"}]", b'{"args":' + body + b',"kwargs":{}}'):
        try:
            CHARGE.decode(b"\x01" + text)
        except DecodeError:
            continue
