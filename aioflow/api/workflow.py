"""The base class of workflows, and workflows with options."""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import dataclass, replace
from typing import Any, Generic, Literal, ParamSpec, Protocol, TypeVar, cast

from aioflow.api.messages import Handler
from aioflow.core.definition import HandlerDefinition, WorkflowDefinition, check_name
from aioflow.core.keys import check_id
from aioflow.core.registry import workflow_definition
from aioflow.errors import DefinitionError

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

Conflict = Literal["fail", "use_existing", "terminate_existing"]
"""What a start does when an open instance has the id."""
Reuse = Literal["allow", "allow_failed_only", "reject"]
"""Whether a start may take the id of a closed instance."""

_CONFLICT: tuple[str, ...] = ("fail", "use_existing", "terminate_existing")
_REUSE: tuple[str, ...] = ("allow", "allow_failed_only", "reject")


class HasHandle(Protocol[P, R_co]):
    """What makes a class a workflow for type checkers: its ``async def handle``."""

    def handle(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R_co]:
        """The code of the workflow."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StartOptions:
    """How a run is started; None where nothing was said."""

    id: str | None = None
    queue: str | None = None
    conflict: Conflict = "fail"
    reuse: Reuse = "allow"
    request_key: str | None = None


class WorkflowRef(Generic[P, R_co]):
    """A workflow class with options: what ``W.options(...)`` gives. Immutable."""

    def __init__(self, workflow: type[HasHandle[P, R_co]], options: StartOptions) -> None:
        self.workflow, self.start_options = workflow, options

    @property
    def definition(self) -> WorkflowDefinition:
        """The definition of the class."""
        return workflow_definition(self.workflow)

    def __repr__(self) -> str:
        return f"<{self.workflow.__name__} with {self.start_options}>"


class Workflow:
    """Base of all workflows. A subclass writes its code as ``async def handle(self, ...)``.

    Class keywords are options of the definition::

        class OrderWorkflow(Workflow, queue="orders", name="order", blocking=(PriceListMissing,)): ...

    ``name`` is what history calls it (the class name by default), ``queue`` where its tasks go (inherited,
    else ``"default"``), ``blocking`` exception types that leave a run open and blocked instead of failing it.
    ``__init__`` takes no arguments; it runs at the start of every run. Raises `DefinitionError` for a class
    that cannot run.
    """

    __workflow__: WorkflowDefinition | None = None
    __queue__: str | None = None
    __blocking__: tuple[type[BaseException], ...] = ()

    def __init_subclass__(
        cls,
        *,
        name: str | None = None,
        queue: str | None = None,
        blocking: tuple[type[BaseException], ...] | type[BaseException] | None = None,
        **unknown: Any,
    ) -> None:
        if unknown:
            raise DefinitionError(
                f"workflow {cls.__name__}: unknown class keyword {', '.join(map(repr, unknown))} "
                "(known: name, queue, blocking)"
            )
        super().__init_subclass__()
        if queue is not None:
            cls.__queue__ = check_name(queue, "a queue")
        if blocking is not None:
            cls.__blocking__ = (blocking,) if isinstance(blocking, type) else tuple(blocking)
        cls.__workflow__ = None
        if hasattr(cls, "handle"):
            cls.__workflow__ = WorkflowDefinition(
                cls, name=name, queue=cls.__queue__, blocking=cls.__blocking__, handlers=_handlers(cls)
            )
        elif name is not None:
            check_name(name, "a workflow")

    @classmethod
    def options(
        cls: type[HasHandle[P, R]],
        *,
        id: str | None = None,
        queue: str | None = None,
        conflict: Conflict = "fail",
        reuse: Reuse = "allow",
        request_key: str | None = None,
    ) -> WorkflowRef[P, R]:
        """This workflow with options for one start.

        Args:
            id: the instance id, 1 to 255 characters; generated when left out.
            queue: where its tasks go, instead of the definition's queue.
            conflict: what happens when an open instance has this id: ``fail``, ``use_existing`` or
                ``terminate_existing``.
            reuse: whether the id of a closed instance may be taken: ``allow``, ``allow_failed_only`` (when
            its
                last run did not complete) or ``reject``.
            request_key: makes the start idempotent: the same key has one effect.

        Raises `InvalidInstanceId` for a bad id, `DefinitionError` for another bad option.
        """
        where = f"{cls.__name__}.options()"
        options = StartOptions(
            id=None if id is None else check_id(id),
            queue=None if queue is None else check_name(queue, "a queue"),
            conflict=cast("Conflict", _one_of(conflict, _CONFLICT, f"{where}: conflict")),
            reuse=cast("Reuse", _one_of(reuse, _REUSE, f"{where}: reuse")),
            request_key=None if request_key is None else check_name(request_key, "a request key"),
        )
        return WorkflowRef(cls, options)


def start_options(
    workflow: type[HasHandle[P, R]] | WorkflowRef[P, R], **given: Any
) -> tuple[WorkflowDefinition, StartOptions]:
    """Definition and options of what a caller passed as the workflow to start."""
    if isinstance(workflow, WorkflowRef):
        return workflow.definition, replace(workflow.start_options, **given)
    return workflow_definition(workflow), StartOptions(**given)


def _one_of(value: str, allowed: tuple[str, ...], what: str) -> str:
    if value not in allowed:
        raise DefinitionError(f"{what} is one of {', '.join(allowed)}, not {value!r}")
    return value


def _handlers(cls: type) -> list[HandlerDefinition]:
    """Handlers of a class and its bases; an override must be a handler of the same kind."""
    found: dict[str, Handler] = {}
    for owner in reversed(cls.__mro__):
        for attribute, value in vars(owner).items():
            inherited = found.get(attribute)
            if isinstance(value, Handler):
                found[attribute] = value
            elif inherited is not None:
                kind = inherited.definition.kind
                raise DefinitionError(
                    f"workflow {cls.__name__}: {attribute} overrides a {kind}; decorate it with @{kind} too"
                )
            if inherited is not None and found[attribute].definition.kind != inherited.definition.kind:
                raise DefinitionError(
                    f"workflow {cls.__name__}: {attribute} is a {found[attribute].definition.kind} here "
                    f"and a {inherited.definition.kind} in a base class"
                )
    return [handler.definition for handler in found.values()]
