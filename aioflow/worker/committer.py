"""Decisions on their way into the database: batched as they come, sent again unchanged until there is an answer."""

from __future__ import annotations

from collections.abc import Sequence

import anyio

from aioflow.errors import StoreError
from aioflow.store.batching import Batcher
from aioflow.store.rows import Commit, CommitOutcome
from aioflow.store.store import Store
from aioflow.worker.backoff import persist

__all__ = ["Committer"]


class Committer:
    """Commits of workflow tasks, many in one statement."""

    def __init__(self, store: Store, *, size: int = 256, lanes: int = 2) -> None:
        self._batcher: Batcher[Commit, CommitOutcome] = Batcher(
            store.commit, size=size, lanes=lanes, key=lambda commit: commit.key
        )

    async def commit(self, commits: Sequence[Commit]) -> list[CommitOutcome | StoreError]:
        """The outcome of each, or why the database refuses it for good; waits as long as it is away."""
        outcomes: list[CommitOutcome | StoreError | None] = [None] * len(commits)

        async def one(n: int) -> None:
            try:
                outcomes[n] = await persist(lambda: self._batcher(commits[n]))
            except StoreError as exc:
                outcomes[n] = exc

        if len(commits) == 1:
            await one(0)
            return [outcome for outcome in outcomes if outcome is not None]
        async with anyio.create_task_group() as group:
            for n in range(len(commits)):
                group.start_soon(one, n)
        return [outcome for outcome in outcomes if outcome is not None]

    async def close(self) -> None:
        """Wait until everything is written."""
        await self._batcher.close()
