"""Benchmarks: how many workflows a second, at what cost, and how quickly; see `python -m benchmarks --help`."""
