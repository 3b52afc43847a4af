"""Calls by name, and arguments without a signature to check them against."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from aioflow.api.workflow import Conflict, Reuse, StartOptions, Workflow
from aioflow.core.arguments import Signature
from aioflow.core.definition import check_name
from aioflow.core.payload import Payload, encode_value, frame
from aioflow.errors import ArgumentError


@dataclass(frozen=True, slots=True)
class NamedWorkflow:
    """A workflow by its name, with options: what `named` gives."""

    name: str
    start_options: StartOptions


def named(
    workflow: str,
    /,
    *,
    id: str | None = None,
    queue: str | None = None,
    conflict: Conflict = "fail",
    reuse: Reuse = "allow",
    request_key: str | None = None,
) -> NamedWorkflow:
    """A workflow whose class is not at hand, with the options of ``Workflow.options``, to start by its name."""
    base: Any = Workflow
    options = base.options(id=id, queue=queue, conflict=conflict, reuse=reuse, request_key=request_key).start_options
    return NamedWorkflow(check_name(workflow, "a workflow"), options)


@dataclass(frozen=True, slots=True)
class JsonArguments:
    """All arguments of a call as JSON text: an array, or an object of parameters by name.

    Given as the only argument of a start, signal or query. The value of a single parameter may stand alone.
    """

    text: str | bytes


def encode_call(
    signature: Signature | None, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], limit: int
) -> Payload:
    """Arguments of a call as a payload, plain JSON values only when there is no signature."""
    if len(args) == 1 and not kwargs and isinstance(args[0], JsonArguments):
        return _encode_json(signature, name, args[0].text, limit)
    if signature is not None:
        return signature.encode(args, kwargs, limit=limit)
    what = f"an argument of {name}()"
    value: Any = {"args": list(args), "kwargs": kwargs} if kwargs else list(args)
    return encode_value(value, Any, what=what, limit=limit)


def _encode_json(signature: Signature | None, name: str, text: str | bytes, limit: int) -> Payload:
    if signature is not None:
        return signature.encode_json(text, limit=limit)
    from pydantic_core import from_json, to_json

    try:
        raw = from_json(text)
    except ValueError as exc:
        raise ArgumentError(f"the arguments of {name}() are not JSON: {exc}") from None
    # Without the code nobody can say whether an object names the parameters or is the only one: it is the only one.
    values = raw if isinstance(raw, list) else [raw]
    return frame(to_json(values, inf_nan_mode="constants"), what=f"the arguments of {name}()", limit=limit)
