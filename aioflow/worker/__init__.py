"""Running workflows and activities: ``async with Worker(client, workflows=[...], activities=[...])``."""

from __future__ import annotations

from aioflow.worker.settings import Endpoint, WorkerSettings
from aioflow.worker.worker import Worker

__all__ = ["Endpoint", "Worker", "WorkerSettings"]
