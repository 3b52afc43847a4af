"""Lists of instances, page by page."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from aioflow.client.reading import Summary
from aioflow.client.session import Session
from aioflow.store.rows import Page

_PAGE: Final = 200
STATUSES: Final = frozenset(
    {
        *("reserved", "running", "completed", "failed", "cancelled"),
        *("terminated", "timed_out", "continued_as_new"),
    }
)


async def instances(
    session: Session,
    *,
    status: str | None,
    workflow: str | None,
    queue: str | None,
    prefix: str | None,
    limit: int | None,
) -> AsyncIterator[Summary]:
    """Instances that fit, the most recently started first."""
    left, after = limit, None
    while left is None or left > 0:
        session.require_open()
        size = _PAGE if left is None else min(_PAGE, left)
        page = await session.store.list_instances(
            session.namespace,
            status=status,
            workflow=workflow,
            queue=queue,
            prefix=prefix,
            limit=size,
            after=after,
        )
        for row in page:
            yield Summary.of(row)
        if len(page) < size:
            return
        after = Page(page[-1].started_at, page[-1].key.instance_id)
        left = None if left is None else left - len(page)
