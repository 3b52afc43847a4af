"""One registration of a worker process, and what it holds by it. A lost lease ends it; the next has a new id."""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from uuid import UUID

import anyio

from aioflow.core.fault import fault
from aioflow.core.ids import IdSource
from aioflow.core.registry import Registry
from aioflow.store.rows import ClaimedActivity, ClaimedRun, DefinitionRow, NextDue, Suspects, WorkerRow
from aioflow.store.store import Store
from aioflow.telemetry import get_logger
from aioflow.worker.backoff import persist
from aioflow.worker.settings import WorkerSettings

__all__ = ["LeaseLost", "Profile", "Session"]

log = get_logger("aioflow.worker")


class LeaseLost(Exception):
    """The worker's row was declared dead: its work belongs to others now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """What a worker is: the same in all its sessions."""

    identity: str
    namespace: str
    queues: tuple[str, ...]
    registry: Registry
    settings: WorkerSettings

    def definitions(self) -> list[DefinitionRow]:
        """What callers that know only names may learn of the workflows."""
        return [
            DefinitionRow(
                namespace=self.namespace,
                workflow=one.name,
                queue=one.queue,
                signals=tuple(sorted(one.signals)),
                queries=tuple(sorted(one.queries)),
                open_signals=one.open_signals,
            )
            for one in self.registry.workflows.values()
        ]


class Session:
    """Claims and holds work under one worker id.

    ``lost`` is set when the lease is lost, and together with ``moved`` when the database has failed over. Tokens of
    what is held are kept, so that rows of claims whose answer was lost can be told from rows that are worked on.
    """

    def __init__(self, store: Store, profile: Profile) -> None:
        self.store, self.profile = store, profile
        self.ids = IdSource(time.time, os.urandom)
        self.worker_id = self.ids()
        self.lost = anyio.Event()
        self.moved = False
        self._epoch = 0
        self._run_tokens: Counter[UUID] = Counter()
        self._attempt_tokens: set[UUID] = set()
        self._doubtful: set[UUID] = set()
        self._claiming_runs, self._claiming_activities = anyio.Lock(), anyio.Lock()
        self._workflows = sorted(profile.registry.workflows)
        self._activities = sorted(profile.registry.activities)
        self._turn = random.randrange(max(1, len(profile.queues)))  # spread, not secrecy

    async def register(self) -> None:
        """Make the worker known. Raises `StoreError`."""
        profile = self.profile
        await self.store.register_worker(
            WorkerRow(
                worker_id=self.worker_id,
                identity=profile.identity,
                namespace=profile.namespace,
                queues=profile.queues,
                workflows=tuple(self._workflows),
                activities=tuple(self._activities),
                slots=profile.settings.concurrency,
                lease=profile.settings.lease_ttl,
            )
        )
        await fault("register.after_worker")
        if rows := profile.definitions():
            await self.store.register_definitions(rows)
        log.info("worker_registered", worker_id=str(self.worker_id), queues=list(profile.queues))

    # -- claims -----------------------------------------------------------------------------------

    async def claim_runs(self, limit: int, *, suspects: bool = False) -> Sequence[ClaimedRun]:
        """Take runs that are due; their tokens are held until `release_run_token`. ``suspects``: only such."""
        async with self._claiming_runs:
            claimed = await self.store.claim_runs(
                self.worker_id, self._epoch, self._queues(), self._workflows, limit, self.ids(), suspects
            )
            self._run_tokens.update(one.token for one in claimed)
        await fault("claim_runs.after_answer")
        return claimed

    async def claim_activities(self, limit: int, *, suspects: bool = False) -> Sequence[ClaimedActivity]:
        """Take activities that are due; tokens are held until `release_attempt_token`. ``suspects``: only such."""
        async with self._claiming_activities:
            tokens = [self.ids() for _ in range(limit)]
            claimed = await self.store.claim_activities(
                self.worker_id, self._epoch, self._queues(), self._activities, tokens, suspects
            )
            self._attempt_tokens.update(one.token for one in claimed)
        await fault("claim_activities.after_answer")
        return claimed

    def release_run_token(self, token: UUID) -> None:
        """A run of this token is not held any more."""
        self._run_tokens[token] -= 1
        if self._run_tokens[token] <= 0:
            del self._run_tokens[token]

    def release_attempt_token(self, token: UUID) -> None:
        """The attempt is not held any more."""
        self._attempt_tokens.discard(token)

    def doubt(self, token: UUID) -> None:
        """Something held by this token could not be given back; `reconcile` does it, once nothing else is by it."""
        self._doubtful.add(token)

    async def reconcile(self) -> None:
        """Give back what is ours in the database and not known here. Raises `StoreError`: to be tried again."""
        gone = {one for one in self._doubtful if one not in self._run_tokens and one not in self._attempt_tokens}
        if gone:
            await self.recover()
            self._doubtful -= gone

    async def recover(self) -> None:
        """Give back what a claim may have taken whose answer was lost; claims wait meanwhile."""
        async with self._claiming_runs, self._claiming_activities:
            epoch = await persist(lambda: self.store.bump_epoch(self.worker_id))
            if epoch is None:
                self.lost.set()
                return
            self._epoch = epoch
            await fault("recover.after_epoch")
            known = list(self._run_tokens), list(self._attempt_tokens)
            await persist(lambda: self.store.release_unknown(self.worker_id, *known))

    def _queues(self) -> list[str]:
        """Queues, beginning with another one each time, so that a full one does not starve the others."""
        queues = self.profile.queues
        self._turn = (self._turn + 1) % len(queues)
        return [*queues[self._turn :], *queues[: self._turn]]

    # -- due times --------------------------------------------------------------------------------

    async def runs_due(self) -> float | None:
        """Seconds until a run is due, None when none is in sight."""
        return (await self._due()).runs

    async def activities_due(self) -> float | None:
        """Seconds until an activity is due, None when none is in sight."""
        return (await self._due()).activities

    async def _due(self) -> NextDue:
        profile = self.profile
        return await self.store.next_due(profile.namespace, profile.queues, self._workflows, self._activities)

    async def suspects(self) -> Suspects:
        """Whether runs or activities are due that workers have died with."""
        profile = self.profile
        return await self.store.suspects(profile.namespace, profile.queues, self._workflows, self._activities)

    def tokens(self) -> Iterable[UUID]:
        """Tokens of all that is held."""
        return [*self._run_tokens, *self._attempt_tokens]
