"""Rules for what callers do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from aioflow.core.keys import InstanceKey
from aioflow.store import rows
from tests.faults.stateful.machine_base import KEY, LOST, PICK, PLACE, Base

TYPES = st.tuples(st.sampled_from(["W", "W", "V"]), st.sampled_from(["q", "q", "r"]))
CONFLICT = st.sampled_from(["fail", "fail", "use_existing", "use_existing", "terminate_existing"])
REUSE = st.sampled_from(["allow", "allow", "allow_failed_only", "reject"])
GRACE = st.sampled_from([None, 3.0, 30.0])


def batch(item: Any, most: int = 3) -> Any:
    return st.lists(item, min_size=1, max_size=most)


class ClientRules(Base):
    """Start, reserve, signal, cancel, terminate, release; and all of it again."""

    def tell(self, name: str, requests: list[Any], lost: str | None) -> list[Any]:
        """Send requests; one alone may lose its answer, if its key or run tells the second try from a new one."""
        request = requests[0]
        once = len(requests) == 1 and (request.key is not None or name == "start")
        answers = self.ask(name, requests, lost=lost if once else None)
        self.sent += [(name, one) for one in requests]
        for answer in answers:
            self.saw(f"{name} {answer.outcome}{' again' if getattr(answer, 'again', False) else ''}")
        return list(answers)

    @rule(items=batch(st.tuples(PLACE, KEY, TYPES, CONFLICT, REUSE, st.integers(0, 2))), lost=LOST)
    def start(self, items: list[Any], lost: str | None) -> None:
        requests = [
            rows.StartRequest(
                run_id=self.uid(),
                workflow=workflow,
                queue=queue,
                record=self.record("RunStarted", None, '{"seed":"s"}', b"\x01[]"),
                build="b1" if priority else None,
                priority=priority,
                conflict=conflict,
                reuse=reuse,
                **self.keyed(place, key),
            )
            for place, key, (workflow, queue), conflict, reuse, priority in items
        ]
        self.tell("start", requests, lost)

    def reserve(self, items: list[Any], lost: str | None) -> None:
        requests = [
            rows.ReserveRequest(workflow=workflow, queue=queue, reuse=reuse, **self.keyed(place, key))
            for place, key, _, (workflow, queue), reuse in items
        ]
        self.tell("reserve", requests, lost)

    def signals(self, items: list[Any]) -> list[rows.SignalRequest]:
        return [
            rows.SignalRequest(
                record=self.record("SignalReceived", self.uid().hex, '{"name":"s"}', b"\x01[1]"),
                **self.keyed(place, key),
            )
            for place, key in items
        ]

    @rule(items=batch(st.tuples(PLACE, KEY), 4), times=st.sampled_from([1, 1, 1, 5]), lost=LOST)
    def signal(self, items: list[Any], times: int, lost: str | None) -> None:
        if times > 1:
            items = [(items[0][0], "generated")] * times
        self.tell("signal", self.signals(items), lost)

    @rule(items=batch(st.tuples(PLACE, KEY, GRACE), 2), lost=LOST)
    def request_cancel(self, items: list[Any], lost: str | None) -> None:
        requests = [
            rows.CancelRequest(
                record=self.record("CancelRequested", self.uid().hex, '{"reason":"enough"}'),
                grace=grace,
                **self.keyed(place, key),
            )
            for place, key, grace in items
        ]
        self.tell("request_cancel", requests, lost)

    @rule(
        items=batch(st.tuples(PLACE, KEY, st.one_of(st.none(), st.none(), PICK), TYPES, REUSE), 2),
        reserve=st.booleans(),
        lost=LOST,
    )
    def reserve_or_terminate(self, items: list[Any], reserve: bool, lost: str | None) -> None:
        (self.reserve if reserve else self.terminate)(items, lost)

    def terminate(self, items: list[Any], lost: str | None) -> None:
        requests = [
            self.termination(self.keyed(place, key), None if run is None else self.known_run(place, run))
            for place, key, run, *_ in items
        ]
        self.tell("terminate", requests, lost)

    def known_run(self, place: Any, n: int) -> Any:
        """A run that the instance has or had, or nobody's."""
        runs = [row["run_id"] for row in self.oracle.run.values() if (row["namespace"], row["instance_id"]) == place]
        return self.pick([self.uid(), *runs], n)

    def termination(self, keyed: dict[str, Any], run_id: Any, origin: str = "terminate") -> rows.TerminateRequest:
        record = self.record("RunTerminated", None, f'{{"origin":"{origin}"}}')
        return rows.TerminateRequest(record=record, commit=self.uid(), run_id=run_id, **keyed)

    @precondition(lambda self: self.sent)
    @rule(n=PICK, lost=LOST)
    def again(self, n: int, lost: str | None) -> None:
        """The same request once more, maybe long after."""
        name, request = self.pick(self.sent, n)
        if name == "terminate":
            request = replace(request, commit=self.uid())
        self.tell(name, [request], lost)
        self.saw("request again")

    @rule(
        what=st.integers(0, 2), n=PICK, old=st.booleans(), places=st.lists(PLACE, min_size=1, max_size=2, unique=True)
    )
    def keep_house(self, what: int, n: int, old: bool, places: list[Any]) -> None:
        """Sweeps, and what operators do."""
        if what == 0:
            self.close_what_is_due(n, old)
        elif what == 1 or self.oracle.quarantined():
            self.release_quarantined(places)
        else:
            self.saw("request expired", self.ask("expire_requests"))

    def close_what_is_due(self, n: int, old: bool) -> None:
        """The grace of a cancel is over: forced, guarded by its run; sometimes one that was due long ago."""
        ends = [row["due_at"] for row in self.oracle.timer.values() if row["kind"] == "cancel_grace"]
        if n % 2 and ends and min(ends) > self.oracle.now:
            self.move(min(ends) - self.oracle.now)
        found = self.world.run(self.world.store.due_closes())
        assert sorted(found, key=lambda one: (one.due_at, one.run_id)) == self.oracle.due_closes()
        self.closes += [one for one in self.oracle.due_closes() if one not in self.closes]
        if not (self.closes if old else found):
            return
        due = self.pick(self.closes if old else self.oracle.due_closes(), n)
        keyed = self.keyed((due.key.namespace, due.key.instance_id), None)
        (answer,) = self.ask("terminate", [self.termination(keyed, due.run_id, due.kind)])
        self.saw(f"grace over: {answer.outcome}")

    def release_quarantined(self, places: list[Any]) -> None:
        sick = [(one.namespace, one.instance_id) for one in self.oracle.quarantined()]
        chosen = dict.fromkeys([*sick[:1], *places])
        for answer in self.ask("release_quarantined", [InstanceKey.of(*place) for place in chosen]):
            self.saw(f"release {answer.outcome}")
