"""Random programs: one history on every Python, and on every replay; eviction at any point."""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tests.core.loop_driver import Driven, activity, note

Node = tuple[Any, ...]
PROGRAMS = 600
# Equal on 3.11, 3.12 and 3.13 by design.
DIGEST = "61cb7a6f346d22ba"


def program(rng: random.Random, depth: int) -> Node:
    """A random tree of awaits."""
    kinds = ["act", "act", "sleep", "fail"]
    if depth:
        kinds += ["seq", "seq", "gather", "all", "group", "group", "timeout", "wait_for", "shield", "cancel", "tidy"]
        kinds += ["first", "completed", "lock"]
    kind = rng.choice(kinds)
    if kind in {"act", "fail"}:
        return (kind, rng.randrange(1000))
    if kind == "sleep":
        return (kind, rng.choice([0, 0.5, 1, 2, 5]))
    if kind in {"timeout", "wait_for"}:
        return (kind, rng.choice([0, 1, 3, 10]), program(rng, depth - 1))
    if kind in {"shield", "cancel"}:
        return (kind, program(rng, depth - 1))
    return (kind, *(program(rng, depth - 1) for _ in range(rng.randrange(1, 4))))


async def run(node: Node) -> None:
    kind, *rest = node
    await HANDLERS[kind](*rest)


async def fail(number: int) -> None:
    await activity(f"f{number}")
    raise ValueError(number)


async def seq(*nodes: Node) -> None:
    for node in nodes:
        try:
            await run(node)
        except* (ValueError, TimeoutError) as error:
            note(sorted(type(one).__name__ for one in error.exceptions))


async def group(*nodes: Node) -> None:
    async with asyncio.TaskGroup() as tasks:
        for node in nodes[1:]:
            tasks.create_task(run(node))
        await run(nodes[0])


async def timeout(delay: float, node: Node) -> None:
    async with asyncio.timeout(delay):
        await run(node)


async def cancel(node: Node) -> None:
    task = asyncio.create_task(run(node))
    await asyncio.sleep(0)
    task.cancel()
    (done,) = await asyncio.gather(task, return_exceptions=True)
    note(type(done).__name__)


async def tidy(*nodes: Node) -> None:
    try:
        await run(nodes[0])
    finally:
        for node in nodes[1:]:
            await run(node)


async def first(*nodes: Node) -> None:
    tasks = {asyncio.create_task(run(node)) for node in nodes}
    done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED, timeout=4)
    for task in pending:
        task.cancel()
    for task in done | pending:
        await asyncio.gather(task, return_exceptions=True)
        await activity("seen")


async def completed(*nodes: Node) -> None:
    for awaited in asyncio.as_completed([run(node) for node in nodes]):
        try:
            await awaited
        except (ValueError, TimeoutError, ExceptionGroup):
            await activity("failed")


async def lock(*nodes: Node) -> None:
    mutex = asyncio.Lock()

    async def inside(node: Node) -> None:
        async with mutex:
            await run(node)

    await asyncio.gather(*(inside(node) for node in nodes))


HANDLERS: dict[str, Callable[..., Coroutine[Any, Any, Any]]] = {
    "act": lambda number: activity(f"a{number}"),
    "fail": fail,
    "sleep": asyncio.sleep,
    "seq": seq,
    "gather": lambda *nodes: together(nodes, False),
    "all": lambda *nodes: together(nodes, True),
    "group": group,
    "timeout": timeout,
    "wait_for": lambda delay, node: asyncio.wait_for(run(node), delay),
    "shield": lambda node: shielded(node),
    "cancel": cancel,
    "tidy": tidy,
    "first": first,
    "completed": completed,
    "lock": lock,
}


async def together(nodes: tuple[Node, ...], return_exceptions: bool) -> None:
    await asyncio.gather(*(run(node) for node in nodes), return_exceptions=return_exceptions)


async def shielded(node: Node) -> None:
    await asyncio.shield(run(node))


Event = tuple[str, str]


def events_of(run_: Driven) -> list[Event]:
    timers = run_.loop.pending_timers()
    due = sorted(timers, key=lambda ref: (timers[ref], ref))[:1]
    return [("complete", ref) for ref in sorted(run_.pending)] + [("fire", ref) for ref in due]


def apply(run_: Driven, event: Event) -> None:
    kind, ref = event
    if kind == "complete":
        run_.complete(ref)
    elif kind == "fire":
        run_.fire(ref)
    else:
        run_.cancel()


def live(node: Node, rng: random.Random) -> tuple[Driven, list[Event]]:
    """Run a program to its end in a random order of completion, cancelled now and then."""
    run_, applied = Driven(run, node, key=repr(node).encode()), []
    while not run_.task.done() and (events := events_of(run_)):
        event = ("cancel", "") if rng.random() < 0.03 else rng.choice(events)
        apply(run_, event)
        applied.append(event)
    return run_, applied


def ending(run_: Driven) -> str:
    if not run_.task.done():
        return "stuck"
    return "cancelled" if run_.task.cancelled() else type(run_.task.exception()).__name__


@pytest.fixture(scope="module")
def runs() -> list[tuple[Node, Driven, list[Event]]]:
    rng = random.Random(20)
    made = []
    for _ in range(PROGRAMS):
        node = ("seq", program(rng, 4), program(rng, 3))
        made.append((node, *live(node, rng)))
    return made


def test_one_history_on_every_python(runs: list[tuple[Node, Driven, list[Event]]]) -> None:
    digest = hashlib.sha256()
    endings: dict[str, int] = {}
    for _, run_, applied in runs:
        digest.update(repr((applied, run_.log, run_.notes, ending(run_))).encode())
        endings[ending(run_)] = endings.get(ending(run_), 0) + 1
        assert not run_.failures or all("exception" in failure for failure in run_.failures)
    assert "stuck" not in endings
    assert min(endings.get(kind, 0) for kind in ("NoneType", "cancelled")) > 10
    assert sum(len(run_.log) for _, run_, _ in runs) > 3000
    assert digest.hexdigest()[:16] == DIGEST


def test_replay_gives_the_same_history(runs: list[tuple[Node, Driven, list[Event]]]) -> None:
    for node, run_, applied in runs:
        again = Driven(run, node, key=repr(node).encode())
        for event in applied:
            apply(again, event)
        assert (again.log, again.notes, ending(again)) == (run_.log, run_.notes, ending(run_))
        again.close()
        run_.close()


def test_eviction_at_any_point(runs: list[tuple[Node, Driven, list[Event]]]) -> None:
    rng = random.Random(21)
    for node, _, applied in runs:
        again = Driven(run, node)
        for event in applied[: rng.randrange(len(applied) + 1)]:
            apply(again, event)
        before = list(again.log)
        again.close()
        assert again.log == before
        assert all(task.done() for task in again.loop.tasks())
