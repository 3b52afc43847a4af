"""What a worker runs with, and what it needs of a client."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from aioflow.core.limits import Limits
from aioflow.errors import ConfigurationError

__all__ = ["Endpoint", "Source", "WorkerSettings"]


class Source(Protocol):
    """Where a worker finds its database: a client, or an `Endpoint`."""

    @property
    def dsn(self) -> str | None:
        """Address of the database; None for a client on the caller's own pool, which a worker cannot use."""

    @property
    def listen_dsn(self) -> str | None:
        """A direct address beside a pooled one, for LISTEN; None: the same address."""

    @property
    def namespace(self) -> str:
        """Namespace whose work is done."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A database and a namespace, for a worker without a client."""

    dsn: str | None
    namespace: str = "default"
    listen_dsn: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """Settings of a worker; durations in seconds.

    Attributes:
        concurrency: activities that run at once; as many workflow tasks may be under way beside them.
        queues: queues in order of preference; empty: those that the registered workflows and activities name.
        poll_interval: pause between looks at the queues when nothing wakes the worker, plus up to a fifth.
        lease_ttl: how long after the worker's death its work is given to others.
        start_patience: how long a worker that starts waits for a database that is away, or still starting itself.
        loop_stall: a loop that has not run for so long is given up: the lease is no longer renewed.
        cached_runs: suspended runs kept in memory.
        cached_bytes: sum of the sizes of their histories.
        step_limit: longest time the code of a workflow may hold its thread between two awaits.
        abandoned_threads: threads lost to blocking workflows before the worker gives up.
        drain_grace: time that running activities get to finish when the worker stops.
        cancel_grace: time that cancelled activities then get to clean up.
        heartbeat_interval: how often signs of life are written, and cancellations noticed.
        maintenance_interval: how often dead workers and deadlines are looked for.
        backoff_first: pause before a workflow task that failed is tried again; doubled each time.
        backoff_max: the longest such pause.
        quarantine_after: workers that die in a row with a run or activity before it is set aside for an operator. After
            two it is tried alone, so at least 3.
        isolation_wait: how long running work gets to end before such a try; then it begins beside what is left.
        isolation_time: how long such tries may keep the worker from other work at a stretch.
        claim_batch: runs or activities taken by one statement at most.
        connections: connections to the database, beside one for the lease, one to listen and one to notify.
        request_keep_interval: how often old request keys are removed.
        limits: how large a run may grow.
    """

    concurrency: int = 200
    queues: tuple[str, ...] = ()
    poll_interval: float = 1.0
    lease_ttl: float = 10.0
    start_patience: float = 30.0
    loop_stall: float = 60.0
    cached_runs: int = 1_000
    cached_bytes: int = 256 * 1024 * 1024
    step_limit: float = 2.0
    abandoned_threads: int = 3
    drain_grace: float = 30.0
    cancel_grace: float = 5.0
    heartbeat_interval: float = 1.0
    maintenance_interval: float = 1.0
    backoff_first: float = 1.0
    backoff_max: float = 60.0
    quarantine_after: int = 5
    isolation_wait: float = 10.0
    isolation_time: float = 60.0
    claim_batch: int = 200
    connections: int = 8
    request_keep_interval: float = 60.0
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        counts = ("concurrency", "cached_runs", "cached_bytes", "claim_batch", "connections")
        spans = (
            "poll_interval",
            "lease_ttl",
            "loop_stall",
            "step_limit",
            "heartbeat_interval",
            "maintenance_interval",
            "backoff_first",
            "backoff_max",
            "isolation_wait",
            "isolation_time",
            "request_keep_interval",
        )
        for name in counts:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ConfigurationError(f"WorkerSettings({name}=) is a whole number from 1, not {value!r}")
        if isinstance(self.quarantine_after, bool) or not 3 <= self.quarantine_after <= 10_000:
            raise ConfigurationError("WorkerSettings(quarantine_after=) is a whole number from 3 to 10000")
        for name in spans:
            if not 0 < getattr(self, name) < float("inf"):
                raise ConfigurationError(f"WorkerSettings({name}=) is a number of seconds above zero")
        for name in ("start_patience", "drain_grace", "cancel_grace", "abandoned_threads"):
            if getattr(self, name) < 0:
                raise ConfigurationError(f"WorkerSettings({name}=) is zero or more")
        queues: Any = self.queues
        if isinstance(queues, str) or not all(isinstance(name, str) and name for name in queues):
            raise ConfigurationError("WorkerSettings(queues=) is a tuple of names")
