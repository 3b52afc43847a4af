"""`Client`: start workflows and talk to them, from a service, a script or a worker's own code."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any, ParamSpec, Self, TypeVar, overload
from uuid import UUID

from aioflow.api.messages import QueryDef, SignalDef
from aioflow.api.workflow import HasHandle, WorkflowRef
from aioflow.client import listing, starting
from aioflow.client.arguments import NamedWorkflow
from aioflow.client.instance import Instance, Reserved
from aioflow.client.plain import check_count, check_filter, check_run_id
from aioflow.client.reading import Description, HistoryEvent, Summary
from aioflow.client.session import Session, default_identity
from aioflow.core.definition import check_name
from aioflow.core.durations import Duration
from aioflow.core.keys import InstanceKey, check_id
from aioflow.core.limits import Limits
from aioflow.core.registry import workflow_definition
from aioflow.errors import ArgumentError, ConfigurationError, DefinitionError
from aioflow.store.migrations import check_schema
from aioflow.store.pool import Database

P = ParamSpec("P")
R = TypeVar("R")
Events = list[HistoryEvent]
_FROM_ENVIRONMENT = "postgresql://"  # the driver fills in PGHOST, PGUSER, PGDATABASE, ...


class Client:
    """A connection to one namespace of an aioflow database; made by `connect` or `open`.

    ``dsn`` is the database's address (None over a pool of the caller), ``listen_dsn`` a direct one for
    notifications. Belongs to one event loop; any number of tasks may share it. Every method may raise
    `DatabaseUnavailable` (after bounded patience; repeat the call), `SchemaNotMigrated` and `ClientClosed`.
    """

    def __init__(self, session: Session, *, dsn: str | None, listen_dsn: str | None) -> None:
        self._session, self.dsn, self.listen_dsn = session, dsn, listen_dsn
        self.namespace, self.identity = session.namespace, session.identity

    # -- opening and closing ----------------------------------------------------------------------

    @classmethod
    @asynccontextmanager
    async def connect(
        cls,
        target: object = None,
        /,
        *,
        namespace: str = "default",
        workflows: Iterable[type] = (),
        listen_dsn: str | None = None,
        identity: str | None = None,
        payload_limit: int | None = None,
        max_size: int = 8,
        patience: float = 10.0,
    ) -> AsyncIterator[Self]:
        """A client for the length of an ``async with`` block; arguments and errors as of `open`."""
        client = await cls.open(
            target,
            namespace=namespace,
            workflows=workflows,
            listen_dsn=listen_dsn,
            identity=identity,
            payload_limit=payload_limit,
            max_size=max_size,
            patience=patience,
        )
        try:
            yield client
        finally:
            await client.close()

    @classmethod
    async def open(
        cls,
        target: object = None,
        /,
        *,
        namespace: str = "default",
        workflows: Iterable[type] = (),
        listen_dsn: str | None = None,
        identity: str | None = None,
        payload_limit: int | None = None,
        max_size: int = 8,
        patience: float = 10.0,
    ) -> Self:
        """A client that must be closed.

        Args:
            target: the database's address, or an asyncpg pool of the caller (None: the ``PG*`` variables).
            namespace: which instances are seen; it must exist in the database.
            workflows: classes whose instances may be queried or signalled by id and name alone.
            listen_dsn: a direct address for notifications when ``target`` goes through a pooler, or is a pool.
            identity: who calls, kept in histories; ``pid@host`` by default.
            payload_limit: the most bytes one value may take, 2 MiB by default.
            max_size: the most connections of the client's own pool.
            patience: seconds that one call goes on trying while the database is away.

        Raises `ConfigurationError` (address, kind of pool, names), `DatabaseUnavailable`, `SchemaNotMigrated`,
        `SchemaTooNew`, `DefinitionError`.
        """
        dsn, pool = _target(target)
        _check_names(namespace, identity)
        database = await Database.connect(
            dsn, pool=pool, max_size=max_size, patience=patience, application_name="aioflow client"
        )
        try:
            await check_schema(database)
            limits = Limits() if payload_limit is None else Limits(payload=payload_limit)
            listening = listen_dsn or dsn
            session = Session(
                database,
                namespace=namespace,
                identity=identity or default_identity(),
                workflows=workflows,
                listen_dsn=listening,
                limits=limits,
            )
        except BaseException:
            await database.close()
            raise
        return cls(session, dsn=dsn, listen_dsn=listening)

    async def close(self) -> None:
        """Finish what is under way and let go of the database; waiting `result` calls raise `ClientClosed`."""
        await self._session.close()

    # -- starting ---------------------------------------------------------------------------------

    @overload
    async def start(
        self, workflow: type[HasHandle[P, R]] | WorkflowRef[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> Instance[R]: ...
    @overload
    async def start(self, workflow: str | NamedWorkflow, /, *args: Any, **kwargs: Any) -> Instance[Any]: ...
    async def start(self, workflow: Any, /, *args: Any, **kwargs: Any) -> Instance[Any]:
        """Start a workflow and return once it is stored; a worker of its queue will run it.

        ``workflow`` is a class, ``Class.options(id=...)``, or a name (`named` adds options to one). Without an id
        one is generated. A class may be started before any worker knows it, a name may not.

        Raises `InstanceAlreadyExists` as the policies say, `ArgumentError`, `EncodeError`, `PayloadTooLarge`,
        `UnknownWorkflow`, `UnknownNamespace`, `DefinitionError`, `InvalidInstanceId`, `RequestConflict`.
        """
        session = self._session
        session.require_open()
        target = await session.known.target(workflow)
        started = await starting.start(session, target, args, kwargs)
        return Instance(session, started.key, started.run_id, target.definition)

    @overload
    async def reserve(self, workflow: type[HasHandle[P, R]] | WorkflowRef[P, R], /) -> Reserved[P, R]: ...
    @overload
    async def reserve(self, workflow: str | NamedWorkflow, /) -> Reserved[..., Any]: ...
    async def reserve(self, workflow: Any, /) -> Reserved[..., Any]:
        """Reserve an instance id: it exists and takes signals, and runs once ``reserved.start(...)`` was called.

        Raises `InstanceAlreadyExists` and what `start` raises.
        """
        session = self._session
        session.require_open()
        target = await session.known.target(workflow)
        return Reserved(session, await starting.reserve(session, target), target)

    @overload
    def instance(self, id: str, /, *, run_id: UUID | None = None) -> Instance[Any]: ...
    @overload
    def instance(self, id: str, /, workflow: type[HasHandle[..., R]], *, run_id: UUID | None = None) -> Instance[R]: ...
    def instance(self, id: str, /, workflow: Any = None, *, run_id: UUID | None = None) -> Instance[Any]:
        """The instance with this id, without asking the database; ``run_id`` picks one of its runs.

        ``workflow`` is its class: results are decoded by it and queries need it. Raises `InvalidInstanceId`,
        `DefinitionError`, `ArgumentError`.
        """
        definition = None if workflow is None else self._session.known.learn(workflow_definition(workflow))
        key = InstanceKey.of(self.namespace, check_id(id))
        return Instance(self._session, key, check_run_id(run_id), definition)

    # -- messages ---------------------------------------------------------------------------------

    @overload
    async def signal(self, id: str, signal: SignalDef[P], /, *args: P.args, **kwargs: P.kwargs) -> None: ...
    @overload
    async def signal(self, id: str, signal: str, /, *args: Any, **kwargs: Any) -> None: ...
    async def signal(self, id: str, signal: Any, /, *args: Any, **kwargs: Any) -> None:
        """Send a signal, by its definition (``Class.approve``) or name, and return once it is stored.

        It is delivered once, even when an answer is lost; ``Class.approve.options(key=...)`` makes repeated calls
        one signal too. Raises `InstanceNotFound`, `InstanceClosed`, `InstanceClosing`, `InstanceFull`, `UnknownSignal`,
        `ArgumentError`, `EncodeError`, `PayloadTooLarge`, `RequestConflict`, `UnknownWorkflow`.
        """
        await self.instance(id).signal(signal, *args, **kwargs)

    @overload
    async def query(self, id: str, query: QueryDef[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    @overload
    async def query(self, id: str, query: str, /, *args: Any, **kwargs: Any) -> Any: ...
    async def query(self, id: str, query: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Ask a query, by its definition (``Class.state``) or name; open and closed runs answer.

        The history is replayed in this process, so the workflow's class must be here: by the definition, by
        `instance`, by ``workflows=`` of the client, or by a start. Signals sent before are seen; a run that lags
        more than two seconds behind answers from what it has.

        Raises `InstanceNotFound`, `UnknownQuery`, `UnknownWorkflow`, `ArgumentError`, `NondeterminismError`;
        `QueryFailed` with the cause when the handler raised, took too long, or nothing has run yet.
        """
        return await self.instance(id).query(query, *args, **kwargs)

    async def cancel(self, id: str, /, reason: str | None = None, *, grace: Duration | None = None) -> None:
        """Ask an instance to end, cooperatively. See `Instance.cancel`."""
        await self.instance(id).cancel(reason, grace=grace)

    async def terminate(self, id: str, /, reason: str | None = None) -> None:
        """Close an instance at once, without its code. See `Instance.terminate`."""
        await self.instance(id).terminate(reason)

    async def release(self, id: str, /) -> bool:
        """Let an instance and its activities out of quarantine. See `Instance.release`."""
        return await self.instance(id).release()

    # -- reading ----------------------------------------------------------------------------------

    async def describe(self, id: str, /) -> Description:
        """How an instance stands and what it waits for; raises `InstanceNotFound`."""
        return await self.instance(id).describe()

    async def history(self, id: str, /) -> Events:
        """All events of the current run so far; raises `InstanceNotFound`."""
        return await self.instance(id).history()

    def list(
        self,
        *,
        status: str | None = None,
        workflow: str | type | None = None,
        queue: str | None = None,
        prefix: str | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[Summary]:
        """Instances that fit all given filters, the most recently started first; pages are fetched as needed.

        ``status`` as in `Description`, ``prefix`` begins the id, ``limit`` ends the list (None: all). Raises
        `ArgumentError` for a status that does not exist, and for what no name, id or limit can be.
        """
        self._session.require_open()
        if status is not None and status not in listing.STATUSES:
            raise ArgumentError(f"status is one of {', '.join(sorted(listing.STATUSES))}, not {status!r}")
        name = workflow_definition(workflow).name if isinstance(workflow, type) else workflow
        return listing.instances(
            self._session,
            status=status,
            workflow=check_filter(name, "workflow"),
            queue=check_filter(queue, "queue"),
            prefix=check_filter(prefix, "prefix"),
            limit=check_count(limit, "limit"),
        )


def _check_names(namespace: object, identity: object) -> None:
    try:
        check_name(namespace, "a namespace")
        if identity is not None:
            check_name(identity, "an identity")
    except DefinitionError as exc:
        raise ConfigurationError(str(exc)) from None


def _target(target: object) -> tuple[str | None, object | None]:
    """Address and pool of what was given to connect to."""
    if target is None or isinstance(target, str):
        return target or _FROM_ENVIRONMENT, None
    if hasattr(target, "acquire") and hasattr(target, "release"):
        return None, target
    raise ConfigurationError(f"a client connects to an address or an asyncpg pool, not to {type(target).__name__}")
