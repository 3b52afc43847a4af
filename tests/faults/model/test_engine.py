"""The checker itself: it finds what it is there for, and says how it came about."""

from __future__ import annotations

from collections import namedtuple

import pytest

from tests.faults.model.engine import Model, Rows, Steps, Wrong, check


class Shared(Rows, namedtuple("Shared", "count locks")):
    __slots__ = ()


class Counter(Model):
    """Two processes add one: in one step, or by reading first (``torn``), or by two locks in any order (``locks``)."""

    def start(self) -> Shared:
        return Shared(0, frozenset())

    def processes(self) -> dict[str, tuple[str, object]]:
        order = [("x", "y"), ("y", "x") if "locks" in self.flaws else ("x", "y")]
        return {f"p{n}": ("one", rows) for n, rows in enumerate(order)}

    def one(self, s: Shared, me: str, rows: tuple[str, str]) -> Steps:
        if s.free(rows[0], me):
            yield "first lock", s.lock(rows[0], me), "two", rows

    def two(self, s: Shared, me: str, rows: tuple[str, str]) -> Steps:
        if "torn" in self.flaws:
            yield "read", s.unlock(me), "write", s.count
        elif "loop" in self.flaws:
            yield "again", s.unlock(me), "one", rows
        elif s.free(rows[1], me):
            yield "second lock", s.lock(rows[1], me), "write", s.count

    def write(self, s: Shared, me: str, seen: int) -> Steps:
        if "raise" in self.flaws:
            raise Wrong("raised", "by a step")
        yield "write", s.but(count=seen + 1).unlock(me), "done", None

    def always_small(self, s: Shared) -> str | None:
        return "too large" if s.count > 2 else None

    def finally_sum(self, s: Shared) -> str | None:
        return f"count is {s.count}" if s.count != 2 else None


class Mortal(Counter):
    mortal = ("p0",)

    def killed(self, s: Shared, name: str) -> Shared:
        return s.but(count=s.count + 10) if "messy" in self.flaws else s


class Settling(Counter):
    settles = True


def test_a_right_model_is_clean() -> None:
    run = check(Counter())
    assert (run.invariant, run.trace) == (None, ())
    assert run.states == 12


@pytest.mark.parametrize(
    ("flaw", "invariant", "steps"), [("torn", "sum", 6), ("locks", "deadlock", 2), ("raise", "raised", 3)]
)
def test_finds_the_shortest_way_to_a_wrong_state(flaw: str, invariant: str, steps: int) -> None:
    run = check(Counter(flaw=flaw))
    assert (run.invariant, len(run.trace)) == (invariant, steps)
    assert run.reason


def test_kills_a_process_anywhere_and_lets_its_locks_go() -> None:
    run = check(Mortal())
    assert run.invariant == "sum", "one who died before it wrote did not count"
    assert any("killed" in label for label in run.trace)
    assert check(Mortal(flaw="messy")).invariant == "small"


def test_finds_a_circle_that_nothing_leads_out_of() -> None:
    assert check(Settling()).invariant is None
    assert check(Settling(flaw="loop")).invariant == "progress"


def test_gives_up_on_a_model_that_is_too_large() -> None:
    assert check(Counter(), limit=3).invariant == "size"
