"""Mistakes planted into the statements, to see that schedules find them."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

from aioflow.store.migrations import known
from aioflow.store.queries import sql

__all__ = ["MUTANTS", "Mutant"]

Edit = tuple[str, str]


def _changed(text: str, *edits: Edit) -> str:
    for old, new in edits:
        if text.count(old) != 1:
            raise ValueError(f"{old!r} is there {text.count(old)} times")
        text = text.replace(old, new)
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One mistake. ``names``: what to run beside each other; ``functions`` and ``statements``: edits by name."""

    name: str
    broken: str
    names: tuple[str, ...]
    statements: dict[str, tuple[Edit, ...]] = field(default_factory=dict)
    functions: dict[str, tuple[Edit, ...]] = field(default_factory=dict)
    late_generation: bool = False

    def prepare(self) -> str:
        """What to run in the database."""
        changed = [_changed(_function(name), *edits) for name, edits in self.functions.items()]
        return "\n".join(["create table il.taken as table aioflow.inbox with no data;", *changed])

    async def __call__(self, name: str, args: Any, steps: Callable[..., Awaitable[list[Any]]]) -> list[Any]:
        """A statement of the store, with the mistake if it is this one's."""
        if name in self.statements:
            return await steps(*args, text=_changed(sql(name), *self.statements[name]))
        rows = await steps(*args)
        if self.late_generation and name == "load_inbox":
            latest = await steps(*args[:3], text=sql("generations"), of="generations")
            gens = {r["ord"]: r["wake_gen"] for r in latest}
            rows = [{**dict(r), **({"gen": gens.get(r["ord"], r["gen"])} if r["part"] == 0 else {})} for r in rows]
        return rows


def _function(name: str) -> str:
    """The newest definition of a function of the schema."""
    pattern = re.compile(rf"^create (?:or replace )?function aioflow\.{name}\(.*?^end \$\$;", re.MULTILINE | re.DOTALL)
    found = [match for one in known() for match in pattern.findall(one.text)]
    return re.sub("^create (or replace )?function", "create or replace function", found[-1])


_LOCK: Final = """      select * into h from aioflow.instance_hot x
       where x.shard = v_shard and x.namespace = p_namespace[ord] and x.instance_id = p_instance[ord]
         for no key update;
    end if;
    if h.instance_id is null or h.run_id <> p_run[ord]"""
_LOCK_AND_TAKE: Final = """      with l as materialized (
        select * from aioflow.instance_hot x
         where x.shard = v_shard and x.namespace = p_namespace[ord] and x.instance_id = p_instance[ord]
           for no key update
      ), t as (
        delete from aioflow.inbox b using l
         where (b.shard, b.namespace, b.instance_id) = (l.shard, l.namespace, l.instance_id) returning b.*
      ), k as (
        insert into il.taken select * from t
      )
      select * into h from l;
    end if;
    if h.instance_id is null or h.run_id <> p_run[ord]"""

MUTANTS: Final = (
    Mutant(
        name="conditional-wake",
        broken="a delivery bumps the generation only if nobody owns the run",
        names=("signal", "commit"),
        functions={
            "deliver": (("set wake_gen = h.wake_gen + 1", "set wake_gen = h.wake_gen + (h.owner is null)::int"),)
        },
    ),
    Mutant(
        name="late-generation",
        broken="a load reads the generation after the inbox, by a statement of its own",
        names=("signal", "commit"),
        late_generation=True,
    ),
    Mutant(
        name="commit-backwards",
        broken="a commit locks its instances in the reverse of the key order",
        names=("signal", "commit"),
        statements={
            "commit_runs": (
                (
                    "order by h.shard, h.namespace, h.instance_id",
                    "order by h.shard desc, h.namespace, h.instance_id desc",
                ),
            )
        },
    ),
    Mutant(
        name="commit-unfenced",
        broken="a commit does not look at owner, token and length of the history",
        names=("late_commit", "reap", "claim_runs"),
        statements={
            "commit_runs": (
                (
                    "(l.run_id, l.owner, l.token, l.next_seq) is distinct from (i.run_id, i.owner, i.token, i.base)",
                    "(l.run_id) is distinct from (i.run_id)",
                ),
            )
        },
    ),
    Mutant(
        name="close-unguarded",
        broken="a run closes though something was accepted since its load",
        names=("signal", "close"),
        statements={"commit_runs": (("when i.close is not null and l.wake_gen <> i.gen then 'refused' ", ""),)},
    ),
    Mutant(
        name="forced-close-at-old-snapshot",
        broken="a forced close takes the inbox in the statement that waits for the lock",
        names=("signal", "terminate"),
        functions={
            "terminate": ((_LOCK, _LOCK_AND_TAKE),),
            "end_run": (("delete from aioflow.inbox b", "delete from il.taken b"),),
        },
    ),
    Mutant(
        name="claim-without-worker-lock",
        broken="a claim of runs does not lock the row of its worker",
        names=("reap", "claim_runs"),
        statements={"claim_runs": (("     for key share\n", ""),)},
    ),
    Mutant(
        name="activities-claimed-without-worker-lock",
        broken="a claim of activities does not lock the row of its worker",
        names=("reap", "claim_activities"),
        statements={"claim_activities": (("     for key share\n", ""),)},
    ),
    Mutant(
        name="unknown-activities-first",
        broken="attempts that a worker does not know are locked without their instances",
        names=("terminate", "unknown"),
        statements={"release_unknown_activities": (("     for no key update of h\n", ""),)},
    ),
    Mutant(
        name="heartbeats-wait",
        broken="heartbeats wait for activities that somebody has locked",
        names=("terminate", "heartbeat"),
        statements={"heartbeats": (("for no key update of a skip locked", "for no key update of a"),)},
    ),
    Mutant(
        name="outcome-unfenced",
        broken="the outcome of an attempt counts though another one runs",
        names=("time_out", "complete"),
        statements={"complete_activities": (("a.token is not distinct from i.token", "true"),)},
    ),
    Mutant(
        name="reaper-does-not-arm",
        broken="runs of a dead worker are released and not armed",
        names=("commit", "reap"),
        statements={"reap_runs": (("visible_at = aioflow.clock(), ", "visible_at = 'infinity', "),)},
    ),
)
