"""One run of chaos: break, mend, wait until all is done, look whether it is right."""

from __future__ import annotations

import asyncio
import random
import signal
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from aioflow.client import Client
from aioflow.errors import ClientError
from tests.faults.chaos import checks, counters
from tests.faults.chaos.flows import Bell, Tally, Victim
from tests.faults.chaos.monkey import ENDED, SURVIVED, Monkey
from tests.faults.chaos.proxy import Tally as Cuts
from tests.faults.chaos.rig import Fleet, Server, until

WORKERS: Final = 4
CLIENTS: Final = 2
HEALED_WITHIN: Final = 60.0
_ROUND: Final = 10.0
_SHOWN: Final = 20
_OPEN: Final = "select count(*) from aioflow.run where status = 'running'"


@dataclass
class Report:
    """What a run did and found.

    ``healed``: seconds from the last fault until everything had ended; ``checked``: what looking at it took.
    ``awaited``: counters for which it went on.
    """

    seed: int
    seconds: float
    faults: dict[str, int] = field(default_factory=dict)
    cuts: dict[str, int] = field(default_factory=dict)
    lost_answers: dict[str, int] = field(default_factory=dict)
    counters: dict[str, int] = field(default_factory=dict)
    awaited: list[str] = field(default_factory=list)
    calls: dict[str, int] = field(default_factory=dict)
    runs: dict[str, int] = field(default_factory=dict)
    events: int = 0
    attempts: int = 0
    executions: int = 0
    healed: float = 0.0
    checked: float = 0.0
    violations: list[str] = field(default_factory=list)
    stray: list[str] = field(default_factory=list)
    logged: dict[str, int] = field(default_factory=dict)

    @property
    def missing(self) -> list[str]:
        """Counters that stayed zero."""
        return list(counters.missing(self.counters))

    def as_data(self) -> dict[str, object]:
        """For machines."""
        return asdict(self) | {"missing": self.missing}


async def storm(seconds: float, seed: int, *, more: float = 0.0, keep: Path | None = None) -> Report:
    """Run it in a folder of its own, kept as ``keep`` if that is given.

    ``more``: for so many seconds it may go on if something that has to happen sometimes has not happened yet.
    """
    with tempfile.TemporaryDirectory(prefix="aioflow-") as made:
        root = keep or Path(made)
        root.mkdir(parents=True, exist_ok=True)
        root.chmod(0o755)
        (root / "work").mkdir()
        (root / "work" / "let-go").mkdir()
        async with Server(root / "server") as server:
            return await _storm(server, root / "work", seconds, seed, more)


async def _storm(server: Server, folder: Path, seconds: float, seed: int, more: float) -> Report:
    chance = random.Random(seed)
    report = Report(seed, seconds)
    async with Fleet(server, folder, chance) as fleet:
        for _ in range(WORKERS):
            await fleet.add_worker()
        for _ in range(CLIENTS):
            await fleet.add_client()
        monkey = Monkey(fleet, chance.randrange(2**32))
        await monkey.run(seconds)
        report.awaited = _missing(fleet, monkey)
        while _missing(fleet, monkey) and report.seconds < seconds + more:
            report.seconds += _ROUND
            await monkey.run(_ROUND)
        began = time.monotonic()
        report.violations += await _heal(fleet)
        report.healed = round(time.monotonic() - began, 1)
        report.violations += monkey.wrong + await _farewell(fleet)
    survived = monkey.done.pop(SURVIVED, 0)
    report.faults, report.cuts = dict(monkey.done), dict(fleet.tally.cuts)
    report.counters = _counters(fleet, survived)
    report.lost_answers = dict(fleet.tally.lost)
    began = time.monotonic()
    found = await checks.gather(server.dsn, folder)
    report.violations += await checks.broken_rows(server.dsn) + checks.judge(found)
    report.violations += checks.server_errors(server.log())
    report.checked = round(time.monotonic() - began, 1)
    _count(report, found, folder, fleet.tally)
    return report


async def _heal(fleet: Fleet) -> list[str]:
    """Let callers end their scenes, end those of callers that were killed, and see everything end."""
    (fleet.folder / "stop").touch()
    wrong = []
    for slot in fleet.clients:
        if (code := await fleet.ended(slot, HEALED_WITHIN)) != 0:
            wrong.append(f"{slot.name}.{slot.lives}: callers did not end their scenes ({code})")
    async with Client.connect(fleet.server.dsn, workflows=[Tally, Bell, Victim]) as client:
        async for one in client.list(status="running"):
            try:
                if one.workflow == "Victim":
                    await client.cancel(one.instance_id)
                elif one.workflow in ("Tally", "Bell"):
                    await client.signal(one.instance_id, "finish")
            except ClientError:
                continue

    async def ended() -> bool:
        return not await fleet.server.ask(_OPEN)

    if not await until(ended, HEALED_WITHIN):
        wrong.append(f"{await fleet.server.ask(_OPEN)} runs are open {HEALED_WITHIN:.0f} s after the last fault")
    return wrong


async def _farewell(fleet: Fleet) -> list[str]:
    codes = await asyncio.gather(*(fleet.end(slot, signal.SIGTERM, 20.0) for slot in fleet.workers))
    return [
        f"{slot.name} ended with {code}" for slot, code in zip(fleet.workers, codes, strict=True) if code not in ENDED
    ]


def _counters(fleet: Fleet, survived: int) -> dict[str, int]:
    events, _ = counters.said(fleet.folder)
    more = {
        SURVIVED: survived,
        "lost answer": sum(fleet.tally.lost.values()),
        "commit of a former holder fenced": fleet.tally.fenced["commit_runs"],
    }
    found = counters.sometimes(events, more)
    found["fenced completion"] += fleet.tally.fenced["complete_activities"]
    return found


def _missing(fleet: Fleet, monkey: Monkey) -> list[str]:
    return list(counters.missing(_counters(fleet, monkey.done[SURVIVED])))


def _count(report: Report, found: checks.Evidence, folder: Path, tally: Cuts) -> None:
    events, report.stray = counters.said(folder)
    report.logged = dict(sorted(events.items()))
    report.faults["notifications dropped"] = tally.unheard
    report.calls = dict(sorted(Counter(f"{one.name} {one.fate}" for one in found.calls).items()))
    report.runs = dict(sorted(Counter(f"{one.workflow} {one.status}" for one in found.runs).items()))
    report.events = sum(len(one.events) for one in found.runs)
    report.attempts = len(found.effects)
    report.executions = len({one.execution for one in found.effects})


def tell(report: Report) -> str:
    """For people."""

    def line(name: str, counts: dict[str, int]) -> str:
        return f"{name}: " + ", ".join(f"{what} {count}" for what, count in sorted(counts.items()))

    extra = report.attempts - report.executions
    lines = [
        f"seed {report.seed}, {report.seconds:g} s of faults, everything ended {report.healed} s after the last one, "
        f"checked in {report.checked} s",
        line("faults", report.faults),
        line("cuts", report.cuts),
        line("lost answers", report.lost_answers),
        line("calls", report.calls),
        line("runs", report.runs),
        f"{report.events} events, {report.executions} activities in {report.attempts} attempts ({extra} repeated)",
        line("sometimes", report.counters),
        f"gone on for: {', '.join(report.awaited) or 'none'}",
        f"never: {', '.join(report.missing) or 'none'}",
        f"said out of form: {len(report.stray)}",
        *(f"  {one}" for one in report.stray[-_SHOWN:]),
        f"VIOLATIONS: {len(report.violations)}",
        *(f"  {one}" for one in report.violations[:_SHOWN]),
    ]
    return "\n".join(lines)
