"""What callers did and what activities did, in files that survive whoever wrote them.

Each line is one write at the end of a file, so that a process may be killed at any moment.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

Fate = Literal["ok", "fail", "info"]


def _append(path: Path, line: str) -> None:
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(file, f"{line}\n".encode())
    finally:
        os.close(file)


def _lines(path: Path) -> Iterator[str]:
    """Complete lines; the last one may be cut short by a kill."""
    text = path.read_text() if path.exists() else ""
    yield from text.split("\n")[:-1]


# -- callers --------------------------------------------------------------------------------------


@dataclass
class Operation:
    """One call, with what was asked for (``facts``) and what was answered (``told``).

    ``fate``: it happened, it did not, or nobody knows. ``tries`` counts how often it was called with the same key;
    ``at`` and ``end`` order the calls of one ``caller``.
    """

    caller: str
    number: int
    name: str
    instance: str
    facts: dict[str, Any]
    fate: Fate = "info"
    told: Any = None
    tries: int = 1
    at: float = 0.0
    end: float = float("inf")


class CallLog:
    """The calls of one process."""

    def __init__(self, folder: Path, caller: str) -> None:
        self._path, self._number = folder / f"calls-{caller}", 0

    def invoke(self, at: float, name: str, instance: str, **facts: Any) -> int:
        """A call begins; its number."""
        self._number += 1
        self._write([self._number, "invoke", at, name, instance, facts])
        return self._number

    def end(self, number: int, at: float, fate: Fate, told: Any, tries: int) -> None:
        """A call has ended."""
        self._write([number, fate, at, told, tries])

    def _write(self, what: list[Any]) -> None:
        _append(self._path, json.dumps(what))


def read_calls(folder: Path) -> list[Operation]:
    """All calls of all processes, those of each in order."""
    found: list[Operation] = []
    for path in sorted(folder.glob("calls-*")):
        caller, mine = path.name.removeprefix("calls-"), dict[int, Operation]()
        for number, what, at, *rest in map(json.loads, _lines(path)):
            if what == "invoke":
                name, instance, facts = rest
                mine[number] = Operation(caller, number, name, instance, facts, at=at)
            else:
                one = mine[number]
                one.fate, one.end, (one.told, one.tries) = what, at, rest
        found += mine.values()
    return found


# -- activities -----------------------------------------------------------------------------------


class Effect(NamedTuple):
    """An attempt that began: in which process, when (wall clock)."""

    execution: str
    attempt: str
    pid: int
    at: float
    activity: str
    value: str


def note_effect(folder: Path, effect: Effect) -> None:
    """Leave a line."""
    _append(folder / "effects", json.dumps(effect))


class Effects:
    """All effects so far; each `read` takes in what is new."""

    def __init__(self, folder: Path) -> None:
        self._path, self._place = folder / "effects", 0
        self._found: list[Effect] = []

    def read(self) -> list[Effect]:
        """In the order in which they happened."""
        if self._path.exists():
            with self._path.open("rb") as file:
                file.seek(self._place)
                fresh = file.read()
            whole = fresh[: fresh.rfind(b"\n") + 1]
            self._place += len(whole)
            self._found += [Effect(*json.loads(line)) for line in whole.splitlines()]
        return self._found
