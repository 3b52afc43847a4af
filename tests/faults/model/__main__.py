"""``python -m tests.faults.model``: the state counts and the planted mistakes, as Markdown."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

from tests.faults.model.catalogue import MODELS, of_mutant
from tests.faults.model.engine import Model, Run, check


def told(run: Run, expected: str | None) -> str:
    if run.invariant == expected:
        return f"{run.states:,}"
    return f"**{run.invariant}: {run.reason}** {' · '.join(run.trace)}"


def clean(wrong: list[str]) -> Iterator[str]:
    yield "| model | variant | states | not in the product yet |"
    yield "| --- | --- | --- | --- |"
    total = 0
    for model in MODELS:
        for variant, options in model.variants.items():
            run = check(model(*options))
            total += run.states
            wrong += [model.rule] * (run.invariant is not None)
            yield f"| {model.rule} | {variant} | {told(run, None)} | {'' if variant else model.planned} |"
    yield f"| **{len(MODELS)}** | **{sum(len(model.variants) for model in MODELS)}** | **{total:,}** | |"


def planted(model: type[Model], wrong: list[str]) -> Iterator[str]:
    for mutant in model.mutants:
        run = check(of_mutant(model, mutant))
        found = run.invariant == mutant.breaks
        wrong += [mutant.flaw] * (not found)
        steps = str(len(run.trace)) if found else f"**{run.invariant or 'not found'}**"
        yield f"| {model.rule} | {mutant.flaw} | {mutant.breaks} | {steps} |"


def main() -> int:
    begun = time.perf_counter()
    wrong: list[str] = []
    print("\n".join(clean(wrong)), flush=True)
    print("\n| model | planted mistake | broken invariant | steps of the counterexample |")
    print("| --- | --- | --- | --- |")
    for model in MODELS:
        print("\n".join(planted(model, wrong)), flush=True)
    count = sum(len(model.mutants) for model in MODELS)
    print(f"\n{count} planted mistakes, {len(wrong)} surprises, {time.perf_counter() - begun:.0f} s", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
