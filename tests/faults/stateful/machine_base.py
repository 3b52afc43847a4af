"""What all rules share: the store and its oracle side by side, what was handed out before, and what was seen.

Whatever a rule got hold of (tasks, attempts, commits, requests, …) is kept for good, also when it is stale: zombies are
rules that use it again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar, TypeVar
from uuid import UUID

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant

from aioflow.core.events import Record
from aioflow.store import rows
from tests.faults.stateful.oracle import Oracle
from tests.faults.stateful.oracle_tables import Row, parsed, plain
from tests.faults.stateful.world import World

T = TypeVar("T")

PICK = st.integers(0, 63)
PICKS = st.builds(lambda n, many: list(range(n, n + many)), PICK, st.sampled_from([1, 1, 2, 3]))
OLD = st.sampled_from([False, False, False, True])
LOST = st.sampled_from([None, None, None, None, "before_send", "after_send"])
PLACES = [("default", "a"), ("default", "b"), ("default", "c"), ("other", "a"), ("nowhere", "a")]
PLACE = st.sampled_from([PLACES[0]] * 6 + [PLACES[1]] * 5 + PLACES)
KEY = st.one_of(
    st.none(),
    st.just("generated"),
    st.tuples(st.sampled_from(["k1", "k2"]), st.sampled_from([b"A", b"A", b"B"]), st.sampled_from([None, 20.0])),
)
EVERY = 8
"""Steps between two looks at the invariants of the product, which read whole tables."""

TICK = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class Task:
    """A run that was claimed, and what was loaded then."""

    run: rows.ClaimedRun
    loaded: rows.Loaded


def loaded_as(loaded: rows.Loaded | None) -> Any:
    """What was loaded, as it compares."""
    if loaded is None:
        return None
    return {
        "gen": loaded.gen,
        "next_seq": loaded.next_seq,
        "head": loaded.head,
        "sealed": loaded.sealed,
        "refused": loaded.refused,
        "inbox": [plain(record) for record in loaded.inbox],
        "gens": loaded.gens,
        "timers": [plain(record) for record in loaded.timers],
    }


class Base(RuleBasedStateMachine):
    """No rule yet."""

    world: ClassVar[World]
    seen: ClassVar[Counter[str]] = Counter()

    def __init__(self) -> None:
        super().__init__()
        self.oracle = Oracle()
        self._ids, self._steps, self.still = 0, 0, True
        self.sent: list[tuple[str, Any]] = []
        self.tasks: list[Task] = []
        self.commits: list[rows.Commit] = []
        self.attempts: list[rows.ClaimedActivity] = []
        self.expired: list[rows.ExpiredActivity] = []
        self.closes: list[rows.DueClose] = []
        self.workers: list[UUID] = []
        self.due: dict[tuple[UUID, str], Any] = {}
        self.world.run(self.world.empty())

    # -- helpers of rules ---------------------------------------------------------------------------

    def uid(self) -> UUID:
        """A new id, the same in every replay."""
        self._ids += 1
        return UUID(int=self._ids)

    def saw(self, what: str, times: int = 1) -> None:
        self.seen[what] += times

    @staticmethod
    def pick(found: Sequence[T], n: int) -> T:
        """One of them; the last for 0."""
        return found[-1 - n % len(found)]

    def some(self, found: Sequence[T], picks: Sequence[int]) -> list[T]:
        """Some of them, each once."""
        places = dict.fromkeys(-1 - n % len(found) for n in picks) if found else {}
        return [found[place] for place in places]

    def someone(self, n: int) -> UUID:
        """A worker: mostly one that lives, now and then whoever there was."""
        living = [worker for worker in self.workers if self.oracle.alive(worker)]
        if not living and n % 8:
            living = [self.add_worker(1000.0)]
        return self.pick(living if n % 8 else self.workers, n)

    def add_worker(self, lease: float, namespace: str = "default") -> UUID:
        worker = rows.WorkerRow(
            worker_id=self.uid(),
            identity=f"w{len(self.workers)}",
            namespace=namespace,
            queues=("q", "r") if len(self.workers) % 2 == 0 else ("q",),
            workflows=("W", "V"),
            activities=("act", "bct"),
            slots=4,
            lease=lease,
        )
        self.ask("register_worker", worker)
        self.workers.append(worker.worker_id)
        return worker.worker_id

    def keyed(self, place: tuple[str, str], key: Any) -> dict[str, Any]:
        """The fields that all requests have. A generated key may share a call; one of the caller's may not."""
        options: dict[str, Any] = {"namespace": place[0], "instance_id": place[1]}
        if key == "generated":
            return options | {"key": self.uid().hex, "digest": b"A", "keep": 8.0, "alone": False}
        if key is not None:
            return options | {"key": key[0], "digest": key[1], "keep": key[2]}
        return options

    def record(self, kind: str, ref: str | None = None, attrs: str | None = None, payload: bytes | None = None) -> Any:
        return Record(kind, 1, ref, self.oracle.now, attrs, payload)

    def ask(self, name: str, *args: Any, lost: str | None = None, point: str | None = None) -> Any:
        """Do it on both sides; the answers must agree. ``lost``: where its connection breaks, the first time.

        A call whose answer was lost is sent again, so the oracle does it twice; a completion that is sent again is
        looked for among those that were recorded.
        """
        predict = getattr(self.oracle, name)
        if lost is not None:
            self.world.lose(f"{point or name}.{lost}")
            self.saw(f"lost {lost}")
        again = [*args, True] if name == "complete_activities" else args
        expected = predict(*(again if lost == "before_send" else args))
        if lost == "after_send":
            expected = predict(*again)
        got = self.world.run(getattr(self.world.store, name)(*args))
        assert lost is None or self.world.struck, f"no such point: {name}.{lost}"
        assert got == expected, f"{name}: the store answered {got}, the oracle {expected}"
        return got

    # -- after every step ---------------------------------------------------------------------------

    @invariant()
    def all_is_as_predicted(self) -> None:
        """Every row of every table; now and then the product's own invariants. Then a little time passes."""
        real = self.world.run(self.world.tables())
        for name, expected in self.oracle.tables().items():
            differences = _different(real[name], [_shown(row) for row in expected])
            assert not differences, f"{name}: {differences}"
        self._steps += 1
        if self._steps % EVERY == 0:
            self.invariants_hold()
        if not self.still:
            self.move(TICK)
        self.still = False

    def teardown(self) -> None:
        self.invariants_hold()
        self.saw("example")

    def invariants_hold(self) -> None:
        broken = self.world.run(self.world.store.invariants())
        assert not broken, f"invariants of the product: {broken}"

    def move(self, by: timedelta) -> None:
        """Time goes on, for both."""
        self.oracle.now += by
        self.world.run(self.world.set_clock(self.oracle.now))


def _shown(row: Row) -> Row:
    return row | {"attrs": parsed(row["attrs"])} if "attrs" in row else row


def _different(real: list[Row], expected: list[Row]) -> list[str]:
    """What is on one side only, column by column where a row has its like."""
    missing = [row for row in expected if row not in real]
    extra = [row for row in real if row not in expected]
    said = []
    for row in missing:
        like = max(extra, key=lambda one: sum(one[name] == row[name] for name in row), default=None)
        if like is None:
            said.append(f"missing {row}")
        else:
            wrong = {name: (like.get(name), value) for name, value in row.items() if like.get(name) != value}
            said.append(f"(is, should be) {wrong} of {row}")
    if not missing:
        said += [f"too much: {row}" for row in extra]
    if not said and len(real) != len(expected):
        said.append(f"{len(real)} rows, not {len(expected)}")
    return said
