"""Everything at once, as processes: 45 seconds of it."""

from __future__ import annotations

import pytest

from tests.faults.chaos.storm import storm, tell


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_chaos_loses_nothing_and_does_nothing_twice() -> None:
    report = await storm(45.0, seed=20, more=45.0)
    told = tell(report)
    print(told)
    assert not report.violations, told
    assert not report.missing, told
    assert not report.stray, told
