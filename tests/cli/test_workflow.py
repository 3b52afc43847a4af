"""`aioflow workflow …` against a database with a worker: what it prints where, and its exit codes."""

from __future__ import annotations

from itertools import count

import pytest

from tests.cli.shell import Shell, execute
from tests.support import eventually_sync

_numbers = count(1)


@pytest.fixture
def id() -> str:
    return f"order-{next(_numbers)}"


def start(shop: Shell, id: str, *options: str) -> None:
    shop.ok("workflow", "start", "order", "--id", id, "--arg", '"tea"', *options)


def test_an_order_from_start_to_history(shop: Shell, id: str) -> None:
    """As a script does it, each command a process of its own."""
    started = shop.run("workflow", "start", "order", "--id", id, "--arg", '"tea"', "--arg", "2")
    assert started == (0, f"{id}\n", "")
    sent = shop.run("workflow", "signal", id, "approve", "--arg", '"ann"')
    assert sent == (0, "", f"sent approve to {id}\n")
    result = shop.run("workflow", "result", id)
    assert (result.code, result.stderr) == (0, "")
    assert result.data == {"charged": "charged 2 tea", "by": "ann"}
    history = shop.run("workflow", "history", id)
    assert (history.code, history.stderr) == (0, "")
    assert history.stdout.splitlines()[0].split() == ["#", "time", "event", "address", "what"]
    for event in ('order("tea", 2) on queue shop', 'charge → "charged 2 tea"', 'approve("ann")', "RunCompleted"):
        assert event in history.stdout


# start


def test_start_says_where_it_went(shop: Shell, id: str) -> None:
    done = shop.ok("workflow", "start", "order", "--id", id, "--arg", '"tea"', "--json")
    told = done.data
    assert told.pop("run_id")
    assert told == {"instance_id": id, "workflow": "order", "queue": "shop", "namespace": "default", "served": True}
    assert done.stderr == ""


def test_start_makes_an_id(shop: Shell) -> None:
    first, second = (shop.ok("workflow", "start", "order", "--arg", '"tea"').stdout.strip() for _ in range(2))
    assert first != second
    assert shop.ok("workflow", "show", first, "--json").data["instance_id"] == first


def test_start_takes_arguments_by_name_from_stdin(shop: Shell, id: str) -> None:
    shop.ok("workflow", "start", "order", "--id", id, "--args", "-", stdin='{"item": "tea", "count": 3}')
    eventually_sync(lambda: "charged 3 tea" in shop.ok("workflow", "history", id).stdout)


def test_start_finds_the_code_in_the_name(shop: Shell, id: str) -> None:
    done = shop.call("workflow", "start", "shop:Order", "--id", id, "--arg", '"tea"', "--json", AIOFLOW_MODULES="shop")
    assert done.data["workflow"] == "order"


def test_start_on_a_queue_nobody_serves_says_so(shop: Shell, id: str) -> None:
    done = shop.ok("workflow", "start", "order", "--id", id, "--arg", '"tea"', "--queue", "nowhere")
    assert done.stdout == f"{id}\n"
    assert "no live worker serves queue 'nowhere'" in done.stderr
    shown = shop.ok("workflow", "show", id)
    assert "none serves queue 'nowhere'" in shown.stdout
    assert shop.ok("workflow", "show", id, "--json").data["served"] is False


def test_start_with_wait_prints_the_result(shop: Shell, id: str) -> None:
    done = shop.call("workflow", "start", "refusing", "--id", id, "--arg", '"no"', "--wait", "--json")
    assert done.code == 1
    assert done.data["status"] == "failed"
    assert f"started {id}" in done.stderr
    slow = shop.call("workflow", "start", "order", "--arg", '"tea"', "--wait", "--timeout", "0.2")
    assert (slow.code, slow.stdout) == (5, "")


def test_start_of_an_id_that_is_taken(shop: Shell, id: str) -> None:
    again = ("workflow", "start", "order", "--id", id, "--arg", '"tea"', "--json")
    first = shop.ok(*again).data["run_id"]
    refused = shop.call(*again)
    assert (refused.code, refused.stdout) == (4, "")
    assert "is open" in refused.stderr
    assert shop.ok(*again, "--conflict", "use_existing").data["run_id"] == first
    other = shop.ok(*again, "--conflict", "terminate_existing").data["run_id"]
    assert other != first
    shop.ok("workflow", "terminate", id)
    assert shop.call(*again, "--reuse", "reject").code == 4


def test_a_request_key_has_one_effect(shop: Shell, id: str) -> None:
    once = ("workflow", "start", "order", "--request-key", f"key-{id}", "--id", id, "--json", "--arg")
    assert shop.ok(*once, '"tea"').data["run_id"] == shop.ok(*once, '"tea"').data["run_id"]
    assert shop.call(*once, '"coffee"').code == 4


WRONG = [
    (["start", "order"], 2, "item"),
    (["start", "order", "--arg", "1"], 2, "item"),
    (["start", "order", "--arg", '"tea"', "--queue", ""], 2, "queue"),
    (["start", "order", "--arg", '"tea"', "--id", "x" * 300], 2, "id"),
    (["start", "nothing"], 3, "known: dawdling, order, refusing"),
    (["start", "shop:charge"], 2, "not a workflow"),
    (["start", "shop:Nothing"], 2, "no Nothing in shop"),
    (["list", "--status", "lost"], 2, "completed"),
    (["show", "nobody"], 3, "nobody"),
    (["history", "nobody"], 3, "nobody"),
    (["result", "nobody"], 3, "nobody"),
    (["signal", "nobody", "approve", "--arg", '"ann"'], 3, "nobody"),
    (["query", "nobody", "state"], 3, "nobody"),
    (["cancel", "nobody"], 3, "nobody"),
    (["terminate", "nobody"], 3, "nobody"),
    (["release", "nobody"], 3, "nobody"),
    (["list", "--namespace", "a\0b"], 2, "namespace"),
]


@pytest.mark.parametrize(("words", "code", "hint"), WRONG, ids=[" ".join(one[0])[:40] for one in WRONG])
def test_what_cannot_be_is_told_by_the_exit_code(shop: Shell, words: list[str], code: int, hint: str) -> None:
    done = shop.call("workflow", *words)
    assert (done.code, done.stdout) == (code, ""), done
    assert done.stderr.startswith("aioflow: ")
    assert hint in done.stderr


# messages


def test_signals_are_checked_against_the_code(shop: Shell, id: str) -> None:
    start(shop, id)
    assert shop.call("workflow", "signal", id, "approve").code == 2
    assert shop.call("workflow", "signal", id, "approve", "--arg", "7").code == 2
    assert shop.call("workflow", "signal", id, "reject").code == 3
    shop.ok("workflow", "signal", id, "approve", "--args", '{"by": "ann"}')
    shop.ok("workflow", "result", id)
    closed = shop.call("workflow", "signal", id, "approve", "--arg", '"ann"')
    assert (closed.code, closed.stdout) == (4, "")
    assert "closed" in closed.stderr


def test_queries_answer_in_json(shop: Shell, id: str) -> None:
    start(shop, id)

    def state() -> str:
        done = shop.call("workflow", "query", id, "state")
        return done.data if done.code == 0 else ""  # nothing has run yet

    eventually_sync(lambda: state() == "waits")
    shop.ok("workflow", "signal", id, "approve", "--arg", '"ann"')
    assert state() == "approved by ann"
    shop.ok("workflow", "result", id)
    assert state() == "approved by ann"
    assert shop.call("workflow", "query", id, "weight").code == 3
    assert shop.call("workflow", "query", id, "state", "--arg", "1").code == 2


def test_a_query_without_the_code_says_how_to_name_it(shop: Shell, id: str) -> None:
    start(shop, id)
    done = shop.call("workflow", "query", id, "state", AIOFLOW_MODULES="aioflow.cli.demo.flows")
    assert (done.code, done.stdout) == (3, "")
    assert "order" in done.stderr


def test_cancel(shop: Shell, id: str) -> None:
    start(shop, id)
    done = shop.ok("workflow", "cancel", id, "--reason", "too late", "--grace", "60")
    assert (done.stdout, done.stderr) == ("", f"asked {id} to end\n")
    ended = shop.call("workflow", "result", id, "--json")
    assert ended.code == 1
    assert ended.data["status"] == "cancelled"
    assert "too late" in ended.data["error"]["message"]
    assert shop.call("workflow", "cancel", id).code == 4
    assert "too late" in shop.ok("workflow", "history", id).stdout


def test_terminate(shop: Shell, id: str) -> None:
    start(shop, id)
    done = shop.ok("workflow", "terminate", id, "--reason", "wrong order")
    assert (done.stdout, done.stderr) == ("", f"terminated {id}\n")
    ended = shop.call("workflow", "result", id, "--json")
    assert (ended.code, ended.data["status"]) == (1, "terminated")
    assert shop.call("workflow", "terminate", id).code == 4


def test_release_from_quarantine(shop: Shell, id: str) -> None:
    start(shop, id, "--queue", "nowhere")
    nothing = shop.ok("workflow", "release", id)
    assert (nothing.stdout, nothing.stderr) == ("", f"nothing of {id} is in quarantine\n")
    statement = "update aioflow.instance_hot set isolation = 2 where instance_id = $1"
    execute(shop.environ["AIOFLOW_DATABASE_URL"], statement, id)
    assert shop.ok("workflow", "show", id, "--json").data["quarantined"] is True
    assert shop.ok("workflow", "release", id).stderr == f"released {id}\n"
    assert shop.ok("workflow", "show", id, "--json").data["quarantined"] is False
    shop.ok("workflow", "terminate", id)
    assert shop.call("workflow", "release", id).code == 4


# reading


def test_a_failure_is_told_with_its_causes(shop: Shell, id: str) -> None:
    shop.ok("workflow", "start", "refusing", "--id", id, "--arg", '"none left"')
    plain = shop.call("workflow", "result", id)
    assert (plain.code, plain.stdout) == (1, "")
    assert "OutOfStock: none left" in plain.stderr
    assert "from KeyError: 'stock'" in plain.stderr
    cause = shop.call("workflow", "result", id, "--json").data["error"]["cause"]
    assert (cause["type"], cause["message"], cause["details"]) == ("OutOfStock", "none left", {"left": 0})
    assert cause["cause"]["type"] == "KeyError"


def test_the_result_as_a_document(shop: Shell, id: str) -> None:
    run = shop.ok("workflow", "start", "order", "--id", id, "--arg", '"tea"', "--json").data["run_id"]
    late = shop.call("workflow", "result", id, "--timeout", "0.1", "--json")
    assert (late.code, late.stdout) == (5, "")
    shop.ok("workflow", "signal", id, "approve", "--arg", '"ann"')
    value = {"charged": "charged 1 tea", "by": "ann"}
    expected = {"instance_id": id, "run_id": run, "status": "completed", "result": value}
    assert shop.ok("workflow", "result", id, "--json").data == expected
    assert shop.ok("workflow", "result", id, "--run", run, "--json").data == expected


def test_show(shop: Shell, id: str) -> None:
    mark = shop.folder / f"{id}.began"
    shop.ok("workflow", "start", "dawdling", "--id", id, "--arg", f'"{mark}"')
    eventually_sync(mark.exists)
    shown = shop.ok("workflow", "show", id)
    for part in ("dawdling", "running", "a live worker serves it", "dawdle", "clerk"):
        assert part in shown.stdout
    told = shop.ok("workflow", "show", id, "--json").data
    assert (told["instance_id"], told["status"], told["open"]) == (id, "running", True)
    (pending,) = told["pending"]
    assert (pending["name"], pending["running"], pending["attempt"]) == ("dawdle", True, 1)
    shop.ok("workflow", "terminate", id)
    assert "took" in shop.ok("workflow", "show", id).stdout


def test_list(shop: Shell, id: str) -> None:
    for name in ("a", "b", "c"):
        start(shop, f"{id}-list-{name}")
    shop.ok("workflow", "terminate", f"{id}-list-a")
    mine = ("workflow", "list", "--prefix", f"{id}-list-")
    found = shop.ok(*mine, "--json")
    assert [one["instance_id"][-1] for one in found.data] == ["c", "b", "a"]
    assert found.stderr == ""
    assert [one["status"] for one in found.data] == ["running", "running", "terminated"]
    assert len(shop.ok(*mine, "--status", "running", "--json").data) == 2
    assert shop.ok(*mine, "--workflow", "refusing", "--json").data == []
    assert len(shop.ok(*mine, "--queue", "shop", "--json").data) == 3

    table = shop.ok(*mine, "--limit", "2")
    assert table.stdout.splitlines()[0].split() == ["instance", "workflow", "queue", "status", "started", "closed"]
    assert len(table.stdout.splitlines()) == 3
    assert "more than 2" in table.stderr
    nothing = shop.ok(*mine, "--workflow", "refusing")
    assert (nothing.stdout, nothing.stderr) == ("", "no instance fits\n")


def test_history_as_stored(shop: Shell, id: str) -> None:
    start(shop, id)
    shop.ok("workflow", "signal", id, "approve", "--arg", '"ann"')
    shop.ok("workflow", "result", id)
    done = shop.ok("workflow", "history", id, "--json")
    assert done.stderr == ""
    assert [one["seq"] for one in done.data] == list(range(1, len(done.data) + 1))
    kinds = [one["kind"] for one in done.data]
    assert (kinds[0], kinds[-1]) == ("RunStarted", "RunCompleted")
    assert done.data[-1]["value"] == {"charged": "charged 1 tea", "by": "ann"}


def test_a_terminal_is_not_steered_by_values(shop: Shell, id: str) -> None:
    evil = f"{id}-\x1b[31mred\u202e"
    start(shop, evil)
    shown = shop.ok("workflow", "list", "--prefix", f"{id}-").stdout
    assert "\x1b" not in shown
    assert "\\x1b[31mred\\u202e" in shown
    (found,) = shop.ok("workflow", "list", "--prefix", f"{id}-", "--json").data
    assert found["instance_id"] == evil
