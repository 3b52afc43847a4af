"""Commands that change something: start, signal, cancel, terminate, release; and query, which asks the code."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from uuid import UUID

import click

from aioflow.cli.options import (
    arguments_options,
    database_options,
    instance_argument,
    json_option,
    modules_option,
    run_option,
    settings_of,
)
from aioflow.cli.output import document, json_text, note

if TYPE_CHECKING:
    from aioflow.cli.settings import Settings
    from aioflow.client import JsonArguments, NamedWorkflow
    from aioflow.core.registry import Registry

__all__ = ["COMMANDS"]


@click.command("start")
@click.argument("workflow", metavar="WORKFLOW")
@arguments_options
@click.option("--id", "instance_id", metavar="INSTANCE", help="The instance's id; else one is generated.")
@click.option("-q", "--queue", metavar="NAME", help="Queue of its tasks, instead of the workflow's own.")
@click.option(
    "--conflict",
    type=click.Choice(["fail", "use_existing", "terminate_existing"]),
    default="fail",
    show_default=True,
    help="What to do when an open instance has the id.",
)
@click.option(
    "--reuse",
    type=click.Choice(["allow", "allow_failed_only", "reject"]),
    default="allow",
    show_default=True,
    help="Whether the id of a closed instance may be taken.",
)
@click.option("--request-key", metavar="KEY", help="The same key has one effect, however often it is sent.")
@click.option("--wait", is_flag=True, help="Wait for the result, and print it as `result` does.")
@click.option("--timeout", type=float, metavar="SECONDS", help="With --wait: exit code 5 when it takes longer.")
@modules_option
@database_options
@json_option
def start(
    workflow: str,
    arg: tuple[str, ...],
    args: str | None,
    wait: bool,
    timeout: float | None,
    as_json: bool,
    modules: tuple[str, ...],
    database_url: str | None,
    namespace: str | None,
    **options: Any,
) -> None:
    """Start WORKFLOW and print the instance's id.

    WORKFLOW is a name, or says where its code is: pkg.mod:Class.
    """
    from aioflow.cli.connecting import arguments_of, registry_of

    settings = settings_of(modules=modules, database_url=database_url, namespace=namespace)
    name, registry = _located(workflow, registry_of(settings))
    given = arguments_of(arg, args, code=registry is not None and name in registry.workflows)
    target = _target(name, options)
    asyncio.run(_start(settings, registry, target, given, as_json=as_json, wait=wait, timeout=timeout))


async def _start(
    settings: Settings,
    registry: Registry | None,
    target: NamedWorkflow,
    given: tuple[JsonArguments, ...],
    *,
    as_json: bool,
    wait: bool,
    timeout: float | None,
) -> None:
    from aioflow.cli.connecting import connected
    from aioflow.cli.workflow_read import tell_result

    async with connected(settings, registry) as client:
        instance = await client.start(target, *given)
        description = await instance.describe()
        if not description.served and description.open:
            note(f"no live worker serves queue {description.queue!r}: the instance waits for one")
        if wait:
            note(f"started {instance.id}")
            await tell_result(instance, timeout=timeout, as_json=as_json)
        elif as_json:
            document(
                {
                    "instance_id": instance.id,
                    "run_id": instance.run_id,
                    "workflow": description.workflow,
                    "queue": description.queue,
                    "namespace": client.namespace,
                    "served": description.served,
                }
            )
        else:
            click.echo(instance.id)


def _located(workflow: str, registry: Registry | None) -> tuple[str, Registry | None]:
    """The name of a workflow and the code at hand, which the name itself may locate."""
    from aioflow.cli.modules import load_modules, looks_like_code
    from aioflow.errors import ConfigurationError

    if not looks_like_code(workflow) or (registry and workflow in registry.workflows):
        return workflow, registry
    found = load_modules([workflow])
    if len(found.workflows) != 1:
        raise ConfigurationError(f"{workflow} is not a workflow")
    (name,) = found.workflows
    return name, found


def _target(name: str, options: dict[str, Any]) -> NamedWorkflow:
    from aioflow.client import named
    from aioflow.errors import ConfigurationError, DefinitionError

    try:
        return named(name, id=options.pop("instance_id"), **options)
    except DefinitionError as error:  # here it is the flags that do not fit, not code
        raise ConfigurationError(str(error)) from error


@click.command("signal")
@instance_argument
@click.argument("name", metavar="SIGNAL")
@arguments_options
@modules_option
@database_options
def signal(
    instance_id: str,
    name: str,
    arg: tuple[str, ...],
    args: str | None,
    **flags: Any,
) -> None:
    """Send SIGNAL to INSTANCE; done once it is stored."""
    from aioflow.cli.connecting import arguments_of, connected, registry_of

    settings = settings_of(**flags)
    registry = registry_of(settings)
    given = arguments_of(arg, args, code=registry is not None)

    async def send() -> None:
        async with connected(settings, registry) as client:
            await client.signal(instance_id, name, *given)

    asyncio.run(send())
    note(f"sent {name} to {instance_id}")


@click.command("query")
@instance_argument
@click.argument("name", metavar="QUERY")
@arguments_options
@run_option
@modules_option
@database_options
def query(
    instance_id: str, name: str, arg: tuple[str, ...], args: str | None, run_id: UUID | None, **flags: Any
) -> None:
    """Ask INSTANCE, and print the answer as JSON.

    The history is replayed here, so the workflow's code is needed: --module.
    """
    from aioflow.cli.connecting import arguments_of, connected, registry_of

    settings = settings_of(**flags)
    registry = registry_of(settings)
    given = arguments_of(arg, args, code=registry is not None)

    async def ask() -> Any:
        async with connected(settings, registry) as client:
            return await client.instance(instance_id, run_id=run_id).query(name, *given)

    click.echo(json_text(asyncio.run(ask()), indent=2))


@click.command("cancel")
@instance_argument
@click.option("--reason", metavar="TEXT", help="Kept in the history.")
@click.option("--grace", type=float, metavar="SECONDS", help="Terminate it when it has not ended by then.")
@database_options
def cancel(instance_id: str, reason: str | None, grace: float | None, **flags: Any) -> None:
    """Ask INSTANCE to end: its code is told, and may clean up first."""
    from aioflow.cli.connecting import connected

    settings = settings_of(**flags)

    async def ask() -> None:
        async with connected(settings) as client:
            await client.cancel(instance_id, reason, grace=grace)

    asyncio.run(ask())
    note(f"asked {instance_id} to end")


@click.command("terminate")
@instance_argument
@click.option("--reason", metavar="TEXT", help="Kept in the history.")
@run_option
@database_options
def terminate(instance_id: str, reason: str | None, run_id: UUID | None, **flags: Any) -> None:
    """Close INSTANCE at once, without running its code."""
    from aioflow.cli.connecting import connected

    settings = settings_of(**flags)

    async def close() -> None:
        async with connected(settings) as client:
            await client.instance(instance_id, run_id=run_id).terminate(reason)

    asyncio.run(close())
    note(f"terminated {instance_id}")


@click.command("release")
@instance_argument
@database_options
def release(instance_id: str, **flags: Any) -> None:
    """Let INSTANCE and its activities out of quarantine, where they are since workers died with them."""
    from aioflow.cli.connecting import connected

    settings = settings_of(**flags)

    async def let_out() -> bool:
        async with connected(settings) as client:
            return await client.release(instance_id)

    released = asyncio.run(let_out())
    note(f"released {instance_id}" if released else f"nothing of {instance_id} is in quarantine")


COMMANDS = (start, signal, query, cancel, terminate, release)
