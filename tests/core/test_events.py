"""Events as they are stored: every kind goes there and back, old ones are lifted, newer ones refused."""

from __future__ import annotations

import dataclasses
import json
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any, ClassVar, get_type_hints
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioflow.core import events as ev
from aioflow.core import versions
from aioflow.core.event import KINDS
from aioflow.core.versions import decode, encode, upcaster
from aioflow.errors import DecodeError
from tests.core.event_shapes import shapes
from tests.core.sizes import sized

SHAPES = Path(__file__).parents[1] / "golden" / "event_shapes.json"
AT = datetime(2026, 2, 3, 4, 5, 6, 789, tzinfo=UTC)

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
PLAIN = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | TEXT
VALUES: dict[Any, st.SearchStrategy[Any]] = {
    str: TEXT,
    int: st.integers(-(2**40), 2**40),
    bool: st.booleans(),
    float: st.floats(allow_nan=False, allow_infinity=False),
    UUID: st.uuids(),
    datetime: st.datetimes(timezones=st.sampled_from([UTC, timezone(timedelta(hours=2))])),
    dict[str, str]: st.dictionaries(TEXT, TEXT, max_size=2),
    dict[str, Any]: st.dictionaries(TEXT, PLAIN | st.lists(PLAIN, max_size=2), max_size=2),
    list[str]: st.lists(TEXT, max_size=2),
}


def strategy(hint: Any) -> st.SearchStrategy[Any]:
    if hint in VALUES:
        return VALUES[hint]
    members = [one for one in hint.__args__ if one is not type(None)]
    return st.none() | st.one_of(*(VALUES[one] for one in members))


def events(cls: type[ev.Event]) -> st.SearchStrategy[ev.Event]:
    hints = get_type_hints(cls)
    fields = {
        field.name: strategy(hints[field.name])
        for field in dataclasses.fields(cls)
        if field.name not in ("at", "ref", "payload")
    }
    return st.builds(cls, at=st.just(AT), ref=st.none() | TEXT, payload=st.none() | st.binary(max_size=4), **fields)


@pytest.mark.parametrize("cls", KINDS.values(), ids=KINDS.keys())
def test_every_kind_goes_there_and_back(cls: type[ev.Event]) -> None:
    @sized(40)
    @given(events(cls))
    def check(event: ev.Event) -> None:
        record = encode(event)
        assert (record.kind, record.version) == (cls.__name__, cls.VERSION)
        assert (record.ref, record.at, record.payload) == (event.ref, event.at, event.payload)
        assert decode(record) == event
        assert encode(decode(record)) == record

    check()


def test_a_field_with_its_default_is_not_stored() -> None:
    event = ev.RunStarted(at=AT, workflow="w", queue="q", seed="s")
    attrs = encode(event).attrs
    assert attrs is not None
    assert json.loads(attrs) == {"workflow": "w", "queue": "q", "seed": "s"}
    assert encode(ev.TimerFired(at=AT, ref="0:t1")).attrs is None
    assert encode(ev.RunCompleted(at=AT)).attrs is None


def test_every_kind_is_an_input_or_recorded() -> None:
    assert all(issubclass(cls, ev.Input | ev.Recorded) for cls in KINDS.values())
    assert not KINDS.keys() & {"Input", "Recorded", "Terminal", "Forced", "Event"}


# -- what other versions wrote --------------------------------------------------------------------


def record(**changed: Any) -> ev.Record:
    return encode(ev.ActivityScheduled(at=AT, activity="a", execution_id=UUID(int=1), queue="q"))._replace(**changed)


def test_a_newer_version_and_an_unknown_kind_are_refused() -> None:
    with pytest.raises(DecodeError, match="ActivityScheduled version 2 was written by a newer aioflow"):
        decode(record(version=2))
    with pytest.raises(DecodeError, match="Surprise version 1 was written by a newer aioflow"):
        decode(record(kind="Surprise"))


def test_a_field_added_later_within_the_version_is_passed_over() -> None:
    attrs = json.dumps(json.loads(record().attrs or "{}") | {"later": 1})
    assert decode(record(attrs=attrs)) == decode(record())


@pytest.mark.parametrize(
    "attrs",
    [
        None,
        "",
        "{",
        "[]",
        '{"activity": "a", "queue": "q"}',
        '{"activity": "a", "queue": "q", "execution_id": 5}',
        '{"activity": "a", "queue": "q", "execution_id": "x"}',
    ],
)
def test_attributes_that_do_not_fit_are_a_typed_error(attrs: str | None) -> None:
    with pytest.raises(DecodeError, match="ActivityScheduled version 1 cannot be read"):
        decode(record(attrs=attrs))


@pytest.fixture
def _versions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "_upcasters", {})
    monkeypatch.setattr(versions, "_known_fields", {})


@pytest.mark.usefixtures("_versions")
def test_old_versions_are_lifted_step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ev.MessageEmitted, "VERSION", 3)

    @upcaster("MessageEmitted", 1)
    def to_second(attrs: versions.Attrs, payload: bytes | None) -> tuple[versions.Attrs, bytes | None]:
        return {"stream": attrs["name"], "position": attrs["position"]}, payload

    @upcaster("MessageEmitted", 2)
    def to_third(attrs: versions.Attrs, payload: bytes | None) -> tuple[versions.Attrs, bytes | None]:
        return {"stream": attrs["stream"], "offset": attrs["position"]}, b"new " + (payload or b"")

    def old(version: int, attrs: str) -> ev.Record:
        return ev.Record("MessageEmitted", version, "r", AT, attrs, b"x")

    lifted = ev.MessageEmitted(at=AT, ref="r", payload=b"new x", stream="out", offset=4)
    assert decode(old(1, '{"name": "out", "position": 4}')) == lifted
    assert decode(old(2, '{"stream": "out", "position": 4}')) == lifted
    assert decode(old(3, '{"stream": "out", "offset": 4}')) == dataclasses.replace(lifted, payload=b"x")
    assert encode(lifted).version == 3
    with pytest.raises(DecodeError, match="newer"):
        decode(old(4, "{}"))
    with pytest.raises(ValueError, match="has an upcaster already"):
        upcaster("MessageEmitted", 1)(to_second)


@pytest.mark.usefixtures("_versions")
def test_a_version_without_an_upcaster_is_a_typed_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ev.TimerFired, "VERSION", 2)
    with pytest.raises(DecodeError, match="TimerFired version 1 cannot be read"):
        decode(ev.Record("TimerFired", 1, "r", AT, None, None))


def test_every_old_version_has_an_upcaster() -> None:
    wanted = {(kind, version) for kind, cls in KINDS.items() for version in range(1, cls.VERSION)}
    assert versions._upcasters.keys() == wanted


# -- shapes for ever ------------------------------------------------------------------------------

FROZEN: dict[str, Any] = json.loads(SHAPES.read_text(encoding="utf-8"))


def compare(frozen: dict[str, Any], found: dict[str, Any]) -> list[str]:
    """What became of shapes that were stored once."""
    problems = [f"{kind} is gone" for kind in frozen.keys() - found.keys()]
    problems += [f"{kind} is new: add it to {SHAPES.name}" for kind in found.keys() - frozen.keys()]
    for kind in frozen.keys() & found.keys():
        old, new = frozen[kind], found[kind]
        if old["base"] != new["base"]:
            problems.append(f"{kind} is {new['base']}, it was {old['base']}")
        for name, said in old["fields"].items():
            if new["fields"].get(name) != said and old["version"] == new["version"]:
                problems.append(f"{kind}.{name} was `{said}`, now `{new['fields'].get(name)}`: a new VERSION, or undo")
        added = new["fields"].keys() - old["fields"].keys()
        problems += [
            f"{kind}.{name} is required: give it a default" for name in added if " = " not in new["fields"][name]
        ]
        if old["version"] != new["version"] or added:
            problems.append(f"{kind} has changed: write it down in {SHAPES.name}")
    return problems


def test_no_stored_shape_has_changed() -> None:
    assert compare(FROZEN, shapes()) == []


def test_changes_of_shape_are_seen() -> None:
    class Changed:
        """What may be done to one event; each must be told."""

        one: ClassVar[dict[str, Any]] = {"version": 1, "base": "Input", "fields": {"a": "int", "b": "int = 1"}}

        def but(self, **fields: str | None) -> list[str]:
            merged = {name: said for name, said in (self.one["fields"] | fields).items() if said}
            return compare({"E": self.one}, {"E": self.one | {"fields": merged}})

    changed = Changed()
    assert changed.but() == []
    assert len(changed.but(b="int = 2")) == 1
    assert len(changed.but(a="str")) == 1
    assert len(changed.but(b=None)) == 1
    assert len(changed.but(b=None, c="int = 1")) == 2
    assert len(changed.but(c="int")) == 2
    assert len(changed.but(c="int = 0")) == 1
    assert compare({"E": changed.one}, {}) == ["E is gone"]
    assert len(compare({}, {"E": changed.one})) == 1
    assert len(compare({"E": changed.one}, {"E": changed.one | {"base": "Recorded"}})) == 1
