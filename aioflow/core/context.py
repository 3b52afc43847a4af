"""What durable helpers talk to while the code of one run is stepped.

The context belongs to a run as its loop does. Helpers issue commands here; the replay layer resolves what they wait
for, and cuts the list of commands after each event. Nothing here knows a database or a wall clock.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from random import Random
from typing import Any, Final, NoReturn
from uuid import UUID

from aioflow.core import commands as cmd
from aioflow.core import events as ev
from aioflow.core.definition import ActivityDefinition, ActivityOptions, WorkflowDefinition
from aioflow.core.failure import Failure
from aioflow.core.guard import allowed
from aioflow.core.keys import InstanceKey
from aioflow.core.limits import Limits
from aioflow.core.loop import WorkflowLoop
from aioflow.core.payload import decode_value, encode_value
from aioflow.core.tasks import DurableFuture, Future, Sealed
from aioflow.errors import EncodeError, NondeterminismError, NotDurable, PayloadTooLarge, StructuralLimitExceeded

_READS: Final = (
    "a query, or the function of a side effect, only reads: it cannot schedule, wait for, record or set off anything"
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_UNDO: Final[dict[type[cmd.Command], type[cmd.Command]]] = {
    cmd.ScheduleActivity: cmd.CancelActivity,
    cmd.StartTimer: cmd.CancelTimer,
}


@dataclass(frozen=True, slots=True)
class WorkflowInfo:
    """Facts about the run at hand; the same on every replay.

    ``history_length`` counts the events applied so far, ``number`` the runs of the instance, from 1.
    """

    instance_id: str
    run_id: UUID
    namespace: str
    workflow: str
    queue: str
    number: int
    attempt: int
    started_at: datetime
    history_length: int
    history_bytes: int


@dataclass(slots=True)
class PendingActivity:
    """An activity whose outcome history has not told yet."""

    definition: ActivityDefinition
    future: DurableFuture
    execution_id: UUID


class Context:
    """State of one run as helpers see it. ``replaying`` is true while loaded history is applied.

    ``allowed`` has the addresses of what history holds behind the event being replayed.
    """

    def __init__(
        self, definition: WorkflowDefinition, key: InstanceKey, run_id: UUID, seed: str, limits: Limits
    ) -> None:
        self.definition, self.key, self.run_id, self.limits = definition, key, run_id, limits
        self.loop = WorkflowLoop(run_id.bytes, self)
        self.replaying = False
        self.read_only = False
        self.overstepped = False
        self.fault: BaseException | None = None
        self.activities: dict[str, PendingActivity] = {}
        self.timers: dict[str, datetime] = {}
        self.recorded: dict[str, ev.SideEffectRecorded] = {}
        self.allowed: Collection[str] = ()
        self.problems: list[dict[str, Any]] = []
        self.info: Callable[[], WorkflowInfo]
        self._seed = seed
        self._randoms: dict[str, Random] = {}
        self._out: dict[tuple[type[cmd.Command], str], cmd.Command] = {}
        self._bytes = 0
        self._tried = 0
        self._buffered: dict[str, deque[bytes]] = {}
        self._waiting: dict[str, deque[Future[bytes]]] = {}

    # -- commands ---------------------------------------------------------------------------------

    def emit(self, command: cmd.Command) -> None:
        """Issue a command; it is recorded right after the event that is being applied."""
        self.check_open()
        self._out[type(command), command.ref] = command
        self._bytes += _size(command)

    def cut(self) -> list[cmd.Command]:
        """Take the commands issued since the last cut, in order."""
        issued = list(self._out.values())
        self._out.clear()
        self._bytes = self._tried = 0
        return issued

    @property
    def tried(self) -> int:
        """How many commands were asked for since the last cut, refused ones too, up to as many as a run may have."""
        return min(self._tried, self.limits.pending_activities + self.limits.timers)

    def retract(self, kind: type[cmd.Command], ref: str) -> None:
        """Undo a command: within the same event both vanish, later the undo is a command itself."""
        if (issued := self._out.pop((kind, ref), None)) is None:
            self.emit(_UNDO[kind](ref=ref))
        else:
            self._bytes -= _size(issued)

    def _check_limit(self, limit: str, wanted: int, ref: str) -> None:
        """Refuse the command at ``ref`` past a limit, unless history holds it: the limit was another one then."""
        most: int = getattr(self.limits, limit)
        if wanted > most and ref not in self.allowed:
            raise StructuralLimitExceeded(limit, most)

    def check_open(self) -> None:
        """Refuse commands of a run that is being unwound, or that only answers a query."""
        if self.loop.sealed:
            raise Sealed
        if self.read_only:
            self.overstepped = True
            raise NotDurable(_READS)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Code that is not run on replay only reads; `NotDurable` when it did more, also if it caught that itself.

        It has randomness of its own, so that it disturbs nothing.
        """
        queued = self.loop.queued()
        self.read_only, self.overstepped = True, False
        try:
            yield
        finally:
            self.read_only = False
            if self.overstepped or self.loop.queued() != queued:
                raise NotDurable(_READS)

    def fail_task(self, fault: BaseException) -> NoReturn:
        """Give up this workflow task, whatever user code catches: the run stays open and is tried again."""
        if self.fault is None:
            self.fault = fault
        raise Sealed from fault

    # -- activities -------------------------------------------------------------------------------

    def schedule_activity(
        self,
        definition: ActivityDefinition,
        options: ActivityOptions,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Awaitable[Any]:
        """Schedule an activity on behalf of the current branch; gives the future of its result.

        Raises `ArgumentError` for arguments that do not fit and `StructuralLimitExceeded` for too many or too large
        ones, before anything is scheduled.
        """
        self.check_open()
        self._tried += 1
        branch = self.loop.current_branch()
        self._check_limit("pending_activities", len(self.activities) + 1, branch.next_id("a"))
        payload = definition.signature.encode(args, kwargs, limit=self.limits.payload)
        self._check_limit("step_bytes", self._bytes + len(payload), branch.next_id("a"))
        ref = branch.command_id("a")
        execution_id = derive_id(self.run_id, ref)
        future = self.loop.durable_future(ref, self._activity_dropped)
        self.activities[ref] = PendingActivity(definition, future, execution_id)
        self.emit(
            cmd.ScheduleActivity(
                ref=ref,
                activity=definition.name,
                execution_id=execution_id,
                queue=options.queue or self.info().queue,
                payload=payload,
                retry=options.retry.to_data() if options.retry else None,
                start_to_close=options.start_to_close,
                schedule_to_start=options.schedule_to_start,
                schedule_to_close=options.schedule_to_close,
                heartbeat=options.heartbeat,
            )
        )
        return future

    def _activity_dropped(self, ref: str) -> None:
        if self.activities.pop(ref, None) is not None:
            self.retract(cmd.ScheduleActivity, ref)

    # -- timers (the loop's host) -----------------------------------------------------------------

    def timer_started(self, ref: str, when: float) -> None:
        """A timer of the loop became a command; due times are rounded up to the microsecond."""
        self._tried += 1
        self._check_limit("timers", len(self.timers) + 1, ref)
        try:
            due_at = _EPOCH + timedelta(microseconds=math.ceil(when * 1_000_000))
        except OverflowError:
            raise ValueError("a timer must be due before the year 10000") from None
        self.emit(cmd.StartTimer(ref=ref, due_at=due_at))
        self.timers[ref] = due_at

    def timer_cancelled(self, ref: str) -> None:
        """A pending timer is not wanted any more."""
        self.timers.pop(ref, None)
        self.retract(cmd.StartTimer, ref)

    def retime(self, ref: str, due_at: datetime) -> None:
        """A timer as it was recorded; the code may have another duration today."""
        if self.timers.get(ref, due_at) != due_at:
            self.timers[ref] = due_at
            self.loop.retime(ref, due_at.timestamp())

    def callback_failed(self, context: dict[str, Any]) -> None:
        """Keep what asyncio would have logged, for the worker to log."""
        if not self.replaying:
            self.problems.append(context)

    # -- recorded values --------------------------------------------------------------------------

    def side_effect(self, fn: Callable[[], Any], hint: Any) -> Any:
        """Value of ``fn``, called once in the life of the run; replay takes it from history.

        A failure is recorded as well, and raised from the record: what the code sees must not differ on replay.
        """
        self.check_open()
        self._tried += 1
        ref = self.loop.current_branch().command_id("s")
        recorded = self.recorded.pop(ref, None)
        if recorded is not None:
            payload, failed = recorded.payload or b"", recorded.failed
        elif self.replaying:
            self.fail_task(NondeterminismError("no side effect here", f"SideEffectRecorded at {ref}"))
        else:
            payload, failed = self._make(fn, hint)
            if self._bytes + len(payload) > self.limits.step_bytes and not failed:
                over = StructuralLimitExceeded("step_bytes", self.limits.step_bytes)
                payload, failed = Failure.of(over).to_payload(), True
        self.emit(cmd.RecordSideEffect(ref=ref, payload=payload, failed=failed))
        if failed:
            raise self._unmade(payload)
        return self.read(payload, hint)

    def _make(self, fn: Callable[[], Any], hint: Any) -> tuple[bytes, bool]:
        """Call the function of a side effect: its value, or its failure and True."""
        try:
            with allowed(), self.reading():
                value = fn()
            if isinstance(value, Coroutine):
                value.close()
                raise NotDurable("side_effect() takes a plain function; use activity() for an async one")
            return encode_value(value, hint, limit=self.limits.payload), False
        except NotDurable as exc:
            self.fail_task(exc)
        except Sealed:
            raise
        except BaseException as exc:  # on replay nothing would raise it again
            return Failure.of(exc).to_payload(), True

    def _unmade(self, payload: bytes) -> Exception:
        """The exception of a recorded failure: our own for a value that cannot be stored, else the remote one."""
        try:
            failure = Failure.from_payload(payload)
        except Exception as exc:
            self.fail_task(exc)
        for kind in (EncodeError, PayloadTooLarge):
            if failure.type == kind.__name__ and "PayloadError" in failure.bases:
                return kind(failure.message)
        if failure.type == StructuralLimitExceeded.__name__ and "AioflowError" in failure.bases:
            return StructuralLimitExceeded("step_bytes", self.limits.step_bytes)
        return failure.to_error()

    def read(self, payload: bytes, hint: Any) -> Any:
        """Decode inside user code; bytes that do not fit fail the task, since a deploy can mend that."""
        try:
            return decode_value(payload, hint)
        except Exception as exc:
            self.fail_task(exc)

    # -- time and randomness ----------------------------------------------------------------------

    def now(self) -> datetime:
        """Time of the event being applied, aware UTC."""
        return _EPOCH + timedelta(microseconds=round(self.loop.now * 1_000_000))

    def random(self) -> Random:
        """The current branch's own generator; a query gets one of its own, so that it disturbs nothing."""
        path = "query" if self.read_only else self.loop.current_branch().path
        if (found := self._randoms.get(path)) is None:
            seed = blake2b(f"{self._seed}/{path}".encode()).digest()
            found = self._randoms[path] = Random(int.from_bytes(seed, "big"))
        return found

    # -- signal channels --------------------------------------------------------------------------

    def deliver(self, name: str, payload: bytes, *, again: bool = False) -> None:
        """Hand a signal to the first branch that waits for the name, else keep it (in front when given back)."""
        for waiter in self._waiting.get(name, ()):
            if not waiter.done():
                waiter.set_result(payload)
                return
        buffered = self._buffered.setdefault(name, deque())
        (buffered.appendleft if again else buffered.append)(payload)

    async def receive(self, name: str) -> bytes:
        """The next signal of this name, oldest first; branches are served in the order they asked."""
        self.check_open()
        waiting = self._waiting.setdefault(name, deque())
        if buffered := self._buffered.get(name):
            return buffered.popleft()
        waiter: Future[bytes] = Future(loop=self.loop)
        waiting.append(waiter)
        try:
            return await waiter
        except BaseException:
            if waiter.done() and not waiter.cancelled() and not self.loop.sealed:
                self.deliver(name, waiter.result(), again=True)  # delivered and cancelled at once
            raise
        finally:
            with suppress(ValueError):
                waiting.remove(waiter)


def _size(command: cmd.Command) -> int:
    return len(command.payload) if isinstance(command, cmd.ScheduleActivity | cmd.RecordSideEffect) else 0


def derive_id(run_id: UUID, ref: str) -> UUID:
    """Execution id of a command: the same whenever and wherever the command is decided again.

    It keeps the time part of the run's id, so that ids of one time lie together in an index.
    """
    digest = blake2b(run_id.bytes + ref.encode(), digest_size=10).digest()
    value = int.from_bytes(run_id.bytes[:6] + digest, "big")
    value = value & ~(0xF000 << 64) | 0x8000 << 64
    return UUID(int=value & ~(0xC000 << 48) | 0x8000 << 48)
