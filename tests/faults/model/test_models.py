"""The models are clean, planted mistakes are found by what they break, and the product says what the models say."""

from __future__ import annotations

import inspect
import re
import sys

import pytest

from tests.faults.model.catalogue import (
    MODELS,
    functions,
    mutants,
    normal,
    of_mutant,
    source,
    statements,
    variants,
)
from tests.faults.model.engine import Model, Mutant, check

# What is written without a race that a model would be needed for: each concerns one row that nobody else decides by,
# or decides nothing.
NOT_MODELLED = {"forget_workers.sql", "migration_note.sql", "register_definitions.sql", "worker_register.sql"}
# Thin statements that call a function, which is what is modelled.
CALL = re.compile(r"from aioflow\.(\w+)\(")
WRITES = re.compile(r"\b(insert into|update|delete from|for (?:no key )?update|for (?:key )?share)\b")


def ident(value: object) -> str | None:
    if isinstance(value, Mutant):
        return value.flaw
    if isinstance(value, str):
        return value or "plain"
    return value.rule if isinstance(value, type) and issubclass(value, Model) else None


@pytest.mark.parametrize(("model", "variant"), list(variants()), ids=ident)
def test_model_is_clean(model: type[Model], variant: str) -> None:
    run = check(model(*model.variants[variant]))
    assert run.invariant is None, "\n".join((f"{run.invariant}: {run.reason}", *run.trace))


@pytest.mark.parametrize(("model", "mutant"), list(mutants()), ids=ident)
def test_mutant_is_found_for_the_right_reason(model: type[Model], mutant: Mutant) -> None:
    run = check(of_mutant(model, mutant))
    assert run.invariant == mutant.breaks, "\n".join((f"{run.invariant}: {run.reason}", *run.trace))
    assert run.trace


@pytest.mark.parametrize("model", MODELS, ids=ident)
def test_model_says_what_it_models(model: type[Model]) -> None:
    """Its text names every statement, every mistake is looked for in it, and every invariant that is named exists."""
    text = inspect.getsource(sys.modules[model.__module__])
    for flaw, breaks, variant in model.mutants:
        assert text.count(f'"{flaw}"') > 1, f"{flaw!r} changes nothing"
        assert variant in model.variants
        named = sum(mutant.breaks == breaks for mutant in model.mutants)
        raised = breaks in ("deadlock", "progress") or text.count(f'"{breaks}"') > named
        assert raised or any(hasattr(model, f"{kind}_{breaks}") for kind in ("always", "finally")), breaks
    assert len({mutant.flaw for mutant in model.mutants}) == len(model.mutants)
    assert model.held_to


@pytest.mark.parametrize("model", MODELS, ids=ident)
def test_product_says_what_the_model_is_held_to(model: type[Model]) -> None:
    """A change of the protocol changes the model first, then what it is held to."""
    for name, fragments in model.held_to.items():
        text = normal(source(name))
        missing = [fragment for fragment in fragments if normal(fragment) not in text]
        assert fragments
        assert not missing, f"{model.rule}: {name} does not say {missing} any more; does the model still hold?"


def test_every_statement_that_writes_has_a_model() -> None:
    held = {name for model in MODELS for name in model.held_to}
    writing = {name for name, text in statements().items() if WRITES.search(re.sub("--.*", "", text))}
    calling = {f"{found[1]}()" for text in statements().values() if (found := CALL.search(text))}
    calling &= {f"{name}()" for name in functions()}
    assert writing - held - NOT_MODELLED == set()
    assert {name for name in calling if WRITES.search(source(name))} - held == set()
    assert writing >= NOT_MODELLED, "stale exceptions"
