"""Crowds: many runs at once through one worker, and through three that are killed and stopped while they work.

Every attempt leaves a line with its ids in a ledger, so what was recorded can be held against what was done.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from aioflow.client import Client
from tests.acceptance.worker_process import Chain
from tests.support import eventually

ROOT = Path(__file__).parents[2]
NAMES = ["one", "two", "three"]
CROWD, WAVES, WAVE = 1_000, 10, 50


class Fleet:
    """Worker processes over one database, and the ledger of what they did."""

    def __init__(self, dsn: str, folder: Path) -> None:
        self.dsn, self.folder = dsn, folder
        self.living: list[subprocess.Popen[bytes]] = []
        self.stopped: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """One with a lease of a second."""
        self._spawn("tests.acceptance.worker_process", self.dsn, "10")

    def start_command(self, *flags: str) -> None:
        """One as users start it."""
        self._spawn("aioflow", "worker", "tests.acceptance.worker_process", "--database-url", self.dsn, *flags)

    def _spawn(self, module: str, *arguments: str) -> None:
        environment = os.environ | {"AIOFLOW_TEST_FOLDER": str(self.folder)}
        self.living.append(subprocess.Popen([sys.executable, "-m", module, *arguments], cwd=ROOT, env=environment))

    def kill(self, victim: subprocess.Popen[bytes]) -> None:
        victim.kill()
        victim.wait()
        self.living.remove(victim)

    def stop(self, victim: subprocess.Popen[bytes]) -> None:
        victim.send_signal(signal.SIGSTOP)
        self.living.remove(victim)
        self.stopped.append(victim)

    def go_on(self) -> None:
        """Let those that stand still go on with what they held."""
        for one in self.stopped:
            one.send_signal(signal.SIGCONT)
        self.living += self.stopped
        self.stopped.clear()

    def end(self) -> list[int]:
        """Ask them to drain; exit codes."""
        for one in self.living:
            one.terminate()
        return [one.wait(30) for one in self.living]

    def ledger(self) -> list[tuple[str, str, str]]:
        """Name, execution id and attempt id of every attempt that began."""
        path = self.folder / "log"
        lines = path.read_text().splitlines() if path.exists() else []
        return [(name, execution, attempt) for name, execution, attempt in (line.split() for line in lines)]


@pytest.fixture
def fleet(database: str, tmp_path: Path) -> Iterator[Fleet]:
    made = Fleet(database, tmp_path)
    yield made
    for one in [*made.living, *made.stopped]:
        one.kill()
        one.wait()


async def start(client: Client, count: int, prefix: str) -> list[Any]:
    return await asyncio.gather(*(client.start(Chain.options(id=f"{prefix}{n}"), NAMES) for n in range(count)))


async def results(instances: list[Any]) -> None:
    found = await asyncio.gather(*(one.result(timeout=90) for one in instances))
    assert found == [NAMES] * len(instances)


async def accounted(sql: asyncpg.Connection[Any], fleet: Fleet, runs: int) -> Counter[str]:
    """Hold history against ledger: one outcome each, of an attempt that was made. Gives executions by their ids."""
    rows = await sql.fetch(
        "select run_id, ref, kind, attrs::json ->> 'execution_id' as execution, attrs::json ->> 'attempt_id' as attempt"
        " from aioflow.history where kind like 'Activity%'"
    )
    scheduled = {(row["run_id"], row["ref"]): row["execution"] for row in rows if row["kind"] == "ActivityScheduled"}
    ended = [row for row in rows if row["kind"] != "ActivityScheduled"]
    assert {row["kind"] for row in ended} == {"ActivityCompleted"}
    assert len(scheduled) == len(ended) == len(NAMES) * runs
    assert {(row["run_id"], row["ref"]) for row in ended} == scheduled.keys()
    ledger = fleet.ledger()
    made = {(execution, attempt) for _, execution, attempt in ledger}
    assert len(made) == len(ledger)  # no attempt ran twice
    assert {(scheduled[row["run_id"], row["ref"]], row["attempt"]) for row in ended} <= made
    assert {execution for execution, _ in made} == set(scheduled.values())
    return Counter(execution for execution, _ in made)


async def sound(dsn: str) -> None:
    """`aioflow doctor --invariants` has nothing to say."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "aioflow", "doctor", "--invariants", "--json", "--database-url", dsn),
        cwd=ROOT,
        stdout=subprocess.PIPE,
    )
    output, _ = await process.communicate()
    told = json.loads(output)
    assert told["violations"] == []
    assert process.returncode == 0, told


@pytest.mark.slow
async def test_a_crowd_through_one_worker(client: Client, fleet: Fleet, database: str, sql: Any) -> None:
    fleet.start_command("--concurrency", "200")
    await results(await start(client, CROWD, "r"))
    assert set((await accounted(sql, fleet, CROWD)).values()) == {1}  # nothing failed, so nothing ran twice
    assert fleet.end() == [0]
    await sound(database)


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_a_crowd_through_workers_that_die_and_come_back_from_the_dead(
    client: Client, fleet: Fleet, database: str, sql: Any
) -> None:
    chance = random.Random(20)  # repeatable
    for _ in range(3):
        fleet.start()
    instances = []
    for wave in range(WAVES):
        before = len(fleet.ledger())
        instances += await start(client, WAVE, f"w{wave}-")
        begun = before + chance.randrange(1, 2 * WAVE)  # somewhere in the middle of the wave
        await eventually(lambda: len(fleet.ledger()) >= begun, within=60)  # noqa: B023  # called at once
        victim = chance.choice(fleet.living)
        if wave % 3 == 2:
            fleet.stop(victim)
        else:
            fleet.kill(victim)
        fleet.start()
        if wave % 3 == 0 and fleet.stopped:
            await eventually(lambda: given_up(sql, len(fleet.stopped)), within=30)
            fleet.go_on()  # its work is with others by now, and what it still says comes late
    fleet.go_on()
    await results(instances)
    executions = await accounted(sql, fleet, WAVES * WAVE)
    assert max(executions.values()) > 1  # some were interrupted, and done again
    assert set(fleet.end()) <= {0, -signal.SIGTERM}  # the last one may not have come to its handlers yet
    await sound(database)


async def given_up(sql: asyncpg.Connection[Any], count: int) -> bool:
    """Whether the workers that stand still were declared dead: no live one is late."""
    late = "select count(*) from aioflow.worker where not dead and lease_until < aioflow.clock()"
    return bool(await sql.fetchval(late) == 0 and await sql.fetchval("select count(*) from aioflow.worker where dead"))
