"""Histories as JSON, for files and for other processes: lists of records with base64 payloads."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from aioflow.core import events as ev
from aioflow.core.versions import decode, encode
from tests.core.world import told


def to_json(history: Iterable[ev.Event]) -> list[dict[str, Any]]:
    rows = []
    for record in map(encode, history):
        row = record._asdict()
        row["at"] = record.at.isoformat()
        row["payload"] = None if record.payload is None else b64encode(record.payload).decode()
        rows.append({name: value for name, value in row.items() if value is not None})
    return rows


def from_json(rows: Sequence[dict[str, Any]]) -> list[ev.Event]:
    return [decode(_record(row)) for row in rows]


def _record(row: dict[str, Any]) -> ev.Record:
    payload = row.get("payload")
    return ev.Record(
        row["kind"],
        row["version"],
        row.get("ref"),
        datetime.fromisoformat(row["at"]),
        row.get("attrs"),
        None if payload is None else b64decode(payload),
    )


def told_json(history: Iterable[ev.Event]) -> list[Any]:
    """Events for comparison between processes."""
    return [json.loads(json.dumps(told(one), default=str)) for one in history]
