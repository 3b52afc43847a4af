"""aioflow: durable workflows for asyncio on PostgreSQL."""
