"""What the documentation shows works: Python runs and has the types it claims, commands exist, links lead somewhere."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from aioflow.cli import main
from tests.docs.snippets import HOUSE, Snippet, modules, named, pages, snippets, write_modules

WITH_PYTHON = [page for page in pages() if modules(page)]
TYPES = HOUSE / ".mypy_cache" / "docs"
IMPORT = """
import importlib, sys
from aioflow.core.registry import Registry
for name in sys.argv[1:]:
    registry = Registry()
    for value in list(vars(importlib.import_module(name)).values()):
        if getattr(value, "__module__", None) == name and isinstance(value, type) and hasattr(value, "__workflow__"):
            registry.add_workflow(value)
"""
"""Imports modules, and checks their workflows as a worker would."""


def run(*command: str | Path, cwd: Path) -> None:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"[-6000:]


# Python


@pytest.mark.parametrize("page", WITH_PYTHON, ids=named)
def test_python_of_the_pages_runs(page: Path, tmp_path: Path) -> None:
    names = write_modules(page, tmp_path)
    run(sys.executable, "-W", "error", "-c", IMPORT, *names, cwd=tmp_path)


@pytest.mark.slow
def test_the_tests_of_the_page_on_testing_pass(tmp_path: Path) -> None:
    (name,) = write_modules(HOUSE / "docs" / "how-to" / "testing.md", tmp_path)
    options = ["-q", "-c", "/dev/null", "--rootdir=.", "-p", "no:cacheprovider", "-o", "asyncio_mode=auto"]
    run(sys.executable, "-m", "pytest", *options, f"{name}.py", cwd=tmp_path)


def type_check(folder: Path) -> None:
    files = sorted(path.name for path in folder.glob("*.py"))
    options = ["--strict", "--config-file=", f"--cache-dir={TYPES}", "--disable-error-code=empty-body"]
    run(sys.executable, "-m", "mypy", *options, *files, cwd=folder)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_python_of_the_pages_has_the_types_it_claims(tmp_path: Path) -> None:
    together = tmp_path / "together"
    together.mkdir()
    for page in WITH_PYTHON:
        alone = "flows.py" in modules(page)  # names that several pages use
        folder = tmp_path / page.stem if alone else together
        folder.mkdir(exist_ok=True)
        write_modules(page, folder)
    for folder in sorted(tmp_path.iterdir()):
        type_check(folder)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_example_service_has_the_types_it_claims() -> None:
    type_check(HOUSE / "docs" / "examples" / "orders")


def test_skipped_python_says_why() -> None:
    for page in pages():
        for one in snippets(page):
            assert not one.mark or re.match(r"file \w+\.py$|skip, \w+ \w+", one.mark), one.where


# Shell


def commands(one: Snippet) -> Iterator[list[str]]:
    """The aioflow commands of a block, as lists of arguments; lines joined at their backslashes."""
    for line in one.text.replace("\\\n", " ").splitlines():
        for part in line.split(" && "):
            words = shlex.split(part, comments=True)
            if words and words[0].rpartition("/")[2] == "aioflow":
                yield words[1:]


SHELL = [(one, words) for page in pages() for one in snippets(page) if one.language == "sh" for words in commands(one)]


@pytest.mark.parametrize(("one", "words"), SHELL, ids=[f"{one.where} {' '.join(words[:2])}" for one, words in SHELL])
def test_commands_of_the_pages_exist(one: Snippet, words: list[str]) -> None:
    check_command(words)


def check_command(words: list[str]) -> None:
    """Parse the arguments as click would, without running anything; a command with a wrong flag raises."""
    context = click.Context(main, info_name="aioflow")
    command: click.Command = main
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        name, found, words = command.resolve_command(context, list(words))
        assert found is not None
        command = found
        context = click.Context(command, info_name=name, parent=context)
    if "--help" not in words:
        command.make_context(context.info_name, list(words), parent=context.parent)


def test_there_are_commands_to_check() -> None:
    assert len(SHELL) > 20
    for words in (["worker", "--no-such-flag"], ["workflow", "fly"], ["wroker"]):
        with pytest.raises(click.UsageError):
            check_command(words)


def test_the_readme_sets_up_in_exactly_two_commands() -> None:
    shell = [line for one in snippets(HOUSE / "README.md") if one.language == "sh" for line in one.text.splitlines()]
    demo, tests = (line for line in shell if "pip install" in line)
    assert demo.startswith("python3 -m venv .venv && ")
    assert demo.endswith(".venv/bin/aioflow demo")
    assert tests.startswith("python3 -m venv .venv && ")
    assert tests.endswith(".venv/bin/pytest")


# Links

LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")


def anchors(page: Path) -> set[str]:
    """Anchors of a page's headings, as the usual renderers make them."""
    text = re.sub(r"^ *```.*?^ *```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", pages(), ids=named)
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^ *```.*?^ *```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    broken = []
    for target in LINK.findall(text):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        if not found.exists() or (anchor and anchor not in anchors(found)):
            broken.append(target)
    assert not broken


def test_every_page_is_in_the_index() -> None:
    index = HOUSE / "docs" / "index.md"
    linked = {(index.parent / target).resolve() for target in LINK.findall(index.read_text(encoding="utf-8"))}
    missing = [named(page) for page in pages() if page.is_relative_to(index.parent) and page not in {*linked, index}]
    assert [page for page in missing if not page.startswith("docs/adr/0")] == []
