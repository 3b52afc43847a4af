"""What the pure parts cost, without a database: replay, resuming a cached run, payloads, a step of the loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from pydantic import BaseModel

from aioflow import Workflow, activity
from aioflow.core import aio, guard, scopes
from aioflow.core import events as ev
from aioflow.core.event import Record
from aioflow.core.keys import InstanceKey
from aioflow.core.payload import decode_value, encode_value
from aioflow.core.registry import workflow_definition
from aioflow.core.replay import Execution
from aioflow.core.versions import decode, encode
from benchmarks.flows import step

KEY = InstanceKey.of("default", "micro")
RUN = UUID(int=7)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Steps(Workflow):
    async def handle(self, n: int) -> int:
        for i in range(n):
            await activity(step, i)
        return n


class Spins(Workflow):
    async def handle(self, n: int) -> int:
        for _ in range(n):
            await asyncio.sleep(0)
        return n


class Order(BaseModel):
    number: int
    items: list[str]
    customer: str
    amount: float


@dataclass
class Plain:
    number: int
    items: list[str]
    customer: str
    amount: float


VALUES: dict[str, tuple[Any, Any]] = {
    "int": (12345, int),
    "dict": ({"order": 12345, "items": ["a", "b", "c"], "customer": "alice@example.org"}, dict[str, Any]),
    "model": (Order(number=12345, items=["a", "b", "c"], customer="alice@example.org", amount=129.95), Order),
    "dataclass": (Plain(number=12345, items=["a", "b", "c"], customer="alice@example.org", amount=129.95), Plain),
}


def started(flow: type, n: int) -> ev.RunStarted:
    payload = encode_value([n], list[Any])
    return ev.RunStarted(at=NOON, workflow=flow.__name__, queue="q", seed="s", payload=payload)


def completed(i: int, ref: str) -> ev.ActivityCompleted:
    at = NOON + timedelta(milliseconds=i + 1)
    return ev.ActivityCompleted(at=at, ref=ref, payload=encode_value(i, int), attempt_id=RUN)


def live(n: int) -> tuple[list[ev.Event], list[float]]:
    """A run of ``n`` activities, one event at a time: its history, and the seconds each result took."""
    execution = Execution(workflow_definition(Steps), KEY, RUN)
    decision = execution.apply([started(Steps, n)])
    history, took = list(decision.events), []
    for i in range(n):
        event = completed(i, next(iter(decision.activities)))
        began = time.perf_counter()
        decision = execution.apply([event])
        took.append(time.perf_counter() - began)
        history += decision.events
    return history, took


def best(call: Callable[[], object], per: int, times: int = 5) -> float:
    """Microseconds per unit, the best of several tries."""
    found = []
    for _ in range(times):
        began = time.perf_counter()
        call()
        found.append(time.perf_counter() - began)
    return round(min(found) / per * 1e6, 2)


def replayed(history: list[ev.Event]) -> None:
    execution = Execution(workflow_definition(Steps), KEY, RUN)
    execution.replay(history)
    execution.evict()


def spun(n: int) -> None:
    Execution(workflow_definition(Spins), KEY, RUN).apply([started(Spins, n)])


def many(call: Callable[[], object], n: int = 2_000) -> float:
    return best(lambda: [call() for _ in range(n)], n)


def measure(n: int = 500) -> dict[str, dict[str, Any]]:
    """Microseconds of each part."""
    for each in (aio, scopes, guard):
        each.install()
    history, _ = live(n)
    open_ = history[:-2]  # up to the last activity, which is still pending
    records: list[Record] = [encode(one) for one in history]
    resumed = min(sum(live(n)[1]) for _ in range(5)) / n * 1e6
    found: dict[str, dict[str, Any]] = {
        "replay, cold": {"us": best(lambda: replayed(open_), len(open_)), "per": "event"},
        "record → event": {"us": best(lambda: [decode(one) for one in records], len(records)), "per": "event"},
        "event → record": {"us": best(lambda: [encode(one) for one in history], len(history)), "per": "event"},
        "resume, cached": {"us": round(resumed, 2), "per": "activity result"},
        "first event": {"us": many(lambda: spun(0), 200), "per": "run"},
        "loop step": {"us": best(lambda: spun(10_000), 10_000), "per": "sleep(0)"},
    }
    for name, (value, hint) in VALUES.items():
        payload = encode_value(value, hint)
        found[f"encode {name}"] = {"us": many(lambda v=value, h=hint: encode_value(v, h)), "per": "value"}
        found[f"decode {name}"] = {"us": many(lambda p=payload, h=hint: decode_value(p, h)), "per": "value"}
    return found
