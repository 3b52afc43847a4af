"""Start workflows and talk to them: `Client` and what it gives back."""

from aioflow.client.arguments import JsonArguments, NamedWorkflow, named
from aioflow.client.client import Client
from aioflow.client.instance import Instance, Reserved
from aioflow.client.reading import Description, HistoryEvent, PendingActivity, Summary

__all__ = [
    "Client",
    "Description",
    "HistoryEvent",
    "Instance",
    "JsonArguments",
    "NamedWorkflow",
    "PendingActivity",
    "Reserved",
    "Summary",
    "named",
]
