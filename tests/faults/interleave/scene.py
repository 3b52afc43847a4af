"""What every schedule begins with: a few instances in all the states that the operations look for.

Made once by the store itself, kept as copies of the tables, and put back before each schedule, clock included.

* ``p``, ``q``: held by the first worker; ``r``: held by the second, whose lease is over
* ``s``, ``t``: due, held by nobody; ``y``: in quarantine; ``u``: reserved; ``z``: closed; ``m``, ``n``: not there
* each open run has activities: ``a`` runs at the first worker and its time is over, ``b`` runs there, ``c`` runs at
  the second one, ``d`` and ``g`` wait, ``e`` is in quarantine, ``x`` has waited for too long; and a timer that is due
* ``p``, ``q``, ``s``, ``t`` and others share shards, with run ids in another order than their instance ids
* ``q`` and ``t`` were cancelled, and the grace is over; two keys of requests are past their time
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from aioflow.core import events as ev
from aioflow.core.keys import InstanceKey, shard_of
from aioflow.store import rows
from aioflow.store.pool import Database
from aioflow.store.store import Store
from tests.store.bench import NOW, activity, ids, inputs, key, record, scheduled, signalled, started

__all__ = ["GATES", "NAMES", "SETUP", "TABLES", "Scene", "build"]

TABLES: Final = ("worker", "instance", "instance_hot", "run", "inbox", "history", "activity", "timer", "request")
LEASE: Final = 30.0
FAR: Final = timedelta(hours=1)

#: The clock can be moved, and stopped within a statement: at the ``il.pause``-th time that a session asks for it.
SETUP: Final = """
create schema il;
create sequence il.shift minvalue -9000000000000000000 start 0;
create or replace function aioflow.clock() returns timestamptz language plpgsql stable parallel restricted as $$
declare
  n integer := coalesce(nullif(current_setting('il.pause', true), ''), '0')::integer;
  v_shift bigint;
begin
  if n > 0 then
    perform set_config('il.pause', (n - 1)::text, false);
    if n = 1 then
      perform pg_advisory_lock_shared(7, current_setting('il.slot')::integer);
      perform pg_advisory_unlock_shared(7, current_setting('il.slot')::integer);
    end if;
  end if;
  select s.last_value into v_shift from il.shift s;
  return pg_catalog.clock_timestamp() + v_shift * interval '1 microsecond';
end $$;
"""

#: Rows that somebody else may hold for a while, one at a time: so statements stop between two locks.
GATES: Final = {
    "hot": "select from aioflow.instance_hot where instance_id = $1 and $2 = '' for update skip locked",
    "instance": "select from aioflow.instance where instance_id = $1 and $2 = '' for update skip locked",
    "run": "select from aioflow.run where instance_id = $1 and $2 = '' for update skip locked",
    "activity": "select from aioflow.activity where instance_id = $1 and ref = $2 for update skip locked",
    "timer": "select from aioflow.timer where instance_id = $1 and $2 = '' order by ref limit 1 for update skip locked",
    "inbox": "select from aioflow.inbox where instance_id = $1 and $2 = '' order by gen limit 1 for update skip locked",
    "request": "select from aioflow.request where instance_id = $1 and $2 = '' limit 1 for update skip locked",
    "worker": "select from aioflow.worker where identity = $1 and $2 = '' for update skip locked",
}


def _named() -> dict[str, str]:
    """Instance ids: p, q, s, t of one shard, r, u and y of a second, z, m, n of a third."""
    shards = {"p": 7, "q": 7, "s": 7, "t": 7, "r": 30, "u": 30, "y": 30, "m": 51, "n": 51, "z": 51}
    found = {}
    for letter, shard in shards.items():
        found[letter] = next(i for k in range(10_000) if shard_of("default", i := f"{letter}{k}") == shard)
    return found


NAMES: Final = _named()


@dataclass(slots=True)
class Scene:
    """The objects that the holders of what is in the tables have in their hands."""

    clock: datetime
    workers: dict[str, UUID]
    runs: dict[str, rows.ClaimedRun]
    attempts: dict[str, list[rows.ClaimedActivity]]
    run_ids: dict[str, UUID]
    restore: str = field(default="", repr=False)

    @property
    def far(self) -> datetime:
        """When timers are due that are not due in any schedule."""
        return self.clock + FAR

    def key(self, letter: str) -> InstanceKey:
        return key(NAMES[letter])


_OPTIONS: Final[dict[str, dict[str, Any]]] = {
    "a": {"start_to_close": 0.001},
    "b": {"start_to_close": 600.0, "heartbeat": 300.0},
    "c": {"start_to_close": 600.0, "schedule_to_close": 900.0},
    "d": {"schedule_to_start": 600.0},
    "e": {"schedule_to_start": 600.0},
    "g": {},
    "x": {"schedule_to_start": 0.001},
}


class _Builder:
    def __init__(self, store: Store, conn: Any) -> None:
        self.store, self.conn = store, conn
        self.shift = 0.0

    async def later(self, seconds: float) -> None:
        self.shift += seconds
        await self.conn.execute("select setval('il.shift', " + str(int(self.shift * 1e6)) + ")")

    async def signal(self, *letters: str, **options: Any) -> None:
        await self.store.signal(
            [
                rows.SignalRequest(
                    namespace="default", instance_id=NAMES[one], key=ids().hex, record=signalled(), **options
                )
                for one in letters
            ]
        )

    async def start(self, run_ids: dict[str, UUID]) -> None:
        await self.store.start(
            [
                rows.StartRequest(
                    namespace="default", instance_id=NAMES[one], run_id=run_id, workflow="W", queue="q",
                    record=started(), alone=False,
                )
                for one, run_id in run_ids.items()
            ]
        )  # fmt: skip

    async def claim(self, worker: UUID) -> list[rows.ClaimedRun]:
        return await self.store.claim_runs(worker, 0, ["q"], ["W"], 10, ids())

    async def first_commits(self, worker: UUID) -> None:
        commits = []
        for loaded in await self.store.load(await self.claim(worker)):
            assert loaded is not None
            new = [activity(ref, activity=ref, **options) for ref, options in _OPTIONS.items()]
            soon, far = timedelta(seconds=4), FAR + timedelta(seconds=100)
            timers = [("t1", loaded.run.clock + soon), ("t2", loaded.run.clock + far)]
            noted = [record(ev.TimerStarted(at=NOW, ref=ref, due_at=due)) for ref, due in timers]
            commits.append(
                rows.Commit(
                    key=loaded.run.key, run_id=loaded.run.run_id, owner=worker, token=loaded.run.token,
                    next_token=ids(), base_seq=loaded.next_seq, gen=loaded.gen,
                    records=[*inputs(loaded), *map(scheduled, new), *noted], activities=new, timers=timers,
                    next_due=timers[0][1],
                )
            )  # fmt: skip
        assert {one.status for one in await self.store.commit(commits)} == {"ok"}

    async def attempts(self, worker: UUID, *names: str) -> list[rows.ClaimedActivity]:
        return await self.store.claim_activities(worker, 0, ["q"], names, [ids() for _ in range(20)])

    async def finish(self, first: UUID) -> None:
        """Cancels whose grace is over, keys past their time, and things in quarantine."""
        await self.store.request_cancel(
            [
                rows.CancelRequest(
                    namespace="default", instance_id=NAMES[one], key=ids().hex, grace=0.001,
                    record=record(ev.CancelRequested(at=NOW, ref=ids().hex)),
                )
                for one in ("q", "t")
            ]
        )  # fmt: skip
        await self.signal("p", "s", keep=0.001)
        await self.signal("y", "u")
        await self.store.terminate(
            [
                rows.TerminateRequest(
                    namespace="default", instance_id=NAMES["z"], commit=ids(), record=record(ev.RunTerminated(at=NOW))
                )
            ]
        )
        await self.conn.execute("update aioflow.activity set isolation = 2, crashes = 3 where ref = 'e'")
        await self.conn.execute(
            "update aioflow.instance_hot set isolation = 2, crashes = 3 where starts_with(instance_id, 'y')"
        )
        await self.later(5.0)
        await self.store.renew_lease(first, LEASE)


async def build(dsn: str, conn: Any) -> Scene:
    """Make the scene in a migrated database and keep copies of it."""
    await conn.execute(SETUP)
    async with await Database.connect(dsn, max_size=1) as db:
        maker = _Builder(Store(db), conn)
        workers = dict(zip(("one", "two"), sorted((ids(), ids())), strict=True))
        for name, worker in workers.items():
            lease = LEASE if name == "one" else 0.001
            await maker.store.register_worker(
                rows.WorkerRow(worker_id=worker, identity=name, queues=("q",), lease=lease)
            )
        # Later letters have earlier run ids.
        run_ids = dict(zip("ytsrqpz", sorted(ids() for _ in range(7)), strict=True))
        await maker.start(run_ids)
        await maker.first_commits(workers["one"])
        attempts = {"one": await maker.attempts(workers["one"], "a", "b")}
        attempts["two"] = await maker.attempts(workers["two"], "c")
        await maker.later(1.0)
        await maker.store.reserve(
            [rows.ReserveRequest(namespace="default", instance_id=NAMES["u"], key=ids().hex, workflow="W", queue="q")]
        )
        await maker.signal("p", "q")
        held = await maker.claim(workers["one"])
        await maker.signal("r")
        held += await maker.claim(workers["two"])
        await maker.signal("s", "t")
        await maker.finish(workers["one"])
        letters = {NAMES[one]: one for one in NAMES}
        clock = await maker.store.clock()
        runs = {letters[one.key.instance_id]: replace(one, clock=clock) for one in held}
        assert set(runs) == {"p", "q", "r"}, runs
        assert await maker.store.invariants() == []
        return Scene(clock, workers, runs, attempts, run_ids, await _copies(conn))


async def _copies(conn: Any) -> str:
    """Copy the tables; the text that puts the copies back."""
    parts = []
    for table in TABLES:
        await conn.execute(" ".join(("create table", f"il.{table}", "as table", f"aioflow.{table}")))
        parts.append(" ".join(("delete from", f"aioflow.{table};", "insert into", f"aioflow.{table}")))
        parts.append(" ".join(("table", f"il.{table};")))
    return "\n".join(parts)
