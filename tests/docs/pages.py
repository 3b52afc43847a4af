"""Pages of the reference that are made of the code: commands, errors, events, settings.

``python -m tests.docs.pages`` writes them; a test compares what stands in docs/reference with what would be written.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

from aioflow import errors
from aioflow.cli.exits import ExitCode, exit_code
from aioflow.cli.settings import Settings
from aioflow.core import events
from aioflow.core.limits import Limits
from aioflow.core.retry import RetryPolicy
from aioflow.worker.settings import WorkerSettings
from tests.docs.cli_page import cli_page

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
MADE = "<!-- Made of the code by `python -m tests.docs.pages`; edit there. -->\n"

Row = tuple[str, ...]


def prose(text: str) -> str:
    """A docstring's words as Markdown on one line."""
    plain = re.sub(r"(?<!`)`([^`]+)`(?!`)|``([^`]+)``", lambda found: f"`{found[1] or found[2]}`", text)
    return " ".join(plain.split())


def table(head: Row, rows: list[Row]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", r"\|") for cell in line) + " |" for line in lines) + "\n"


def shown(value: object) -> str:
    """A default as people write it."""
    if value is None or value == ():
        return "none"
    if isinstance(value, timedelta):
        return f"{value.total_seconds():g} s"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return f"`{value}`"


# -- errors ---------------------------------------------------------------------------------------


def error_classes() -> list[type[errors.AioflowError]]:
    return [
        one
        for name, one in vars(errors).items()
        if isinstance(one, type) and issubclass(one, errors.AioflowError) and not name.startswith("_")
    ]


def errors_page() -> str:
    tree = (errors.__doc__ or "").split("\n\n", 1)[1].strip()
    rows = []
    for one in error_classes():
        told = (one.__doc__ or "").strip()
        code = exit_code(one.__new__(one))
        rows.append((f"`{one.__name__}`", prose(told), "" if code is ExitCode.FAILED else str(int(code))))
    codes = [(str(int(one)), one.name.lower().replace("_", " ")) for one in ExitCode]
    return (
        f"{MADE}# Errors\n\n"
        "Every error is an `AioflowError`. They live in `aioflow.errors`; those that workflow code meets are also\n"
        "among the names of `aioflow`.\n\n"
        f"```text\n{tree}\n```\n\n"
        "## Each error\n\n"
        "The last column is the exit code that a command of `aioflow` ends with, 1 where nothing stands.\n\n"
        + table(("error", "meaning", "exit code"), rows)
        + "\n## Exit codes\n\n"
        + table(("code", "meaning"), codes)
    )


# -- events ---------------------------------------------------------------------------------------

GROUPS: tuple[tuple[type[events.Event], str, str], ...] = (
    (
        events.Input,
        "Inputs",
        "They reach a run from outside, by its inbox or a timer, and are applied to its code.",
    ),
    (events.Recorded, "Recorded", "They note what the code decided while the input before them was applied."),
    (events.Terminal, "Terminal", "They close the run and are its last event."),
    (events.Forced, "Forced", "They close the run from outside, without running its code."),
)


RESERVED = frozenset(
    {
        *("UpdateAccepted", "UpdateCompleted", "UpdateRejected", "ActivityCancelled", "LocalActivityRecorded"),
        *("SignalExternalRequested", "SignalExternalResolved", "CancelExternalRequested", "CancelExternalResolved"),
        *("ChildScheduled", "ChildStarted", "ChildCompleted", "ChildFailed", "ChildCancelRequested"),
        *("RunContinuedAsNew", "RunReset", "RunTimedOut", "VersionMarked", "MessageEmitted"),
        *("MemoUpserted", "SearchAttributesUpserted"),
    }
)
"""Kinds that nothing writes in this version."""


def kinds_of(group: type[events.Event]) -> Iterator[tuple[str, type[events.Event]]]:
    for kind, cls in events.KINDS.items():
        nearest = next(base for base in cls.__mro__ if base in {one[0] for one in GROUPS})
        if nearest is group:
            yield kind, cls


def field_text(field: dataclasses.Field[Any]) -> str:
    hint = str(field.type).replace("Any", "any")
    default = "" if field.default is dataclasses.MISSING or field.default is None else f" = {field.default!r}"
    return f"`{field.name}`: {hint}{default}"


def events_page() -> str:
    common = {"at", "ref", "payload"}
    parts = [
        f"{MADE}# Events\n",
        "A history is a sequence of events. Each has a `kind`, a `version` (1 unless stated), the shared fields `at`\n"
        "(aware UTC: when it was accepted or decided), `ref` (the address of its command, or the id of a message) and\n"
        "`payload` (at most one value of the user), and fields of its own. Fields that hold their default are not\n"
        "stored.\n\n"
        "Shapes only grow: see [contributing](../contributing.md#a-version-of-an-event). Kinds marked *reserved* have\n"
        "their shape so that histories agree with later versions; nothing writes them in this version.\n",
    ]
    for group, title, told in GROUPS:
        rows = []
        for kind, cls in kinds_of(group):
            own = [field_text(one) for one in dataclasses.fields(cls) if one.name not in common]
            version = "" if cls.VERSION == 1 else f" (version {cls.VERSION})"
            mark = " *reserved*" if kind in RESERVED else ""
            rows.append((f"`{kind}`{version}{mark}", prose(cls.__doc__ or ""), "<br>".join(own)))
        parts.append(f"## {title}\n\n{told}\n\n" + table(("kind", "meaning", "fields"), rows))
    return "\n".join(parts)


# -- settings -------------------------------------------------------------------------------------

MEANING = {
    "database_url": "Postgres to use, as in `postgresql://user@host/database`",
    "listen_url": "a direct connection for notifications, beside a `database_url` that goes through a pooler",
    "namespace": "which instances are seen",
    "queues": "queues a worker serves; without any, those its modules name",
    "modules": "code of the workflows: `pkg.mod`, or `pkg.mod:name` for one thing",
    "concurrency": "activities that run at once, and workflow tasks beside them",
    "pool_size": "connections of a worker to the database",
    "drain_grace": "seconds that running activities get to end after SIGTERM",
    "log_level": "`debug`, `info`, `warning`, `error` or `critical`",
    "log_format": "`json` or `console`; without one, `console` on a terminal and `json` elsewhere",
    "data_dir": "where `aioflow dev` keeps its server",
}
LIMITS = {
    "payload": "bytes of one stored value: arguments, a result, a signal; `PayloadTooLarge`",
    "step_bytes": "bytes that a run gives to activities and side effects in one step; `StructuralLimitExceeded`",
    "history_soft": "events at which the worker warns that a run grows long (`history_long` in its log, once)",
    "history_hard": "events at which a run fails, with `StructuralLimitExceeded`",
    "pending_activities": "activities without an outcome; `StructuralLimitExceeded`",
    "timers": "timers that have not fired; `StructuralLimitExceeded`",
}
ALIASES = {"queues": "`AIOFLOW_QUEUE`", "modules": "`AIOFLOW_MODULE`, `AIOFLOW_APP`"}
DATA_DIR = "`/var/lib/aioflow` for root, else `aioflow` under `$XDG_DATA_HOME` or `~/.local/share`"


def attributes(cls: type) -> dict[str, str]:
    """The words of an ``Attributes:`` block, by name."""
    block = (cls.__doc__ or "").split("Attributes:", 1)[1]
    return {name: " ".join(text.split()) for name, text in re.findall(r"^\s+(\w+): (.+(?:\n {12}.+)*)", block, re.M)}


def settings_page() -> str:
    command, worker = [], []
    for field in dataclasses.fields(Settings):
        default = DATA_DIR if field.name == "data_dir" else shown(field.default)
        variable = f"`AIOFLOW_{field.name.upper()}`"
        if field.name in ALIASES:
            variable += f" ({ALIASES[field.name]})"
        command.append((f"`{field.name}`", MEANING[field.name], variable, default))
    words = attributes(WorkerSettings)
    for field in dataclasses.fields(WorkerSettings):
        default = "see below" if field.name == "limits" else shown(field.default)
        worker.append((f"`{field.name}`", prose(words[field.name]), default))
    limits = [(f"`{one.name}`", LIMITS[one.name], shown(one.default)) for one in dataclasses.fields(Limits)]
    retry = [(f"`{one.name}`", shown(one.default)) for one in dataclasses.fields(RetryPolicy)]
    return (
        f"{MADE}# Settings\n\n"
        "## The command line\n\n"
        "A value comes from the flag of the command, else from the variable, else from `[tool.aioflow]` in the\n"
        "nearest pyproject.toml that has that table (the key is the name in the first column, with `-` or `_`), else\n"
        "from the default. For every variable there is one with `_FILE` behind it, which names a file with the value.\n"
        "A flag is the name with `-`, where `aioflow COMMAND --help` lists it. `aioflow dev` also takes\n"
        "`DATABASE_URL`.\n\n"
        + table(("name", "meaning", "variable", "default"), command)
        + "\nOne more variable belongs to the embedded Postgres: `AIOFLOW_PG_BINDIR` names a folder with `initdb` and\n"
        "`postgres` to use instead of the wheel's.\n" + "\n## `WorkerSettings`\n\n"
        "For workers in Python: `Worker(client, settings=WorkerSettings(...))`, from `aioflow.worker`. Durations are\n"
        "seconds.\n\n" + table(("name", "meaning", "default"), worker) + "\n## Limits\n\n"
        "How large a run may grow: `WorkerSettings(limits=Limits(...))`, from `aioflow.core.limits`. `payload` and\n"
        "`step_bytes` are in bytes, the others are counts. The client has `Client.connect(..., payload_limit=)` for\n"
        "what it sends. How many signals may wait for one instance is decided by the database: about 10,000, then\n"
        "senders get `InstanceFull`.\n\n" + table(("name", "default"), limits) + "\n## `RetryPolicy`\n\n"
        "Of an activity; see [authoring](authoring.md#retrypolicy). Durations are seconds or `timedelta`.\n\n"
        + table(("name", "default"), retry)
    )


PAGES: dict[str, Callable[[], str]] = {
    "cli.md": lambda: cli_page(MADE, table),
    "errors.md": errors_page,
    "events.md": events_page,
    "settings.md": settings_page,
}


def write() -> None:
    for name, make in PAGES.items():
        (REFERENCE / name).write_text(make(), encoding="utf-8")


if __name__ == "__main__":
    write()
