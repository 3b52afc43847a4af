"""What the tables should hold, as dictionaries: one row is a dict with the names of the columns (shards left out).

The rest of the oracle says, operation by operation, how these change and what is answered. It is written from the
contract, one item after the other, without any thought of statements, snapshots or locks.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar
from uuid import UUID

from aioflow.core.events import Record
from aioflow.store import rows

Row = dict[str, Any]
Key = tuple[str, str]
R = TypeVar("R", bound=rows.Keyed)

FOREVER = datetime.max.replace(tzinfo=UTC)
"""``infinity``."""

BEGINNING = datetime(2030, 1, 1, tzinfo=UTC)
NAMESPACES = ("default", "other")
MOST_SIGNALS = 6
"""How many signals may wait for one instance: few, so that it is reached."""

TERMINAL = {
    "completed": "RunCompleted",
    "failed": "RunFailed",
    "cancelled": "RunCancelled",
    "terminated": "RunTerminated",
    "timed_out": "RunTimedOut",
}
RESULTS = ("ActivityCompleted", "ActivityFailed", "ActivityTimedOut", "ActivityCancelled")


def parsed(attrs: Any) -> Any:
    """Attributes compare as values: how the JSON is written does not matter."""
    return json.loads(attrs) if isinstance(attrs, str) else attrs


def plain(record: Record) -> tuple[Any, ...]:
    """A record as it compares."""
    return (record.kind, record.version, record.ref, record.at, parsed(record.attrs), record.payload)


def earliest(*times: datetime | None) -> datetime | None:
    """The earliest of those there are."""
    return min((t for t in times if t is not None), default=None)


def after(at: datetime, seconds: float | None) -> datetime | None:
    """So many seconds later; None: never."""
    return None if seconds is None else at + timedelta(seconds=seconds)


class Tables:
    """The state; no operation yet."""

    def __init__(self) -> None:
        self.now = BEGINNING
        self.instance: dict[Key, Row] = {}
        self.run: dict[UUID, Row] = {}
        self.hot: dict[Key, Row] = {}
        self.inbox: dict[Key, list[Row]] = {}
        self.history: dict[UUID, list[Row]] = {}
        self.activity: dict[tuple[UUID, str], Row] = {}
        self.timer: dict[tuple[UUID, str], Row] = {}
        self.request: dict[tuple[str, str, str], Row] = {}
        self.worker: dict[UUID, Row] = {}

    def tables(self) -> dict[str, list[Row]]:
        """All rows by table, in no order."""
        history = [{"run_id": run, **row} for run, events in self.history.items() for row in events]
        inbox = [{"namespace": k[0], "instance_id": k[1], **row} for k, box in self.inbox.items() for row in box]
        keyed = {
            "instance": self.instance,
            "run": self.run,
            "instance_hot": self.hot,
            "activity": self.activity,
            "timer": self.timer,
            "request": self.request,
            "worker": self.worker,
        }
        return {name: list(found.values()) for name, found in keyed.items()} | {"history": history, "inbox": inbox}

    def later(self, seconds: float | None) -> datetime | None:
        """So many seconds from now."""
        return after(self.now, seconds)

    # -- request keys ------------------------------------------------------------------------------

    def fresh(self, kind: str, item: rows.Keyed, run_id: UUID | None = None) -> bool:
        """May the item have its effect? Its key, if it has one, is then taken."""
        if item.key is None:
            return True
        at = (item.namespace, item.instance_id, item.key)
        if at in self.request:
            return False
        self.request[at] = {
            "namespace": item.namespace,
            "instance_id": item.instance_id,
            "key": item.key,
            "kind": kind,
            "digest": item.digest,
            "run_id": run_id,
            "outcome": "accepted",
            "expires_at": self.later(item.keep),
        }
        return True

    def forget(self, item: rows.Keyed) -> None:
        """The item had no effect, so its key is free again."""
        if item.key is not None:
            self.request.pop((item.namespace, item.instance_id, item.key), None)

    def asked_before(self, kind: str, item: rows.Keyed) -> Any:
        """``duplicate`` or ``conflict`` for an item whose key was taken."""
        assert item.key is not None
        row = self.request[item.namespace, item.instance_id, item.key]
        return "duplicate" if (row["kind"], row["digest"]) == (kind, item.digest) else "conflict"

    def absent(self, key: Key) -> Any:
        """Why an instance that is not open takes nothing."""
        if key in self.instance:
            return "closed"
        return "unknown" if key[0] in NAMESPACES else "unknown_namespace"

    # -- pieces of operations -----------------------------------------------------------------------

    def put(self, key: Key, gen: int, idx: int, record: Record, run_id: UUID | None = None) -> None:
        """Lay an input into the inbox."""
        self.inbox.setdefault(key, []).append(
            {
                "gen": gen,
                "idx": idx,
                "kind": record.kind,
                "version": record.version,
                "ref": record.ref,
                "run_id": run_id,
                "accepted_at": self.now,
                "attrs": record.attrs,
                "payload": record.payload,
            }
        )

    def bump(self, hot: Row) -> int:
        """Something arrived: the generation it gets; a run that nobody holds becomes claimable."""
        hot["wake_gen"] += 1
        if hot["owner"] is None and hot["run_id"] is not None:
            hot["visible_at"] = min(hot["visible_at"], self.now)
        return int(hot["wake_gen"])

    def note(self, run_id: UUID, seq: int, commit: UUID, records: Iterable[Record]) -> int:
        """Append to a history; the seq of the last event."""
        events = self.history.setdefault(run_id, [])
        for record in records:
            assert seq == len(events) + 1, "the oracle itself left a gap"
            kind, version, ref, at, attrs, payload = record
            events.append(
                {
                    "seq": seq,
                    "kind": kind,
                    "version": version,
                    "ref": ref,
                    "at": at,
                    "attrs": attrs,
                    "payload": payload,
                    "commit": commit,
                }
            )
            seq += 1
        return seq - 1

    def clear(self, run_id: UUID) -> None:
        """A run closed: its activities and timers are gone."""
        for table in (self.activity, self.timer):
            for at in [at for at in table if at[0] == run_id]:
                del table[at]

    def waiting(self, row: Row, at: datetime) -> None:
        """An activity goes back to its queue and is claimable from ``at`` on."""
        row.update(
            owner=None,
            token=None,
            started_at=None,
            visible_at=at,
            deadline=earliest(
                after(at, row["schedule_to_start"]), after(row["scheduled_at"], row["schedule_to_close"])
            ),
        )


def in_turn(items: Sequence[R], do: Callable[[R, int], Any]) -> list[Any]:
    """Answers of items that are done one by one: those that share a call first, then the lone ones.

    ``do`` is told the place of the item in its call, from 1.
    """
    shared = [n for n, item in enumerate(items) if not item.alone]
    lone = [n for n, item in enumerate(items) if item.alone]
    answers = {n: do(items[n], place) for place, n in enumerate(shared, 1)}
    answers |= {n: do(items[n], 1) for n in lone}
    return [answers[n] for n in range(len(items))]
