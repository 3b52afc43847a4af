"""SQL statements by name: one a file, read once."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

_FOLDER = files("aioflow.store") / "sql"


@cache
def sql(name: str) -> str:
    """Text of the statement file ``sql/<name>.sql``."""
    return (_FOLDER / f"{name}.sql").read_text(encoding="utf-8")


@cache
def names(prefix: str = "") -> tuple[str, ...]:
    """Names of all statement files that begin with ``prefix``, sorted."""
    found = (entry.name for entry in _FOLDER.iterdir() if entry.name.endswith(".sql"))
    return tuple(sorted(name[:-4] for name in found if name.startswith(prefix)))
