"""Decisions on their way into the database: batched as they come, sent again unchanged until there is an answer."""

from __future__ import annotations

from collections.abc import Sequence

import anyio

from aioflow.errors import DatabaseUnavailable, StoreError
from aioflow.store.batching import Batcher
from aioflow.store.rows import Commit, CommitOutcome
from aioflow.store.store import Store
from aioflow.worker.backoff import backoff

__all__ = ["Committer"]


class Committer:
    """Commits of workflow tasks, many in one statement."""

    def __init__(self, store: Store, *, size: int = 256, lanes: int = 2) -> None:
        self._batcher: Batcher[Commit, CommitOutcome] = Batcher(
            store.commit, size=size, lanes=lanes, key=lambda commit: commit.key, bytes=lambda commit: commit.size
        )

    async def commit(self, commits: Sequence[Commit]) -> list[CommitOutcome | StoreError]:
        """The outcome of each, or why the database refuses it for good; waits as long as it is away."""
        outcomes: list[CommitOutcome | StoreError] = await self._try(commits)
        tries = 0
        while left := [n for n, outcome in enumerate(outcomes) if isinstance(outcome, DatabaseUnavailable)]:
            tries += 1
            await anyio.sleep(backoff(tries, 0.1, 2.0))
            for n, outcome in zip(left, await self._try([commits[n] for n in left]), strict=True):
                outcomes[n] = outcome
        return outcomes

    async def _try(self, commits: Sequence[Commit]) -> list[CommitOutcome | StoreError]:
        futures = self._batcher.submit(commits)
        outcomes: list[CommitOutcome | StoreError] = []
        try:
            for future in futures:
                try:
                    outcomes.append(await future)
                except StoreError as exc:
                    outcomes.append(exc)
        finally:
            for future in futures[len(outcomes) :]:
                if not future.cancel() and not future.cancelled():
                    future.exception()  # seen, though nobody is left to tell
        return outcomes

    async def close(self) -> None:
        """Wait until everything is written. A step that ends later may still try: its token tells."""
        await self._batcher.settle()
