"""Fixtures of the commands' tests: a user's folder, and one with a database and a worker shared by a module."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.shell import SHOP, Shell
from tests.conftest import Admin

PROJECT = """
[project]
name = "shop"

[tool.aioflow]
modules = ["shop"]
log-format = "json"
"""


@pytest.fixture
def shell(short_tmp: Path) -> Iterator[Shell]:
    """A project without a database."""
    made = Shell(short_tmp)
    made.write("shop.py", SHOP)
    made.write("pyproject.toml", PROJECT)
    yield made
    made.end()


@pytest.fixture(scope="module")
def shop(postgres_admin: Admin, migrated_template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """A project whose database is named by the environment, and a worker that serves it."""
    name = f"aioflow_test_{os.getpid()}_{secrets.token_hex(4)}"
    with postgres_admin.database(name, template=migrated_template) as dsn:
        made = Shell(tmp_path_factory.mktemp("shop"), AIOFLOW_DATABASE_URL=dsn)
        made.write("shop.py", SHOP)
        made.write("pyproject.toml", PROJECT)
        worker = made.begin("worker", "--concurrency", "200", "--identity", "clerk")
        worker.says("worker_registered")
        yield made
        worker.popen.kill()  # it would wait for activities that do not end
        made.end()
