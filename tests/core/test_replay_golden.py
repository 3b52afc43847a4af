"""Histories recorded once are replayed for ever, on every Python."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import anyio._backends._asyncio  # noqa: F401  # loads it, so that its scopes can be diverted
import pytest

from aioflow.core import events as ev
from aioflow.core import scopes
from aioflow.core.event import KINDS
from tests.core.histories import from_json, to_json, told_json
from tests.core.world import Driver
from tests.golden.flows import FLOWS

HISTORIES = sorted((Path(__file__).parents[1] / "golden" / "histories").glob("*.json"))


@pytest.fixture(autouse=True)
def _scopes() -> Iterator[None]:
    assert scopes.install()
    yield
    scopes.uninstall()


def recorded(path: Path) -> tuple[Driver, list[ev.Event]]:
    return Driver(FLOWS[path.stem.partition("-")[0]]), from_json(json.loads(path.read_text(encoding="utf-8")))


def test_every_flow_has_histories() -> None:
    assert {path.stem.partition("-")[0] for path in HISTORIES} == FLOWS.keys()


@pytest.mark.parametrize("path", HISTORIES, ids=[path.stem for path in HISTORIES])
def test_a_golden_history_replays(path: Path) -> None:
    driver, history = recorded(path)
    assert isinstance(history[-1], ev.Terminal)
    driver.history = history
    assert driver.loaded().closed
    driver.evict()
    # Up to each input as well: that is where some worker may have stopped.
    for position, one in enumerate(history):
        if isinstance(one, ev.Input) and position:
            driver.history = history[:position]
            assert not driver.loaded().closed
            driver.evict()


@pytest.mark.parametrize("path", HISTORIES, ids=[path.stem for path in HISTORIES])
def test_a_golden_history_comes_out_again(path: Path) -> None:
    driver, history = recorded(path)
    for one in history:
        if isinstance(one, ev.Input) and not driver.closed:
            driver.apply(one)
    assert told_json(driver.history) == told_json(history)


@pytest.mark.parametrize("path", HISTORIES, ids=[path.stem for path in HISTORIES])
def test_a_golden_history_is_written_as_it_was(path: Path) -> None:
    rows = json.loads(path.read_text(encoding="utf-8"))
    current = [row for row in rows if row["version"] == KINDS[row["kind"]].VERSION]
    assert to_json(from_json(current)) == current
