"""Pages of the reference say what the code says; guarantees name tests that exist; container files can be read."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

import aioflow
from aioflow import Workflow, errors
from aioflow.api.activity import Activity
from aioflow.client import Client
from aioflow.core import events
from aioflow.worker import Worker
from tests.docs.pages import MEANING, PAGES, REFERENCE, RESERVED, error_classes
from tests.docs.snippets import HOUSE
from tests.docs.test_snippets import check_command


@pytest.mark.parametrize("name", PAGES)
def test_pages_made_of_the_code_are_up_to_date(name: str) -> None:
    written = (REFERENCE / name).read_text(encoding="utf-8")
    assert written == PAGES[name](), "run `python -m tests.docs.pages`"


def test_the_tree_of_errors_holds_every_error() -> None:
    drawn = set(re.findall(r"(?:── |^)([A-Z]\w+)", errors.__doc__ or "", re.MULTILINE))
    assert {one.__name__ for one in error_classes()} <= drawn


def test_every_event_is_described() -> None:
    page = (REFERENCE / "events.md").read_text(encoding="utf-8")
    assert [kind for kind in events.KINDS if f"| `{kind}`" not in page] == []
    assert set(events.KINDS) >= RESERVED


def test_every_setting_is_described() -> None:
    page = (REFERENCE / "settings.md").read_text(encoding="utf-8")
    assert [name for name in MEANING if f"| `{name}` |" not in page] == []


def test_every_authoring_name_is_described() -> None:
    page = (REFERENCE / "authoring.md").read_text(encoding="utf-8")
    page += (REFERENCE / "errors.md").read_text(encoding="utf-8")
    assert [name for name in aioflow.__all__ if not re.search(rf"\b{name}\b", page)] == []


OPTIONS = [
    ("authoring.md", Activity.options, {"name"}),  # `defn` takes it, a copy does not
    ("authoring.md", Workflow.__init_subclass__, set()),
    ("client.md", Workflow.options, set()),
    ("client.md", Client.open, set()),
    ("worker.md", Worker.__init__, set()),
]


@pytest.mark.parametrize(("page", "function", "more"), OPTIONS, ids=[one[1].__qualname__ for one in OPTIONS])
def test_a_table_lists_the_parameters(page: str, function: Callable[..., object], more: set[str]) -> None:
    """Some table of the page has a row for each parameter and no other rows."""
    taken = {
        name
        for name, one in inspect.signature(function).parameters.items()
        if name not in ("self", "cls") and one.kind is not one.VAR_KEYWORD
    }
    tables = re.findall(r"(?:^\|.*\n)+", (REFERENCE / page).read_text(encoding="utf-8"), re.MULTILINE)
    rows = [set(re.findall(r"`(\w+)`", " ".join(re.findall(r"^\| (.*?) \|", one, re.MULTILINE)))) for one in tables]
    assert taken | more in rows


def test_guarantees_name_tests_that_exist() -> None:
    page = (HOUSE / "docs" / "guarantees.md").read_text(encoding="utf-8")
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", page)
    assert len(named) > 10
    missing = [f"{file}::{name}" for file, name in named if name not in functions(HOUSE / file)]
    assert missing == []


def functions(file: Path) -> set[str]:
    if not file.exists():
        return set()
    found = ast.walk(ast.parse(file.read_text(encoding="utf-8")))
    return {node.name for node in found if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


# Containers


def test_the_compose_file_can_be_read_and_its_parts_exist() -> None:
    folder = HOUSE / "docker"
    compose = yaml.safe_load((folder / "compose.yaml").read_text(encoding="utf-8"))
    services = compose["services"]
    assert set(services) >= {"postgres", "migrate", "worker", "api"}
    assert services["worker"]["deploy"]["replicas"] == 2
    for name, service in services.items():
        build = service.get("build")
        if build is not None:
            assert (folder / build["context"] / build["dockerfile"]).is_file()
        assert set(service.get("depends_on", {})) <= set(services), name
        assert {one.partition(":")[0] for one in service.get("volumes", [])} <= set(compose["volumes"]), name
    for name in ("migrate", "worker"):
        check_command(services[name]["command"])


@pytest.mark.parametrize("name", ["Dockerfile", "api.Dockerfile"])
def test_what_an_image_copies_exists(name: str) -> None:
    text = (HOUSE / "docker" / name).read_text(encoding="utf-8")
    for sources in re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE):
        assert [one for one in sources.split() if not (HOUSE / one).exists()] == []
    assert "STOPSIGNAL SIGTERM" in text
    assert re.search(r"^USER (?!0|root)\S+$", text, re.MULTILINE)
