"""What a rep cost: time, CPU of this process and of Postgres, write transactions, WAL, fsyncs, and others' load.

The counters of the server lag by up to a second in idle sessions, so fsyncs are right over several reps only.
"""

from __future__ import annotations

import asyncio
import resource
import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import psutil

from benchmarks.server import Bench

NOISY = 0.35
"""Cores taken by others above which a rep does not count for the median."""
_QUIET = 0.25

_COUNTERS = """
select pg_snapshot_xmax(pg_current_snapshot())::text::float8 as writes,
       (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::float8 as wal,
       (select coalesce(sum(fsyncs), 0)::float8 from pg_stat_io where object = 'wal') as fsyncs"""
_COUNTERS_BEFORE_18 = """
select pg_snapshot_xmax(pg_current_snapshot())::text::float8 as writes,
       (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::float8 as wal,
       (select wal_sync::float8 from pg_stat_wal) as fsyncs"""


@dataclass(slots=True)
class Rep:
    """One measurement of ``n`` units; costs are per unit, CPU in milliseconds."""

    n: int
    seconds: float
    rate: float
    cpu_python: float
    cpu_postgres: float
    write_tx: float
    wal_bytes: float
    fsyncs: float
    cores_other: float


@dataclass(slots=True)
class Measured:
    """All reps of one workload. The median is over reps without others' load, when there are any."""

    reps: list[Rep] = field(default_factory=list)

    @property
    def clean(self) -> list[Rep]:
        """Reps that count."""
        quiet = [rep for rep in self.reps if rep.cores_other < NOISY]
        return quiet or [min(self.reps, key=lambda rep: rep.cores_other)]

    def summary(self) -> dict[str, Any]:
        """Median and best rate, smallest costs, the median rep's own load of others."""
        by_rate = sorted(self.clean, key=lambda rep: rep.rate)
        middle = by_rate[len(by_rate) // 2]
        return {
            "rate": middle.rate,
            "best": max(rep.rate for rep in self.reps),
            "n": middle.n,
            **{name: min(getattr(rep, name) for rep in self.reps) for name in ("cpu_python", "cpu_postgres")},
            **{
                name: round(statistics.median(getattr(rep, name) for rep in self.reps), 3)
                for name in ("write_tx", "wal_bytes", "fsyncs")
            },
            "cores_other": middle.cores_other,
            "clean_reps": sum(rep.cores_other < NOISY for rep in self.reps),
            "reps": [asdict(rep) for rep in self.reps],
        }


class Meter:
    """Measures against one server."""

    def __init__(self, bench: Bench, *, quiet_within: float) -> None:
        self._bench, self._quiet_within = bench, quiet_within
        self._statement = _COUNTERS if bench.version >= 180_000 else _COUNTERS_BEFORE_18

    async def rep(self, n: int, work: Callable[[], Awaitable[object]]) -> Rep:
        """Do ``n`` units of work and tell what they cost."""
        await self._wait_for_quiet()
        before, cpu_before = await self._counters(), self._cpu()
        began = time.perf_counter()
        await work()
        seconds = time.perf_counter() - began
        cpu_after, after = self._cpu(), await self._counters()
        own, server, busy = (b - a for a, b in zip(cpu_before, cpu_after, strict=True))
        writes, wal, fsyncs = (b - a for a, b in zip(before, after, strict=True))
        return Rep(
            n=n,
            seconds=round(seconds, 3),
            rate=round(n / seconds, 1),
            cpu_python=round(own / n * 1e3, 3),
            cpu_postgres=round(server / n * 1e3, 3),
            write_tx=round(writes / n, 3),
            wal_bytes=round(wal / n),
            fsyncs=round(fsyncs / n, 3),
            cores_other=round((busy - own - server) / seconds, 2),
        )

    async def _counters(self) -> tuple[float, ...]:
        return tuple(await self._bench.sql.fetchrow(self._statement))

    def _cpu(self) -> tuple[float, float, float]:
        """Seconds of this process, of the server with its children, of the whole machine."""
        used = resource.getrusage(resource.RUSAGE_SELF)
        return used.ru_utime + used.ru_stime, _tree(self._bench.pid), _busy()

    async def _wait_for_quiet(self) -> None:
        """Wait a while for the rest of the machine to calm down."""
        deadline, calm = time.monotonic() + self._quiet_within, 0
        while time.monotonic() < deadline and calm < 2:
            before = _busy()
            await asyncio.sleep(0.3)
            calm = calm + 1 if (_busy() - before) / 0.3 < _QUIET else 0


def _tree(pid: int) -> float:
    """Of a process and its children, those that have ended too."""
    total = 0.0
    for _ in range(20):
        try:
            parent = psutil.Process(pid)
            ended = _ended(parent)
            running = [sum(one.cpu_times()[:2]) for one in (parent, *parent.children(recursive=True))]
            total = ended + sum(running)
            if _ended(parent) == ended:  # else one that ended meanwhile was counted nowhere
                break
        except psutil.Error:
            continue
    return total


def _ended(parent: psutil.Process) -> float:
    times = parent.cpu_times()
    return float(times.children_user + times.children_system)


def _busy() -> float:
    times = psutil.cpu_times()
    names = ("user", "nice", "system", "irq", "softirq", "steal")
    return float(sum(getattr(times, name, 0.0) for name in names))


def spread(samples: list[float]) -> dict[str, Any]:
    """Latencies in seconds as milliseconds: median, 99th percentile, extremes."""
    ordered = sorted(samples)

    def at(part: float) -> float:
        return round(ordered[min(len(ordered) - 1, int(len(ordered) * part))] * 1e3, 2)

    return {"p50_ms": at(0.5), "p99_ms": at(0.99), "min_ms": at(0), "max_ms": at(1), "n": len(ordered)}


def middle_of(spreads: list[dict[str, Any]]) -> dict[str, Any]:
    """Median of the medians and of the 99th percentiles of several reps."""
    return {
        **{name: round(statistics.median(one[name] for one in spreads), 2) for name in ("p50_ms", "p99_ms")},
        "min_ms": min(one["min_ms"] for one in spreads),
        "max_ms": max(one["max_ms"] for one in spreads),
        "reps": len(spreads),
        "n_each": spreads[0]["n"],
    }
