"""``aioflow doctor``: is everything as it has to be?"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

import click

from aioflow.cli.exits import ExitCode
from aioflow.cli.options import database_url_option, json_option, settings_of
from aioflow.cli.output import document, note, table

if TYPE_CHECKING:
    from aioflow.cli.checks import Check
    from aioflow.store.rows import Violation

__all__ = ["command"]


@click.command("doctor")
@database_url_option
@click.option("--listen-url", metavar="URL", help="Direct connection for notifications, beside a pooled one.")
@click.option("--invariants", is_flag=True, help="Also look for rows that contradict the protocol; reads whole tables.")
@json_option
def command(database_url: str | None, listen_url: str | None, invariants: bool, as_json: bool) -> None:
    """Look at server, schema, notifications, clock, queues and workers.

    Exit code 0 when nothing is wrong (warnings are told, and change nothing), 1 for an error or a violated invariant,
    6 when the database does not answer, 7 when it needs `aioflow migrate`.
    """
    settings = settings_of(database_url=database_url, listen_url=listen_url)
    dsn = settings.require_database_url()
    found, broken = asyncio.run(_examine(dsn, settings.listen_url or dsn, invariants))
    code = next((one.code for one in found if one.state == "error"), ExitCode.OK)
    if broken:
        code = code or ExitCode.FAILED
    if as_json:
        told = [{"name": one.name, "state": one.state, "detail": one.detail} for one in found]
        answer: dict[str, object] = {"ok": code == ExitCode.OK, "checks": told}
        if broken is not None:
            answer["violations"] = [one._asdict() for one in broken]
        document(answer)
    else:
        table(["check", "state", "detail"], [(one.name, one.state, one.detail) for one in found])
        _tell_violations(broken)
    sys.exit(code)


async def _examine(dsn: str, listen_dsn: str, invariants: bool) -> tuple[list[Check], list[Violation] | None]:
    """Findings, and violated invariants when they were asked for and could be looked at."""
    from aioflow.cli.checks import checks, violations

    found = [check async for check in checks(dsn, listen_dsn)]
    sound = all(check.state != "error" for check in found)
    return found, await violations(dsn) if invariants and sound else None


def _tell_violations(broken: list[Violation] | None) -> None:
    if broken is None:
        return
    if not broken:
        note("all invariants hold")
        return
    click.echo()
    table(["invariant", "subject", "detail"], broken)
