"""How often the rare things happened: a run of chaos in which one never did has proved nothing about it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

#: Name of a counter, and the log event that counts for it.
EVENTS: Final[Mapping[str, str]] = {
    "fenced commit": "commit_fenced",
    "fenced completion": "activity_outcome_late",
    "refused close": "close_refused",
    "ambiguous commit recognised": "commit_recognised",
    "ambiguous completion recognised": "completion_recognised",
    "duplicate request": "request_repeated",
    "lease expired for a live holder": "lease_lost",
    "poll found what NOTIFY lost": "poll_found",
    "drain released a task": "activity_given_back",
    "suspect seen": "suspected",
}


def said(folder: Path) -> tuple[Counter[str], list[str]]:
    """Events of all processes by name, and what was said in another form: tracebacks, warnings of the interpreter."""
    events: Counter[str] = Counter()
    stray: list[str] = []
    for path in sorted((folder / "logs").iterdir()):
        for line in path.read_text(errors="replace").splitlines():
            told = _event(line)
            if told is None:
                stray.append(f"{path.name}: {line}")
                continue
            events[str(told.get("event"))] += 1
            if (
                "exception" in told
                or str(told.get("logger")).startswith(("asyncio", "asyncpg"))
                or told.get("level") == "critical"
            ):
                stray.append(f"{path.name}: {line}")
    return events, stray


def _event(line: str) -> dict[str, Any] | None:
    try:
        told = json.loads(line)
    except ValueError:
        return None
    return told if isinstance(told, dict) else None


def sometimes(events: Mapping[str, int], more: Mapping[str, int]) -> dict[str, int]:
    """The counters that must not be zero."""
    return {name: events.get(event, 0) for name, event in EVENTS.items()} | dict(more)


def missing(counters: Mapping[str, int]) -> Iterable[str]:
    """What never happened."""
    return [name for name, count in counters.items() if not count]
