"""The story of the demonstration, told while it happens."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import click

from aioflow.cli.demo.flows import LEDGER, Order, OrderWorkflow
from aioflow.cli.output import fields, json_text, table
from aioflow.cli.timeline import HEADERS, timeline
from aioflow.client import Client, Instance
from aioflow.core import events as ev
from aioflow.errors import AioflowError
from aioflow.store.migrations import migrate

__all__ = ["tell"]

_PATIENCE = 90.0  # seconds a step of the story may take before it counts as failed
_ORDER = Order(id="order-42", item="lamp", amount=4_200)


class Teller:
    """Prints lines with the time since the beginning."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def say(self, text: str) -> None:
        """One line of the story."""
        click.echo(f"[{time.monotonic() - self._began:5.1f} s] {text}")


class Workers:
    """Worker processes, as `aioflow worker` starts them; their logs go to a file."""

    def __init__(self, dsn: str, folder: Path) -> None:
        self._env = os.environ | {"AIOFLOW_DATABASE_URL": dsn, LEDGER: str(folder / "ledger.jsonl")}
        self._log = folder / "workers.log"
        self._all: list[subprocess.Popen[bytes]] = []

    def start(self) -> subprocess.Popen[bytes]:
        """Start one more."""
        command = [sys.executable, "-m", "aioflow", "worker", "aioflow.cli.demo.flows", "--log-format", "json"]
        with self._log.open("ab") as log:
            process = subprocess.Popen(command, env=self._env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self._all.append(process)
        return process

    def stop(self) -> None:
        """End all that still run, gently first."""
        for process in self._all:
            if process.poll() is None:
                process.terminate()
        for process in self._all:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def logs(self) -> str:
        """The end of what they logged."""
        return self._log.read_text(encoding="utf-8", errors="replace")[-4_000:] if self._log.exists() else ""


def ledger(folder: Path) -> list[dict[str, Any]]:
    """What the activities noted down: one entry for each beginning and end."""
    path = folder / "ledger.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [json.loads(line) for line in lines]


async def tell(dsn: str, folder: Path) -> None:
    """Run the demonstration on an empty database; raises `AioflowError` when it does not come out as it must."""
    teller = Teller()
    await migrate(dsn)
    async with Client.connect(dsn, workflows=[OrderWorkflow], max_size=2) as client, _workers(dsn, folder) as workers:
        await _play(teller, client, workers, folder)
        _prove(ledger(folder))


@asynccontextmanager
async def _workers(dsn: str, folder: Path) -> AsyncIterator[Workers]:
    workers = Workers(dsn, folder)
    try:
        yield workers
    except BaseException:
        await asyncio.to_thread(workers.stop)
        click.echo(workers.logs(), err=True)
        raise
    await asyncio.to_thread(workers.stop)


async def _play(teller: Teller, client: Client, workers: Workers, folder: Path) -> None:
    say = teller.say
    instance = await client.start(OrderWorkflow.options(id=_ORDER.id), _ORDER)
    say(f"{_ORDER.id} is started: charge and reserve run at once, then a timer, an approval, and pack.")
    first = workers.start()
    say(f"Worker 1 is process {first.pid}.")

    async def in_the_middle() -> bool:
        began = any(one["activity"] == "charge" and one["what"] == "began" for one in ledger(folder))
        return began and await _completed(instance, "reserve")

    await _until(in_the_middle, "charge runs and reserve is done")
    say("reserve is done and recorded; charge is running. Now worker 1 is killed: kill -9.")
    first.send_signal(signal.SIGKILL)
    await asyncio.to_thread(first.wait)
    second = workers.start()
    say(f"Worker 2 is process {second.pid}. The dead worker's lease runs out within 10 s; then worker 2 takes over.")

    async def charged_again() -> bool:
        return any(one["activity"] == "charge" and one["pid"] == second.pid for one in ledger(folder))

    await _until(charged_again, "worker 2 takes over")
    say("Worker 2 replayed the history and runs charge again, and nothing else.")

    async def charged() -> bool:
        return await _completed(instance, "charge")

    await _until(charged, "charge is done")
    say("charge is done. A timer of two seconds, then the order waits for a human.")
    await client.signal(_ORDER.id, OrderWorkflow.approve, "ann")
    say("Ann has approved: a signal. pack fails once and is retried.")
    receipt = await instance.result(_PATIENCE)
    say("The order is complete.")
    click.echo("\nThe history, event by event:\n")
    table(HEADERS, timeline(await instance.history()), right=[0, 1])
    click.echo("\nThe result:\n")
    fields((name, value) for name, value in receipt.model_dump().items())


def _prove(entries: list[dict[str, Any]]) -> None:
    """Show how often each activity ran; raises when one ran that had ended before."""
    click.echo("\nHow often the activities ran (the execution id is the key to hand to other systems):\n")
    attempts = Counter(one["activity"] for one in entries if one["what"] == "began")
    executions = {one["activity"]: one["execution"] for one in entries}
    ended = Counter(one["activity"] for one in entries if one["what"] == "ended")
    why = {"charge": "its first worker was killed", "pack": "its first try failed", "reserve": "it had ended: once"}
    rows = [(name, executions[name], attempts[name], ended[name], why[name]) for name in sorted(attempts)]
    table(["activity", "execution id", "attempts", "ended", "because"], rows, right=[2, 3])
    if attempts != {"charge": 2, "reserve": 1, "pack": 2} or set(ended.values()) != {1}:
        raise AioflowError(f"the demonstration went wrong: {json_text(entries)}")
    if len({(one["activity"], one["execution"]) for one in entries}) != len(executions):
        raise AioflowError("an activity changed its execution id over its attempts")


async def _completed(instance: Instance[Any], activity: str) -> bool:
    """Whether an activity's result stands in the history."""
    history = await instance.history()
    refs = {
        one.event.ref
        for one in history
        if isinstance(one.event, ev.ActivityScheduled) and one.event.activity == activity
    }
    return any(isinstance(one.event, ev.ActivityCompleted) and one.event.ref in refs for one in history)


async def _until(holds: Callable[[], Awaitable[bool]], what: str) -> None:
    deadline = time.monotonic() + _PATIENCE
    while not await holds():
        if time.monotonic() > deadline:
            raise AioflowError(f"waited for {_PATIENCE:.0f} s, in vain, until {what}")
        await asyncio.sleep(0.1)
