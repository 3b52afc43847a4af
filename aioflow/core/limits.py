"""Structural limits of a run, and their defaults."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """How large a run may grow. Counts, except ``payload`` and ``step_bytes`` in bytes.

    ``payload`` bounds one value; ``step_bytes`` all that the code gives to activities and side effects while one event
    is applied: one statement writes it, arguments twice, and the driver takes less than a gigabyte.

    At ``history_soft`` events the worker warns, once; past ``history_hard`` the run fails.
    """

    payload: int = 2 * 1024 * 1024
    step_bytes: int = 64 * 1024 * 1024
    history_soft: int = 8_000
    history_hard: int = 50_000
    pending_activities: int = 10_000
    timers: int = 10_000
