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

_FOLDER = Path(os.environ.get("AIOFLOW_TEST_FOLDER", "."))


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


class Deadly(Workflow):
    """Takes its worker with it, until somebody mends it."""

    async def handle(self) -> str:
        if not os.environ.get("AIOFLOW_TEST_MENDED"):
            os._exit(9)
        return "mended"


def main() -> None:
    dsn, grace = sys.argv[1], float(sys.argv[2])
    settings = WorkerSettings(lease_ttl=1.0, poll_interval=0.2, drain_grace=grace, cancel_grace=grace, connections=3)

    def make() -> Worker:
        return Worker(Endpoint(dsn), workflows=[Chain, Deadly], activities=[work], settings=settings)

    sys.exit(run(make))


if __name__ == "__main__":
    main()
