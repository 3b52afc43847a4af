"""How long it takes until the work of a killed worker goes on: ``python -m tests.faults.chaos.takeover --kills 100``.

Workers have their default settings. Several lanes, each a queue with two workers of its own, are measured side by
side: activities are started, the worker that holds most of them is killed with SIGKILL, and the time is taken until
the last of those is started again by the other one.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from aioflow.client import Client
from tests.faults.chaos.flows import Victim
from tests.faults.chaos.ledger import Effect, Effects
from tests.faults.chaos.plain import Plain, percentile
from tests.faults.chaos.rig import Server
from tests.support import eventually

HELD: Final = 3
PROMISED: Final = 15.0


@dataclass
class Lane:
    """A queue with two workers."""

    number: int
    client: Client
    plain: Plain
    folder: Path

    async def run(self, kills: int) -> list[float]:
        """The seconds that each kill took to be made good."""
        workers = [self._begin() for _ in range(2)]
        took = []
        for kill in range(kills):
            names = [f"{self.number}-{kill}-{n}" for n in range(HELD)]
            held = [await self.client.start(Victim.options(id=name, queue=self._queue), name) for name in names]
            before = await self._running(names, {}, within=60)
            pids = [before[name].pid for name in names]
            victim = next(one for one in workers if one.pid == max(pids, key=pids.count))
            lost = {name: one for name, one in before.items() if one.pid == victim.pid}
            killed = time.time()
            victim.kill()
            victim.wait()
            after = await self._running(list(lost), lost, within=120)
            took.append(max(one.at for one in after.values()) - killed)
            workers[workers.index(victim)] = self._begin()
            for name in names:
                (self.folder / "let-go" / name).touch()
            for instance, name in zip(held, names, strict=True):
                assert await instance.result(timeout=60) == f"{name}!"
        return took

    @property
    def _queue(self) -> str:
        return f"lane-{self.number}"

    def _begin(self) -> subprocess.Popen[bytes]:
        return self.plain.begin("--queue", self._queue)

    async def _running(self, names: list[str], former: dict[str, Effect], within: float) -> dict[str, Effect]:
        """The last attempt of each of the names, once each has one that is not the former one."""
        found: dict[str, Effect] = {}
        effects = Effects(self.folder)

        def all_() -> bool:
            found.update((one.value, one) for one in effects.read() if one.value in names)
            return all(name in found and found[name] != former.get(name) for name in names)

        await eventually(all_, within=within)
        return found


async def measure(kills: int, lanes: int) -> list[float]:
    """The seconds of each kill."""
    with tempfile.TemporaryDirectory(prefix="aioflow-") as made:
        root = Path(made)
        root.chmod(0o755)
        folder = root / "work"
        (folder / "let-go").mkdir(parents=True)
        async with Server(root / "server") as server, Client.connect(server.dsn) as client:
            with Plain(server.dsn, folder, "tests.faults.chaos.flows") as plain:
                shares = [kills // lanes + (n < kills % lanes) for n in range(lanes)]
                work = (Lane(n, client, plain, folder).run(share) for n, share in enumerate(shares) if share)
                return [seconds for one in await asyncio.gather(*work) for seconds in one]


def main() -> int:
    """Measure and tell."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.chaos.takeover")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--lanes", type=int, default=4, help="how many kills are measured side by side")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    took = asyncio.run(measure(given.kills, given.lanes))
    told = {"kills": len(took), "p50": percentile(took, 0.5), "p99": percentile(took, 0.99), "max": max(took)}
    told = {name: round(value, 2) for name, value in told.items()}
    print(json.dumps(told | {"all": [round(one, 2) for one in took]}) if given.json else told)
    return 0 if told["p99"] < PROMISED else 1


if __name__ == "__main__":
    sys.exit(main())
