"""A worker with short times: ``python -m tests.faults.chaos.worker_process DSN DRAIN_GRACE``; logs JSON to stderr."""

from __future__ import annotations

import sys

from aioflow import telemetry
from aioflow.worker import Endpoint, Worker, WorkerSettings
from aioflow.worker.process import run
from tests.faults.chaos.flows import ACTIVITIES, WORKFLOWS

LEASE = 1.5


def main() -> None:
    """Work until told to stop."""
    telemetry.configure("debug", "json")
    dsn, grace = sys.argv[1], float(sys.argv[2])
    settings = WorkerSettings(
        concurrency=20,
        poll_interval=0.3,
        lease_ttl=LEASE,
        maintenance_interval=0.3,
        drain_grace=grace,
        cancel_grace=0.5,
        connections=3,
        heartbeat_interval=0.3,
        backoff_first=0.1,
        backoff_max=1.0,
        isolation_wait=0.5,
        isolation_time=2.0,
        # Workers are killed at random here: some run is hit by chance again and again.
        quarantine_after=1_000,
    )
    sys.exit(run(lambda: Worker(Endpoint(dsn), workflows=WORKFLOWS, activities=ACTIVITIES, settings=settings)))


if __name__ == "__main__":
    main()
