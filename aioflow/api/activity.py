"""Activities: plain functions that may do anything, run at least once and retried.

`activity` is both the namespace (``activity.defn``, ``activity.info()``, …) and the call: ``await
activity(charge, order)``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    ParamSpec,
    Protocol,
    Self,
    TypeVar,
    cast,
    overload,
)

from aioflow.api.attempt import ActivityInfo, attempt
from aioflow.core.current import current, require
from aioflow.core.definition import ActivityDefinition, ActivityOptions, check_name
from aioflow.core.durations import Duration, optional_seconds
from aioflow.core.registry import activity_definition
from aioflow.core.retry import RetryPolicy
from aioflow.errors import DefinitionError, NotDurable

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Activity(Generic[P, R_co]):
    """An activity, as the decorator leaves it: still a function to call, and something to schedule."""

    def __init__(self, definition: ActivityDefinition) -> None:
        self.definition = definition
        functools.update_wrapper(cast("Any", self), definition.fn)

    @property
    def name(self) -> str:
        """What history calls it."""
        return self.definition.name

    def options(
        self,
        *,
        queue: str | None = None,
        retry: RetryPolicy | None = None,
        start_to_close: Duration | None = None,
        schedule_to_start: Duration | None = None,
        schedule_to_close: Duration | None = None,
        heartbeat: Duration | None = None,
    ) -> Self:
        """A copy with other options; what is left out stays as it is. Durations are seconds or ``timedelta``.

        Args:
            queue: where it runs; by default where its workflow does.
            retry: when a failed attempt is tried again; for ever by default.
            start_to_close: how long one attempt may run.
            schedule_to_start: how long it may wait for a worker.
            schedule_to_close: how long all attempts may take together.
            heartbeat: how long an attempt may be silent.
        """
        options = _options(
            self.definition.options,
            queue=queue,
            retry=retry,
            start_to_close=start_to_close,
            schedule_to_start=schedule_to_start,
            schedule_to_close=schedule_to_close,
            heartbeat=heartbeat,
        )
        return type(self)(self.definition.with_options(options))

    def __set_name__(self, owner: type, attribute: str) -> None:
        self.definition.method.signature.owner = owner

    def _on(self, obj: object | None) -> Any:
        """The activity as an attribute of a class (``obj`` is None) or of an instance."""
        definition = self.definition
        return type(self)(definition.method if obj is None else definition.bind(obj))

    def _run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Just call the function, outside of a workflow."""
        if not self.definition.bound:
            raise TypeError(f"{self.definition.fn.__qualname__} is a method: call it on an instance")
        return self.definition.fn(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<activity {self.name}>"


class AsyncActivity(Activity[P, R_co]):
    """An activity that is ``async def``: it runs on the loop of a worker."""

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Inside a workflow the same as ``activity(self, ...)``, elsewhere the plain function."""
        context = current()
        if context is None:
            value: R_co = await self._run(args, kwargs)
        else:
            value = await context.schedule_activity(self.definition, self.definition.options, args, kwargs)
        return value

    @overload
    def __get__(
        self: AsyncActivity[Concatenate[Any, Q], R], obj: object | None, owner: type, /
    ) -> AsyncActivity[Q, R]: ...
    @overload
    def __get__(self, obj: object | None, owner: type, /) -> Any: ...
    def __get__(self, obj: object | None, owner: type, /) -> Any:
        return self._on(obj)


class SyncActivity(Activity[P, R_co]):
    """An activity that is a plain ``def``: it runs in a thread of a worker."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """The plain function; refused inside a workflow, where nothing could be awaited."""
        if current() is not None:
            raise NotDurable(
                f"{self.name} is a sync activity: inside a workflow write `await activity({self.name}, ...)`"
            )
        value: R_co = self._run(args, kwargs)
        return value

    @overload
    def __get__(
        self: SyncActivity[Concatenate[Any, Q], R], obj: object | None, owner: type, /
    ) -> SyncActivity[Q, R]: ...
    @overload
    def __get__(self, obj: object | None, owner: type, /) -> Any: ...
    def __get__(self, obj: object | None, owner: type, /) -> Any:
        return self._on(obj)


def _options(base: ActivityOptions, **given: Any) -> ActivityOptions:
    for name in ("start_to_close", "schedule_to_start", "schedule_to_close", "heartbeat"):
        try:
            given[name] = optional_seconds(given[name], name)
        except (TypeError, ValueError) as exc:
            raise DefinitionError(f"activity options: {exc}") from None
    if given["queue"] is not None:
        check_name(given["queue"], "a queue")
    if given["retry"] is not None and not isinstance(given["retry"], RetryPolicy):
        raise DefinitionError(f"activity options: retry is a RetryPolicy, not {given['retry']!r}")
    return base.changed(**given)


def _make(fn: Any, name: str | None, options: ActivityOptions) -> Any:
    if isinstance(fn, Activity):
        raise DefinitionError(f"{fn.name} is an activity already; use .options(...) for a copy with others")
    definition = ActivityDefinition(fn, name=name, options=options)
    kind = AsyncActivity[..., Any] if definition.is_async else SyncActivity[..., Any]
    return kind(definition)


# An async function is a function too, so the overloads overlap; the first that fits is the one meant.
class _Decorator(Protocol):
    @overload
    def __call__(  # type: ignore[overload-overlap]  # async def first: the more special one
        self, fn: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncActivity[P, R]: ...
    @overload
    def __call__(self, fn: Callable[P, R], /) -> SyncActivity[P, R]: ...


class ActivityFace:
    """The type of `activity`: call it to schedule, and find the rest on it by name."""

    async def __call__(self, fn: Activity[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run an activity and give its result; nothing is scheduled before it is awaited or becomes a task.

        Options belong to the activity: ``activity(charge.options(queue="gpu"), order)``. Raises
        `ActivityFailed`, `ActivityTimedOut` or `ActivityCancelled` for its end, `ArgumentError` before it
        is scheduled, and `NotInWorkflow` outside of a workflow.
        """
        definition = activity_definition(fn)
        context = require(f"activity({definition.name}, ...)")
        value: R = await context.schedule_activity(definition, definition.options, args, kwargs)
        return value

    @overload
    def defn(  # type: ignore[overload-overlap]  # async def first: the more special one
        self, fn: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncActivity[P, R]: ...

    @overload
    def defn(self, fn: Callable[P, R], /) -> SyncActivity[P, R]: ...
    @overload
    def defn(
        self,
        /,
        *,
        name: str | None = None,
        queue: str | None = None,
        retry: RetryPolicy | None = None,
        start_to_close: Duration | None = None,
        schedule_to_start: Duration | None = None,
        schedule_to_close: Duration | None = None,
        heartbeat: Duration | None = None,
    ) -> _Decorator: ...
    def defn(self, fn: Any = None, /, *, name: str | None = None, **given: Any) -> Any:
        """Make a function an activity; use it bare, or with options that hold wherever it is scheduled.

        ``name`` is what history calls it (the function's name by default); for the others see
        `Activity.options`. ``async def`` ones run on the worker's loop, plain ones in a thread. Raises
        `DefinitionError`.
        """
        known = ActivityOptions.__dataclass_fields__
        if unknown := given.keys() - known.keys():
            raise DefinitionError(f"activity.defn(): unknown option {', '.join(sorted(unknown))}")
        options = _options(ActivityOptions(), **{field: given.get(field) for field in known})
        return (lambda later: _make(later, name, options)) if fn is None else _make(fn, name, options)

    def info(self) -> ActivityInfo:
        """Facts about the attempt this code runs in; raises `NotInActivity` outside of one."""
        return attempt("activity.info()").info

    def heartbeat(self, *details: object) -> None:
        """Say that the attempt is alive; the next attempt finds ``details`` in ``info().heartbeat_details``.

        Details are JSON values. Does not wait, and may be called from any thread of the activity.
        """
        attempt("activity.heartbeat()").heartbeat(details)

    def cancelled(self) -> bool:
        """Whether the attempt shall stop: for sync activities to ask; async ones get ``CancelledError``."""
        return attempt("activity.cancelled()").cancelled.is_set()

    @property
    def logger(self) -> FilteringBoundLogger:
        """A structlog logger that names the attempt this code runs in."""
        context = attempt("activity.logger")
        if context.logger is None:
            import structlog  # only needed by activities that log

            info = context.info
            context.logger = structlog.get_logger("aioflow.activity").bind(
                activity=info.activity,
                attempt=info.attempt,
                execution_id=str(info.execution_id),
                instance_id=info.instance_id,
            )
        logger: FilteringBoundLogger = context.logger
        return logger


activity = ActivityFace()
