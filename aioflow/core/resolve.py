"""How an outcome told by history reaches the branch that waits for it."""

from __future__ import annotations

from aioflow.core import events as ev
from aioflow.core.context import Context
from aioflow.core.failure import Failure
from aioflow.core.payload import decode_value
from aioflow.errors import ActivityCancelled, ActivityError, ActivityFailed, ActivityTimedOut

_OUTCOMES = (ev.ActivityCompleted, ev.ActivityFailed, ev.ActivityTimedOut, ev.ActivityCancelled)


def resolve(context: Context, event: ev.Event) -> None:
    """Resolve the future or fire the timer an event belongs to; an outcome nobody awaits any more is ignored.

    Raises `DecodeError` for a result that does not fit its type hint: the task fails, user code never sees it.
    """
    ref = event.ref or ""
    if isinstance(event, ev.TimerFired):
        context.timers.pop(ref, None)
        context.loop.fire_timer(ref)
    elif isinstance(event, _OUTCOMES):
        pending = context.activities.pop(ref, None)
        if pending is None or pending.future.done():
            return
        if isinstance(event, ev.ActivityCompleted):
            hint = pending.definition.signature.result_hint
            pending.future.set_result(decode_value(event.payload or b"", hint))
        else:
            name, execution_id = pending.definition.name, pending.execution_id
            pending.future.set_exception(_error(event, name, execution_id))


def _error(event: ev.Event, activity: str, execution_id: object) -> ActivityError:
    cause = Failure.from_payload(event.payload).to_error() if event.payload else None
    match event:
        case ev.ActivityTimedOut():
            return ActivityTimedOut(
                f"activity {activity} ran into its {event.timeout} timeout",
                timeout=event.timeout,
                cause=cause,
                activity=activity,
                execution_id=execution_id,
            )
        case ev.ActivityCancelled():
            return ActivityCancelled(
                f"activity {activity} was cancelled",
                cause=cause,
                activity=activity,
                execution_id=execution_id,
            )
    return ActivityFailed(
        f"activity {activity} failed: {cause}", cause=cause, activity=activity, execution_id=execution_id
    )
