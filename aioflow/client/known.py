"""What a client knows of workflows: classes in this process, and what workers told the database.

A class is always taken, even before any worker has seen it. A name alone is checked against both; what is not known
here is looked up, and looked up again before it is refused.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from aioflow.api.messages import SignalDef
from aioflow.api.workflow import StartOptions, WorkflowRef, start_options
from aioflow.client.arguments import NamedWorkflow, encode_call
from aioflow.core.definition import WorkflowDefinition
from aioflow.core.keys import InstanceKey
from aioflow.core.registry import workflow_definition
from aioflow.errors import ArgumentError, InstanceNotFound, UnknownSignal, UnknownWorkflow
from aioflow.store.rows import DefinitionRow
from aioflow.store.store import Store

_REMEMBERED: Final = 10_000


class Target(NamedTuple):
    """A workflow to start: its name and queue, its code if this process has it, the options of the call."""

    name: str
    queue: str
    definition: WorkflowDefinition | None
    options: StartOptions


class Message(NamedTuple):
    """A signal to send: name, encoded arguments, and the caller's request key if there is one."""

    name: str
    payload: bytes
    request_key: str | None


class Known:
    """Workflows by class and by name, in one namespace."""

    def __init__(self, store: Store, namespace: str, workflows: Iterable[type], *, payload_limit: int) -> None:
        self._store, self._namespace, self._limit = store, namespace, payload_limit
        self._classes: dict[str, WorkflowDefinition] = {}
        self._rows: dict[str, DefinitionRow] = {}
        self._types: OrderedDict[InstanceKey, str] = OrderedDict()
        for cls in workflows:
            self.learn(workflow_definition(cls))

    # -- workflows --------------------------------------------------------------------------------

    def learn(self, definition: WorkflowDefinition) -> WorkflowDefinition:
        """Remember code that a call brought along."""
        return self._classes.setdefault(definition.name, definition)

    def code(self, name: str) -> WorkflowDefinition | None:
        """The code of a workflow, if this process has it."""
        return self._classes.get(name)

    def encode(self, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
        """Arguments of a start; raises `ArgumentError`, `EncodeError`, `PayloadTooLarge`."""
        signature = target.definition.signature if target.definition else None
        return encode_call(signature, target.name, args, kwargs, self._limit)

    async def target(self, workflow: Any) -> Target:
        """What a call to start means; raises `UnknownWorkflow`, `DefinitionError`."""
        if isinstance(workflow, str):
            workflow = NamedWorkflow(workflow, StartOptions())
        if isinstance(workflow, NamedWorkflow):
            name, options = workflow.name, workflow.start_options
            definition = self._classes.get(name)
            queue = definition.queue if definition else (await self._row(name)).queue
        elif isinstance(workflow, type | WorkflowRef):
            definition, options = start_options(workflow)
            self.learn(definition)
            name, queue = definition.name, definition.queue
        else:
            raise ArgumentError(
                f"a workflow is started by its class, Class.options(...) or name, not {type(workflow).__name__}"
            )
        return Target(name, options.queue or queue, definition, options)

    async def _row(self, name: str, *, fresh: bool = False) -> DefinitionRow:
        row = None if fresh else self._rows.get(name)
        if row is None:
            self._rows = {one.workflow: one for one in await self._store.definitions(self._namespace)}
            row = self._rows.get(name)
        if row is None:
            names = ", ".join(sorted({*self._rows, *self._classes})) or "none"
            raise UnknownWorkflow(
                f"no workflow is named {name!r} here: no worker of namespace {self._namespace!r} has told of it "
                f"and this client has no class of that name (known: {names}); pass the class, or start its worker"
            )
        return row

    def forget(self) -> None:
        """What the database told may be undone: ask again. Code stays."""
        self._rows.clear()
        self._types.clear()

    # -- instances --------------------------------------------------------------------------------

    def note(self, key: InstanceKey, name: str) -> None:
        """Remember what an instance runs."""
        self._types[key] = name
        self._types.move_to_end(key)
        if len(self._types) > _REMEMBERED:
            self._types.popitem(last=False)

    async def _type_of(self, key: InstanceKey, *, fresh: bool = False) -> str:
        name = None if fresh else self._types.get(key)
        if name is None:
            found = await self._store.describe(key)
            if found is None:
                raise InstanceNotFound(f"there is no instance {key.instance_id!r} in namespace {key.namespace!r}")
            name = found.workflow
            self.note(key, name)
        return name

    # -- signals ----------------------------------------------------------------------------------

    async def message(
        self,
        key: InstanceKey,
        definition: WorkflowDefinition | None,
        signal: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Message:
        """A signal as it is sent; ``definition`` is what the instance runs, if the caller said so.

        Raises `UnknownSignal`, `ArgumentError`, `EncodeError`, `PayloadTooLarge`, and for a bare name also
        `InstanceNotFound`, `UnknownWorkflow`.
        """
        if isinstance(signal, SignalDef):
            payload = encode_call(signal.signature, signal.name, args, kwargs, self._limit)
            if definition is not None or key in self._types:
                await self._receiver(key, definition, signal.name)
            return Message(signal.name, payload, signal.key)
        if not isinstance(signal, str):
            raise ArgumentError(f"a signal is Class.method or its name, not {type(signal).__name__}")
        found = await self._receiver(key, definition, signal)
        handler = found.signals.get(signal) if isinstance(found, WorkflowDefinition) else None
        if handler is not None:
            return Message(signal, encode_call(handler.signature, signal, args, kwargs, self._limit), None)
        if kwargs and signal not in found.signals:
            raise ArgumentError(f"signal {signal!r} has no handler, so its arguments have no names")
        return Message(signal, encode_call(None, signal, args, kwargs, self._limit), None)

    async def _receiver(
        self, key: InstanceKey, definition: WorkflowDefinition | None, signal: str
    ) -> WorkflowDefinition | DefinitionRow:
        """What the instance runs, if it takes this signal; looks again before it refuses."""
        found: WorkflowDefinition | DefinitionRow | None = definition
        if found is not None and (signal in found.signals or found.open_signals):
            return found
        name = ""
        for fresh in (False, True):
            name = await self._type_of(key, fresh=fresh)
            try:
                found = self._classes.get(name) or await self._row(name, fresh=fresh)
            except UnknownWorkflow:
                if fresh:
                    raise
                continue
            if signal in found.signals or found.open_signals:
                return found
        names = ", ".join(sorted(found.signals if found else ())) or "none"
        raise UnknownSignal(f"workflow {name} has no signal {signal!r} (it has: {names})")
