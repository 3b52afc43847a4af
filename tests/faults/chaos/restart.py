"""A steady load over a crash of the server: ``python -m tests.faults.chaos.restart``.

Callers start runs of one activity and wait for their results, one after the other. The server is restarted as by
``pg_ctl restart -m immediate``. Told are the throughput before, the time until connections are accepted, and from
then on until three seconds on end reach 90 % of that throughput; and whether anything was lost.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from bisect import bisect_left
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

import asyncpg

from aioflow.client import Client
from aioflow.errors import DatabaseUnavailable
from benchmarks.flows import W1
from tests.faults.chaos.checks import broken_rows, server_errors
from tests.faults.chaos.plain import Plain
from tests.faults.chaos.rig import AWAY, Server

PART: Final = 0.9
PROMISED: Final = 5.0
_WINDOW: Final = 3.0
_WARM: Final = 3.0
_STEP: Final = 0.05


@dataclass
class Load:
    """Callers, and when their runs ended."""

    client: Client
    over: bool = False
    ends: list[float] = field(default_factory=list)
    started: int = 0
    unknown: int = 0
    wrong: list[str] = field(default_factory=list)

    async def caller(self, number: int) -> None:
        """One run after the other. A start of unknown fate is not waited for."""
        while not self.over:
            try:
                instance = await self.client.start(W1, number)
            except DatabaseUnavailable:
                self.unknown += 1
                continue
            self.started += 1
            value = await instance.result(timeout=120)
            if value != number + 1:
                self.wrong.append(f"{instance.id} gave {value}")
            self.ends.append(time.monotonic())

    def rate(self, begin: float, seconds: float) -> float:
        """Runs that ended in a second, over a span."""
        return (bisect_left(self.ends, begin + seconds) - bisect_left(self.ends, begin)) / seconds


@dataclass
class Told:
    """Rates are runs a second. ``down``: seconds until connections were accepted; ``back``: from then on."""

    before: float
    after: float
    down: float
    back: float | None
    started: int
    ended: int
    unknown_starts: int
    wrong: list[str]
    rates: list[int]


async def accepting(server: Server) -> float:
    """The moment from which the server accepts connections."""
    while True:
        try:
            await (await asyncpg.connect(server.dsn, timeout=2)).close(timeout=1)
        except AWAY:
            await asyncio.sleep(0.01)
        else:
            return time.monotonic()


async def measure(seconds: float, callers: int, away: float) -> Told:
    """Load, crash, load."""
    with tempfile.TemporaryDirectory(prefix="aioflow-") as made:
        root = Path(made)
        root.chmod(0o755)
        async with Server(root / "server") as server, Client.connect(server.dsn, patience=30.0) as client:
            with Plain(server.dsn, root, "benchmarks.flows") as plain:
                for _ in range(2):
                    plain.begin()
                load = Load(client)
                tasks = [asyncio.create_task(load.caller(n)) for n in range(callers)]
                await (await client.start(W1, 0)).result(timeout=60)
                await asyncio.sleep(_WARM)
                begin = time.monotonic()
                await asyncio.sleep(seconds)
                crashing = asyncio.create_task(server.crash(away))
                crashed = time.monotonic()
                await asyncio.sleep(_STEP)
                looking = asyncio.create_task(accepting(server))
                await crashing
                up = await asyncio.wait_for(looking, 60)
                await asyncio.sleep(2 * seconds)
                load.over = True
                await asyncio.gather(*tasks)
            load.wrong += await broken_rows(server.dsn) + server_errors(server.log())
            kept = await server.ask("select count(*) from aioflow.run where status = 'completed'")
        if kept < load.started:
            load.wrong.append(f"{load.started} were started, {kept} are there and completed")
    return _told(load, begin, crashed, up, seconds)


def _told(load: Load, begin: float, crashed: float, up: float, seconds: float) -> Told:
    before = load.rate(begin, crashed - begin)
    last = load.ends[-1] - _WINDOW
    moments = [up + n * _STEP for n in range(max(0, int((last - up) / _STEP)))]
    back = next((at - up for at in moments if load.rate(at, _WINDOW) >= PART * before), None)
    return Told(
        before=round(before, 1),
        after=round(load.rate(up + seconds, seconds - _WINDOW), 1),
        down=round(up - crashed, 2),
        back=None if back is None else round(back, 2),
        started=load.started,
        ended=len(load.ends),
        unknown_starts=load.unknown,
        wrong=load.wrong,
        rates=[round(load.rate(crashed + n, 1.0)) for n in range(-3, int(seconds))],
    )


def main() -> int:
    """Measure and tell."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.chaos.restart")
    parser.add_argument("--seconds", type=float, default=10.0, help="of load before the crash; twice as many after it")
    parser.add_argument("--callers", type=int, default=50)
    parser.add_argument("--away", type=float, default=0.0, help="seconds until the server is started again")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    told = asyncio.run(measure(given.seconds, given.callers, given.away))
    if given.json:
        print(json.dumps(asdict(told)))
    else:
        print(f"before {told.before}/s, after {told.after}/s, from 3 s before the crash on: {told.rates}")
        print(f"accepting after {told.down} s, back at {PART:.0%} {told.back} s later")
        print(f"started {told.started} (and {told.unknown_starts} of unknown fate), ended {told.ended}")
        print(f"lost or wrong: {told.wrong or 'nothing'}")
    return 0 if told.back is not None and told.back <= PROMISED and not told.wrong else 1


if __name__ == "__main__":
    sys.exit(main())
