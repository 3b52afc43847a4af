"""The workflows and activities a process knows, by name."""

from __future__ import annotations

from collections.abc import Iterable
from types import ModuleType
from typing import Any

from aioflow.core.definition import ActivityDefinition, WorkflowDefinition
from aioflow.errors import DefinitionError


def workflow_definition(target: object) -> WorkflowDefinition:
    """The definition of a workflow class; raises `DefinitionError` for anything else."""
    found = _workflow(target)
    if found is None:
        name = getattr(target, "__name__", None) or repr(target)
        if isinstance(target, type) and hasattr(target, "__workflow__"):
            raise DefinitionError(f"workflow {name} has no handle(): add `async def handle(self, ...)`")
        raise DefinitionError(f"{name} is not a workflow: it must be a class derived from aioflow.Workflow")
    return found


def activity_definition(target: object) -> ActivityDefinition:
    """The definition of a decorated activity; raises `DefinitionError` for anything else."""
    found = _activity(target)
    if found is None:
        name = getattr(target, "__name__", None) or repr(target)
        raise DefinitionError(f"{name} is not an activity: decorate it with @activity.defn")
    return found


def _workflow(target: object) -> WorkflowDefinition | None:
    found = target.__dict__.get("__workflow__") if isinstance(target, type) else None
    return found if isinstance(found, WorkflowDefinition) else None


def _activity(target: object) -> ActivityDefinition | None:
    if isinstance(target, ActivityDefinition):
        return target
    found = None if isinstance(target, type) else getattr(target, "definition", None)
    return found if isinstance(found, ActivityDefinition) else None


class Registry:
    """Workflows and activities by name; every one is checked when it is added.

    Takes workflow classes, activities, and modules, of which every workflow and activity is taken. Raises
    `DefinitionError` for what cannot run, and for two of one name.
    """

    def __init__(self, *, workflows: Iterable[object] = (), activities: Iterable[object] = ()) -> None:
        self.workflows: dict[str, WorkflowDefinition] = {}
        self.activities: dict[str, ActivityDefinition] = {}
        for target in _many(workflows, "workflows"):
            self.add(target) if isinstance(target, ModuleType) else self.add_workflow(target)
        for target in _many(activities, "activities"):
            self.add(target) if isinstance(target, ModuleType) else self.add_activity(target)

    def add(self, target: object) -> None:
        """Add a workflow class, an activity, or all that a module holds."""
        if isinstance(target, ModuleType):
            for value in list(vars(target).values()):
                if _workflow(value) is not None:
                    self.add_workflow(value)
                elif (found := _activity(value)) is not None and found.bound:
                    self.add_activity(value)
        elif isinstance(target, type):
            self.add_workflow(target)
        else:
            self.add_activity(target)

    def add_workflow(self, target: object) -> None:
        """Add a workflow class."""
        definition = workflow_definition(target)
        other = self.workflows.get(definition.name)
        if other is None:
            definition.check()
            self.workflows[definition.name] = definition
        elif other.cls is not definition.cls:
            raise DefinitionError(
                f"two workflows are named {definition.name!r}: {_where(other.cls)} and "
                f"{_where(definition.cls)}; give one of them another name="
            )

    def add_activity(self, target: object) -> None:
        """Add an activity."""
        definition = activity_definition(target)
        if not definition.bound:
            raise DefinitionError(
                f"activity {definition.name} is a method ({definition.fn.__qualname__}): "
                "register it on an instance, not on its class"
            )
        other = self.activities.get(definition.name)
        if other is None:
            definition.check()
            self.activities[definition.name] = definition
        elif other.fn != definition.fn:
            raise DefinitionError(
                f"two activities are named {definition.name!r}: {_where(other.fn)} and "
                f"{_where(definition.fn)}; give one of them another name="
            )


def _many(targets: Any, what: str) -> list[object]:
    if isinstance(targets, ModuleType | type | str) or callable(targets):
        raise DefinitionError(f"{what}= is a list, as in {what}=[...]")
    return list(targets)


def _where(target: Any) -> str:
    return f"{target.__module__}.{getattr(target, '__qualname__', target)}"
