"""Who breaks things: a deck of faults, shuffled by the seed again and again, dealt with random pauses."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from aioflow.client import Client
from aioflow.errors import DatabaseUnavailable
from tests.faults.chaos.flows import STAMPED_WITHIN, Victim
from tests.faults.chaos.ledger import Effect, Effects
from tests.faults.chaos.proxy import CUTS, Cut
from tests.faults.chaos.rig import AWAY, Fleet, Slot, until
from tests.faults.chaos.worker_process import LEASE

SURVIVED: Final = "crash restart survived"
ENDED: Final = (0, -signal.SIGTERM)  # before it has its handlers, it is ended by the signal
DRAINED_WITHIN: Final = 30.0
_WARM: Final = 1.5  # seconds until a process is worth a fault
WORKER_WRITES: Final = (
    ("commit_runs",),
    ("complete_activities",),
    ("claim_runs",),
    ("claim_activities",),
    ("retry_activities", "release_runs", "release_activities"),
    ("worker_renew", "heartbeats"),
    ("reap_declare", "reap_blame", "reap_runs", "reap_activities", "reap_settle"),
)
CLIENT_WRITES: Final = (("start",), ("signal",), ("request_cancel", "terminate"))
_TERMINATE: Final = (
    "select count(pg_terminate_backend(pid)) from pg_stat_activity "
    "where application_name like 'aioflow%' and random() < $1"
)


class Monkey:
    """Deals faults for so many seconds. Each that goes on for a while does so beside the next ones."""

    def __init__(self, fleet: Fleet, seed: int) -> None:
        self.fleet, self.chance = fleet, random.Random(seed)
        self.done: Counter[str] = Counter()
        self.wrong: list[str] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._over = asyncio.Event()
        self._restarting = asyncio.Lock()
        self._left: list[str] = []
        self._effects = Effects(fleet.folder)
        self._deck: dict[str, tuple[int, Callable[[], Awaitable[None]]]] = {
            "kill": (3, self.kill),
            "stop": (3, self.stop),
            "drain": (4, self.drain),
            "terminate backends": (2, self.backends),
            "crash restart": (1, self.crash),
            "stall": (3, self.stall),
            "blackhole": (1, self.blackhole),
            "refuse": (1, self.refuse),
            "slow": (1, self.slow),
            "deaf": (3, self.deaf),
            "cut at a worker": (8, self.cut_worker),
            "cut at a client": (4, self.cut_client),
            "lost answer": (4, self.lose),
            "late write": (6, self.late),
            "held write": (4, self.held),
            "hunt": (1, self.hunt),
            "kill a client": (1, self.kill_client),
        }

    async def run(self, seconds: float) -> None:
        """Deal, then mend everything and see that nothing is left under way; may be called again."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        self._over.clear()
        while loop.time() < end:
            if not self._left:
                self._left = [name for name, (count, _) in self._deck.items() for _ in range(count)]
                self.chance.shuffle(self._left)
            name = self._left.pop()
            self.done[name] += 1
            self._beside(self._deck[name][1]())
            await asyncio.sleep(self.chance.uniform(0.1, 0.7))
            self.wrong += self.fleet.fallen()
        self._over.set()
        await asyncio.gather(*self._tasks)
        for slot in self.fleet.slots:
            slot.gate.mend()
        self.wrong += self.fleet.fallen()

    def _beside(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _pick(self, slots: list[Slot]) -> Slot | None:
        free = [slot for slot in slots if not slot.busy and slot.alive and time.monotonic() - slot.since > _WARM]
        return self.chance.choice(free) if free else None

    def _busiest(self) -> Slot | None:
        """Who has begun most of late."""
        begun = Counter(one.pid for one in self._effects.read()[-20:] if one.activity in ("work", "hold"))
        free = [slot for slot in self.fleet.workers if not slot.busy and slot.alive and slot.process]
        return max(free, key=lambda slot: begun[slot.process.pid if slot.process else 0], default=None)

    async def _pause(self, seconds: float) -> None:
        """So long, or until all is over."""
        try:
            await asyncio.wait_for(self._over.wait(), seconds)
        except TimeoutError:
            return

    # -- processes --------------------------------------------------------------------------------

    async def _replace(self, slot: Slot) -> None:
        slot.busy = True
        await self.fleet.end(slot, signal.SIGKILL, 10)
        await self._pause(self.chance.uniform(0.0, 1.0))
        self.fleet.begin(slot)
        slot.busy = False

    async def kill(self) -> None:
        """SIGKILL."""
        if (slot := self._pick(self.fleet.workers)) is not None:
            await self._replace(slot)

    async def kill_client(self) -> None:
        """SIGKILL of callers."""
        if (slot := self._pick(self.fleet.clients)) is not None:
            await self._replace(slot)

    async def stop(self) -> None:
        """SIGSTOP for longer than the lease, SIGCONT."""
        if (slot := self._pick(self.fleet.workers)) is None:
            return
        slot.busy = True
        self.fleet.send(slot, signal.SIGSTOP)
        await asyncio.sleep(LEASE * self.chance.uniform(1.3, 2.5))
        self.fleet.send(slot, signal.SIGCONT)
        slot.busy = False

    async def drain(self) -> None:
        """SIGTERM, which has to end in time and well, whatever else goes on."""
        if (slot := self._busiest()) is None:
            return
        slot.busy = True
        code = await self.fleet.end(slot, signal.SIGTERM, DRAINED_WITHIN)
        if code not in ENDED:
            self.wrong.append(f"{slot.name}.{slot.lives}: draining ended with {code}")
            await self.fleet.end(slot, signal.SIGKILL, 10)
        self.fleet.begin(slot)
        slot.busy = False

    async def hunt(self) -> None:
        """Kill whoever works on one activity, twice in a row."""
        name = f"prey-{self.done['hunt']}"
        try:
            async with Client.connect(self.fleet.server.dsn) as client:
                await client.start(Victim.options(id=name), name)
        except DatabaseUnavailable:
            return
        seen: set[str] = set()
        for _ in range(2):
            if not await until(partial(self._held, name, seen), LEASE * 6):
                break
            last = self._attempts(name)[-1]
            seen.add(last.attempt)
            for slot in self.fleet.workers:
                if slot.process is not None and slot.process.pid == last.pid and not slot.busy:
                    await self._replace(slot)
        await until(partial(self._held, name, seen), LEASE * 6)
        (self.fleet.folder / "let-go" / name).touch()

    def _attempts(self, name: str) -> list[Effect]:
        return [one for one in self._effects.read() if one.value == name]

    async def _held(self, name: str, seen: set[str]) -> bool:
        return any(one.attempt not in seen for one in self._attempts(name))

    # -- the server -------------------------------------------------------------------------------

    async def backends(self) -> None:
        """Terminate some of our backends."""
        try:
            await self.fleet.server.ask(_TERMINATE, self.chance.choice((0.2, 0.5, 1.0)))
        except AWAY:
            return

    async def crash(self) -> None:
        """The server goes down at once, recovers, and work goes on."""
        async with self._restarting:
            starting = self._pick(self.fleet.workers)
            if starting is not None:
                starting.busy = True
                await self.fleet.end(starting, signal.SIGKILL, 10)
                self.fleet.begin(starting)  # it finds a server that is away, then one that recovers
                starting.busy = False
            await self.fleet.server.crash()
            before = await self.fleet.server.ask("select count(*) from aioflow.history")

            async def more() -> bool:
                return bool(await self.fleet.server.ask("select count(*) from aioflow.history") > before)

            if await until(more, 15.0):
                self.done[SURVIVED] += 1

    # -- the network ------------------------------------------------------------------------------

    async def stall(self) -> None:
        """What a worker sends is under way for longer than its lease, and arrives."""
        if (slot := self._pick(self.fleet.workers)) is not None:
            slot.gate.stall()
            await asyncio.sleep(LEASE * self.chance.uniform(1.3, 2.5))
            slot.gate.go_on()

    async def blackhole(self) -> None:
        """Nothing arrives, and nobody says so; then the connection is gone."""
        if (slot := self._pick(self.fleet.slots)) is not None:
            slot.gate.stall()
            await self._pause(self.chance.uniform(1.0, 6.0))
            slot.gate.cut_all()
            slot.gate.go_on()

    async def refuse(self) -> None:
        """No way to the server."""
        if (slot := self._pick(self.fleet.slots)) is not None:
            slot.gate.refusing = True
            slot.gate.cut_all()
            await self._pause(self.chance.uniform(0.2, 3.0))
            slot.gate.refusing = False

    async def slow(self) -> None:
        """Everything takes a while."""
        if (slot := self._pick(self.fleet.slots)) is not None:
            slot.gate.delay = self.chance.choice((0.05, 0.2))
            await self._pause(self.chance.uniform(1.0, 3.0))
            slot.gate.delay = 0.0

    async def deaf(self) -> None:
        """Notifications do not arrive, anywhere."""
        for slot in self.fleet.workers:
            slot.gate.deaf = True
        await self._pause(3.0)
        for slot in self.fleet.workers:
            slot.gate.deaf = False

    async def cut_worker(self) -> None:
        """A line of a worker is cut around a write."""
        if (slot := self._pick(self.fleet.workers)) is not None:
            slot.gate.expect(Cut(self.chance.choice(CUTS), self.chance.choice(WORKER_WRITES)))

    async def lose(self) -> None:
        """The answer to a commit or an outcome does not arrive."""
        if (slot := self._pick(self.fleet.workers)) is not None:
            statements = self.chance.choice((("commit_runs",), ("complete_activities",)))
            slot.gate.expect(Cut(self.chance.choice(("after", "unready")), statements))

    async def late(self) -> None:
        """A worker decides, and by the time that its write arrives it has lost its lease."""
        if (slot := self._pick(self.fleet.workers)) is not None:
            statements = self.chance.choice((("commit_runs",), ("commit_runs",), ("complete_activities",)))
            slot.gate.expect(Cut("late", statements, LEASE * self.chance.uniform(2.0, 3.0)))

    async def held(self) -> None:
        """The commit of a run is under way while it is terminated, an outcome while its attempt times out."""
        for slot in self.fleet.workers:
            slot.gate.expect(Cut("held", ("commit_runs",), 1.0, about=b"victim-"))
        if (one := self._pick(self.fleet.workers)) is not None:
            one.gate.expect(Cut("held", ("complete_activities",), STAMPED_WITHIN * 2, about=b'"s0:'))

    async def cut_client(self) -> None:
        """A line of a caller is cut around a write."""
        if (slot := self._pick(self.fleet.clients)) is not None:
            slot.gate.expect(Cut(self.chance.choice(CUTS), self.chance.choice(CLIENT_WRITES)))
