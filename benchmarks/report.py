"""Tables for people, JSON for scripts, and the files in ``results/``."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

RESULTS = Path(__file__).parent / "results"
_RATES = {
    "rate": "rate/s (median)",
    "best": "best rep",
    "cpu_python": "Python ms",
    "cpu_postgres": "Postgres ms",
    "write_tx": "write tx",
    "wal_bytes": "WAL B",
    "fsyncs": "fsyncs",
    "cores_other": "other cores",
    "n": "n",
}
_LATENCIES = {"p50_ms": "p50 ms", "p99_ms": "p99 ms", "min_ms": "min ms", "max_ms": "max ms"}
_MICRO = {"us": "µs", "per": "per"}
_SECTIONS = (
    ("throughput", "Workflows a second", _RATES),
    ("latency", "Idle latencies", _LATENCIES),
    ("micro", "Inside", _MICRO),
)
_PACKAGES = ("asyncpg", "pydantic", "anyio", "uvloop", "absurd-sdk", "psycopg")


def facts(bench_dir: str, postgres: dict[str, str], loop: str) -> dict[str, Any]:
    """What a reader needs to judge the numbers."""
    commit = _git("rev-parse", "--short", "HEAD")
    return {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit + ("+" if commit and _git("status", "--porcelain", "aioflow") else ""),
        "machine": _processor(),
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "system": f"{platform.system()} {platform.release()}",
        "data_on": _filesystem(bench_dir),
        "load_average": os.getloadavg()[0],
        "python": platform.python_version(),
        "loop": loop,
        "packages": {name: version for name in _PACKAGES if (version := _version(name))},
        "postgres": postgres,
    }


def tables(found: dict[str, Any]) -> str:
    """Everything as Markdown."""
    parts = [_head(found["facts"])]
    for key, title, columns in _SECTIONS:
        if rows := found.get(key):
            parts.append(f"## {title}\n\n{_table(rows, columns)}")
    for peer, told in found.get("peers", {}).items():
        text = told if isinstance(told, str) else _table(told, _RATES)
        parts.append(f"## Peer: {peer}\n\n{text}")
    return "\n\n".join(parts) + "\n"


def save(found: dict[str, Any], folder: Path = RESULTS) -> Path:
    """Write both files; gives the one for people."""
    folder.mkdir(exist_ok=True)
    about = found["facts"]
    name = f"{about['when'][:10]}-{about['commit'].rstrip('+') or 'unknown'}"
    (folder / f"{name}.json").write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    path = folder / f"{name}.md"
    path.write_text(tables(found))
    return path


def _head(about: dict[str, Any]) -> str:
    postgres = dict(about["postgres"])
    settings = ", ".join(f"{name}={value}" for name, value in postgres.items() if name != "version")
    return (
        f"# aioflow {about['commit']}, {about['when']}\n\n"
        f"- {about['cores']} cores of {about['machine']}, {about['memory_gib']} GiB, {about['system']}, "
        f"data on {about['data_on']}, load average {about['load_average']:.2f} at the start\n"
        f"- Python {about['python']}, {about['loop']}; "
        + ", ".join(f"{name} {version}" for name, version in about["packages"].items())
        + f"\n- Postgres {postgres['version']}: {settings}\n"
        "- costs are per workflow; CPU is the smallest of all reps; `other cores` is what the rest of the machine took "
        "during the median rep: above 0.35 a rate says little"
    )


def _table(rows: dict[str, dict[str, Any]], columns: dict[str, str]) -> str:
    shown = [["", *columns.values()]]
    shown += [[name, *(_said(row.get(key)) for key in columns)] for name, row in rows.items()]
    widths = [max(len(row[i]) for row in shown) for i in range(len(shown[0]))]
    lines = [
        " | ".join(_padded(cell, w, left=i == 0) for i, (cell, w) in enumerate(zip(row, widths, strict=True)))
        for row in shown
    ]
    rule = "|" + "|".join("-" * (w + 2) if i == 0 else "-" * (w + 1) + ":" for i, w in enumerate(widths)) + "|"
    return "\n".join([f"| {lines[0]} |", rule, *(f"| {line} |" for line in lines[1:])])


def _padded(cell: str, width: int, *, left: bool) -> str:
    return cell.ljust(width) if left else cell.rjust(width)


def _said(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.1f}" if abs(value) >= 100 else f"{value:g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(Path(__file__).parents[1]), *arguments]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        return ""


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def _filesystem(folder: str) -> str:
    mounts = [one for one in psutil.disk_partitions(all=True) if folder.startswith(one.mountpoint)]
    return max(mounts, key=lambda one: len(one.mountpoint)).fstype if mounts else "unknown"
