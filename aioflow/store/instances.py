"""What callers do to instances: start, reserve, signal, cancel, terminate.

Items whose id or key was chosen by the caller go in a transaction of their own (their insert may wait for
somebody else's), all others in one. Answers come in the order of the requests.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from aioflow.core.keys import InstanceKey
from aioflow.store.pool import Database
from aioflow.store.queries import sql
from aioflow.store.rows import (
    CancelRequest,
    DeliveryOutcome,
    Keyed,
    ReleaseOutcome,
    ReserveOutcome,
    ReserveRequest,
    SignalRequest,
    StartOutcome,
    StartRequest,
    TerminateOutcome,
    TerminateRequest,
)

R = TypeVar("R", bound=Keyed)
O = TypeVar("O")  # noqa: E741 (outcome)


def _base(items: Sequence[Keyed]) -> tuple[list[str], list[str]]:
    return [i.namespace for i in items], [i.instance_id for i in items]


def _keys(items: Sequence[Keyed]) -> tuple[list[str | None], list[bytes | None], list[float | None]]:
    return [i.key for i in items], [i.digest for i in items], [i.keep for i in items]


async def _apart(items: Sequence[R], call: Callable[[list[R]], Awaitable[list[O]]]) -> list[O]:
    """Lone items one call each, the others one call together; answers in order."""
    answers: dict[int, O] = {}
    together = [n for n, item in enumerate(items) if not item.alone]
    groups = [together] if together else []
    groups += [[n] for n, item in enumerate(items) if item.alone]
    for group in groups:
        outcomes = await call([items[n] for n in group])
        answers.update(zip(group, outcomes, strict=True))
    return [answers[n] for n in range(len(items))]


class Instances:
    """Operations of callers on instances."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def _call(self, name: str, *args: Any) -> list[Any]:
        rows = await self._db.fetch(sql(name), *args, point=name, shield=True)
        return sorted(rows, key=lambda row: row["ord"])

    async def start(self, requests: Sequence[StartRequest]) -> list[StartOutcome]:
        """Start runs by their conflict and reuse policies; sending one twice (same run id) starts it once."""
        return await _apart(requests, self._start)

    async def _start(self, items: list[StartRequest]) -> list[StartOutcome]:
        rows = await self._call(
            "start",
            *_base(items),
            [i.run_id for i in items],
            [i.workflow for i in items],
            [i.queue for i in items],
            [i.build for i in items],
            [i.priority for i in items],
            [i.record.version for i in items],
            [i.record.attrs for i in items],
            [i.record.payload for i in items],
            [i.conflict for i in items],
            [i.reuse for i in items],
            *_keys(items),
        )
        return [StartOutcome(r["outcome"], r["run_id"], r["again"]) for r in rows]

    async def reserve(self, requests: Sequence[ReserveRequest]) -> list[ReserveOutcome]:
        """Reserve instance ids."""
        return await _apart(requests, self._reserve)

    async def _reserve(self, items: list[ReserveRequest]) -> list[ReserveOutcome]:
        rows = await self._call(
            "reserve",
            *_base(items),
            [i.workflow for i in items],
            [i.queue for i in items],
            [i.priority for i in items],
            [i.reuse for i in items],
            *_keys(items),
        )
        return [ReserveOutcome(r["outcome"], r["run_id"], r["again"]) for r in rows]

    async def signal(self, requests: Sequence[SignalRequest]) -> list[DeliveryOutcome]:
        """Deliver signals; each is answered by itself."""
        return await _apart(requests, self._signal)

    async def _signal(self, items: list[SignalRequest]) -> list[DeliveryOutcome]:
        rows = await self._call(
            "signal",
            *_base(items),
            [i.record.version for i in items],
            [i.record.ref for i in items],
            [i.record.attrs for i in items],
            [i.record.payload for i in items],
            *_keys(items),
        )
        return [DeliveryOutcome(r["outcome"], r["run_id"], r["queue"], r["ready"]) for r in rows]

    async def request_cancel(self, requests: Sequence[CancelRequest]) -> list[DeliveryOutcome]:
        """Ask for cancellation; a run is asked once, later requests answer ``duplicate``."""
        return await _apart(requests, self._cancel)

    async def _cancel(self, items: list[CancelRequest]) -> list[DeliveryOutcome]:
        rows = await self._call(
            "request_cancel",
            *_base(items),
            [i.record.version for i in items],
            [i.record.ref for i in items],
            [i.record.attrs for i in items],
            [i.grace for i in items],
            *_keys(items),
        )
        return [DeliveryOutcome(r["outcome"], r["run_id"], r["queue"], r["ready"]) for r in rows]

    async def terminate(self, requests: Sequence[TerminateRequest]) -> list[TerminateOutcome]:
        """Close runs by force, without their code; the holder's next commit is fenced."""
        return await _apart(requests, self._terminate)

    async def release_quarantined(self, keys: Sequence[InstanceKey]) -> list[ReleaseOutcome]:
        """Let runs and activities of these instances out of quarantine; they are tried alone again."""
        rows = await self._call("release_quarantined", [k.namespace for k in keys], [k.instance_id for k in keys])
        return [ReleaseOutcome(r["outcome"], r["run_id"], r["run_queue"], tuple(r["activity_queues"])) for r in rows]

    async def _terminate(self, items: list[TerminateRequest]) -> list[TerminateOutcome]:
        rows = await self._call(
            "terminate",
            *_base(items),
            [i.run_id for i in items],
            [i.commit for i in items],
            [i.record.kind for i in items],
            [i.record.version for i in items],
            [i.record.attrs for i in items],
            [i.record.payload for i in items],
            [i.status for i in items],
            *_keys(items),
        )
        return [TerminateOutcome(r["outcome"], r["run_id"]) for r in rows]
