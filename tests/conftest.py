"""Fixtures with a real Postgres: one server for the session (per xdist worker), one fresh database per test.

The server is an embedded one without fsync in a temporary folder, or the one that
``AIOFLOW_TEST_DATABASE_URL`` names (a user who may create databases). ``database`` is a copy of a migrated
template, ``empty_database`` has nothing in it; both give a DSN and may be used by async and sync tests.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import secrets
import shutil
import tempfile
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

import pytest
import structlog

_TEMPLATE_SETTINGS = {"max_connections": 300, "max_wal_size": "4GB", "checkpoint_timeout": "1h", "jit": "off"}


class Admin:
    """A connection for creating databases, on an event loop in a thread of its own."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="test-admin", daemon=True)
        self._thread.start()
        self._connection: Any = None

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def execute(self, statement: str) -> None:
        self.run(self._execute(statement))

    async def _execute(self, statement: str) -> None:
        import asyncpg

        if self._connection is None or self._connection.is_closed():
            self._connection = await asyncpg.connect(self._dsn)
        await self._connection.execute(statement)

    def dsn_of(self, database: str) -> str:
        return urlunsplit(urlsplit(self._dsn)._replace(path="/" + quote(database)))

    @contextmanager
    def database(self, name: str, *, template: str) -> Iterator[str]:
        # File copy is three times quicker than the default for a small template. Names are ours, never input.
        self.execute(" ".join(("create database", name, "template", template, "strategy file_copy")))
        try:
            yield self.dsn_of(name)
        finally:
            self.execute(" ".join(("drop database if exists", name, "with (force)")))

    def close(self) -> None:
        if self._connection is not None:
            self.run(self._connection.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def _fresh_name() -> str:
    return f"aioflow_test_{os.getpid()}_{secrets.token_hex(4)}"


@pytest.fixture(autouse=True)
def _no_logging_left_behind() -> Iterator[None]:
    """What a command configured for its process, here it would be the one of all tests."""
    yield
    structlog.reset_defaults()


@pytest.fixture
def short_tmp() -> Iterator[Path]:
    """A folder with a short path (a socket fits in) that any user may enter; tmp_path is neither."""
    folder = Path(tempfile.mkdtemp(prefix="aioflow-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)  # a server whose owner was killed may still be tidying up in it


@pytest.fixture(scope="session")
def postgres_dsn() -> Iterator[str]:
    """DSN of a superuser's database on the session's server."""
    if given := os.environ.get("AIOFLOW_TEST_DATABASE_URL"):
        yield given
        return
    from aioflow.store.embedded import EmbeddedPostgres

    root = Path(tempfile.mkdtemp(prefix="aioflow-"))
    try:
        with EmbeddedPostgres(root, durable=False, settings=_TEMPLATE_SETTINGS) as server:
            yield server.dsn
    finally:
        shutil.rmtree(root, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres_admin(postgres_dsn: str) -> Iterator[Admin]:
    """Creates and drops databases on the session's server."""
    admin = Admin(postgres_dsn)
    yield admin
    admin.close()


@pytest.fixture(scope="session")
def migrated_template(postgres_admin: Admin) -> Iterator[str]:
    """Name of a database with all migrations applied and nobody connected to it."""
    from aioflow.store.migrations import migrate

    async def apply(dsn: str) -> None:
        outcome = migrate(dsn)
        if inspect.isawaitable(outcome):
            await outcome

    name = _fresh_name()
    with postgres_admin.database(name, template="template0") as dsn:
        postgres_admin.run(apply(dsn))
        yield name


@pytest.fixture
def database(postgres_admin: Admin, migrated_template: str) -> Iterator[str]:
    """DSN of a fresh, migrated database."""
    with postgres_admin.database(_fresh_name(), template=migrated_template) as dsn:
        yield dsn


@pytest.fixture
def empty_database(postgres_admin: Admin) -> Iterator[str]:
    """DSN of a fresh database without aioflow's schema."""
    with postgres_admin.database(_fresh_name(), template="template0") as dsn:
        yield dsn
