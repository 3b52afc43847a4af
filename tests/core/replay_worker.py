"""Replays and drives runs for a test in another process: JSON lines in, JSON lines out."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable
from typing import Any

from tests.core.histories import from_json, to_json, told_json
from tests.core.programs import Program
from tests.core.world import Driver, World


def play(program: list[Any], seed: int) -> Any:
    """Play a program in its world here: the history, and what it tells."""
    history = World(Program, seed, program).play().history
    return {"history": to_json(history), "told": told_json(history)}


def replay(history: list[Any], batches: list[list[Any]]) -> Any:
    """Go on from a history with what came in later; tells what the whole history is then."""
    driver = Driver(Program)
    driver.history = from_json(history)
    driver.loaded()
    for batch in batches:
        decision = driver.decide(from_json(batch))  # type: ignore[arg-type]  # inputs all
        driver.history += decision.events
        if decision.close:
            break
    driver.evict()
    return told_json(driver.history)


REQUESTS: dict[str, Callable[..., Any]] = {"play": play, "replay": replay}


def main() -> None:
    for line in sys.stdin:
        request = json.loads(line)
        answer: dict[str, Any]
        try:
            answer = {"answer": REQUESTS[request.pop("what")](**request)}
        except Exception as error:
            shown = "".join(traceback.format_exception(error, limit=-4))
            answer = {"error": f"Python {sys.version.split()[0]}: {shown}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
