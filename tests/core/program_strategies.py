"""Random programs for `tests.core.programs`, as Hypothesis strategies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

Draw = Callable[[st.SearchStrategy[Any]], Any]
Arguments = Callable[[Draw, int], list[Any]]

SECONDS = st.sampled_from([0, 0.5, 1, 1.000001, 7, 60, 3600])
LIMIT = st.sampled_from([None, 0, 0.5, 1, 7, 60])
SMALL = st.integers(0, 2)
WHICH = st.integers(0, 1)
CHANNEL = st.sampled_from(["red", "blue"])

LEAVES: dict[str, Arguments] = {
    "activity": lambda draw, _: [draw(SMALL)],
    "call": lambda draw, _: [draw(SMALL)],
    "plain": lambda draw, _: [draw(SMALL)],
    "timer": lambda draw, _: [draw(SECONDS)],
    "sleep": lambda draw, _: [draw(SECONDS)],
    "channel": lambda draw, _: [draw(CHANNEL), draw(LIMIT)],
    "condition": lambda draw, _: [draw(SMALL), draw(LIMIT)],
    "effect": lambda draw, _: [],
    "bad_effect": lambda draw, _: [],
    "ids": lambda draw, _: [],
    "cancel": lambda draw, _: [draw(WHICH)],
    "join": lambda draw, _: [draw(WHICH)],
    "set": lambda draw, _: [draw(WHICH)],
    "clear": lambda draw, _: [draw(WHICH)],
    "wait": lambda draw, _: [draw(WHICH), draw(LIMIT)],
    "notify": lambda draw, _: [draw(WHICH), draw(SMALL)],
    "hear": lambda draw, _: [draw(WHICH), draw(LIMIT)],
    "put": lambda draw, _: [draw(WHICH), draw(SMALL)],
    "get": lambda draw, _: [draw(WHICH), draw(LIMIT)],
    "fail": lambda draw, _: [],
}

NESTED: dict[str, Arguments] = {
    "gather": lambda draw, depth: [_blocks(draw, depth), draw(st.booleans())],
    "all": lambda draw, depth: [_blocks(draw, depth)],
    "any": lambda draw, depth: [_blocks(draw, depth)],
    "group": lambda draw, depth: [_blocks(draw, depth)],
    "first": lambda draw, depth: [_blocks(draw, depth), draw(st.booleans())],
    "completed": lambda draw, depth: [_blocks(draw, depth), draw(LIMIT)],
    "spawn": lambda draw, depth: [draw(WHICH), _block(draw, depth)],
    "shield": lambda draw, depth: [_block(draw, depth)],
    "wait_for": lambda draw, depth: [draw(SECONDS), _block(draw, depth)],
    "timeout": lambda draw, depth: [draw(SECONDS), _block(draw, depth)],
    "lock": lambda draw, depth: [draw(WHICH), _block(draw, depth)],
    "semaphore": lambda draw, depth: [draw(WHICH), draw(LIMIT), _block(draw, depth)],
    "try": lambda draw, depth: [[["call", draw(SMALL)], *_block(draw, depth)], _block(draw, depth)],
    "star": lambda draw, depth: [_block(draw, depth)],
    "finally": lambda draw, depth: [_block(draw, depth), _block(draw, depth)],
    "swallow": lambda draw, depth: [_block(draw, depth)],
    "coin": lambda draw, depth: [_block(draw, depth), _block(draw, depth)],
    "clock": lambda draw, depth: [_block(draw, depth), _block(draw, depth)],
    "generate": lambda draw, depth: [draw(SMALL), _block(draw, depth)],
}

# Steps that end a run or a branch are rarer than the rest, or few runs would come far.
_LEAF_NAMES = [name for name in LEAVES for _ in range({"fail": 1, "activity": 9}.get(name, 3))]
_NAMES = _LEAF_NAMES + [name for name in NESTED for _ in range(4)]


def _block(draw: Draw, depth: int) -> list[list[Any]]:
    names = st.sampled_from(_NAMES if depth > 0 else _LEAF_NAMES)
    steps = []
    for _ in range(draw(st.integers(1, 3))):
        name = draw(names)
        make = LEAVES.get(name) or NESTED[name]
        steps.append([name, *make(draw, depth - 1)])
    return steps


def _blocks(draw: Draw, depth: int) -> list[list[list[Any]]]:
    return [_block(draw, depth) for _ in range(draw(st.integers(2, 3)))]


@st.composite
def programs(draw: Draw, depth: int = 3) -> list[list[Any]]:
    """A block with blocks in it, ``depth`` deep at most; a `finally` often stands around all of it."""
    block = _block(draw, depth) + _block(draw, depth - 1) + _block(draw, depth - 1)
    return [["finally", block, [["call", 1]]]] if draw(st.integers(0, 3)) == 0 else block


seeds = st.integers(0, 2**32)


@st.composite
def straight_lines(draw: Draw) -> list[list[Any]]:
    """Steps of one branch, each of which asks for something."""
    names = st.sampled_from(["activity", "call", "plain", "effect"])
    return [[name, *LEAVES[name](draw, 0)] for name in draw(st.lists(names, min_size=1, max_size=5))]
