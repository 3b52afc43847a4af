"""Mistakes planted in the store's SQL, each of which the machine must find."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from aioflow.store import activities, instances, maintenance, queries, reading, tasks, workers

_USERS = (activities, instances, maintenance, reading, tasks, workers)


@dataclass(frozen=True, slots=True)
class Mutant:
    """``place`` is a statement file, or a function of the schema (``aioflow.…``)."""

    name: str
    place: str
    right: str
    wrong: str


MUTANTS = [
    Mutant("activity fence removed", "complete_activities", "and a.token is not distinct from i.token", ""),
    Mutant("deadline guard removed", "complete_activities", "and (i.deadline is null or a.deadline = i.deadline)", ""),
    Mutant("retry does not count attempts", "retry_activities", "attempt = a.attempt + 1", "attempt = a.attempt"),
    Mutant("retry of any token", "retry_activities", "a.token = i.token and", ""),
    Mutant("heartbeat of any token", "heartbeats", "where a.token = i.token and i.beat", "where i.beat"),
    Mutant(
        "conditional wake",
        "aioflow.deliver",
        "set wake_gen = h.wake_gen + 1",
        "set wake_gen = h.wake_gen + (h.owner is null)::integer",
    ),
    Mutant("forgetful dedupe", "aioflow.claim_keys", "i.ord = any (fresh)", "true"),
    Mutant("refused key kept", "aioflow.forget_keys", "i.key is not null", "i.key is null"),
    Mutant(
        "commit fence by token removed",
        "commit_runs",
        "(l.run_id, l.owner, l.token, l.next_seq) is distinct from (i.run_id, i.owner, i.token, i.base)",
        "(l.run_id, l.owner, l.next_seq) is distinct from (i.run_id, i.owner, i.base)",
    ),
    Mutant(
        "commit fence by base seq removed",
        "commit_runs",
        "(l.run_id, l.owner, l.token, l.next_seq) is distinct from (i.run_id, i.owner, i.token, i.base)",
        "(l.run_id, l.owner, l.token) is distinct from (i.run_id, i.owner, i.token)",
    ),
    Mutant("ack of what was not read", "commit_runs", "set ack_gen = o.gen", "set ack_gen = o.wake_gen"),
    Mutant("consumes what was not read", "commit_runs", "b.gen <= o.gen", "b.gen <= o.wake_gen"),
    Mutant("close unguarded", "commit_runs", "i.close is not null and l.wake_gen <> i.gen", "false"),
    Mutant("never sealed", "commit_runs", "sealed = h.refused >= 2", "sealed = false"),
    Mutant(
        "forced close leaves activities",
        "aioflow.end_run",
        "delete from aioflow.activity a where a.shard = p_shard and a.run_id = p_run;",
        "",
    ),
    Mutant(
        "close leaves activities",
        "commit_runs",
        "where a.shard = o.shard and a.run_id = o.run_id and o.close is not null",
        "where a.shard = o.shard and a.run_id = o.run_id and o.close is null and false",
    ),
    Mutant("resent commit known by its head alone", "commit_verdict", "or coalesce(e.commit = i.token, false)", ""),
    Mutant("reaped without a look at the owner", "reap_runs", "where h.owner = any ($1::uuid[])", "where true"),
    Mutant("claim of an old epoch", "claim_runs", "and w.claim_epoch = $2", "and w.claim_epoch >= $2"),
    Mutant("claim of another namespace", "claim_runs", "and x.namespace = (select m.namespace from me m)", ""),
    Mutant("timer early", "load_inbox", "t.due_at <= h.clock", "t.due_at <= h.clock + interval '1 s'"),
    Mutant("release keeps the seal", "release_runs", "sealed = false, refused = 0,", ""),
    Mutant("good-bye is a crash", "worker_retire", "blame = 'none'", "blame = 'all'"),
    Mutant("known work given back", "release_unknown_runs", "h.token <> all ($2::uuid[])", "true"),
]


def function_of(mutant: Mutant) -> str | None:
    """The function of the schema that is to be changed; None: a statement is."""
    return mutant.place if mutant.place.startswith("aioflow.") else None


def changed(mutant: Mutant, text: str) -> str:
    """The text with the mistake in it; it must still have the place for it."""
    assert text.count(mutant.right) >= 1, f"{mutant.name}: {mutant.place} has no {mutant.right!r} any more"
    return text.replace(mutant.right, mutant.wrong, 1)


@contextmanager
def statement_changed(mutant: Mutant) -> Iterator[None]:
    """The store's modules read the changed statement."""
    wrong = changed(mutant, queries.sql(mutant.place))

    def sql(name: str) -> str:
        return wrong if name == mutant.place else queries.sql(name)

    with pytest.MonkeyPatch.context() as patch:
        for module in _USERS:
            patch.setattr(module, "sql", sql)
        yield
