"""A worker in a process of its own: ``python -m tests.acceptance.worker_process DSN FOLDER [GRACE]``.

Activities leave a line in ``FOLDER/log`` for each attempt; those named ``slow…`` wait for ``FOLDER/open``.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from aioflow import Workflow, activity
from aioflow.worker import Endpoint, Worker, WorkerSettings
from aioflow.worker.process import run
from tests.support import eventually

BYSTANDERS = 50
_FOLDER = Path(os.environ.get("AIOFLOW_TEST_FOLDER", "."))


def note(word: str) -> None:
    """Leave a line in the log."""
    with (_FOLDER / "log").open("a") as log:
        log.write(f"{word}\n")


def noted(word: str) -> int:
    """How many such lines there are."""
    path = _FOLDER / "log"
    return path.read_text().splitlines().count(word) if path.exists() else 0


_STRUCK = noted("deadly")  # before this process started


@activity.defn
async def work(name: str) -> str:
    """Do something that leaves a trace."""
    info = activity.info()
    with (_FOLDER / "log").open("a") as log:
        log.write(f"{name} {info.execution_id} {info.attempt_id}\n")
    if name.startswith("slow"):
        await eventually((_FOLDER / "open").exists, within=600)
    return name


class Chain(Workflow):
    """One step after the other."""

    async def handle(self, names: list[str]) -> list[str]:
        return [await work(name) for name in names]


@activity.defn
async def deadly() -> str:
    """Take the worker along while bystanders run beside it, until somebody mends it."""
    note("deadly")
    if os.environ.get("AIOFLOW_TEST_MENDED"):
        return "mended"
    if _STRUCK < 2:
        await eventually(lambda: noted(f"begun-{os.getpid()}") == BYSTANDERS, within=60)
    os._exit(9)


@activity.defn
async def stand_by(name: str) -> str:
    """Run beside the deadly one until it has struck twice."""
    note(f"begun-{os.getpid()}")
    await eventually(lambda: _STRUCK >= 2, within=60)
    note(f"ended-{os.getpid()}")
    return name


class DeadlyStep(Workflow):
    """Has a deadly activity."""

    async def handle(self) -> str:
        return await deadly()


class Bystander(Workflow):
    """Stands beside it."""

    async def handle(self, name: str) -> str:
        return await stand_by(name)


class Deadly(Workflow):
    """Takes its worker with it, until somebody mends it."""

    async def handle(self) -> str:
        if not os.environ.get("AIOFLOW_TEST_MENDED"):
            os._exit(9)
        return "mended"


def main() -> None:
    dsn, grace = sys.argv[1], float(sys.argv[2])
    settings = WorkerSettings(
        lease_ttl=1.0,
        poll_interval=0.2,
        drain_grace=grace,
        cancel_grace=grace,
        connections=3,
        # Most tests kill workers at random, and some run is hit by chance three times.
        quarantine_after=int(os.environ.get("AIOFLOW_TEST_QUARANTINE_AFTER", "1000")),
    )

    def make() -> Worker:
        flows = [Chain, Deadly, DeadlyStep, Bystander]
        return Worker(Endpoint(dsn), workflows=flows, activities=[work, deadly, stand_by], settings=settings)

    sys.exit(run(make))


if __name__ == "__main__":
    main()
