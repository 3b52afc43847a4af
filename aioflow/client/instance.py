"""`Instance`: one durable execution, as a caller holds it; `Reserved`: an id that will become one."""

from __future__ import annotations

from typing import Any, Generic, ParamSpec, TypeVar, overload
from uuid import UUID

from aioflow.api.messages import QueryDef, SignalDef
from aioflow.client import asking, sending, starting
from aioflow.client.known import Target
from aioflow.client.reading import Description, HistoryEvent, describe, history
from aioflow.client.session import Session
from aioflow.core.definition import WorkflowDefinition
from aioflow.core.durations import Duration, optional_seconds
from aioflow.core.keys import InstanceKey

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Instance(Generic[R_co]):
    """An instance at hand. Making one asks nothing of the database.

    ``id`` is the instance id; ``run_id`` the run it looks at, None for whichever is current. A client makes it.
    """

    def __init__(
        self, session: Session, key: InstanceKey, run_id: UUID | None, definition: WorkflowDefinition | None
    ) -> None:
        self._session, self._key, self._definition = session, key, definition
        self.run_id = run_id

    @property
    def id(self) -> str:
        """The instance id."""
        return self._key.instance_id

    @property
    def namespace(self) -> str:
        """The namespace the id lives in."""
        return self._key.namespace

    def __repr__(self) -> str:
        run = f" run {self.run_id}" if self.run_id else ""
        return f"<Instance {self.id!r}{run}>"

    async def result(self, timeout: Duration | None = None) -> R_co:
        """Wait for the result, following continued runs; decoded by the workflow's hint when its class is known.

        Raises `WorkflowFailed`, `WorkflowCancelled`, `WorkflowTerminated`, `WorkflowTimedOut` with causes;
        `ResultTimeout` when ``timeout`` (seconds or ``timedelta``) runs out, which leaves the run alone; with 0 the
        database is asked once;
        `InstanceNotFound`, `DecodeError`, `ClientClosed`.
        """
        self._session.require_open()
        hint = self._definition.signature.result_hint if self._definition else Any
        value: R_co = await asking.result(self._session, self._key, self.run_id, hint, timeout)
        return value

    @overload
    async def signal(self, signal: SignalDef[P], /, *args: P.args, **kwargs: P.kwargs) -> None: ...
    @overload
    async def signal(self, signal: str, /, *args: Any, **kwargs: Any) -> None: ...
    async def signal(self, signal: Any, /, *args: Any, **kwargs: Any) -> None:
        """Send a signal, by its definition or name; returns once it is stored. See `Client.signal`."""
        self._session.require_open()
        await sending.signal(self._session, self._key, self._definition, signal, args, kwargs)

    @overload
    async def query(self, query: QueryDef[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    @overload
    async def query(self, query: str, /, *args: Any, **kwargs: Any) -> Any: ...
    async def query(self, query: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Ask a query, by its definition or name. See `Client.query`."""
        self._session.require_open()
        return await asking.query(self._session, self._key, self.run_id, self._definition, query, args, kwargs)

    async def cancel(self, reason: str | None = None, *, grace: Duration | None = None) -> None:
        """Ask the current run to end: ``handle()`` gets `asyncio.CancelledError` and may clean up.

        After ``grace`` (seconds or ``timedelta``; None: no limit) the run is terminated; the grace of an instance that
        is only reserved begins with its run. Asking twice changes nothing. Raises `InstanceNotFound`,
        `InstanceClosed`, `InstanceClosing`, `ArgumentError`.
        """
        self._session.require_open()
        seconds = optional_seconds(grace, "cancel(grace=)", positive=False)
        await sending.cancel(self._session, self._key, reason, seconds)

    async def terminate(self, reason: str | None = None) -> None:
        """Close the run at once, without its code. Raises `InstanceNotFound`, `InstanceClosed`, `ArgumentError`."""
        self._session.require_open()
        await sending.terminate(self._session, self._key, self.run_id, reason)

    async def release(self) -> bool:
        """Let the instance and its activities out of quarantine, where they are because workers died with them.

        They are tried again, each alone in a worker, and come back after one more crash. False: nothing was in
        quarantine. Raises `InstanceNotFound`, `InstanceClosed`.
        """
        self._session.require_open()
        return await sending.release(self._session, self._key)

    async def describe(self) -> Description:
        """How it stands; raises `InstanceNotFound`."""
        self._session.require_open()
        return await describe(self._session.store, self._key, self.run_id)

    async def history(self) -> list[HistoryEvent]:
        """All events of the run so far; raises `InstanceNotFound`, `DecodeError` for one of a newer aioflow."""
        self._session.require_open()
        return await history(self._session.store, self._key, self.run_id)


class Reserved(Generic[P, R_co]):
    """A reserved instance id. Signals are taken from now on; the run begins with `start`."""

    def __init__(self, session: Session, key: InstanceKey, target: Target) -> None:
        self._session, self._key, self._target = session, key, target

    @property
    def id(self) -> str:
        """The instance id."""
        return self._key.instance_id

    def __repr__(self) -> str:
        return f"<Reserved {self.id!r} for {self._target.name}>"

    @property
    def instance(self) -> Instance[R_co]:
        """The instance that it will be, to signal or to wait for."""
        return Instance(self._session, self._key, None, self._target.definition)

    async def start(self, *args: P.args, **kwargs: P.kwargs) -> Instance[R_co]:
        """Start the run; raises `InstanceAlreadyExists` when it was started or closed meanwhile."""
        self._session.require_open()
        started = await starting.start(self._session, self._target, args, kwargs, reserved=self._key)
        return Instance(self._session, started.key, started.run_id, self._target.definition)
