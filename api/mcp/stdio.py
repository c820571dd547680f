"""``drumlin mcp``: the server of agents over stdin and stdout, for an agent that starts it as a child; it asks a service over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from mcp.server.stdio import stdio_server

from drumlin.api.mcp.server import server_of
from drumlin.api.mcp.tools import MAX_ANSWER
from drumlin.kg.client import AsyncClient


def serve(url: str | None, limit: float | None) -> None:
    """Serve until the agent closes stdin. An address or token that cannot be used raises ``InvalidSettings`` before that."""
    asyncio.run(_serve(url, limit))


async def _serve(url: str | None, limit: float | None) -> None:
    async with AsyncClient(url, limit=limit, max_bytes=MAX_ANSWER) as client:

        @asynccontextmanager
        async def of_all(_: Any) -> AsyncIterator[AsyncClient]:
            yield client

        server = server_of(of_all)
        async with stdio_server() as (read, write):
            await server.run(read, write, server.create_initialization_options())
