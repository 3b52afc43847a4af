"""``python -m tests.faults.chaos --seconds 45 [--seed N] [--json] [--keep FOLDER]``.

Its exit code is 0 when nothing was violated and everything that has to happen sometimes did.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
from pathlib import Path

from tests.faults.chaos.storm import storm, tell


def main() -> int:
    """Run and tell."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.chaos")
    parser.add_argument("--seconds", type=float, default=45.0, help="how long faults are injected")
    parser.add_argument("--seed", type=int, default=None, help="what the monkey does; random by default")
    parser.add_argument("--json", action="store_true", help="the report as JSON")
    parser.add_argument("--keep", type=Path, default=None, help="a new folder to keep server, logs and ledgers in")
    given = parser.parse_args()
    seed = random.randrange(2**32) if given.seed is None else given.seed
    report = asyncio.run(storm(given.seconds, seed, keep=given.keep))
    print(json.dumps(report.as_data(), indent=1) if given.json else tell(report))
    return 1 if report.violations or report.missing else 0


if __name__ == "__main__":
    sys.exit(main())
