"""Random programs in a random world: one history, however inputs are batched and whatever is evicted."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import seed as seeded

from tests.core.checks import check_in_process
from tests.core.program_strategies import LEAVES, NESTED, programs, seeds
from tests.core.programs import FEATURES, Block
from tests.core.sizes import sized, sized_settings

# Both ways out of a step count: what happened in time, and what did not.
STEPS = [
    "activity",
    "call",
    "plain",
    "timer",
    "sleep",
    "channel",
    "condition",
    "effect",
    "ids",
    "cancel",
    "join",
    "set",
    "wait",
    "notify",
    "hear",
    "put",
    "get",
    "fail",
    "gather",
    "all",
    "any",
    "group",
    "first",
    "completed",
    "spawn",
    "shield",
    "wait_for",
    "timeout",
    "lock",
    "semaphore",
    "try",
    "star",
    "finally",
    "swallow",
    "coin",
    "clock",
    "generate",
    "poke",
    "work",
    "boom",
]
OTHER_WAYS = [
    "channel timeout",
    "condition timeout",
    "wait timeout",
    "hear timeout",
    "get timeout",
    "completed timeout",
    "wait_for timeout",
    "timeout timeout",
    "semaphore timeout",
    "bad effect",
    "activity error",
    "generator closed",
]
WORLD = [
    "message before start",
    "batch of one",
    "batch of several",
    "evicted",
    "activity completed",
    "activity failed",
    "activity timed out",
    "activity cancelled",
    "cancel requested",
    "timers due at once",
    "late fire dropped",
    "close refused here",
    "close refused by the store",
    "run completed",
    "run failed",
    "run cancelled",
    "run open",
    "signal poke",
    "signal work",
    "signal red",
    "signal blue",
    "signal boom",
]


def test_every_way_to_drive_a_run_gives_one_history() -> None:
    happened: Counter[str] = Counter()
    FEATURES.clear()

    def check(program: Block, seed: int) -> None:
        check_in_process(program, seed, happened)

    def missing() -> list[str]:
        unseen = [name for name in STEPS + OTHER_WAYS if not FEATURES[name]]
        return unseen + [name for name in WORLD if not happened[name]]

    sized(320)(given(programs(), seeds)(check))()
    # Hypothesis draws on the constants of whatever is imported, so a rare step may take more programs than usual.
    for more in range(1, 6):
        if missing():
            seeded(more)(settings(sized_settings(80), derandomize=False)(given(programs(), seeds)(check)))()
    assert not missing(), f"never generated: {missing()}"


def test_every_step_is_counted() -> None:
    silent = {"bad_effect", "clear"}  # counted as "bad effect"; nothing to see
    assert (LEAVES.keys() | NESTED.keys()) - silent <= set(STEPS)
