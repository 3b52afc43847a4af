"""Plant mistakes into copies of the project and tell which ring finds each: ``python -m tests.faults.mutants``.

Ends with 1 when a mutant survives, with 2 when a patch does not fit or sound code does not pass.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys

from tests.faults.mutants.copies import NotUsable, resolved
from tests.faults.mutants.matrix import as_data, as_markdown, control, examine
from tests.faults.mutants.patches import patches
from tests.faults.mutants.rings import RINGS


def main() -> int:
    options = _options()
    try:
        chosen = patches(*options.name)
        names = options.rings.split(",") if options.rings else list(RINGS)
        if unknown := [name for name in names if name not in RINGS]:
            raise ValueError(f"no such ring: {', '.join(unknown)}")
        rings = [ring for name, ring in RINGS.items() if name in names]
        revision = None if options.work_tree else options.revision
        _tell(f"mutants of {resolved(revision)}: {len(chosen)}; rings: {', '.join(ring.name for ring in rings)}")
        took = control(revision, rings, _tell)
    except (ValueError, NotUsable) as exc:
        _tell(str(exc))
        return 2
    there = [ring for ring in rings if ring.name in took]
    rows = []
    for one in chosen:
        mine = [ring for ring in there if ring.name in one.rings or not options.expected]
        rows.append(examine(one, revision, mine, every=options.all, tell=_tell))
    print(json.dumps(as_data(rows, took), indent=1) if options.json else as_markdown(rows, took))
    if any(row.wrong for row in rows):
        return 2
    return 0 if all(row.killers for row in rows) else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.mutants", description=__doc__)
    parser.add_argument("name", nargs="*", help="mutants; all when none is named")
    parser.add_argument("--rings", metavar="NAME,…", help=f"of {', '.join(RINGS)} (all)")
    parser.add_argument("--expected", action="store_true", help="of these, only the rings that a patch names")
    parser.add_argument("--all", action="store_true", help="go on after the first ring that kills")
    parser.add_argument("--json", action="store_true", help="for programs, with the output of what failed")
    parser.add_argument("--revision", default="HEAD", help="the commit that is copied (HEAD)")
    parser.add_argument("--work-tree", action="store_true", help="copy the tracked files as they are now instead")
    return parser.parse_args()


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the ring that runs is ended too
sys.exit(main())
