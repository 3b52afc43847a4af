"""What cannot be replayed is refused inside workflows, with the helper to use, and nowhere else."""

from __future__ import annotations

import asyncio
import copy
import datetime
import gc
import logging
import os
import pathlib
import pickle
import random
import secrets
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import uuid
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from time import sleep as early_sleep
from typing import Any
from uuid import uuid4 as early_uuid4

import pytest

from aioflow.core import guard
from aioflow.errors import NotDurable
from tests.core.loop_driver import Driven, activity, note, outcome

early_clock = time.monotonic
early_random = random.randint
pause = early_sleep


@pytest.fixture(autouse=True)
def guarded() -> Iterator[None]:
    guard.install()
    guard.install()
    yield
    guard.uninstall()


def attempt(act: Callable[[], Any]) -> str:
    """What a workflow that does this is told; empty when it may."""

    async def main() -> str:
        try:
            result = act()
            if asyncio.iscoroutine(result):
                await result
        except NotDurable as error:
            return str(error)
        return ""

    run = Driven(main)
    said: str = run.task.result()
    run.close()
    return said


pool = ThreadPoolExecutor(1)

REFUSED: list[tuple[str, Callable[[], Any], str]] = [
    ("time.time", lambda: time.time(), "now()"),
    ("time.time_ns", lambda: time.time_ns(), "now()"),
    ("time.monotonic", lambda: time.monotonic(), "now()"),
    ("time.perf_counter", lambda: time.perf_counter(), "now()"),
    ("time.localtime", lambda: time.localtime(), "now()"),
    ("time.gmtime", lambda: time.gmtime(None), "now()"),
    ("time.strftime", lambda: time.strftime("%Y"), "now()"),
    ("time.sleep", lambda: time.sleep(0), "timer()"),
    # Before 3.13 no audit event tells of it, and only scan_code() does.
    *([("early time.sleep", lambda: early_sleep(0), "timer()")] if sys.version_info >= (3, 13) else []),
    ("random.random", lambda: random.random(), "rng()"),
    ("random.shuffle", lambda: random.shuffle([1]), "rng()"),
    ("random.Random", lambda: random.Random(), "rng()"),
    ("random.SystemRandom", lambda: secrets.SystemRandom().random(), "rng()"),
    ("secrets.token_hex", lambda: secrets.token_hex(), "rng()"),
    ("secrets.choice", lambda: secrets.choice([1, 2]), "rng()"),
    ("secrets.randbelow", lambda: secrets.randbelow(9), "rng()"),
    ("os.urandom", lambda: os.urandom(1), "rng() or uuid4()"),
    ("uuid.uuid1", lambda: uuid.uuid1(), "uuid4()"),
    ("uuid.uuid4", lambda: uuid.uuid4(), "uuid4()"),
    ("early uuid4", lambda: early_uuid4(), "uuid4()"),
    ("open to read", lambda: open("/etc/hostname").close(), "activity()"),
    ("open to write", lambda: open(os.devnull, "w").close(), "activity()"),
    ("os.open", lambda: os.open("/etc/hostname", 0), "activity()"),
    ("pathlib", lambda: pathlib.Path("/etc/hostname").read_text(), "activity()"),
    ("os.listdir", lambda: os.listdir("/"), "activity()"),
    ("os.remove", lambda: os.remove("/nowhere"), "activity()"),
    ("tempfile", lambda: tempfile.mkdtemp(), "()"),  # rng() for its first name, activity() later
    ("socket", lambda: socket.socket().close(), "activity()"),
    ("socket.getaddrinfo", lambda: socket.getaddrinfo("localhost", 1), "activity()"),
    ("subprocess", lambda: subprocess.run(["true"], check=True), "activity()"),
    ("os.system", lambda: os.system("true"), "activity()"),
    ("os.fork", lambda: os.fork(), "activity()"),
    ("sqlite3", lambda: sqlite3.connect(":memory:").close(), "activity()"),
    ("Thread.start", lambda: threading.Thread(target=print).start(), "activity()"),
    ("executor of its own", lambda: pool.submit(print), "activity()"),
    ("asyncio.to_thread", lambda: asyncio.to_thread(print), "activity() with a plain function"),
    ("run_in_executor", lambda: asyncio.get_running_loop().run_in_executor(None, print), "a plain function"),
    ("asyncio.run", lambda: asyncio.run(asyncio.sleep(0)), "await"),
]


@pytest.mark.parametrize(("act", "helper"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_refused(act: Callable[[], Any], helper: str) -> None:
    said = attempt(act)
    assert "cannot be replayed; in a workflow use " in said
    assert helper in said.partition("use ")[2]


ALLOWED: list[tuple[str, Callable[[], Any]]] = [
    ("print", lambda: print("x", file=sys.stderr)),
    ("logging", lambda: logging.getLogger("test").warning("at %s", 1)),
    ("warnings", lambda: warnings.warn("x", UserWarning, stacklevel=1)),
    (
        "import",
        lambda: __import__("wave"),
    ),
    (
        "time of a moment",
        lambda: (time.gmtime(5), time.localtime(5.5), time.strftime("%Y", time.gmtime(5))),
    ),
    ("seeded random", lambda: random.Random(5).random()),
    ("uuid5", lambda: uuid.uuid5(uuid.NAMESPACE_DNS, "x")),
    ("deepcopy", lambda: copy.deepcopy({"a": [1]})),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("act", [row[1] for row in ALLOWED], ids=[row[0] for row in ALLOWED])
def test_allowed(act: Callable[[], Any], tmp_path: pathlib.Path) -> None:
    handler = logging.FileHandler(tmp_path / "log", delay=True)  # opens its file inside the workflow
    logging.getLogger("test").addHandler(handler)
    try:
        assert attempt(act) == ""
    finally:
        logging.getLogger("test").removeHandler(handler)
        handler.close()


def test_nothing_is_refused_outside() -> None:
    for name, act, _ in REFUSED:
        if name not in {"os.fork", "run_in_executor", "asyncio.to_thread", "os.open"}:
            try:
                act()
            except OSError:
                assert name == "os.remove"  # that file does not exist
    os.close(os.open("/etc/hostname", 0))
    assert asyncio.run(asyncio.to_thread(lambda: 5)) == 5


def test_nothing_is_refused_in_side_effects() -> None:
    def main_act() -> None:
        with guard.allowed():
            note(time.time())
            note(uuid.uuid4())
            with guard.allowed():
                open("/etc/hostname").close()
            note(random.random())
        with pytest.raises(NotDurable):
            random.random()

    async def main() -> None:
        main_act()

    run = Driven(main)
    assert run.task.exception() is None
    assert len(run.notes) == 3
    run.close()
    with guard.allowed():
        assert time.time() > 0


def test_driver_of_a_run_may_do_anything_between_steps() -> None:
    async def main() -> None:
        await activity("a")

    run = Driven(main)
    with run.loop.entered():
        assert time.time() > 0
        os.listdir("/")
        run.loop.drain()
    run.close()


def test_other_threads_are_not_affected() -> None:
    seen: list[Any] = []
    go, done = threading.Event(), threading.Event()

    def other() -> None:
        go.wait(10)
        seen.append(time.time() > 0)
        seen.append(len(os.urandom(2)))
        done.set()

    thread = threading.Thread(target=other)
    thread.start()

    async def main() -> None:
        go.set()
        done.wait(10)

    outcome(main)
    thread.join()
    assert seen == [True, 2]


def test_finalizers_of_other_objects_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    problems: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda what: problems.append(what.exc_value))

    class Cleans:
        def __init__(self) -> None:
            self.me = self

        def __del__(self) -> None:
            os.listdir("/")
            time.time()

    async def main() -> None:
        gc.collect()

    gc.disable()
    try:
        Cleans()
        outcome(main)
    finally:
        gc.enable()
    assert problems == []


def test_replaced_functions_still_look_like_built_ins() -> None:
    class Uses:
        clock = time.monotonic
        fresh = uuid.uuid4

    assert Uses().clock() > 0
    assert pickle.loads(pickle.dumps(time.time)) is time.time  # noqa: S301  # our own bytes
    assert copy.deepcopy(time.time) is time.time
    assert time.time.__name__ == "time"
    assert "built-in" in repr(time.time)
    replaced = time.time
    guard.uninstall()
    assert time.time is not replaced
    assert time.time() <= replaced()
    guard.install()


def test_someone_elses_replacement_survives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 5.0)
    guard.uninstall()
    assert time.time() == 5.0


# -- scanning ---------------------------------------------------------------------------------------

from datetime import date, datetime as moment  # noqa: E402, I001  # the names a user's module would have
from os import urandom as early_urandom  # noqa: E402
from time import time as early_time  # noqa: E402


class side_effects:
    @staticmethod
    async def side_effect(act: Callable[[], Any]) -> Any:
        return act()


side_effect = side_effects.side_effect


class Base:
    def inherited(self) -> Any:
        return date.today()


class Flow(Base):
    async def handle(self, default: Any = early_clock) -> Any:
        first = moment.now()
        second = datetime.datetime.utcnow()

        def nested() -> Any:
            return [early_time() for _ in range(2)]

        third = (lambda: early_random(1, 2))()
        return first, second, nested, third, datetime.timedelta(1), moment.fromisoformat("2026-01-01")

    @property
    def attribute(self) -> Any:
        return early_urandom(3)

    @staticmethod
    def fixed() -> Any:
        from datetime import datetime

        return datetime.now(datetime.UTC if hasattr(datetime, "UTC") else None)  # type: ignore[attr-defined]

    @classmethod
    def made(cls) -> Any:
        import time as clock

        return clock.time()

    def quiet(self) -> Any:
        return time.strftime("%Y", time.gmtime(0)), moment(2026, 1, 1)


def lines_of(function: Any) -> int:
    return int(function.__code__.co_firstlineno)


def test_scan_finds_what_is_bound_early() -> None:
    findings = guard.scan_code(Flow)
    assert {(one.what, one.helper) for one in findings} == {
        ("date.today", "now().date()"),
        ("time.monotonic", "now()"),
        ("moment.now", "now()"),
        ("datetime.datetime.utcnow", "now()"),
        ("early_time", "now()"),
        ("early_random", "rng()"),
        ("early_urandom", "rng() or uuid4()"),
        ("datetime.now", "now()"),
        ("clock.time", "now()"),
    }
    first = next(one for one in findings if one.what == "moment.now")
    assert (first.file, first.line) == (__file__, lines_of(Flow.handle) + 1)
    assert str(first) == f"{__file__}:{first.line}: moment.now() is not durable; use now()"


def test_scan_leaves_side_effects_alone() -> None:
    async def handle(self: Any) -> Any:
        def recorded() -> Any:
            return moment.now()

        shift = datetime.timedelta(1)
        await side_effect(recorded)
        await side_effect(moment.now)
        await side_effect(early_time)
        await side_effect(lambda: early_time())
        await side_effects.side_effect(lambda: moment.now() + shift)
        return recorded

    assert guard.scan_code(handle) == []


def test_scan_leaves_methods_for_side_effects_alone() -> None:
    class Recording:
        def look_up(self) -> Any:
            return moment.now()

        async def handle(self) -> Any:
            pause(1)
            return await side_effect(self.look_up)

    assert [one.what for one in guard.scan_code(Recording)] == ["pause"]


def test_scan_follows_decorators_and_closures() -> None:
    import functools

    clock = early_time

    def logged(function: Any) -> Any:
        @functools.wraps(function)
        async def wrapper(*args: Any) -> Any:
            return await function(*args)

        return wrapper

    @logged
    async def handle(self: Any) -> Any:
        return clock()

    (finding,) = guard.scan_code(handle)
    assert (finding.what, finding.helper) == ("clock", "now()")


def test_scan_finds_nothing_in_durable_code() -> None:
    async def handle(self: Any) -> Any:
        await asyncio.gather(activity("a"), asyncio.sleep(5))
        return random.Random(3).random(), [datetime.timedelta(hours=1)]

    assert guard.scan_code(handle) == []
    assert guard.scan_code(object) == []
