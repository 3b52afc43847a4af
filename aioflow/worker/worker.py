"""The worker: one process that multiplexes workflow tasks and activities over one database."""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from types import TracebackType

import anyio

from aioflow.core import aio, guard, scopes
from aioflow.core.registry import Registry
from aioflow.errors import ConfigurationError, StoreError, WorkerExhausted
from aioflow.store.migrations import check_schema
from aioflow.store.notify import Notifier
from aioflow.store.pool import Database
from aioflow.store.store import Store
from aioflow.telemetry import get_logger
from aioflow.worker.backoff import persist
from aioflow.worker.beside import Beside
from aioflow.worker.cache import RunCache
from aioflow.worker.engine import Engine, Shared
from aioflow.worker.session import Profile, Session
from aioflow.worker.settings import Source, WorkerSettings
from aioflow.worker.stepper import Stepper

__all__ = ["Worker"]

log = get_logger("aioflow.worker")


class Worker:
    """Runs workflows and activities while it is entered::

        async with Worker(client, workflows=[OrderWorkflow], activities=[charge]):
            ...

    Args:
        client: whose database and namespace are served; the worker opens connections of its own.
        workflows: workflow classes, and modules of which all are taken.
        activities: activities, and modules of which all are taken.
        queues: queues to serve; by default those that the workflows and activities name.
        concurrency: activities that run at once (200), and workflow tasks beside them.
        settings: everything else.
        identity: how people recognise the process; by default host and process id.

    Raises `ConfigurationError` and `DefinitionError` at once, `DatabaseUnavailable`, `SchemaNotMigrated` and
    `SchemaTooNew` when entered. Leaving drains: nothing more is claimed, running work is finished or given back.
    """

    def __init__(
        self,
        client: Source,
        *,
        workflows: Iterable[object] = (),
        activities: Iterable[object] = (),
        queues: Iterable[str] | None = None,
        concurrency: int | None = None,
        settings: WorkerSettings | None = None,
        identity: str | None = None,
    ) -> None:
        if client.dsn is None:
            raise ConfigurationError(
                "a worker opens its own connections, so it needs an address: this client was made from a pool; "
                "give the worker one of Client.connect('postgresql://…')"
            )
        settings = settings or WorkerSettings()
        if concurrency is not None:
            settings = replace(settings, concurrency=concurrency)
        registry = Registry(workflows=workflows, activities=activities)
        if not registry.workflows and not registry.activities:
            raise ConfigurationError("a worker needs workflows=[...] or activities=[...]")
        if isinstance(queues, str):
            raise ConfigurationError("queues= is a list of names, as in queues=['orders']")
        named = tuple(dict.fromkeys(queues or settings.queues)) or _queues_of(registry)
        self._dsn, self._listen_dsn = client.dsn, client.listen_dsn or client.dsn
        self._profile = Profile(
            identity=identity or f"{socket.gethostname()}:{os.getpid()}",
            namespace=client.namespace,
            queues=named,
            registry=registry,
            settings=settings,
        )
        self._drain, self._stopped = anyio.Event(), anyio.Event()
        self._exhausted = self._started = False
        self._beside = Beside(self._live, f"worker {self.identity}")
        self._session: Session | None = None

    @property
    def identity(self) -> str:
        """How people recognise the process."""
        return self._profile.identity

    @property
    def queues(self) -> tuple[str, ...]:
        """The queues that are served."""
        return self._profile.queues

    @property
    def started(self) -> bool:
        """Whether it is connected and registered."""
        return self._started

    async def __aenter__(self) -> Worker:
        if self._beside.entered:
            raise RuntimeError("a worker is entered once; make another one")
        aio.install()
        scopes.install()
        guard.install()
        await self._beside.enter()
        self._started = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._drain.set()
        await self._beside.leave()

    async def run(self) -> None:
        """Enter, and work until cancelled or drained."""
        async with self:
            await self._stopped.wait()

    async def drain(self) -> None:
        """Claim nothing more, finish or give back what is held, and stop; returns when it is done."""
        self._drain.set()
        await self._stopped.wait()

    def request_drain(self) -> None:
        """Begin to drain, without waiting for it."""
        self._drain.set()

    # -- inside -----------------------------------------------------------------------------------

    async def _live(self, up: Callable[[], None]) -> None:
        """All that a worker does, from its connections on; ends when it was drained."""
        async with self._shared() as shared:
            session = self._session = Session(shared.store, self._profile)
            await session.register()
            with _lone_errors():
                async with anyio.create_task_group() as group:
                    group.start_soon(shared.stepper.watch)
                    up()
                    await self._serve(shared, session)
                    group.cancel_scope.cancel()

    @asynccontextmanager
    async def _shared(self) -> AsyncIterator[Shared]:
        settings = self._profile.settings
        async with AsyncExitStack() as stack:
            db = await self._connect(stack, settings.connections, f"aioflow worker {self.identity}"[:63])
            await check_schema(db)
            notifier = Notifier(await self._connect(stack, 1, "aioflow notifier"))
            stack.push_async_callback(_unhindered, notifier.close)
            stepper = Stepper(settings.step_limit, settings.abandoned_threads, self._exhaust)
            stack.callback(stepper.close)
            db.on_failover(self._fail_over)
            yield Shared(
                profile=self._profile,
                store=Store(db),
                dsn=self._dsn,
                listen_dsn=self._listen_dsn,
                notifier=notifier,
                stepper=stepper,
                cache=RunCache(settings.cached_runs, settings.cached_bytes, lambda gone: stepper.post(gone.evict)),
                threads=anyio.CapacityLimiter(settings.concurrency),
            )

    async def _connect(self, stack: AsyncExitStack, size: int, name: str) -> Database:
        wait = self._profile.settings.start_patience
        db = await Database.connect(self._dsn, max_size=size, application_name=name, wait=wait)
        stack.push_async_callback(_unhindered, db.close)
        return db

    async def _serve(self, shared: Shared, session: Session) -> None:
        """Work, under a new registration whenever the lease was lost."""
        try:
            while True:
                with _lone_errors():
                    await Engine(shared, session).run(self._drain)
                shared.cache.clear()
                if self._drain.is_set():
                    break
                former, session = session, Session(shared.store, self._profile)
                self._session = session
                await persist(session.register)
                if former.moved:  # alive, and done with what it held: nobody has to wait for its lease
                    with suppress(StoreError):
                        await shared.store.unregister_worker(former.worker_id)
            if self._exhausted:
                raise WorkerExhausted(
                    f"workflow code blocked more than {shared.profile.settings.abandoned_threads} threads for good; "
                    "the worker was drained, restart it"
                )
        finally:
            self._stopped.set()

    def _fail_over(self) -> None:
        """The database went to another timeline, on which what is held and cached may never have happened."""
        log.warning("database_failed_over", identity=self.identity)
        if self._session is not None:
            self._session.moved = True
            self._session.lost.set()

    def _exhaust(self) -> None:
        log.critical("worker_exhausted", identity=self.identity)
        self._exhausted = True
        self._drain.set()


@contextmanager
def _lone_errors() -> Iterator[None]:
    """What a group of tasks raises, as it is when it is the only one."""
    try:
        yield
    except BaseExceptionGroup as group:
        if len(group.exceptions) > 1:
            raise
        raise group.exceptions[0] from group


async def _unhindered(close: Callable[[], Awaitable[None]]) -> None:
    """Closing is bounded by itself; a cancellation must not leave connections open."""
    with anyio.CancelScope(shield=True):
        await close()


def _queues_of(registry: Registry) -> tuple[str, ...]:
    """The queues that definitions name, workflows first."""
    named = [one.queue for one in registry.workflows.values()]
    named += [one.options.queue for one in registry.activities.values() if one.options.queue]
    return tuple(dict.fromkeys(named)) or ("default",)
