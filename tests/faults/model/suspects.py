"""What kills its workers is tried alone, then quarantined; its neighbours are not.

Models the counting in `reap_blame.sql`, `reap_runs.sql` and `commit_runs.sql` (a commit clears it), the claims apart in
`claim_runs.sql` (ordinary work or suspects, never both), `release_quarantined()`, and what a worker does: a suspect is
claimed alone. Run K kills whoever steps it; runs N and M do not, and may be beside it. A worker is reborn as another.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any, ClassVar

from tests.faults.model.engine import Model, Mutant, Steps, Wrong

QUARANTINE = 3
RUNS = ("K", "M", "N")


class Shared(namedtuple("Shared", "rows dead deaths done since freed")):
    """``rows``: (owner, crashes, isolation) per run, None when done; ``dead``: (worker, blame, it held a suspect).

    ``since``: how often N was counted since it last committed.
    """

    __slots__ = ()

    def row(self, run: str) -> Any:
        """Of a run."""
        return self.rows[RUNS.index(run)]

    def put(self, run: str, row: Any) -> Any:
        """With another row of a run."""
        n = RUNS.index(run)
        return self._replace(rows=(*self.rows[:n], row, *self.rows[n + 1 :]))

    def held(self, worker: str) -> list[str]:
        """What a worker owns."""
        return [run for run, row in zip(RUNS, self.rows, strict=True) if row and row[0] == worker]


class Suspects(Model):
    rule = "suspects"
    held_to: ClassVar = {
        "reap_blame.sql": (
            "exists (select from aioflow.instance_hot h where h.owner = w.worker_id and h.isolation > 0)",
            "then 'suspects' else 'all' end",
            "and w.dead and w.blame is null",
        ),
        "reap_runs.sql": (
            "(w.blame = 'all' or w.blame = 'suspects' and h.isolation > 0)::integer as crash",
            "when m.crashes + 1 >= $3 then 2 when m.crashes >= 1 then 1 else 0 end",
        ),
        "reap_activities.sql": ("(w.blame = 'all' or w.blame = 'suspects' and a.isolation > 0)::integer as crash",),
        "claim_runs.sql": ("x.isolation = $7::boolean::integer",),
        "claim_activities.sql": ("x.isolation = $6::boolean::integer",),
        "commit_runs.sql": ("attempt = 0, crashes = 0, isolation = 0",),
        "release_quarantined()": ("set isolation = 1, crashes = 2, blocked_reason = null",),
        "release_runs.sql": ("crashes = case when i.alive then 0",),
    }
    variants: ClassVar = {"": (), "a suspect beside others": ("beside",), "let out of quarantine": ("free",)}
    mutants = (
        Mutant("suspects are claimed with the others", "neighbour"),
        Mutant("all that a worker held is blamed, though it held a suspect", "blamed", "a suspect beside others"),
        Mutant("a commit does not clear the count", "in_a_row"),
        Mutant("counted at the end of a step", "killer"),
        Mutant("blame is decided while rows are released", "blamed", "a suspect beside others"),
        Mutant("quarantined rows are claimed as suspects", "killer"),
        Mutant("a worker takes several suspects at once", "neighbour"),
        Mutant("who is let out starts from nothing", "sentence", "let out of quarantine"),
        Mutant("a death with a good-bye is blamed", "neighbour"),
    )
    resting = frozenset({"idle", "reap", "free"})

    def start(self) -> Shared:
        free = (None, 0, 0)
        return Shared((free, free, free), (), 0, (), 0, False)

    def processes(self) -> dict[str, tuple[str, Any]]:
        found: dict[str, tuple[str, Any]] = {"w": ("idle", 1), "x": ("idle", 1), "reaper": ("reap", None)}
        if "free" in self.options:
            found["operator"] = ("free", None)
        return found

    # workers: memory is the number of the life, then what is held

    def idle(self, s: Shared, me: str, life: int) -> Steps:
        name = f"{me}{life}"
        ordinary = self._claimable(s, 0)
        if "suspects are claimed with the others" in self.flaws:
            ordinary = [run for level in (0, 1) for run in self._claimable(s, level)]
        if ordinary:
            after = s
            for run in ordinary:
                after = after.put(run, (name, *s.row(run)[1:]))
            yield f"claims {ordinary}", after, "step", (life, tuple(ordinary))
        suspects = self._claimable(s, 1)
        if "quarantined rows are claimed as suspects" in self.flaws:
            suspects += self._claimable(s, 2)
        together = "a worker takes several suspects at once" in self.flaws
        for taken in [suspects] if together and suspects else [[run] for run in suspects]:
            after = s
            for run in taken:
                after = after.put(run, (name, *s.row(run)[1:]))
            yield f"claims {taken} alone", after, "step", (life, tuple(taken))

    def _claimable(self, s: Shared, level: int) -> list[str]:
        return [run for run, row in zip(RUNS, s.rows, strict=True) if row and row[0] is None and row[2] == level]

    def step(self, s: Shared, me: str, mem: Any) -> Steps:
        """One after the other, in any order: K kills, what was committed before is done."""
        life, runs = mem
        name = f"{me}{life}"
        yield from self._beside(s, name, life, runs)
        if not runs:
            yield "nothing left", s, "idle", life
        for run in runs:
            if run == "K":
                suspect = any(s.row(held)[2] > 0 for held in s.held(name))
                after = s._replace(deaths=s.deaths + 1, dead=(*s.dead, (name, None, suspect)))
                yield "steps K, dies", after, "idle", life + 1
            else:
                left = tuple(other for other in runs if other != run)
                yield f"commits {run}", self._commit(s, run), "step", (life, left)
        blamed = "a death with a good-bye is blamed" in self.flaws
        if runs and "K" not in runs and life <= (3 if blamed else 1):
            after = s
            for run in runs:
                crashes = s.row(run)[1] + blamed
                level = self._level(crashes) if blamed else s.row(run)[2]
                after = after.put(run, (None, crashes, level))
            yield "says good-bye", after, "idle", life + 1

    def _commit(self, s: Shared, run: str) -> Shared:
        """M is done by it; N goes on once."""
        row = None
        if run == "N" and "N" not in s.done:
            row = (None, *s.row(run)[1:]) if "a commit does not clear the count" in self.flaws else (None, 0, 0)
        return s.put(run, row)._replace(done=(*s.done, run), since=0 if run == "N" else s.since)

    def _beside(self, s: Shared, name: str, life: int, runs: tuple[str, ...]) -> Steps:
        """It could not get rid of its other work in time: ordinary runs go on beside a suspect."""
        if "beside" in self.options and runs and not any(s.row(run)[2] for run in runs):
            for run in self._claimable(s, 1):
                after = s.put(run, (name, *s.row(run)[1:]))
                yield f"claims {run} beside them", after, "step", (life, (*runs, run))

    def _level(self, crashes: int) -> int:
        return 2 if crashes >= QUARANTINE else 1 if crashes >= 2 else 0

    # the reaper: blame first, for all that a worker holds; then one row after the other

    def reap(self, s: Shared, me: str, mem: Any) -> Steps:
        for n, (name, blame, suspect) in enumerate(s.dead):
            held = s.held(name)
            if not held:
                continue
            now = "suspects" if any(s.row(run)[2] > 0 for run in held) else "all"
            if "all that a worker held is blamed, though it held a suspect" in self.flaws:
                now = "all"
            if blame is None and "blame is decided while rows are released" not in self.flaws:
                dead = (*s.dead[:n], (name, now, suspect), *s.dead[n + 1 :])
                yield f"the death of {name} is for {now}", s._replace(dead=dead), "reap", None
                return
            yield from self._release(s, held[0], blame or now, suspect)
            return

    def _release(self, s: Shared, run: str, blame: str, suspect: bool) -> Steps:
        _, crashes, level = s.row(run)
        if "counted at the end of a step" in self.flaws:
            yield f"{run} released", s.put(run, (None, crashes, level)), "reap", None
            return
        if blame == "all" or level > 0:
            if suspect and not level:
                raise Wrong("blamed", f"{run} is blamed for a death that a suspect was there for")
            crashes += 1
            level = self._level(crashes)
            s = s._replace(since=s.since + (run == "N"))
        yield f"{run} released, {crashes} crashes", s.put(run, (None, crashes, level)), "reap", None

    def free(self, s: Shared, me: str, mem: Any) -> Steps:
        for run in RUNS:
            if s.row(run) and s.row(run)[2] == 2:
                fresh = "who is let out starts from nothing" in self.flaws
                row = (None, 0, 0) if fresh else (None, 2, 1)
                yield f"{run} is let out", s.put(run, row)._replace(freed=True), "done", None

    # what must hold

    def always_neighbour(self, s: Shared) -> str | None:
        for run in ("M", "N"):
            if s.row(run) and s.row(run)[2] == 2:
                return f"{run}, which never killed, is in quarantine"
        return None

    def always_killer(self, s: Shared) -> str | None:
        most = QUARANTINE + (1 if "free" in self.options else 0)
        return f"{s.deaths} workers died of one run" if s.deaths > most else None

    def always_sentence(self, s: Shared) -> str | None:
        """Whoever was let out is tried alone at once."""
        row = s.row("K")
        return "let out, and among others again" if s.freed and row and row[2] == 0 and "free" in self.options else None

    def always_in_a_row(self, s: Shared) -> str | None:
        row = s.row("N")
        polite = "a death with a good-bye is blamed" in self.flaws
        return "a death before its last commit counts" if row and row[1] > s.since and not polite else None

    def finally_done(self, s: Shared) -> str | None:
        left = [run for run in ("M", "N") if s.row(run) and run not in s.done]
        return f"{left} never done because of their neighbour" if left and not self.flaws else None


MODELS = (Suspects,)
