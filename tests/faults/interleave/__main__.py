"""``python -m tests.faults.interleave [--seconds N] [--seed S] [--pair A,B[,C]] [--count N]``."""

from __future__ import annotations

import argparse
import asyncio
import itertools
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg

from aioflow.store.embedded import EmbeddedPostgres
from aioflow.store.migrations import migrate
from tests.faults.interleave.mutants import MUTANTS
from tests.faults.interleave.rig import OPERATIONS, TRIPLES, Rig, found, pairs


@asynccontextmanager
async def server() -> AsyncIterator[EmbeddedPostgres]:
    with tempfile.TemporaryDirectory(prefix="aioflow-") as folder:
        Path(folder).chmod(0o755)
        async with EmbeddedPostgres(Path(folder), durable=False, settings={"jit": "off"}) as one:
            yield one


async def run(given: argparse.Namespace) -> int:
    """Schedules until the time is over, or as many as were asked for; the failures are told."""
    combinations = [tuple(given.pair.split(","))] if given.pair else [*pairs(), *TRIPLES]
    counts: Counter[str] = Counter()
    failed = ran = 0
    async with server() as postgres:
        await migrate(postgres.dsn)
        async with Rig(postgres.dsn) as rig:
            begun = time.monotonic()
            for seed, names in ((seed, names) for seed in itertools.count(given.seed) for names in combinations):
                if ran >= given.count and time.monotonic() >= begun + given.seconds:
                    break
                result = await rig.schedule(names, seed)
                ran += 1
                counts.update(result.counts)
                failed += bool(result.broken)
                if result.broken or given.trace:
                    print(result, flush=True)
            took = time.monotonic() - begun
            deadlocks = await rig.deadlocks()
    print(
        f"{ran} schedules of {len(combinations)} combinations in {took:.0f} s, {ran / took:.1f}/s, seeds {given.seed}"
        f" to {seed}: {failed} failed, {deadlocks} deadlocks"
    )
    print("steps and faults: " + ", ".join(f"{name} {count}" for name, count in sorted(counts.items())))
    return 1 if failed or deadlocks else 0


async def plant(given: argparse.Namespace) -> int:
    """Each planted mistake, and the schedule that finds it."""
    survived = 0
    async with server() as postgres:
        for mutant in (one for one in MUTANTS if not given.only or one.name in given.only.split(",")):
            connection = await asyncpg.connect(postgres.dsn)
            name = mutant.name.replace("-", "_")
            await connection.execute(" ".join(("create database", name)))
            await connection.close()
            await migrate(postgres.dsn_of(name))
            seed, result = await found(postgres.dsn_of(name), mutant, limit=max(given.count, 500))
            survived += result is None
            what = "SURVIVED" if result is None else result.broken[0].splitlines()[0]
            print(f"{mutant.name} ({mutant.broken}): schedule {seed} of {','.join(mutant.names)}: {what}", flush=True)
    return 1 if survived else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.interleave")
    parser.add_argument("--seconds", type=float, default=0.0, help="go on with further seeds for so long")
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--pair", default="", help=f"two or more of {', '.join(OPERATIONS)}")
    parser.add_argument("--count", type=int, default=1, help="at least so many schedules")
    parser.add_argument("--trace", action="store_true", help="tell the steps also when all is well")
    parser.add_argument("--mutants", action="store_true", help="plant mistakes, and tell which schedule finds each")
    parser.add_argument("--only", default="", help="these mistakes")
    given = parser.parse_args()
    return asyncio.run(plant(given) if given.mutants else run(given))


if __name__ == "__main__":
    sys.exit(main())
