"""All models, and the statements of the product that they are held to."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.faults.model import (
    activities,
    attempts,
    batches,
    children,
    closing,
    eager,
    failover,
    forced,
    ingress,
    instance,
    position,
    reaping,
    requests,
    starts,
    suspects,
    timers,
    token,
    wakeups,
)
from tests.faults.model.engine import Model, Mutant

__all__ = ["MODELS", "functions", "mutants", "normal", "of_mutant", "source", "statements", "variants"]

STORE = Path(__file__).parents[3] / "aioflow" / "store"
MODULES = (
    instance, position, token, eager, closing, forced, ingress, reaping, timers, wakeups,
    starts, children, requests, failover, activities, attempts, batches, suspects,
)  # fmt: skip
MODELS: tuple[type[Model], ...] = tuple(model for module in MODULES for model in module.MODELS)


def variants() -> Iterator[tuple[type[Model], str]]:
    """Every model in every variant that must be clean."""
    return ((model, variant) for model in MODELS for variant in model.variants)


def mutants() -> Iterator[tuple[type[Model], Mutant]]:
    """Every planted mistake."""
    return ((model, mutant) for model in MODELS for mutant in model.mutants)


def of_mutant(model: type[Model], mutant: Mutant) -> Model:
    """The model with the mistake in it."""
    return model(*model.variants[mutant.variant], flaw=mutant.flaw)


def normal(text: str) -> str:
    """White space told apart from words only."""
    return re.sub(r"\s+", " ", text).strip()


@cache
def functions() -> dict[str, str]:
    """The functions of the schema as the last migration leaves them."""
    found: dict[str, str] = {}
    for path in sorted((STORE / "sql" / "migrations").glob("*.sql")):
        for match in re.finditer(
            r"create (?:or replace )?function aioflow\.(\w+)\(.*?(?=\ncreate |\nrevoke |\Z)",
            path.read_text(encoding="utf-8"),
            re.DOTALL,
        ):
            found[match[1]] = match[0]
    return found


@cache
def statements() -> dict[str, str]:
    """The statements, by file name."""
    return {path.name: path.read_text(encoding="utf-8") for path in (STORE / "sql").glob("*.sql")}


def source(name: str) -> str:
    """The text that a model is held to: ``x.sql``, ``x.py`` of the store, or ``x()``."""
    if name.endswith("()"):
        return functions()[name.removesuffix("()")]
    if name.endswith(".sql"):
        return statements()[name]
    return (STORE / name).read_text(encoding="utf-8")
