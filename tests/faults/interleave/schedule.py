"""A seeded scheduler: which actor goes next, what goes wrong, and what became of it."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tests.faults.interleave.connections import Actor, Grant
from tests.faults.interleave.scene import GATES, NAMES

__all__ = ["Gate", "Schedule"]

_STEP: Final = 6  # weight of a step against one of a fault
_TOO_LONG: Final = 30.0
_BLOCKED = "select p as pid, pg_blocking_pids(p) as by from unnest($1::integer[]) as p"
_SHIFT = "select setval('il.shift', (select s.last_value from il.shift s) + $1::bigint)"
_EXPIRE = (
    "update aioflow.worker set lease_until = aioflow.clock() - interval '1 second' where worker_id = any (array("
    "select w.worker_id from aioflow.worker w where w.identity = $1 and not w.dead for update skip locked))"
)


class Gate:
    """Somebody else's transaction: holds one row until it is told to end."""

    def __init__(self, conn: Any) -> None:
        self._conn, self.label = conn, ""
        self._transaction: Any = None

    async def hold(self, kind: str, of: str, ref: str) -> None:
        self.label = f"{kind} {of} {ref}".strip()
        self._transaction = self._conn.transaction()
        await self._transaction.start()
        name = of if kind == "worker" else NAMES[of]
        await self._conn.fetch(GATES[kind], name, ref)

    async def release(self) -> None:
        if self._transaction is not None:
            self._transaction, ending = None, self._transaction
            await ending.rollback()

    @property
    def held(self) -> bool:
        return self._transaction is not None


@dataclass
class Schedule:
    """Runs actors to their end, one step at a time; ``trace`` tells how.

    In most schedules one actor is left behind at one of its steps until the others cannot go on, and actors are now
    and then quick or slow.
    """

    actors: Sequence[Actor]
    gates: Sequence[Gate]
    admin: Any
    rng: random.Random
    changed: asyncio.Event
    trace: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.faults = self.rng.choice((0, 0, 1, 1, 2))
        self.pausing = self.rng.choice((0.0, 0.2, 0.5))
        self._lasting = self.rng.random() < 0.5  # gates stay until nobody can go on
        self.moody = self.rng.choice((0.0, 0.05, 0.1, 0.2))
        self._parked = (self.rng.choice(self.actors).name, self.rng.choice((0, 0, 1, 2, 2, 3, 3, 4, 4, 5, 6, 7)))
        self._weights = {one.name: _STEP for one in self.actors}
        if self.moody:
            self._new_mood()

    def _new_mood(self) -> None:
        """One goes far while another is left behind, until that changes."""
        self._weights = {one.name: self.rng.choice((1, _STEP, 50)) for one in self.actors}

    async def run(self) -> None:
        """Until every actor is done. Raises `TimeoutError` when that takes for ever."""
        async with asyncio.timeout(_TOO_LONG):
            await self._settle()
            while any(one.state != "done" for one in self.actors):
                choices = self._choices()
                if not choices:  # in a circle, which the server will see, or waiting for somebody who is being ended
                    if self.trace[-1] != "all wait":
                        self.trace.append("all wait")
                    await self._look_again()
                    continue
                chosen, what = self._pick(choices)
                await self._do(chosen, what)
        for gate in self.gates:
            await gate.release()

    def _pick(self, choices: list[tuple[int, str, Any]]) -> tuple[str, Any]:
        if self.rng.random() < self.moody:
            self._new_mood()
        _, what, whom = self.rng.choices(choices, [weight for weight, _, _ in choices])[0]
        return what, whom

    def _choices(self) -> list[tuple[int, str, Any]]:
        found: list[tuple[int, str, Any]] = []
        for one in self.actors:
            if one.state == "ready" and (one.name, one.turns) != self._parked:
                found.append((self._weights[one.name], "go", one))
            elif one.state == "paused":
                found.append((self._weights[one.name], "resume", one))
        gates = [(2, "release", gate) for gate in self.gates if gate.held]
        if not found:  # but those that are left behind
            found = [(_STEP, "go", one) for one in self.actors if one.state == "ready"]
            found += gates
        elif not self._lasting:
            found += gates
        if found and self.faults:
            for one in self.actors:
                if one.state in ("ready", "blocked", "paused"):
                    found.append((1, "kill", one))
                if one.state == "ready" and one.want.endswith(": commit"):
                    found.append((1, "lose", one))
            found += [(1, "expire", "one"), (1, "clock", self.rng.choice((1, 40, 1000)))]
        return found

    async def _do(self, what: str, whom: Any) -> None:
        self.counts[what] += 1
        if what in ("kill", "lose", "expire", "clock"):
            self.faults -= 1
        if what in ("go", "lose"):
            await self._go(whom, lose=what == "lose")
            return
        label = whom.label if isinstance(whom, Gate) else whom
        if isinstance(whom, Actor):
            label = f"{whom.name}: {whom.want}"
        self.trace.append(f"{what} {label}")
        if what == "resume":
            await self._disarm(whom)
        elif what == "release":
            await whom.release()
        elif what == "kill":
            await self._kill(whom.slot.pid)
        elif what == "expire":
            await self.admin.execute(_EXPIRE, whom)
        else:
            await self.admin.fetch(_SHIFT, whom * 1_000_000)
        if what in ("resume", "release", "kill"):
            await self._look_again()

    async def _kill(self, pid: int) -> None:
        """End a backend; when this returns it has let go of its locks."""
        await self.admin.fetch("select pg_terminate_backend($1)", pid)
        for _ in range(10_000):
            if not await self.admin.fetchval("select exists (select from pg_stat_activity where pid = $1)", pid):
                return
            await asyncio.sleep(0.001)

    async def _go(self, one: Actor, *, lose: bool) -> None:
        pause = 0
        if one.armed:
            await self._disarm(one)
        committing = one.want.endswith(": commit")
        if not committing and self.rng.random() < self.pausing:
            pause, one.armed = self.rng.randint(1, 6), True
            await self.admin.fetch("select pg_advisory_lock(7, $1)", one.slot.number)
        told = " (answer lost)" if lose else f" (pause at {pause})" if pause else ""
        self.trace.append(f"{one.name}: {one.want}{told}")
        one.grant(Grant(pause, lose))
        await (self._look_again() if committing else self._settle())

    async def _disarm(self, one: Actor) -> None:
        one.armed = False
        await self.admin.fetch("select pg_advisory_unlock(7, $1)", one.slot.number)

    async def _look_again(self) -> None:
        """Somebody may have let go of what others wait for."""
        for one in self.actors:
            if one.state in ("blocked", "paused"):
                one.state = "running"
        await self._settle()

    async def _settle(self) -> None:
        """Until everybody waits: for a turn, or for a lock as the server says, twice."""
        seen: Counter[str] = Counter()
        mine = self.admin.get_server_pid()
        while running := [one for one in self.actors if one.state == "running"]:
            self.changed.clear()
            try:
                await asyncio.wait_for(self.changed.wait(), 0.001)
                continue
            except TimeoutError:
                pass
            by = {r["pid"]: r["by"] for r in await self.admin.fetch(_BLOCKED, [one.slot.pid for one in running])}
            for one in running:
                blockers = by.get(one.slot.pid)
                seen[one.name] = seen[one.name] + 1 if blockers else 0
                if seen[one.name] >= 2 and one.state == "running":
                    one.state = "paused" if mine in (blockers or ()) else "blocked"
                    self.counts[one.state] += 1
                    line = f"  {one.name} {one.state} in {one.want}"
                    if line not in self.trace[-len(self.actors) - 1 :]:
                        self.trace.append(line)
