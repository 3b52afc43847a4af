"""The embedded Postgres: every way to start it, and every way its owner can go away."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from aioflow.errors import EmbeddedPostgresError
from aioflow.store import binaries, exec_as, postmaster
from aioflow.store.embedded import EmbeddedPostgres, find_bindir
from tests.support import eventually, eventually_sync

LINUX = sys.platform == "linux"
ROOT = os.geteuid() == 0

OWNER = """
import sys, time
from aioflow.store import embedded
if "unbound" in sys.argv:  # as on a system that cannot bind a child to its parent's life
    bound = embedded.as_identity
    embedded.as_identity = lambda identity, command, *, owner=0: bound(identity, command)
server = embedded.EmbeddedPostgres(sys.argv[1], durable=False)
server.start_sync()
print(server.pid, server._identity, flush=True)
sys.stdin.read()
server.stop_sync()
"""


@pytest.fixture
def root(short_tmp: Path) -> Path:
    return short_tmp / "pg"


async def fetchval(dsn: str, query: str) -> Any:
    connection = await asyncpg.connect(dsn)
    try:
        return await connection.fetchval(query)
    finally:
        await connection.close()


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # One that ended but was not collected yet (no init here that does) is as good as gone.
    status = Path(f"/proc/{pid}/stat")
    return not (status.exists() and status.read_text().rpartition(")")[2].split()[0] == "Z")


def start_owner(root: Path, *arguments: str, prefix: tuple[str, ...] = (), **environ: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*prefix, sys.executable, "-c", OWNER, str(root), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **environ},
    )


def first_line(owner: subprocess.Popen[str]) -> tuple[int, str]:
    assert owner.stdout is not None
    pid, identity = owner.stdout.readline().split()
    return int(pid), identity


def finish(owner: subprocess.Popen[str]) -> int:
    owner.communicate()
    return owner.returncode


# Start and stop


async def test_cold_then_warm_start_keeps_the_data(root: Path) -> None:
    async with EmbeddedPostgres(root) as server:
        first = server.pid
        assert await fetchval(server.dsn, "show server_encoding") == "UTF8"
        await fetchval(server.dsn, "create table kept as select 42 as answer")
    assert not alive(first)
    assert not server.running
    assert not list(root.glob(".s.PGSQL*"))
    async with EmbeddedPostgres(root) as server:
        assert server.pid != first
        assert await fetchval(server.dsn, "select answer from kept") == 42
        assert await fetchval(server.dsn, "show fsync") == "on"


def test_sync_use_and_extra_settings(root: Path) -> None:
    with EmbeddedPostgres(root, durable=False, settings={"max_connections": 17}) as server:
        assert asyncio.run(fetchval(server.dsn, "show max_connections")) == "17"
        assert asyncio.run(fetchval(server.dsn, "show fsync")) == "off"
        assert asyncio.run(fetchval(server.dsn, "show listen_addresses")) == ""
        assert server.tcp_dsn is None
        assert server.log.exists()
        assert root.stat().st_mode & 0o077 == 0


async def test_not_running_has_no_dsn_and_stop_is_harmless(root: Path) -> None:
    server = EmbeddedPostgres(root)
    await server.stop()
    with pytest.raises(EmbeddedPostgresError, match="not running"):
        _ = server.dsn
    with pytest.raises(EmbeddedPostgresError, match="not running"):
        await server.restart()


async def test_a_port_needs_the_password(root: Path, unused_tcp_port: int) -> None:
    async with EmbeddedPostgres(root, durable=False, port=unused_tcp_port) as server:
        assert server.tcp_dsn is not None
        assert await fetchval(server.tcp_dsn, "select 1") == 1
        assert await fetchval(server.dsn, "select 1") == 1
        with pytest.raises(asyncpg.InvalidPasswordError):
            await fetchval(f"postgresql://aioflow:wrong@127.0.0.1:{unused_tcp_port}/postgres", "select 1")


@pytest.mark.parametrize("name", ["x" * 100, "with space, comma and ü"])
async def test_a_path_unfit_for_a_socket(root: Path, name: str) -> None:
    async with EmbeddedPostgres(root / name, durable=False) as server:
        assert await fetchval(server.dsn, "select 1") == 1
        sockets = Path((root / name / "sockets").read_text())
        assert sockets.is_dir()
    assert not sockets.exists()


async def test_a_failed_start_tells_the_log_and_lets_go(root: Path) -> None:
    with pytest.raises(EmbeddedPostgresError, match="no_such_setting"):
        await EmbeddedPostgres(root, durable=False, settings={"no_such_setting": 1}).start()
    async with EmbeddedPostgres(root, durable=False) as server:
        assert server.running


async def test_a_cancelled_start_leaves_nothing_behind(root: Path) -> None:
    server = EmbeddedPostgres(root, durable=False)
    starting = asyncio.create_task(server.start())
    await eventually(lambda: (root / "lock").exists())
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert not server.running
    async with EmbeddedPostgres(root, durable=False):
        pass


async def test_an_interrupted_initdb_is_made_again(root: Path) -> None:
    major = binaries.find_binaries().major
    (root / f"pg{major}.new").mkdir(parents=True)
    (root / f"pg{major}.new" / "PG_VERSION").write_text(str(major))
    async with EmbeddedPostgres(root, durable=False) as server:
        assert await fetchval(server.dsn, "select 1") == 1


# Crashes


async def test_kill_and_restart_keep_what_was_committed(root: Path) -> None:
    async with EmbeddedPostgres(root) as server:
        dsn = server.dsn
        await fetchval(dsn, "create table kept as select 42 as answer")
        held = await asyncpg.connect(dsn)
        await server.kill()
        assert not server.running
        await server.restart()
        assert server.dsn == dsn
        assert await fetchval(dsn, "select answer from kept") == 42
        held.terminate()
        await server.restart(immediate=True)
        assert await fetchval(dsn, "select answer from kept") == 42
        await server.restart()
        assert await fetchval(dsn, "select answer from kept") == 42


@pytest.mark.skipif(not LINUX, reason="only Linux binds a child to its parent's life")
async def test_the_server_dies_with_a_killed_owner(root: Path) -> None:
    owner = start_owner(root)
    pid, _ = first_line(owner)
    assert alive(pid)
    owner.kill()
    finish(owner)
    await eventually(lambda: not alive(pid))
    async with EmbeddedPostgres(root, durable=False) as server:
        assert await fetchval(server.dsn, "select 1") == 1


async def test_a_server_left_behind_is_ended_by_the_next_owner(root: Path) -> None:
    long = root / ("y" * 100)
    owner = start_owner(long, "unbound")
    pid, _ = first_line(owner)
    sockets = Path((long / "sockets").read_text())
    owner.kill()
    finish(owner)
    assert alive(pid)
    async with EmbeddedPostgres(long, durable=False) as server:
        assert not alive(pid)
        assert not sockets.exists()
        assert await fetchval(server.dsn, "select 1") == 1


async def test_a_pid_file_that_names_a_foreign_process(root: Path) -> None:
    async with EmbeddedPostgres(root, durable=False) as server:
        data = server.data
        text = (data / "postmaster.pid").read_text().splitlines()
        await server.kill()
    (data / "postmaster.pid").write_text("\n".join([str(os.getpid()), *text[1:]]) + "\n")
    async with EmbeddedPostgres(root, durable=False) as server:
        assert await fetchval(server.dsn, "select 1") == 1


@pytest.mark.skipif(shutil.which("ps") is None, reason="no ps here")
async def test_a_server_is_known_by_ps_as_well(root: Path) -> None:
    async with EmbeddedPostgres(root, durable=False) as server:
        assert postmaster._serves_by_ps(server.pid, server.data)
        assert not postmaster._serves_by_ps(os.getpid(), server.data)
        assert not postmaster._serves_by_ps(server.pid, server.data / "other")


def test_the_thread_that_started_it_may_end(root: Path) -> None:
    server = EmbeddedPostgres(root, durable=False)
    thread = threading.Thread(target=server.start_sync)
    thread.start()
    thread.join()
    try:
        assert asyncio.run(fetchval(server.dsn, "select pg_sleep(0.05)::text")) == ""
        assert server.running
    finally:
        server.stop_sync()


async def test_the_folder_has_one_owner(root: Path) -> None:
    async with EmbeddedPostgres(root, durable=False) as server:
        with pytest.raises(EmbeddedPostgresError, match="in use"):
            await EmbeddedPostgres(root).start()
        with pytest.raises(EmbeddedPostgresError, match="already"):
            await server.start()
        assert await fetchval(server.dsn, "select 1") == 1


def test_ctrl_c_at_the_owner_does_not_reach_the_server(root: Path) -> None:
    owner = start_owner(root)
    pid, _ = first_line(owner)
    assert os.getsid(pid) == pid
    assert finish(owner) == 0
    assert not alive(pid)


# Users


@pytest.mark.skipif(not (LINUX and ROOT), reason="needs root on Linux")
def test_root_runs_it_in_a_user_namespace_or_as_nobody(root: Path) -> None:
    owner = start_owner(root)
    _, identity = first_line(owner)
    assert identity in {"namespace", "nobody"}
    assert finish(owner) == 0


@pytest.mark.skipif(not LINUX, reason="needs user namespaces")
def test_a_normal_user_runs_it_as_itself(root: Path) -> None:
    """In a namespace of its own the owner is the user nobody, without a privilege."""
    become = tuple(binaries.as_identity("namespace", ["/bin/true"])[:-1])
    if subprocess.run([*become, "/bin/true"], check=False).returncode != 0:
        pytest.skip("no user namespaces here")
    owner = start_owner(root, prefix=become)
    _, identity = first_line(owner)
    assert identity == "self"
    assert finish(owner) == 0


@pytest.mark.skipif(not (LINUX and ROOT), reason="needs root on Linux")
@pytest.mark.parametrize("user", [exec_as.NOBODY, 54321])
def test_another_real_user(root: Path, user: int) -> None:
    """Nobody has an entry in the user database, 54321 has none."""
    setpriv, python = shutil.which("setpriv"), Path(f"/usr/bin/python3.{sys.version_info.minor}")
    if setpriv is None or not python.exists():
        pytest.skip("no setpriv, or no Python that other users can run")
    root.mkdir()
    os.chown(root, user, user)
    become = (setpriv, f"--reuid={user}", f"--regid={user}", "--clear-groups")
    paths = ":".join(path for path in sys.path if path.endswith("site-packages"))
    paths += f":{Path(__file__).parents[2]}"
    owner = subprocess.Popen(
        [*become, str(python), "-c", OWNER, str(root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd="/",
        env={"PATH": os.environ["PATH"], "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    pid, identity = first_line(owner)
    assert identity == ("self" if user == exec_as.NOBODY else "namespace")
    owner.kill()
    finish(owner)
    eventually_sync(lambda: not alive(pid))


@pytest.fixture
def no_namespaces(monkeypatch: pytest.MonkeyPatch) -> None:
    run = binaries._run
    monkeypatch.setattr(binaries, "_run", lambda command: None if "namespace" in command else run(command))


@pytest.mark.skipif(not (LINUX and ROOT), reason="needs root on Linux")
@pytest.mark.usefixtures("no_namespaces")
async def test_root_without_namespaces_uses_nobody_and_a_copy_once(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = find_bindir().parents[1]
    private = root.parent / "private"
    private.mkdir(mode=0o700)
    for tree in (package, package.with_name(f"{package.name}.libs")):
        if tree.is_dir():
            shutil.copytree(tree, private / tree.name, ignore=shutil.ignore_patterns("include"))
    monkeypatch.setenv("AIOFLOW_PG_BINDIR", str(private / package.name / find_bindir().relative_to(package)))
    stamps = []
    for _ in range(2):
        async with EmbeddedPostgres(root, durable=False) as server:
            assert await fetchval(server.dsn, "select 1") == 1
            assert server.binaries.bindir.is_relative_to(root)
            assert Path(f"/proc/{server.pid}").stat().st_uid == exec_as.NOBODY
            stamps.append(server.binaries.bindir.stat().st_ctime_ns)
    assert stamps[0] == stamps[1]
    monkeypatch.undo()
    async with EmbeddedPostgres(root, durable=False) as server:  # where namespaces work, on the same data
        assert await fetchval(server.dsn, "select 1") == 1


@pytest.mark.skipif(not (LINUX and ROOT), reason="needs root on Linux")
@pytest.mark.usefixtures("no_namespaces")
async def test_root_without_namespaces_in_a_private_folder(root: Path) -> None:
    root.parent.chmod(0o700)
    with pytest.raises(EmbeddedPostgresError, match="AIOFLOW_DATA_DIR"):
        await EmbeddedPostgres(root).start()


def test_nothing_outside_the_folder_changes(root: Path, tmp_path: Path) -> None:
    def outside() -> dict[str, object]:
        parents = {str(folder): folder.stat().st_mode for folder in root.parents}
        programs = {str(path): path.stat().st_mtime_ns for path in find_bindir().parent.rglob("*")}
        users = {name: Path(name).read_bytes() for name in ("/etc/passwd", "/etc/group")}
        folders = {name: os.listdir(tmp_path / name) for name in ("tmp", "home", "run")}
        return {**parents, **programs, **users, **folders}

    for name in ("tmp", "home", "run"):
        (tmp_path / name).mkdir()
    before = outside()
    environ = {"TMPDIR": "tmp", "HOME": "home", "XDG_RUNTIME_DIR": "run", "XDG_DATA_HOME": "home"}
    owner = start_owner(root, **{name: str(tmp_path / folder) for name, folder in environ.items()})
    first_line(owner)
    during = outside()
    assert finish(owner) == 0
    assert before == during == outside()
    assert {path.name for path in root.parent.iterdir()} == {root.name}


@pytest.mark.skipif(not LINUX, reason="Linux only")
def test_an_owner_gone_before_the_binding_ends_the_start() -> None:
    done = subprocess.run(binaries.as_identity("self", ["/bin/echo", "ran"], owner=1), capture_output=True, check=False)
    assert done.returncode == 1
    assert done.stdout == b""
    bound = binaries.as_identity("self", ["/bin/echo", "ran"], owner=os.getpid())
    assert subprocess.run(bound, capture_output=True, check=True).stdout == b"ran\n"
