"""What several tests of workers run."""

from __future__ import annotations

from aioflow import Workflow, activity


@activity.defn
async def double(number: int) -> int:
    return 2 * number


class Doubling(Workflow):
    async def handle(self, number: int) -> int:
        return await double(number)
