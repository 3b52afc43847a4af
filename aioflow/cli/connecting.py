"""A client for the length of one command, and values given as JSON."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from aioflow.cli.settings import Settings
    from aioflow.client import Client, JsonArguments
    from aioflow.core.registry import Registry

__all__ = ["arguments_of", "connected", "registry_of"]


def registry_of(settings: Settings) -> Registry | None:
    """The code that the settings name; None when they name none."""
    from aioflow.cli.modules import load_modules

    return load_modules(settings.modules) if settings.modules else None


@asynccontextmanager
async def connected(settings: Settings, registry: Registry | None = None) -> AsyncIterator[Client]:
    """A client as the settings say; it knows the workflows of ``registry``."""
    from aioflow.client import Client

    classes = [one.cls for one in registry.workflows.values()] if registry else []
    dsn = settings.require_database_url()
    async with Client.connect(
        dsn, namespace=settings.namespace, listen_dsn=settings.listen_url, workflows=classes, max_size=2
    ) as client:
        yield client


def arguments_of(arg: Sequence[str], args: str | None, *, code: bool) -> tuple[JsonArguments, ...]:
    """What to pass on for ``--arg`` and ``--args``; raises a usage error for text that is not JSON.

    ``code``: the signature is at hand. Without it an object could name the parameters or be the only one of them.
    """
    from aioflow.client import JsonArguments

    if args is not None and arg:
        raise click.UsageError("--arg and --args exclude each other")
    if args is not None:
        text = sys.stdin.read() if args == "-" else args
        if isinstance(_parsed(text, "--args"), dict) and not code:
            raise click.UsageError(
                "--args with parameters by name needs the workflow's code: --module (an object that is itself the "
                "argument is given with --arg)"
            )
        return (JsonArguments(text),)
    for text in arg:
        _parsed(text, "--arg")
    return (JsonArguments(f"[{','.join(arg)}]"),) if arg else ()


def _parsed(text: str, option: str) -> object:
    from pydantic_core import from_json

    try:
        return from_json(text)
    except ValueError as error:
        hint = f"; a text is written with its quotes, as in {option} '\"{text}\"'" if text[:1].isalpha() else ""
        raise click.BadParameter(f"{text!r} is not JSON ({error}){hint}", param_hint=option) from None
