"""How many random examples a property gets: few and always the same ones, or as many as are asked for."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, settings

PROGRAMS = int(os.environ.get("AIOFLOW_TEST_PROGRAMS", "0"))
"""Examples per property in a long run, new ones each time; 0 for the usual size."""


def sized(examples: int) -> Callable[[Any], Any]:
    """A property over random programs that usually takes this many."""
    return sized_settings(examples)


def sized_settings(examples: int) -> settings:
    """The settings of such a property."""
    return settings(
        max_examples=PROGRAMS or examples,
        derandomize=not PROGRAMS,
        database=None,
        deadline=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )
