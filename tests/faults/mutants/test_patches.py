"""The mutants still fit the product; that each is found is shown by ``python -m tests.faults.mutants``."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from tests.faults.mutants.copies import HOUSE
from tests.faults.mutants.patches import FOLDER, Patch, patches
from tests.faults.mutants.rings import RINGS, Ring

ALL = patches()


@pytest.mark.parametrize("patch", ALL, ids=lambda one: one.name)
def test_a_patch_fits_the_product(patch: Patch) -> None:
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    changed = re.findall(r"^\+\+\+ b/(.+)$", patch.diff, re.MULTILINE)
    assert changed
    assert all(name.startswith("aioflow/") for name in changed)
    done = subprocess.run(
        ["git", "apply", "-C1", "--check", "-"],
        input=patch.diff,
        cwd=HOUSE,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("patch", ALL, ids=lambda one: one.name)
def test_a_patch_says_what_it_breaks_and_who_finds_it(patch: Patch) -> None:
    assert len(patch.broken) > 20
    assert len(patch.fault) > 20
    assert patch.rings
    assert set(patch.rings) <= set(RINGS)


def test_patches_differ() -> None:
    assert len(ALL) >= 25
    assert len({one.diff for one in ALL}) == len(ALL)
    assert len({one.broken for one in ALL}) == len(ALL)
    assert sorted(FOLDER.iterdir()) == [one.path for one in ALL]


@pytest.mark.parametrize("ring", RINGS.values(), ids=RINGS.keys())
def test_a_ring_names_tests(ring: Ring) -> None:
    missing = [name for name in ring.tests if not (HOUSE / name).exists() and "/faults/" not in name]
    assert not missing
