"""The whole machine: all rules, those that only read as well."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule

from aioflow.core.keys import InstanceKey
from aioflow.store import rows
from tests.faults.stateful.machine_base import PICK, PLACES
from tests.faults.stateful.oracle_tables import plain
from tests.faults.stateful.rules_workers import WorkerRules

TYPES = (["q", "r"], ["W", "V"], ["act", "bct"])
STATUSES = st.sampled_from([None, None, "running", "reserved", "completed", "terminated"])


class Machine(WorkerRules):
    """Every operation of the store, on Postgres and on the oracle."""

    @rule(
        what=st.integers(0, 3),
        place=st.sampled_from(PLACES),
        n=PICK,
        flag=st.booleans(),
        page=st.tuples(st.integers(0, 3), st.integers(1, 5)),
        status=STATUSES,
    )
    def look(self, what: int, place: Any, n: int, flag: bool, page: tuple[int, int], status: str | None) -> None:
        """Everything that only reads."""
        if what == 0:
            self.look_at_one(place, n, flag)
        elif what == 1:
            self.look_into_one(n, *page)
        elif what == 2:
            self.list_all("other" if n == 1 else "default", status)
        else:
            self.look_around(flag)

    def look_at_one(self, place: Any, n: int, named: bool) -> None:
        key, store = InstanceKey.of(*place), self.world.store
        run_id = self.known_run(place, n) if named else None
        self.ask("describe", key, run_id)
        self.ask("generations", [key])
        ref = rows.InstanceRef(key, run_id)
        (found,) = self.world.run(store.results([ref]))
        shown = found and (found.run_id, found.workflow, found.status, found.record and plain(found.record))
        assert shown == self.oracle.results(ref)
        self.saw("looked at", found is not None)

    def look_into_one(self, n: int, after: int, limit: int) -> None:
        """A run from inside: its activities and its history, in pages."""
        store, run = self.world.store, self.pick(list(self.oracle.run.values()), n)
        key = InstanceKey.of(run["namespace"], run["instance_id"])
        pending = self.world.run(store.pending_activities(key.shard, run["run_id"]))
        assert pending == self.oracle.pending_activities(run["run_id"])
        page = self.world.run(store.read_history(key, run["run_id"], after, limit))
        expected = self.oracle.read_history(run["run_id"], after, limit)
        assert [(one.seq, one.commit, plain(one.record)) for one in page] == expected
        ref = rows.HistoryRef(key.shard, run["run_id"], upto=after + limit, after=after)
        (events,) = self.world.run(store.load_history([ref]))
        assert [plain(one) for one in events] == [event for *_, event in expected]
        self.saw("looked into", len(expected))

    def list_all(self, namespace: str, status: str | None) -> None:
        found = self.world.run(self.world.store.list_instances(namespace, status=status))
        assert found == self.oracle.list_instances(namespace, status)
        if len(found) > 1:
            after = rows.Page(found[0].started_at, found[0].key.instance_id)
            rest = self.world.run(self.world.store.list_instances(namespace, status=status, limit=1, after=after))
            assert rest == found[1:2]
        self.saw("listed", len(found))

    def look_around(self, dead: bool) -> None:
        """What is due, what is sick, who is there."""
        for namespace in ("default", "other"):
            self.ask("next_due", namespace, *TYPES)
            self.ask("suspects", namespace, *TYPES)
        found = self.world.run(self.world.store.quarantined())
        assert found == self.oracle.quarantined()
        self.ask("backlog")
        workers = self.world.run(self.world.store.workers(dead=dead))
        assert sorted(workers, key=lambda one: one.worker_id) == self.oracle.workers(dead)
        assert self.world.run(self.world.store.clock()) == self.oracle.now
        self.saw("looked around")
