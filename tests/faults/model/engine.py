"""A small explicit-state model checker: every interleaving of a few processes, breadth first.

A *model* states one rule of the protocol. It has a shared state (what the database holds, and what is noted only to
be judged), and processes, each at a *place* with a *memory*. The method of the model that has the name of the place
gives the steps that are possible there: ``label, shared state, next place, next memory``. None: the process waits.

READ COMMITTED in steps: a statement that reads rows it does not lock has a step that takes its snapshot; taking the
last lock, looking again at the locked row, writing and committing is one step, since nobody can tell where in it he
stands: readers see none of it before, and whoever wants the lock waits in either case. Locks are held over steps (in
``locks``) only where that can be told: several of them, ``skip locked``, or several statements in a transaction.

A wrong state is found by a method ``always_<invariant>`` (every state) or ``finally_<invariant>`` (states in which
nothing more can happen) that gives a reason, or by a step that raises `Wrong`. Two are built in: ``deadlock``, a
process that waits though nothing can happen any more, at a place where it may not; and ``progress``, asked for by
``settles``: from every state an end can be reached.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, NamedTuple

__all__ = ["Model", "Mutant", "Rows", "Run", "Wrong", "check"]

LIMIT = 2_000_000
ENDED = frozenset({"done", "dead"})
Step = tuple[str, Any, str, Any]
Steps = Iterator[Step]


class Wrong(Exception):
    """A step breaks an invariant, by name."""

    def __init__(self, invariant: str, reason: str) -> None:
        super().__init__(reason)
        self.invariant, self.reason = invariant, reason


class Rows:
    """Mixed into a named tuple with a field ``locks``: pairs of row and holder."""

    __slots__ = ()
    locks: frozenset[tuple[Any, str]]
    _replace: Callable[..., Any]

    def but(self, **fields: Any) -> Any:
        """The same state with other values for these fields."""
        return self._replace(**fields)

    def free(self, row: Any, me: str) -> bool:
        """Whether nobody else has locked the row."""
        return all(locked != row or holder == me for locked, holder in self.locks)

    def lock(self, row: Any, me: str) -> Any:
        """With the row locked."""
        return self._replace(locks=self.locks | {(row, me)})

    def unlock(self, me: str) -> Any:
        """With all locks of the holder gone: its transaction is over."""
        return self._replace(locks=frozenset(pair for pair in self.locks if pair[1] != me))


class Mutant(NamedTuple):
    """A planted mistake: the flaw (also its switch in the model), the invariant that it must break, and where."""

    flaw: str
    breaks: str
    variant: str = ""


class Model:
    """One rule. ``flaws`` are the mistakes that are switched on, ``options`` what makes the variant."""

    rule: ClassVar[str]
    planned: ClassVar[str] = ""  # what of it the product does not have yet
    held_to: ClassVar[dict[str, tuple[str, ...]]]  # a file of aioflow/store, or function(): what must stand there
    variants: ClassVar[dict[str, tuple[str, ...]]] = {"": ()}
    mutants: ClassVar[tuple[Mutant, ...]]
    mortal: tuple[str, ...] = ()  # who may be killed
    kills: int = 1
    reborn: str | None = None  # the place at which another process takes over from a killed one; None: nobody does
    resting: frozenset[str] = frozenset()  # places at which a process may wait for ever
    settles: bool = False

    def __init__(self, *options: str, flaw: str | None = None) -> None:
        self.options = frozenset(options)
        self.flaws = frozenset({flaw} if flaw else ())

    def start(self) -> Any:
        """The shared state at first."""
        raise NotImplementedError

    def processes(self) -> dict[str, tuple[str, Any]]:
        """Place and memory of each process at first."""
        raise NotImplementedError

    def killed(self, s: Any, name: str) -> Any:
        """The shared state after a process was killed (its locks are gone already)."""
        return s


class Run(NamedTuple):
    """What a search found; no invariant: clean."""

    states: int
    seconds: float
    invariant: str | None = None
    reason: str = ""
    trace: tuple[str, ...] = ()


class _Found(Exception):
    def __init__(self, invariant: str, reason: str, at: Any, last: str | None = None) -> None:
        super().__init__(reason)
        self.invariant, self.reason, self.at, self.last = invariant, reason, at, last


class _Search:
    """States are (shared, ((place, memory), ...), kills left)."""

    def __init__(self, model: Model) -> None:
        self.model = model
        processes = model.processes()
        self.names = list(processes)
        self.first = (model.start(), tuple(processes.values()), model.kills if model.mortal else 0)
        self.came: dict[Any, tuple[Any, str] | None] = {self.first: None}
        self.always = self._judges("always_")
        self.finally_ = self._judges("finally_")
        self.back: dict[Any, list[Any]] = {}
        self.ends: list[Any] = []

    def _judges(self, prefix: str) -> list[tuple[str, Callable[[Any], str | None]]]:
        return [(n.removeprefix(prefix), getattr(self.model, n)) for n in dir(self.model) if n.startswith(prefix)]

    def run(self, limit: int) -> None:
        queue = deque([self.first])
        self._judge(self.first, self.always)
        while queue:
            state = queue.popleft()
            moved = False
            for label, after, fault in self._steps(state):
                moved = moved or not fault
                if self.model.settles:
                    self.back.setdefault(after, []).append(state)
                if after not in self.came:
                    self.came[after] = (state, label)
                    self._judge(after, self.always)
                    queue.append(after)
            if not moved:
                self._quiet(state)
            if len(self.came) > limit:
                raise _Found("size", f"more than {limit} states", state)
        if self.model.settles:
            self._progress()

    def _steps(self, state: Any) -> Iterator[tuple[str, Any, bool]]:
        """What may happen, the state after, and whether it is a kill: what only a kill leads out of is quiet."""
        s, processes, kills = state
        model = self.model
        for n, (place, memory) in enumerate(processes):
            if place in ENDED:
                continue
            name = self.names[n]
            before, behind = processes[:n], processes[n + 1 :]
            try:
                for label, t, at, kept in getattr(model, place)(s, name, memory):
                    yield f"{name}: {label}", (t, (*before, (at, kept), *behind), kills), False
            except Wrong as wrong:
                raise _Found(wrong.invariant, wrong.reason, state, f"{name}: in {place}") from None
            if kills and name in model.mortal:
                t = model.killed(s.unlock(name) if hasattr(s, "locks") else s, name)
                yield (
                    f"{name}: killed in {place}",
                    (t, (*before, (model.reborn or "dead", None), *behind), kills - 1),
                    True,
                )

    def _judge(self, state: Any, judges: list[tuple[str, Callable[[Any], str | None]]]) -> None:
        for invariant, judge in judges:
            if reason := judge(state[0]):
                raise _Found(invariant, reason, state)

    def _quiet(self, state: Any) -> None:
        allowed = ENDED | self.model.resting
        waiting = [f"{n} in {p[0]}" for n, p in zip(self.names, state[1], strict=True) if p[0] not in allowed]
        if waiting:
            raise _Found("deadlock", f"waiting for ever: {', '.join(waiting)}", state)
        self._judge(state, self.finally_)
        self.ends.append(state)

    def _progress(self) -> None:
        good, todo = set(self.ends), list(self.ends)
        while todo:
            for before in self.back.get(todo.pop(), ()):
                if before not in good:
                    good.add(before)
                    todo.append(before)
        for state in self.came:
            if state not in good:
                raise _Found("progress", "no end can be reached from here", state)

    def trace(self, state: Any, last: str | None) -> tuple[str, ...]:
        labels = [last] if last else []
        while (came := self.came[state]) is not None:
            state, label = came
            labels.append(label)
        return tuple(reversed(labels))


def check(model: Model, limit: int = LIMIT) -> Run:
    """Look at every state that can be reached; the shortest way to the first wrong one."""
    search, begun = _Search(model), time.perf_counter()
    try:
        search.run(limit)
    except _Found as found:
        trace = search.trace(found.at, found.last)
        return Run(len(search.came), time.perf_counter() - begun, found.invariant, found.reason, trace)
    return Run(len(search.came), time.perf_counter() - begun)
