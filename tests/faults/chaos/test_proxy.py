"""A gate cuts exactly where it says it does."""

from __future__ import annotations

import asyncio
import random
import struct
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from aioflow.client import Client
from aioflow.errors import DatabaseUnavailable
from aioflow.store.pool import Database
from aioflow.store.queries import sql
from aioflow.store.rows import SignalRequest
from aioflow.store.store import Store
from tests.faults.chaos import flows
from tests.faults.chaos.proxy import CUTS, Cut, Gate, Tally
from tests.faults.chaos.rig import Server
from tests.faults.chaos.wire import Backend, Frontend, Group
from tests.store.bench import signalled
from tests.support import eventually

INBOX = "select count(*) from aioflow.inbox where instance_id = $1 and kind = 'SignalReceived'"
DELIVERED = {"before": 0, "unsynced": 0, "after": 1, "unready": 1}


def message(letter: bytes, body: bytes) -> bytes:
    return letter + struct.pack("!I", len(body) + 4) + body


STARTUP = message(b"", b"\x00\x03\x00\x00user\0x\0\0")
PARSE = message(b"P", b"s1\0" + sql("signal").encode() + b"\0\0\0") + message(b"D", b"Ss1\0") + message(b"H", b"")
EXECUTE = message(b"B", b"\0s1\0\0\0\0\0\0\0") + message(b"E", b"\0\0\0\0\0")
SYNC = message(b"S", b"")
OTHER = message(b"P", b"\0select 1\0\0\0") + message(b"B", b"\0\0\0\0\0\0\0\0") + EXECUTE[-10:] + SYNC


@pytest.mark.parametrize("size", [1, 2, 7, 100_000])
def test_a_stream_is_split_however_it_comes(size: int) -> None:
    stream = STARTUP + PARSE + EXECUTE + SYNC + OTHER
    frames, found = Frontend(), list[Group]()
    for n in range(0, len(stream), size):
        found += frames.feed(stream[n : n + size])
    assert [one.data for one in found] == [STARTUP, PARSE, EXECUTE + SYNC, OTHER]
    assert [one.statement for one in found] == ["", "", "signal", ""]
    assert [one.sync_at for one in found] == [-1, -1, len(EXECUTE), len(OTHER) - len(SYNC)]
    answers, messages = Backend(), list[tuple[bytes, bytes]]()
    for n in range(0, len(EXECUTE), size):
        messages += answers.feed(EXECUTE[n : n + size])
    assert b"".join(data for _, data in messages) == EXECUTE
    assert [letter for letter, _ in messages] == [b"B", b"E"]


async def signal(server: Server, gate: Gate, instance: str) -> Any:
    """Send a signal through the gate, once, and be told of a lost answer at once."""
    async with await Database.connect(server.dsn_at(gate.port), patience=0.001) as db:
        request = SignalRequest(namespace="default", instance_id=instance, record=signalled(ref="r"), key="k")
        return await Store(db).signal([request])


@pytest.mark.slow
async def test_cuts(short_tmp: Path) -> None:
    tally = Tally()
    async with (
        Server(short_tmp / "server") as server,
        Gate(server.address, tally, random.Random(1)) as gate,
        Client.connect(server.dsn) as client,
    ):
        for how in CUTS:
            await client.start(flows.Tally.options(id=how))
            gate.cuts.append(Cut(how, ("signal",)))
            with pytest.raises(DatabaseUnavailable):
                await signal(server, gate, how)
            assert await server.ask(INBOX, how) == DELIVERED[how], how
            assert tally.cuts[f"{how} signal"] == 1
            assert tally.lost["signal"] == sum(DELIVERED[one] for one in CUTS[: CUTS.index(how) + 1])
            ((answer,),) = [await signal(server, gate, how)]
            assert answer.outcome == ("duplicate" if DELIVERED[how] else "accepted")
            assert await server.ask(INBOX, how) == 1
        await late(server, gate, client)
        async with await Database.connect(server.dsn_at(gate.port)) as db:  # they hold by TCP only
            shown = [(await db.fetch(f"show tcp_keepalives_{name}"))[0][0] for name in ("idle", "interval", "count")]
        assert shown == ["10", "5", "3"]
        await deaf(server, gate, tally)
        gate.refusing = True
        with pytest.raises(DatabaseUnavailable):
            await signal(server, gate, "before")


async def late(server: Server, gate: Gate, client: Client) -> None:
    """What is late is not there before, and is there then."""
    await client.start(flows.Tally.options(id="late"))
    gate.cuts.append(Cut("late", ("signal",), 3_600.0, about=b"late"))
    sending = asyncio.create_task(signal(server, gate, "late"))
    await eventually(lambda: not gate.cuts)
    assert await server.ask(INBOX, "late") == 0
    gate.go_on()
    assert [one.outcome for one in await sending] == ["accepted"]


async def deaf(server: Server, gate: Gate, tally: Tally) -> None:
    """Notifications are dropped while it is deaf."""
    heard: list[object] = []
    connection = await asyncpg.connect(server.dsn_at(gate.port))
    try:
        await connection.add_listener("aioflow_wake", lambda *told: heard.append(told[-1]))
        gate.deaf = True
        await server.ask("select pg_notify('aioflow_wake', 'w:x')")
        await eventually(lambda: tally.unheard)
        gate.deaf = False
        await server.ask("select pg_notify('aioflow_wake', 'w:y')")
        await eventually(lambda: heard)
        assert heard == ["w:y"]
    finally:
        await connection.close()
