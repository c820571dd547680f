"""Agents for the tests: the official SDK's own client, over HTTP or over the pipes of ``drumlin mcp``."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import httpx
from mcp import Client, StdioServerParameters

ROOT = Path(__file__).resolve().parents[1]
T = TypeVar("T")
Step = Callable[[Client], Awaitable[T]]


def over_http(url: str, step: Step[T]) -> T:
    """Have an agent that is connected to ``/mcp`` of a service take a step."""
    return asyncio.run(_step(f"{url}/mcp", step))


def over_stdio(url: str, step: Step[T], **environment: str) -> T:
    """Have an agent that has started ``drumlin mcp`` take a step."""
    arguments = ["-m", "drumlin.api.cli.main", "mcp", "--url", url]
    return asyncio.run(
        _step(StdioServerParameters(command=sys.executable, args=arguments, cwd=ROOT, env=environment), step)
    )


async def _step(server: Any, step: Step[T]) -> T:
    async with Client(server) as agent:
        return await step(agent)


async def told(agent: Client, tool: str, **arguments: Any) -> str:
    """Return the text that a tool answers with."""
    result = await agent.call_tool(tool, arguments)
    assert not result.is_error, result.content
    return text_of(result)


async def refused(agent: Client, tool: str, **arguments: Any) -> str:
    """Return the text of the error that a tool answers with."""
    result = await agent.call_tool(tool, arguments)
    assert result.is_error, result.content
    return text_of(result)


def text_of(result: Any) -> str:
    """Return the text of a result, which is all that it has."""
    (content,) = result.content
    assert result.structured_content is None
    return str(content.text)


def sent(url: str, message: Any, **headers: str) -> httpx.Response:
    """Send one message as a client without the SDK does."""
    accepted = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json", **headers}
    content = message if isinstance(message, bytes) else None
    return httpx.post(
        f"{url}/mcp", json=None if content is not None else message, content=content, headers=accepted, timeout=30
    )
