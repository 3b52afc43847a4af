"""Queries: answered by replaying the run's committed history in this process. A query never writes.

The code has to be here, the history is loaded read-only, the replay runs in a thread of its own. Before that the query
waits until the run has consumed what was accepted before the call, so that a caller sees its own signals; past a bound
it answers from what is there, and says so in the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final
from uuid import UUID

from aioflow.client.reading import read_all
from aioflow.client.threads import Threads
from aioflow.core.definition import WorkflowDefinition
from aioflow.core.events import Forced, RunStarted
from aioflow.core.keys import InstanceKey
from aioflow.core.limits import Limits
from aioflow.core.replay import Execution
from aioflow.core.versions import decode
from aioflow.errors import DecodeError, InstanceNotFound, NondeterminismError, QueryFailed, UnknownQuery
from aioflow.store.rows import StoredEvent
from aioflow.store.store import Store
from aioflow.telemetry import get_logger

CATCH_UP: Final = 2.0
PATIENCE: Final = 10.0
_POLL, _POLL_MOST = 0.01, 0.1

Prepare = Callable[[str], tuple[WorkflowDefinition, bytes]]

log = get_logger("aioflow.client")


class Queries:
    """Answers queries from the store. ``catch_up``: seconds to wait for a run that lags behind."""

    def __init__(self, store: Store, *, limits: Limits, catch_up: float = CATCH_UP) -> None:
        self._store, self._limits, self._catch_up = store, limits, catch_up
        self._threads = Threads()

    async def ask(
        self,
        key: InstanceKey,
        run_id: UUID | None,
        name: str,
        prepare: Prepare,
        *,
        patience: float | None = None,
    ) -> tuple[WorkflowDefinition, bytes]:
        """The code of a run (None: the current one) and its encoded answer; ``patience`` in seconds bounds the replay.

        ``prepare`` gives code and arguments by the workflow's name. Raises `InstanceNotFound`, `QueryFailed`,
        `DecodeError`, `NondeterminismError`, and what ``prepare`` raises.
        """
        run_id = await self._caught_up(key, run_id)
        history = await self._history(key, run_id)
        if not history or not isinstance(first := decode(history[0].record), RunStarted):
            raise QueryFailed(f"instance {key.instance_id!r} has not run yet: no worker has taken it so far")
        definition, payload = prepare(first.workflow)
        work = partial(_replay_and_ask, definition, key, run_id, self._limits, history, name, payload)
        limit = PATIENCE if patience is None else patience
        try:
            async with asyncio.timeout(limit) as scope:
                return definition, await self._threads.run(work, f"aioflow-query-{name}")
        except TimeoutError as exc:
            if not scope.expired():
                raise
            raise QueryFailed(f"query {name} had no answer within {limit:g} s") from exc

    async def _caught_up(self, key: InstanceKey, run_id: UUID | None) -> UUID:
        """Wait until what was accepted is consumed; gives the run to replay."""
        loop = asyncio.get_running_loop()
        deadline, pause = loop.time() + self._catch_up, _POLL
        wanted: int | None = None
        while True:
            now = (await self._store.generations([key]))[0]
            if now is None or (run_id is not None and now.run_id != run_id):
                return await self._closed_run(key, run_id)
            wanted = now.wake if wanted is None else wanted
            if now.ack >= wanted and now.run_id is not None:
                return now.run_id
            if loop.time() + pause > deadline:
                log.warning("a query answers from stale state", instance_id=key.instance_id, run_id=str(now.run_id))
                return now.run_id or await self._closed_run(key, None)
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, _POLL_MOST)

    async def _closed_run(self, key: InstanceKey, run_id: UUID | None) -> UUID:
        row = await self._store.describe(key, run_id)
        if row is None:
            what = f"run {run_id} of instance" if run_id else "instance"
            raise InstanceNotFound(f"there is no {what} {key.instance_id!r}")
        if row.run_id is None:
            raise QueryFailed(f"instance {key.instance_id!r} is only reserved: there is nothing to ask")
        return row.run_id

    async def _history(self, key: InstanceKey, run_id: UUID) -> list[StoredEvent]:
        """What is committed; of a run closed from outside, what its code has seen."""
        history = await read_all(self._store, key, run_id)
        if history and isinstance(decode(history[-1].record), Forced):
            last = history[-1].commit
            history = [one for one in history if one.commit != last]
        return history


def _replay_and_ask(
    definition: WorkflowDefinition,
    key: InstanceKey,
    run_id: UUID,
    limits: Limits,
    history: list[StoredEvent],
    name: str,
    payload: bytes,
) -> bytes:
    execution = Execution(definition, key, run_id, limits=limits)
    execution.replay([decode(one.record) for one in history])
    try:
        return execution.query(name, payload)
    except (UnknownQuery, DecodeError, NondeterminismError):
        raise
    except BaseException as exc:  # SystemExit too: a handler does not end the process that asks
        raise QueryFailed(f"query {name} of {definition.name} raised {type(exc).__name__}: {exc}") from exc
    finally:
        execution.evict()
