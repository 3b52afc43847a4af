"""History against code: what was recorded behind an input must be what the code issues for it, no more, no less."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from aioflow.core import commands as cmd
from aioflow.core import events as ev
from aioflow.errors import NondeterminismError

_RECORDED_AS: dict[type[cmd.Command], type[ev.Event]] = {
    cmd.ScheduleActivity: ev.ActivityScheduled,
    cmd.CancelActivity: ev.ActivityCancelRequested,
    cmd.StartTimer: ev.TimerStarted,
    cmd.CancelTimer: ev.TimerCancelled,
    cmd.RecordSideEffect: ev.SideEffectRecorded,
    cmd.CompleteRun: ev.RunCompleted,
    cmd.FailRun: ev.RunFailed,
    cmd.CancelRun: ev.RunCancelled,
}
HISTORY = "history_events"
"""The limit that closes a run whatever its code does."""
# What must agree beside kind and address. Arguments and durations may change between deploys.
_NAMED: dict[type[ev.Event], str] = {ev.ActivityScheduled: "activity", ev.ChildScheduled: "workflow"}


class Ledger:
    """One loaded history, cut into turns: an input, and what was recorded behind it.

    ``values`` holds recorded values by address: live they resolved at once, so on replay they do too. ``end`` is the
    terminal event, None while the run is open.
    """

    def __init__(self, history: Sequence[ev.Event]) -> None:
        self._history = history
        self._seq = 0
        self.end: ev.Terminal | None = None
        self.values: dict[str, ev.SideEffectRecorded] = {
            one.ref: one for one in history if isinstance(one, ev.SideEffectRecorded) and one.ref
        }

    def turns(self) -> Iterator[tuple[ev.Input, list[ev.Recorded]]]:
        """Inputs in order, each with its recorded events; sets ``end`` when the terminal event is met."""
        position, history = 0, self._history
        while position < len(history):
            event = history[position]
            if isinstance(event, ev.Terminal):
                self.end = event
                return
            if not isinstance(event, ev.Input):
                raise NondeterminismError("an input event", describe(event), position + 1)
            stop = position + 1
            recorded: list[ev.Recorded] = []
            while stop < len(history):
                one = history[stop]
                if not isinstance(one, ev.Recorded) or isinstance(one, ev.Terminal):
                    break
                recorded.append(one)
                stop += 1
            self._seq = position + 1
            yield event, recorded
            position = stop

    def match(self, issued: Sequence[cmd.Command], recorded: Sequence[ev.Recorded]) -> None:
        """Compare the commands of a turn with its recorded events, by kind and address in any order."""
        found = {(_RECORDED_AS[type(one)], one.ref): one for one in issued}
        for position, event in enumerate(recorded):
            command = found.pop((type(event), event.ref or ""), None)
            if command is None or self._name(event) != command.name:
                other = command or next(iter(found.values()), None)
                raise NondeterminismError(describe(event), describe(other), self._seq + position + 1)
        if found:
            raise NondeterminismError(
                "nothing more", describe(next(iter(found.values()))), self._seq + len(recorded) + 1
            )

    def match_end(self, end: cmd.Command | None) -> None:
        """Compare how the code ended with how history ended; not when it was ended for the code."""
        if isinstance(self.end, ev.Forced) or (isinstance(self.end, ev.RunFailed) and self.end.limit == HISTORY):
            return
        kind = None if end is None else _RECORDED_AS[type(end)]
        if kind is not (None if self.end is None else type(self.end)):
            expected = "an open run" if self.end is None else self.end.kind
            raise NondeterminismError(expected, describe(end) if end else "an open run", len(self._history) + 1)

    @staticmethod
    def _name(event: ev.Event) -> str | None:
        field = _NAMED.get(type(event))
        return None if field is None else getattr(event, field)


def describe(one: ev.Event | cmd.Command | None) -> str:
    """A short text for people: kind, address, and the name if it has one."""
    if one is None:
        return "nothing"
    kind = _RECORDED_AS[type(one)].__name__ if isinstance(one, cmd.Command) else one.kind
    name = one.name if isinstance(one, cmd.Command) else Ledger._name(one)
    return " ".join(part for part in (kind, one.ref and f"at {one.ref}", name and f"({name})") if part)
