"""``python -m benchmarks``: measure on a Postgres of its own and print tables, or JSON with ``--json``."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import sys
from pathlib import Path
from typing import Any

from benchmarks import latency, micro, report, throughput
from benchmarks.meter import Meter
from benchmarks.peers import absurd
from benchmarks.server import Bench, serving
from benchmarks.throughput import Load

RATES = ("w0", "w1", "w3", "p10")
BURSTS = ("w1_burst",)
GROUPS = {"rates": RATES + BURSTS, "lat": latency.LATENCIES, "peers": ("absurd",), "micro": ("micro",)}
USUAL = ("rates", "lat")


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    known = [*GROUPS, *(name for group in GROUPS.values() for name in group)]
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("what", nargs="*", help=f"what to measure, by default {' '.join(USUAL)}: {', '.join(known)}")
    parser.add_argument("--only", default="", help="the same, separated by commas")
    parser.add_argument("--reps", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0, help="about the length of a rep")
    parser.add_argument("--in-flight", type=int, default=200, help="callers at once")
    parser.add_argument("--concurrency", type=int, default=200, help="of the worker")
    parser.add_argument("--quick", action="store_true", help="one short rep of everything: only to see it run")
    parser.add_argument("--quiet-within", type=float, default=3.0, help="seconds to wait for a quiet machine")
    parser.add_argument("--data", type=Path, help="folder for the server's data; a temporary one by default")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="setting of the server")
    parser.add_argument("--no-uvloop", action="store_true")
    parser.add_argument("--no-save", action="store_true", help="write no files to benchmarks/results")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    options = parser.parse_args(argv)
    wanted = [*options.what, *filter(None, options.only.split(","))] or list(USUAL)
    if strange := [name for name in wanted if name not in known]:
        parser.error(f"not known: {', '.join(strange)} (there is {', '.join(known)})")
    options.wanted = list(dict.fromkeys(name for one in wanted for name in GROUPS.get(one, (one,))))
    return options


def load_of(options: argparse.Namespace) -> Load:
    if options.quick:
        return Load(reps=1, seconds=0.2, in_flight=20, concurrency=options.concurrency, most=50)
    return Load(
        reps=options.reps,
        seconds=options.seconds,
        in_flight=options.in_flight,
        concurrency=options.concurrency,
    )


async def measure(options: argparse.Namespace, bench: Bench) -> dict[str, Any]:
    load, wanted = load_of(options), options.wanted
    meter = Meter(bench, quiet_within=0.0 if options.quick else options.quiet_within)
    found: dict[str, Any] = {
        "facts": report.facts(str(bench.server.root), await bench.shown(), _loop_name()),
    }
    rates: dict[str, Any] = {}
    latencies: dict[str, Any] = {}
    async with throughput.client_of(bench) as client:
        async with throughput.worker_of(client, load.concurrency):
            for name in [one for one in wanted if one in RATES]:
                rates[name] = (await throughput.measure(client, meter, load, name)).summary()
                _progress(name, rates[name])
            for name in [one for one in wanted if one in latency.LATENCIES]:
                n = 10 if options.quick else 100
                latencies[name] = await latency.measure(client, name, reps=load.reps, n=n)
                _progress(name, latencies[name])
        for name in [one for one in wanted if one in BURSTS]:
            rates[name] = (await throughput.measure(client, meter, load, name)).summary()
            _progress(name, rates[name])
    found |= {"throughput": rates, "latency": latencies}
    if "micro" in wanted:
        found["micro"] = micro.measure(50 if options.quick else 500)
    if "absurd" in wanted:
        names = [one for one in wanted if one in RATES] or ["w0", "w1", "w3"]
        found["peers"] = {"absurd": await absurd.measure(bench, meter, load, names)}
    return {key: value for key, value in found.items() if value}


def _loop_name() -> str:
    return type(asyncio.get_running_loop()).__module__.partition(".")[0]


def _progress(name: str, row: dict[str, Any]) -> None:
    shown = {key: value for key, value in row.items() if key != "reps" or not isinstance(value, list)}
    print(f"{name}: {json.dumps(shown)}", file=sys.stderr, flush=True)


async def run(options: argparse.Namespace) -> dict[str, Any]:
    """Measure what is wanted on a server of its own."""
    settings = dict(one.split("=", 1) for one in options.set)
    async with serving(options.data, settings) as bench:
        return await measure(options, bench)


def main(argv: list[str] | None = None) -> None:
    options = arguments(argv)
    logging.basicConfig(level=logging.WARNING)
    factory = None
    if not options.no_uvloop:
        try:
            from uvloop import new_event_loop as factory
        except ImportError:
            print("uvloop is not installed: measuring with asyncio's own loop", file=sys.stderr)
    with asyncio.Runner(loop_factory=factory) as runner:
        found = runner.run(run(options))
    if not options.no_save and not options.quick:
        print(f"written to {report.save(found)}", file=sys.stderr)
    print(json.dumps(found, indent=1, ensure_ascii=False) if options.json else report.tables(found))


if __name__ == "__main__":
    main()
