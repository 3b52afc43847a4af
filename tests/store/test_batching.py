"""Natural batching."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from aioflow.errors import DatabaseUnavailable, StoreError
from aioflow.store import rows
from aioflow.store.batching import Batcher
from tests.store.bench import Bench, signalled


class Sink:
    """Remembers its calls; each waits until it is let go."""

    def __init__(self) -> None:
        self.calls: list[list[int]] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def __call__(self, items: Sequence[int]) -> list[int]:
        self.calls.append(list(items))
        await self.gate.wait()
        if -1 in items:
            raise ValueError("poison")
        if -2 in items:
            raise DatabaseUnavailable("away")
        return [item * 2 for item in items]


async def test_what_comes_during_a_flush_makes_the_next_one() -> None:
    sink = Sink()
    sink.gate.clear()
    batcher: Batcher[int, int] = Batcher(sink, lanes=1, size=3)
    tasks = [asyncio.create_task(batcher(n)) for n in range(6)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    sink.gate.set()
    assert await asyncio.gather(*tasks) == [0, 2, 4, 6, 8, 10]
    assert sink.calls == [[0], [1, 2, 3], [4, 5]]
    await batcher.close()
    with pytest.raises(RuntimeError):
        await batcher(1)


async def test_heavy_items_travel_apart() -> None:
    sink = Sink()
    sink.gate.clear()
    batcher: Batcher[int, int] = Batcher(sink, lanes=1, bytes=lambda n: n * 1024 * 1024)
    tasks = [asyncio.create_task(batcher(n)) for n in (1, 2, 10, 5, 64, 1, 1)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    sink.gate.set()
    await asyncio.gather(*tasks)
    assert sink.calls == [[1], [2, 10, 5], [64], [1, 1]]
    await batcher.close()


async def test_a_poisoned_item_fails_alone() -> None:
    sink = Sink()
    batcher: Batcher[int, int] = Batcher(sink, lanes=1)
    answers = await asyncio.gather(*(batcher(n) for n in (7, 1, -1, 2)), return_exceptions=True)
    assert [a if isinstance(a, int) else type(a) for a in answers] == [14, 2, ValueError, 4]
    assert sink.calls == [[7], [1, -1, 2], [1], [-1], [2]]


async def test_an_absent_database_is_not_asked_item_by_item() -> None:
    sink = Sink()
    batcher: Batcher[int, int] = Batcher(sink, lanes=1)
    answers = await asyncio.gather(*(batcher(n) for n in (7, 1, -2)), return_exceptions=True)
    assert [type(a) for a in answers] == [int, DatabaseUnavailable, DatabaseUnavailable]
    assert sink.calls == [[7], [1, -2]]


async def test_items_of_one_key_are_not_in_flight_together() -> None:
    sink = Sink()
    sink.gate.clear()
    batcher: Batcher[int, int] = Batcher(sink, lanes=2, key=lambda n: n % 10)
    tasks = [asyncio.create_task(batcher(n)) for n in (1, 11, 2, 12, 21)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert sink.calls == [[1], [2]]
    sink.gate.set()
    assert await asyncio.gather(*tasks) == [2, 22, 4, 24, 42]
    flat = [n for call in sink.calls for n in call]
    assert [n for n in flat if n % 10 == 1] == [1, 11, 21]


async def test_close_waits_for_what_is_on_its_way() -> None:
    sink = Sink()
    batcher: Batcher[int, int] = Batcher(sink, lanes=1)
    tasks = [asyncio.create_task(batcher(n)) for n in range(4)]
    await asyncio.sleep(0)
    await batcher.close()
    assert [task.result() for task in tasks] == [0, 2, 4, 6]


async def test_a_cancelled_caller_leaves_the_others_alone() -> None:
    sink = Sink()
    sink.gate.clear()
    batcher: Batcher[int, int] = Batcher(sink, lanes=1)
    tasks = [asyncio.create_task(batcher(n)) for n in range(4)]
    await asyncio.sleep(0)
    tasks[0].cancel()
    tasks[2].cancel()
    await asyncio.sleep(0)
    sink.gate.set()
    assert await asyncio.gather(*tasks[1::2]) == [2, 6]
    assert sink.calls == [[0], [1, 3]]


async def test_a_poisoned_signal_and_a_poisoned_commit_fail_alone_on_postgres(bench: Bench) -> None:
    send: Batcher[rows.SignalRequest, rows.DeliveryOutcome] = Batcher(bench.store.signal, lanes=1)
    commit: Batcher[rows.Commit, rows.CommitOutcome] = Batcher(bench.store.commit, lanes=1, key=lambda c: c.key)
    for n in range(4):
        await bench.start(f"i{n}")
    requests = [
        rows.SignalRequest(
            namespace="default", instance_id=f"i{n}", record=signalled(ref="bad\0" if n == 2 else "fine"), alone=False
        )
        for n in range(4)
    ]
    sent = await asyncio.gather(*(send(request) for request in requests), return_exceptions=True)
    assert [type(answer) for answer in sent] == [*[rows.DeliveryOutcome] * 2, StoreError, rows.DeliveryOutcome]
    commits = [bench.decide(await bench.load(run)) for run in await bench.claim()]
    commits[1].records.append(signalled(ref="bad\0"))
    done = await asyncio.gather(*(commit(item) for item in commits), return_exceptions=True)
    assert [getattr(answer, "status", type(answer)) for answer in done] == ["ok", StoreError, "ok", "ok"]
    await bench.healthy()
