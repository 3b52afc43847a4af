"""The planted mistakes: one patch a file under ``patches/``, each with a header that says what it breaks.

A header stands before the diff, one field a line, continued by indented lines::

    Mutant: the name, as the file is called
    Broken: what the patch takes away or turns round
    Fault: what goes wrong by it
    Killed by: rings that must find it, the first of them first
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

__all__ = ["FOLDER", "Patch", "patches"]

FOLDER = Path(__file__).parent / "patches"
FIELDS = ("Mutant", "Broken", "Fault", "Killed by")


@dataclass(frozen=True, slots=True)
class Patch:
    """One mistake."""

    name: str
    broken: str
    fault: str
    rings: tuple[str, ...]
    path: Path

    @property
    def diff(self) -> str:
        """What is changed, without the header."""
        return _split(self.path.read_text(encoding="utf-8"))[1]

    @classmethod
    def read(cls, path: Path) -> Patch:
        """The patch in a file. Raises `ValueError` when its header is not complete."""
        found: dict[str, str] = {}
        field = ""
        for line in _split(path.read_text(encoding="utf-8"))[0].splitlines():
            if match := re.match(r"([A-Z][\w ]*): +(.+)", line):
                field = match[1]
                if field in found:
                    raise ValueError(f"{path.name}: {field} is there twice")
                found[field] = match[2].strip()
            elif line.startswith(" ") and field:
                found[field] += f" {line.strip()}"
            elif line.strip():
                raise ValueError(f"{path.name}: not a line of a header: {line}")
        if tuple(found) != FIELDS:
            raise ValueError(f"{path.name}: the header has {list(found)}, wanted {list(FIELDS)}")
        if found["Mutant"] != path.stem:
            raise ValueError(f"{path.name}: it calls itself {found['Mutant']}")
        rings = tuple(name.strip() for name in found["Killed by"].split(","))
        return cls(path.stem, found["Broken"], found["Fault"], rings, path)


def patches(*names: str) -> list[Patch]:
    """All patches, or those named, by name. Raises `ValueError` for one that is not there."""
    found = {path.stem: path for path in sorted(FOLDER.glob("*.patch"))}
    if unknown := [name for name in names if name not in found]:
        raise ValueError(f"no such mutant: {', '.join(unknown)}")
    return [Patch.read(found[name]) for name in (names or found)]


def _split(text: str) -> tuple[str, str]:
    header, mark, diff = text.partition("\n--- a/")
    return header, f"{mark.lstrip()}{diff}"
