"""The stored shape of every kind of event, as plain data; printed by ``python -m tests.core.event_shapes``."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from aioflow.core.events import KINDS, Event


def shape(cls: type[Event]) -> dict[str, Any]:
    fields = {
        field.name: field.type if field.default is dataclasses.MISSING else f"{field.type} = {field.default!r}"
        for field in dataclasses.fields(cls)
        if field.name not in ("at", "ref", "payload")
    }
    return {"version": cls.VERSION, "base": cls.__base__.__name__, "fields": fields}


def shapes() -> dict[str, Any]:
    return {kind: shape(cls) for kind, cls in KINDS.items()}


if __name__ == "__main__":
    print(json.dumps(shapes(), indent=2))
