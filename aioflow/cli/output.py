"""What commands print: tables for people, one JSON document for scripts. Data only; notes go to stderr."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

import click

__all__ = ["cell", "clip", "document", "fields", "json_text", "note", "span", "table"]

_WIDEST = 120


def note(text: str = "") -> None:
    """A line for people, on stderr."""
    click.echo(text, err=True)


def document(value: Any) -> None:
    """A value as one JSON document on stdout."""
    click.echo(json_text(value, indent=2))


def json_text(value: Any, *, indent: int | None = None) -> str:
    """A value as JSON; NaN and infinities become texts, as JSON has no numbers for them."""
    from pydantic_core import to_json

    return to_json(value, indent=indent, inf_nan_mode="strings", fallback=repr).decode()


def table(headers: Sequence[str], rows: Iterable[Sequence[object]], *, right: Iterable[int] = ()) -> None:
    """Rows under headers on stdout; ``right`` are columns of numbers. Drawn by rich on a terminal, if it is there."""
    texts = [[cell(value) for value in row] for row in rows]
    numbers = frozenset(right)
    if not (sys.stdout.isatty() and importlib.util.find_spec("rich")):
        _plain([list(headers), *texts], numbers)
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=None, pad_edge=False, header_style="bold")
    for index, header in enumerate(headers):
        drawn.add_column(header, justify="right" if index in numbers else "left", overflow="fold")
    for row in texts:
        drawn.add_row(*map(Text, row))
    Console(file=sys.stdout, highlight=False).print(drawn)


def _plain(rows: list[list[str]], numbers: frozenset[int]) -> None:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [
            text.rjust(width) if index in numbers else text.ljust(width)
            for index, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        click.echo("  ".join(cells).rstrip())


def fields(pairs: Iterable[tuple[str, object]]) -> None:
    """Named values on stdout, one a line; those that are None are left out."""
    shown = [(name, cell(value)) for name, value in pairs if value is not None]
    width = max((len(name) for name, _ in shown), default=0)
    for name, text in shown:
        click.echo(f"{name.ljust(width)}  {text}")


def cell(value: object) -> str:
    """A value as text of one line, without anything a terminal would act on."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime):
        return value.isoformat(sep=" ", timespec="milliseconds").replace("+00:00", "Z")
    if isinstance(value, timedelta):
        return span(value.total_seconds())
    text = str(value)
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def span(seconds: float) -> str:
    """A duration as people say it: ``0.34 s``, ``12 min 5 s``, ``3 d 4 h``."""
    if abs(seconds) < 60:
        return f"{seconds:.2f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = [(days, "d"), (hours, "h"), (minutes, "min"), (rest, "s")]
    told = [f"{count} {unit}" for count, unit in parts if count]
    return " ".join(told[:2])


def clip(text: str, limit: int = _WIDEST) -> str:
    """Text of at most so many characters, ending in … when it was longer."""
    return text if len(text) <= limit else text[: limit - 1] + "…"
