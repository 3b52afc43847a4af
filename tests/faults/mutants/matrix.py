"""Who kills what: the unpatched copy first, then one mutant after the other."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tests.faults.mutants.copies import NotUsable, apply, copied
from tests.faults.mutants.patches import Patch
from tests.faults.mutants.rings import RINGS, Result, Ring, run

__all__ = ["Row", "as_data", "as_markdown", "control", "examine"]

CACHE = Path(tempfile.gettempdir()) / "aioflow-mutants-control.json"
Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Row:
    """What became of one mutant. ``wrong``: why it could not be tried."""

    patch: Patch
    results: tuple[Result, ...]
    wrong: str = ""

    @property
    def killers(self) -> list[Result]:
        """The rings that found it."""
        return [one for one in self.results if one.dead]


def control(revision: str | None, rings: Iterable[Ring], tell: Tell) -> dict[str, float]:
    """Seconds that each ring takes on sound code; remembered. Raises `NotUsable` when one finds fault with it."""
    took: dict[str, float] = {}
    with copied(revision) as copy:
        copy.check()
        known: dict[str, dict[str, float]] = json.loads(CACHE.read_text()) if CACHE.exists() else {}
        digest = copy.digest()
        mine = known.setdefault(digest, {})
        for ring in rings:
            if ring.name not in mine:
                result = run(ring, copy)
                tell(f"control: {ring.name} {result.status} in {result.seconds} s")
                if result.status == "absent":
                    continue
                if result.dead or result.seconds > ring.limit / 2:
                    raise NotUsable(
                        f"sound code does not pass {ring.name} well within {ring.limit} s: {result.status} after "
                        f"{result.seconds} s: {result.by}\n{result.output[-3000:]}"
                    )
                mine[ring.name] = result.seconds
                CACHE.write_text(json.dumps(known))
            took[ring.name] = mine[ring.name]
    return took


def examine(patch: Patch, revision: str | None, rings: Sequence[Ring], *, every: bool, tell: Tell) -> Row:
    """Plant one mistake and run rings, those first that are expected to find it, until one does (``every``: all)."""
    results: list[Result] = []
    expected = [ring for name in patch.rings for ring in rings if ring.name == name]
    try:
        with copied(revision) as copy:
            apply(patch, copy)
            copy.check()
            for ring in [*expected, *(ring for ring in rings if ring not in expected)]:
                result = run(ring, copy)
                if result.status == "absent":
                    continue
                tell(f"{patch.name}: {result.status} by {ring.name} in {result.seconds} s {result.by}")
                results.append(replace(result, output="" if not result.dead else result.output[-4000:]))
                if result.dead and not every:
                    break
    except NotUsable as exc:
        tell(f"{patch.name}: {exc}")
        return Row(patch, tuple(results), str(exc))
    return Row(patch, tuple(results))


def as_markdown(rows: Sequence[Row], took: dict[str, float]) -> str:
    """A table with a column for each ring that was run."""
    names = [name for name in RINGS if name in took]
    head = ["mutant", "what is broken", *names, "found first by"]
    table = [head, ["---"] * len(head)]
    table.append(["*none*", "sound code", *(f"passes, {took[name]:.0f} s" for name in names), ""])
    for row in rows:
        by = {one.ring: one for one in row.results}
        cells = [_cell(by.get(name)) for name in names]
        first = row.killers[0] if row.killers else None
        found = f"`{first.by or first.ring}`" if first else f"**nobody** {row.wrong.partition(chr(10))[0]}".strip()
        table.append([row.patch.name, row.patch.broken, *cells, found])
    return "\n".join(f"| {' | '.join(cells)} |" for cells in table)


def as_data(rows: Sequence[Row], took: dict[str, float]) -> dict[str, Any]:
    """The same for programs."""
    return {
        "control": took,
        "mutants": [
            {
                "name": row.patch.name,
                "broken": row.patch.broken,
                "fault": row.patch.fault,
                "killed_by": [one.ring for one in row.killers],
                "wrong": row.wrong,
                "results": [asdict(one) for one in row.results],
            }
            for row in rows
        ],
    }


def _cell(result: Result | None) -> str:
    if result is None:
        return ""
    return f"{result.status}, {result.seconds:.0f} s" if result.dead else result.status
