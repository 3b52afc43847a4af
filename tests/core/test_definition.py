"""Definitions: what can run is described, what cannot is refused where it is written."""

from __future__ import annotations

import dataclasses
import functools
import types
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import BaseModel

import aioflow as af
from aioflow import RetryPolicy, Workflow, activity, await_signal, query, side_effect, signal
from aioflow.core.definition import ActivityDefinition, ActivityOptions
from aioflow.core.registry import Registry, activity_definition, workflow_definition
from aioflow.errors import DefinitionError, EncodeError, PayloadTooLarge

if TYPE_CHECKING:
    from decimal import Decimal as OnlyForCheckers


class Missing(Exception):
    pass


class Counter(Workflow, name="counter", queue="numbers", blocking=(Missing, LookupError)):
    def __init__(self) -> None:
        self.n = 0

    @signal
    def add(self, n: int) -> None:
        self.n += n

    @signal(name="add-later")
    async def later(self, n: int = 1, *, note: str = "") -> None: ...

    @query
    def value(self) -> int:
        return self.n

    async def handle(self, start: int, *, step: int = 1) -> list[int]:
        return [start, step]


@activity.defn(name="charge-card", queue="gpu", retry=RetryPolicy(max_attempts=3), start_to_close=30, heartbeat=5)
async def charge(amount: int, *, note: str = "") -> set[str]:
    return {note}


@activity.defn
def render(n: int) -> bytes:
    return bytes(n)


class Gateway:
    def __init__(self, reply: str = "") -> None:
        self.reply = reply

    @activity.defn
    async def pay(self, n: int) -> str:
        return self.reply * n

    @activity.defn(name="hash")
    def digest(self, n: int) -> bytes:
        return bytes(n)


# -- workflows --------------------------------------------------------------------------------------


def test_a_workflow_is_described() -> None:
    definition = workflow_definition(Counter)
    assert (definition.name, definition.queue, definition.cls) == ("counter", "numbers", Counter)
    assert definition.blocking == (Missing, LookupError)
    assert list(definition.signals) == ["add", "add-later"]
    assert list(definition.queries) == ["value"]
    assert definition.signals["add-later"].is_async
    assert not definition.signals["add"].is_async
    assert definition.signature.result_hint == list[int]
    assert definition.signature.encode((1,), {"step": 2}) == b'\x01{"args":[1],"kwargs":{"step":2}}'
    instance = definition.cls()
    handler = definition.signals["add"]
    args, kwargs = handler.signature.decode(handler.signature.encode((4,), {}))
    handler.fn(instance, *args, **kwargs)
    assert definition.queries["value"].fn(instance) == 4
    definition.check()


def test_names_and_queues_by_default() -> None:
    class Plain(Workflow):
        async def handle(self) -> None: ...

    class Heir(Counter):
        pass

    class Other(Counter, queue="other", blocking=KeyError): ...

    assert (workflow_definition(Plain).name, workflow_definition(Plain).queue) == ("Plain", "default")
    assert (workflow_definition(Heir).name, workflow_definition(Heir).queue) == ("Heir", "numbers")
    assert workflow_definition(Heir).blocking == (Missing, LookupError)
    assert workflow_definition(Heir).cls is Heir
    assert list(workflow_definition(Heir).signals) == ["add", "add-later"]
    assert workflow_definition(Other).queue == "other"
    assert workflow_definition(Other).blocking == (KeyError,)


def test_a_base_class_needs_no_handle() -> None:
    class Base(Workflow, queue="base"):
        @signal
        def stop(self) -> None: ...

    class Concrete(Base):
        async def handle(self) -> None: ...

    with pytest.raises(DefinitionError, match=r"Base has no handle\(\): add"):
        workflow_definition(Base)
    assert list(workflow_definition(Concrete).signals) == ["stop"]
    assert workflow_definition(Concrete).queue == "base"


class Nested(Workflow):
    class Input(BaseModel):
        n: int

    @signal
    def add(self, more: Input) -> None: ...

    @activity.defn
    async def step(self, given: Input) -> Input:
        return given

    async def handle(self, given: Input) -> list[Input]:
        return [given]


def test_hints_may_name_classes_nested_in_the_owner() -> None:
    definition = workflow_definition(Nested)
    definition.check()
    assert definition.signature.result_hint == list[Nested.Input]
    value = Nested.Input(n=1)
    for signature in (definition.signature, Nested.add.signature, Nested.step.definition.signature):
        assert signature.decode(signature.encode((value,), {})) == ((value,), {})

    class Heir(Nested):
        pass

    assert workflow_definition(Heir).signature.result_hint == list[Nested.Input]


def test_results_are_checked_against_the_annotation() -> None:
    definition = workflow_definition(Counter)
    assert definition.encode_result([1, 2]) == b"\x01[1,2]"
    assert definition.encode_result([1], definition.signature.result_hint, 100) == b"\x01[1]"
    with pytest.raises(EncodeError, match=r"the result of counter\(\).*\[0\].*not str"):
        definition.encode_result(["1"])
    with pytest.raises(PayloadTooLarge, match=r"the result of counter\(\)"):
        definition.encode_result([1] * 100, limit=50)
    with pytest.raises(EncodeError, match=r"the result of charge-card\(\)"):
        charge.definition.encode_result(None)


def test_what_registration_finds() -> None:
    class Clock(Workflow):
        async def handle(self) -> str:
            return str(datetime.now())

    class Hidden(Workflow):
        async def handle(self, amount: OnlyForCheckers) -> None: ...

    class Unstorable(Workflow):
        @query
        def q(self) -> bytearray:
            return bytearray()

        async def handle(self) -> None: ...

    @dataclasses.dataclass
    class Data(Workflow):
        n: int = 0

        async def handle(self) -> None: ...

    with pytest.raises(DefinitionError, match=r"Clock cannot be replayed:\n.*datetime.now\(\) is not durable"):
        Registry(workflows=[Clock])
    with pytest.raises(DefinitionError, match="hints of Hidden cannot be resolved"):
        Registry(workflows=[Hidden])
    with pytest.raises(DefinitionError, match=r"q\(\), the result: .*bytearray"):
        Registry(workflows=[Unstorable])
    with pytest.raises(DefinitionError, match=r"Data: __init__ takes nothing but self \('n' found\)"):
        Registry(workflows=[Data])


def test_a_recorded_value_may_use_anything() -> None:
    class Fine(Workflow):
        async def handle(self) -> str:
            return await side_effect(lambda: str(datetime.now()))

    assert Registry(workflows=[Fine]).workflows.keys() == {"Fine"}


async def waits_for_anything() -> Any:
    return await await_signal("x")


def test_signals_beyond_the_declared_ones() -> None:
    def near(source: str) -> bool:
        module = types.ModuleType("flows_of_a_user")
        exec(f"import aioflow as af\nfrom aioflow import Workflow\n{source}", vars(module))  # noqa: S102  # a module
        return workflow_definition(module.W).open_signals

    assert near("class W(Workflow):\n async def handle(self): await af.await_signal('x')")
    assert near("from aioflow import await_signal as w\nclass W(Workflow):\n async def handle(self): await w('x')")
    assert near(
        "async def help(): return [await af.await_signal('x') for _ in '1']\n"
        "class W(Workflow):\n async def handle(self): await help()"
    )
    assert near(
        "class W(Workflow):\n @af.signal\n async def s(self): await af.await_signal('x')\n async def handle(self): ..."
    )
    assert near(
        f"from {__name__} import waits_for_anything\n"
        "class W(Workflow):\n async def handle(self): await waits_for_anything()"
    )
    assert not near("class W(Workflow):\n async def handle(self): await af.timer(1)")


# -- activities -------------------------------------------------------------------------------------


def test_an_activity_is_described() -> None:
    definition = activity_definition(charge)
    assert (definition.name, definition.is_async, definition.bound) == ("charge-card", True, True)
    assert definition.options == ActivityOptions(
        queue="gpu", retry=RetryPolicy(max_attempts=3), start_to_close=30.0, heartbeat=5.0
    )
    assert definition.signature.result_hint == set[str]
    assert (render.definition.name, render.definition.is_async) == ("render", False)
    assert render.definition.options == ActivityOptions()
    assert charge.__name__ == "charge"
    assert charge.__wrapped__ is definition.fn  # type: ignore[attr-defined]


def test_options_make_a_copy() -> None:
    other = charge.options(queue="cpu", schedule_to_close=60)
    assert other.definition.options.queue == "cpu"
    assert other.definition.options.schedule_to_close == 60.0
    assert other.definition.options.start_to_close == 30.0
    assert charge.definition.options.queue == "gpu"
    assert other.definition.signature is charge.definition.signature
    assert type(other) is type(charge)
    bound = Gateway("x").pay.options(queue="a")
    assert bound.definition.bound
    assert bound.options(queue="b").definition.options.queue == "b"


def test_methods_share_one_signature() -> None:
    first, second = Gateway("a"), Gateway("b")
    assert first.pay.definition.signature is second.pay.definition.signature
    assert [p.name for p in first.pay.definition.signature.parameters] == ["n"]
    assert not Gateway.pay.definition.bound
    assert Gateway.pay.definition.signature is first.pay.definition.signature
    assert first.digest.definition.name == "hash"


@pytest.mark.parametrize(
    ("declare", "words"),
    [
        (lambda: activity.defn(lambda n: n), "lambda, needs name="),
        (lambda: activity.defn(functools.partial(max, 1)), "needs name="),
        (lambda: activity.defn(3), "not a int|is a function"),  # type: ignore[call-overload]
        (lambda: activity.defn(Gateway), "not class Gateway"),
        (lambda: activity.defn(charge), "an activity already"),
        (lambda: activity.defn(staticmethod(len)), "put @staticmethod above"),
        (lambda: activity.defn(name="")(len), "name of an activity|needs"),
        (lambda: activity.defn(queue="")(len), "name of a queue"),
        (lambda: activity.defn(retry=3)(len), "retry is a RetryPolicy"),  # type: ignore[call-overload]
        (lambda: activity.defn(start_to_close=0)(len), "start_to_close must be more than zero"),
        (lambda: activity.defn(heartbeat="5s")(len), "heartbeat is a timedelta or a number"),  # type: ignore[call-overload]
        (lambda: activity.defn(queu="x")(len), "unknown option queu"),  # type: ignore[call-overload]
        (lambda: charge.options(start_to_close=-1), "start_to_close must be"),
    ],
)
def test_activities_that_cannot_run(declare: Callable[[], Any], words: str) -> None:
    with pytest.raises(DefinitionError, match=words):
        declare()


def test_generators_are_no_activities() -> None:
    def rows() -> Iterator[int]:
        yield 1

    async def stream() -> AsyncIterator[int]:
        yield 1

    for fn in (rows, stream):
        with pytest.raises(DefinitionError, match=f"activity {fn.__name__} is a generator"):
            activity.defn(fn)  # type: ignore[arg-type]


def test_a_decorated_async_function_is_async() -> None:
    async def inner(n: int) -> int:
        return n

    @functools.wraps(inner)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return inner(*args, **kwargs)

    assert ActivityDefinition(wrapper).is_async
    assert ActivityDefinition(functools.partial(inner, 1), name="part").is_async
    assert ActivityDefinition(lambda n: n, name="named").name == "named"


# -- registry ---------------------------------------------------------------------------------------


def test_the_registry_knows_by_name() -> None:
    registry = Registry(workflows=[Counter, Counter], activities=[charge, render, Gateway("x").pay, charge])
    assert registry.workflows.keys() == {"counter"}
    assert registry.activities.keys() == {"charge-card", "render", "pay"}
    assert registry.activities["pay"].fn.__self__.reply == "x"  # type: ignore[attr-defined]


def test_the_registry_takes_modules() -> None:
    module = types.ModuleType("flows")
    for name, value in {"C": Counter, "c": charge, "base": Workflow, "n": 3, "af": af, "m": Gateway.pay}.items():
        setattr(module, name, value)
    registry = Registry(workflows=[module], activities=[module])
    assert registry.workflows.keys() == {"counter"}
    assert registry.activities.keys() == {"charge-card"}


def other_charge(n: int) -> int:
    return n


class Impostor(Workflow, name="counter"):
    async def handle(self) -> None: ...


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"workflows": [Counter, Impostor]}, "two workflows are named 'counter': .*Counter and .*Impostor"),
        ({"activities": [charge, activity.defn(name="charge-card")(other_charge)]}, "two activities are named"),
        ({"activities": [Gateway("a").pay, Gateway("b").pay]}, "two activities are named 'pay'"),
        ({"activities": [Gateway.pay]}, r"pay is a method \(Gateway.pay\): register it on an instance"),
        ({"activities": [other_charge]}, "other_charge is not an activity: decorate it"),
        ({"activities": [Counter]}, "Counter is not an activity"),
        ({"workflows": [charge]}, "charge is not a workflow"),
        ({"workflows": [Counter()]}, "is not a workflow"),
        ({"workflows": [Workflow]}, "has no handle"),
        ({"workflows": Counter}, r"workflows= is a list"),
        ({"activities": charge}, r"activities= is a list"),
        ({"workflows": "flows"}, r"workflows= is a list"),
    ],
)
def test_what_cannot_be_registered(given: dict[str, Any], words: str) -> None:
    with pytest.raises(DefinitionError, match=words):
        Registry(**given)
