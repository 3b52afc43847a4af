"""One tiny rep of every benchmark, to see that it runs; nothing is said about its numbers."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks import report
from benchmarks.__main__ import RATES, arguments, run
from benchmarks.latency import LATENCIES

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="the embedded server runs on Linux and macOS"),
    pytest.mark.timeout(120),
]


async def test_every_benchmark_runs_and_is_reported(tmp_path: Path) -> None:
    options = arguments(["rates", "lat", "micro", "absurd", "--quick", "--set", "shared_buffers=32MB"])
    found = await run(options)
    assert set(found["throughput"]) == {*RATES, "w1_burst"}
    assert set(found["latency"]) == set(LATENCIES)
    for row in found["throughput"].values():
        assert row["rate"] > 0
        assert row["write_tx"] > 0
        assert row["wal_bytes"] > 0
    assert found["micro"]["replay, cold"]["us"] > 0
    assert "absurd" in found["peers"]
    saved = report.save(found, tmp_path)
    text = saved.read_text()
    assert "| w1 " in text
    assert "| timer_overshoot " in text
    assert "Peer: absurd" in text
    assert saved.with_suffix(".json").exists()


def test_what_is_asked_for_is_known() -> None:
    assert arguments(["--only", "w1,lat"]).wanted == ["w1", *LATENCIES]
    with pytest.raises(SystemExit):
        arguments(["w7"])
