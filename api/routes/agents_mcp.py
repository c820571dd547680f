"""``/mcp``: tools, resources and prompts for agents (Model Context Protocol, streamable HTTP)."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from drumlin.api.mcp.http import AgentEndpoint

router = APIRouter(tags=["mcp"])


@router.post(
    "/mcp",
    summary="Send a message of the Model Context Protocol",
    openapi_extra={"requestBody": {"required": True, "content": {"application/json": {"schema": {"type": "object"}}}}},
)
async def message(request: Request) -> Response:
    """Answer one message (JSON-RPC 2.0) of an agent, stateless and as JSON: tools that only read, resources, prompts (docs/mcp.md).

    A tool sees what its caller may see over REST, with the same token.
    """
    endpoint: AgentEndpoint = request.app.state.mcp
    return await endpoint.answer(request)
