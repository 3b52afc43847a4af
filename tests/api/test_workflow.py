"""The authoring face of workflows and their messages."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

import aioflow
from aioflow import Workflow, query, signal
from aioflow.api.workflow import StartOptions, WorkflowRef, start_options
from aioflow.errors import DefinitionError, InvalidInstanceId


class Order(Workflow, queue="orders"):
    def __init__(self) -> None:
        self.by: list[str] = []

    @signal
    def approve(self, by: str) -> None:
        """Say who approves."""
        self.by.append(by)

    @signal(name="approve-later")
    async def later(self, by: str) -> None:
        self.by.append(by)

    @query
    def approved(self) -> bool:
        return bool(self.by)

    async def handle(self, n: int) -> int:
        return n


class Special(Order, name="special"):
    @signal
    def approve(self, by: str) -> None:
        super().approve(f"special {by}")


async def test_on_self_handlers_are_methods() -> None:
    order = Order()
    order.approve("ann")
    await order.later(by="bob")
    assert order.by == ["ann", "bob"]
    assert order.approved()
    special = Special()
    special.approve("cid")
    assert special.by == ["special cid"]


def test_on_the_class_handlers_are_references() -> None:
    assert (Order.approve.name, Order.later.name, Order.approved.name) == ("approve", "approve-later", "approved")
    assert Order.approve.owner is Order
    assert Special.approve.owner is Special
    assert Special.later.owner is Order
    assert Order.approve.__doc__ == "Say who approves."
    assert repr(Order.later) == "<signal Order.approve-later>"
    assert Order.approve.signature.encode(("ann",), {}) == b'\x01["ann"]'
    with pytest.raises(TypeError, match="not callable"):
        Order.approve("ann")  # type: ignore[operator]


def test_messages_have_options() -> None:
    keyed = Order.approve.options(key="k")
    assert (keyed.key, Order.approve.key) == ("k", None)
    assert keyed.name == "approve"
    assert keyed.options().key is None
    assert Order.approved.options(timeout=2).timeout == 2.0
    assert Order.approved.timeout is None
    with pytest.raises(DefinitionError, match="a signal key"):
        Order.approve.options(key="")
    with pytest.raises(ValueError, match="a query's timeout must be more than zero"):
        Order.approved.options(timeout=0)


def test_workflows_have_options() -> None:
    ref = Order.options(id="o-1", queue="q", conflict="use_existing", reuse="reject", request_key="r")
    assert isinstance(ref, WorkflowRef)
    definition, options = start_options(ref)
    assert definition.cls is Order
    assert options == StartOptions(id="o-1", queue="q", conflict="use_existing", reuse="reject", request_key="r")
    assert start_options(Special) == (Special.__workflow__, StartOptions())
    assert start_options(Order.options()) == (Order.__workflow__, StartOptions())
    assert "Order with" in repr(ref)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"id": ""}, InvalidInstanceId, "1 to 255"),
        ({"id": "x" * 256}, InvalidInstanceId, "1 to 255"),
        ({"id": "a\x00"}, InvalidInstanceId, "NUL"),
        ({"id": 3}, InvalidInstanceId, "text, not int"),
        ({"queue": ""}, DefinitionError, "name of a queue"),
        ({"conflict": "replace"}, DefinitionError, "conflict is one of fail, use_existing, terminate_existing"),
        ({"reuse": None}, DefinitionError, "reuse is one of"),
        ({"request_key": ""}, DefinitionError, "a request key"),
    ],
)
def test_options_that_make_no_sense(options: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        Order.options(**options)


def test_a_class_without_handle_cannot_be_started() -> None:
    class Nothing(Workflow):
        pass

    with pytest.raises(DefinitionError, match=r"Nothing has no handle\(\)"):
        start_options(Nothing)  # type: ignore[arg-type]
    with pytest.raises(DefinitionError, match="int is not a workflow"):
        start_options(int)  # type: ignore[arg-type]


def test_authoring_needs_no_driver() -> None:
    code = "import sys, aioflow; print([m for m in ('asyncpg', 'structlog', 'click', 'uvloop') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_name_is_there() -> None:
    for name in aioflow.__all__:
        assert getattr(aioflow, name) is not None
