"""Callers in a process of their own: ``python -m tests.faults.chaos.client_process DSN FOLDER NAME SEED``.

Each caller plays one scene after the other until the file ``FOLDER/stop`` appears, and ends the one it is in. Every
call is written down before it is made and after it was answered.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

from aioflow import WorkflowCancelled, WorkflowTerminated, telemetry
from aioflow.client import Client
from aioflow.errors import ClientError, DatabaseUnavailable, ResultTimeout
from tests.faults.chaos.flows import Bell, Pipeline, Tally, Victim
from tests.faults.chaos.ledger import CallLog, Fate
from tests.support import eventually

CALLERS: Final = 6
PATIENCE: Final = (0.1, 0.4, 2.0)  # seconds that one call goes on trying


class Unknown(Exception):
    """Nobody knows whether it happened."""


class Refused(Exception):
    """It did not happen."""


class Stage:
    """What the callers of a process share."""

    def __init__(self, client: Client, folder: Path, name: str, seed: int) -> None:
        self.client, self.folder, self.name = client, folder, name
        self.log, self.chance, self._scenes = CallLog(folder, name), random.Random(seed), 0

    @property
    def over(self) -> bool:
        """Whether no new scene shall begin."""
        return (self.folder / "stop").exists()

    def instance(self, kind: str) -> str:
        """A new instance id."""
        self._scenes += 1
        return f"{kind}-{self.name}-{self._scenes}"

    async def call(
        self, name: str, instance: str, make: Callable[[], Awaitable[Any]], *, insist: bool = False, **facts: Any
    ) -> Any:
        """One call, written down. ``insist``: it has a key, and is repeated with it until its fate is known."""
        number, tries = self.log.invoke(time.time(), name, instance, **facts), 0

        def ended(fate: Fate, told: Any) -> None:
            self.log.end(number, time.time(), fate, told, tries)

        while True:
            tries += 1
            try:
                told = await make()
            except DatabaseUnavailable as exc:
                if insist:
                    await asyncio.sleep(self.chance.uniform(0.05, 0.3))
                    continue
                ended("info", type(exc).__name__)
                raise Unknown from exc
            except ClientError as exc:
                ended("fail", type(exc).__name__)
                raise Refused(type(exc).__name__) from exc
            ended("ok", told)
            return told

    async def start(self, instance: str, workflow: Any, *args: Any, insist: bool = True) -> Any:
        """Start with a request key, sometimes twice."""
        target = workflow.options(id=instance, request_key=f"start-{instance}")

        async def make() -> str:
            return str((await self.client.start(target, *args)).run_id)

        await self.call("start", instance, make, insist=insist, workflow=workflow.__name__, args=args)
        if self.chance.random() < 0.1:
            await self.call("start", instance, make, insist=True, workflow=workflow.__name__, args=args, again=True)
        return self.client.instance(instance, workflow)

    async def signal(self, handle: Any, signal: Any, item: str, *, insist: bool, key: str | None = None) -> None:
        """Send one item."""
        keyed = signal.options(key=key) if key else signal

        async def make() -> None:
            await handle.signal(keyed, item)

        await self.call("signal", handle.id, make, insist=insist, item=item, key=key, caller=item.split(":")[0])

    async def result(self, handle: Any) -> None:
        """Wait for the end, however long it takes."""

        async def make() -> list[Any]:
            while True:
                try:
                    return ["completed", await handle.result(timeout=5.0)]
                except ResultTimeout:
                    continue
                except WorkflowCancelled:
                    return ["cancelled", None]
                except WorkflowTerminated:
                    return ["terminated", None]

        await self.call("result", handle.id, make, insist=True)

    # -- scenes -----------------------------------------------------------------------------------

    async def tally(self) -> None:
        """Several senders, each in order; keys sent again; queries; the result."""
        handle = await self.start(self.instance("tally"), Tally)
        async with asyncio.TaskGroup() as group:
            for sender in range(self.chance.randint(1, 3)):
                group.create_task(self._add(handle, f"s{sender}"))
            group.create_task(self._ask(handle))

        async def finish() -> None:
            await handle.signal(Tally.finish.options(key="finish"))

        await self.call("finish", handle.id, finish, insist=True)
        await self.result(handle)

    async def _add(self, handle: Any, sender: str) -> None:
        for n in range(self.chance.randint(2, 6)):
            item, keyed = f"{sender}:{n}", self.chance.random() < 0.7
            key = item if keyed else None
            try:
                await self.signal(handle, Tally.add, item, insist=keyed and self.chance.random() < 0.8, key=key)
                if keyed and self.chance.random() < 0.2:
                    await self.signal(handle, Tally.add, item, insist=True, key=key)
            except Unknown:
                continue
            await asyncio.sleep(self.chance.choice((0.0, 0.0, 0.01, 0.1)))

    async def _ask(self, handle: Any) -> None:
        try:
            await self.call("query", handle.id, lambda: handle.query(Tally.items))
        except (Unknown, Refused):
            return

    async def bell(self) -> None:
        """Ring until it does not hear any more."""
        handle = await self.start(self.instance("bell"), Bell, self.chance.randint(5, 25))
        async with asyncio.TaskGroup() as group:
            for sender in range(3):
                group.create_task(self._ring(handle, f"s{sender}"))
        await self.result(handle)

    async def _ring(self, handle: Any, sender: str) -> None:
        for n in range(1_000):
            try:
                await self.signal(handle, Bell.ring, f"{sender}:{n}", insist=False)
            except Unknown:
                continue
            except Refused:
                return
            await asyncio.sleep(self.chance.uniform(0.0, 0.02))

    async def pipeline(self) -> None:
        """Long work and its result; the start may stay unknown."""
        name = self.instance("pipe")
        spans = [round(self.chance.choice((0.01, 0.3, 1.0, 2.5)), 2) for _ in range(self.chance.randint(1, 3))]
        handle = await self.start(name, Pipeline, name, spans, insist=self.chance.random() < 0.7)
        await self.result(handle)

    async def victim(self) -> None:
        """Cancel or terminate, sometimes both; what happened to it may stay unknown."""
        name = self.instance("victim")
        handle = await self.start(name, Victim, name)
        await asyncio.sleep(self.chance.uniform(0.0, 0.8))
        how = self.chance.choice(("cancel", "terminate"))
        try:
            await self.call(how, name, getattr(handle, how))
        except Unknown:
            await self.call("cancel", name, handle.cancel, insist=True)
        await self.result(handle)

    async def play(self) -> None:
        """One scene after the other."""
        while not self.over:
            scene = self.chance.choices((self.tally, self.bell, self.pipeline, self.victim), (4, 2, 3, 2))[0]
            try:
                await scene()
            except* (Unknown, Refused):
                pass  # written down where it happened


async def main() -> None:
    """Play until told to stop."""
    dsn, folder, name, seed = sys.argv[1], Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    patience = random.Random(seed).choice(PATIENCE)

    async def opened() -> Client | None:
        try:
            return await Client.open(dsn, patience=patience, max_size=4)
        except DatabaseUnavailable:
            return None

    client: Client | None = await eventually(opened, within=60.0)
    assert client is not None
    stage = Stage(client, folder, name, seed)
    async with asyncio.TaskGroup() as group:
        for _ in range(CALLERS):
            group.create_task(stage.play())
    await client.close()


if __name__ == "__main__":
    telemetry.configure("debug", "json")
    asyncio.run(main())
