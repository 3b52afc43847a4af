"""`aioflow migrate` and `aioflow doctor`, on a database with and without the schema."""

from __future__ import annotations

import pytest

from aioflow.store import migrations
from tests.cli.shell import Shell, execute

NOWHERE = "postgresql://nobody@127.0.0.1:1/x"


def test_print_needs_no_database_and_is_the_sql_of_all_migrations(shell: Shell, empty_database: str) -> None:
    done = shell.ok("migrate", "--print")
    assert done.stderr == ""
    execute(empty_database, done.stdout)
    assert shell.call("migrate", "--check", AIOFLOW_DATABASE_URL=empty_database).code == 0


def test_migrate_then_nothing_to_do(shell: Shell, empty_database: str) -> None:
    shell.environ["AIOFLOW_DATABASE_URL"] = empty_database
    names = [f"{one.number:04} {one.name}" for one in migrations.known()]

    before = shell.run("migrate", "--check")
    assert before.code == 7
    assert before.stdout.splitlines() == [f"pending {name}" for name in names]
    assert "aioflow migrate" in before.stderr
    assert shell.call("migrate", "--check").code == 7  # it changed nothing

    first = shell.run("migrate")
    assert (first.code, first.stderr) == (0, "")
    assert first.stdout.splitlines() == [f"applied {name}" for name in names]
    again = shell.ok("migrate")
    assert again.stdout == ""
    assert "nothing to do" in again.stderr
    after = shell.ok("migrate", "--check")
    assert (after.stdout, after.stderr) == ("", "the schema is up to date\n")


def test_a_database_without_the_schema_is_code_7(shell: Shell, empty_database: str) -> None:
    shell.environ["AIOFLOW_DATABASE_URL"] = empty_database
    for words in (["worker"], ["workflow", "list"], ["workflow", "start", "order"]):
        call = shell.run if words == ["worker"] else shell.call  # it sets up the logs of its process
        done = call(*words)
        assert (done.code, done.stdout) == (7, ""), words
        assert "aioflow migrate" in done.stderr


def test_a_database_that_is_newer_is_code_7(shell: Shell, database: str) -> None:
    shell.environ["AIOFLOW_DATABASE_URL"] = database
    execute(
        database,
        "insert into aioflow.migration (number, name, checksum, breaking) values (9999, 'later', '', true)",
    )
    for words in (["migrate", "--check"], ["workflow", "list"], ["doctor"]):
        assert shell.call(*words).code == 7, words


def test_doctor_of_a_sound_database(shell: Shell, database: str) -> None:
    shell.environ["AIOFLOW_DATABASE_URL"] = database
    done = shell.run("doctor", "--json", "--invariants")
    assert (done.code, done.stderr) == (0, "")
    assert done.data["ok"] is True
    assert done.data["violations"] == []
    checks = {one["name"]: one for one in done.data["checks"]}
    assert {"server", "schema", "connections", "listen", "clock", "queues", "workers"} <= set(checks)
    assert all(one.keys() == {"name", "state", "detail"} for one in done.data["checks"])
    assert checks["listen"]["state"] == "ok"
    assert "violations" not in shell.ok("doctor", "--json").data

    told = shell.ok("doctor", "--invariants")
    assert told.stdout.splitlines()[0].split() == ["check", "state", "detail"]
    assert told.stderr == "all invariants hold\n"


def test_doctor_finds_what_contradicts_the_protocol(shell: Shell, database: str) -> None:
    shell.environ["AIOFLOW_DATABASE_URL"] = database
    shell.ok("workflow", "start", "order", "--id", "a", "--arg", '"tea"')
    execute(database, "delete from aioflow.instance_hot")
    done = shell.call("doctor", "--json", "--invariants")
    assert done.code == 1
    assert done.data["ok"] is False
    assert {"invariant", "subject", "detail"} == set(done.data["violations"][0])
    table = shell.call("doctor", "--invariants")
    assert table.code == 1
    assert done.data["violations"][0]["invariant"] in table.stdout


def test_doctor_tells_of_a_queue_that_nobody_serves(shell: Shell, database: str) -> None:
    shell.environ["AIOFLOW_DATABASE_URL"] = database
    shell.ok("workflow", "start", "order", "--arg", '"tea"')
    done = shell.ok("doctor", "--json")
    (found,) = [one for one in done.data["checks"] if one["name"] == "queue shop"]
    assert found["state"] == "warning"
    assert "no worker serves it" in found["detail"]


@pytest.mark.parametrize(("which", "code"), [("down", 6), ("empty", 7)])
def test_doctor_of_a_database_that_cannot_be_used(shell: Shell, empty_database: str, which: str, code: int) -> None:
    dsn = NOWHERE if which == "down" else empty_database
    done = shell.call("doctor", "--json", "--invariants", "--database-url", dsn)
    assert done.code == code
    assert done.data["ok"] is False
    assert any(one["state"] == "error" for one in done.data["checks"])
    assert "violations" not in done.data  # they could not be looked for


def test_doctor_warns_when_notifications_cannot_arrive(shell: Shell, database: str) -> None:
    done = shell.call("doctor", "--json", "--listen-url", NOWHERE, AIOFLOW_DATABASE_URL=database)
    (listen,) = [one for one in done.data["checks"] if one["name"] == "listen"]
    assert (done.code, listen["state"]) == (0, "warning")
