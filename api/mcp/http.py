"""``/mcp``: the server of agents over HTTP (streamable HTTP, stateless, JSON), behind the same guards as every route.

A tool asks this very service, over ASGI, with the credentials of the request that called it: whatever a caller may not do over REST, or not
see, a tool does not do or show for him, and each of its requests is counted and limited as his own.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec
from fastapi import Request
from starlette.responses import Response

from drumlin.api.http.asgi import Application, Message, Receive, Scope, Send
from drumlin.api.http.bodies import body_of
from drumlin.api.http.negotiation import choose
from drumlin.api.mcp.tools import MAX_ANSWER
from drumlin.kg.client import AsyncClient, client_within
from drumlin.kg.errors import InvalidDocument, UnsupportedSyntax

if TYPE_CHECKING:
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

JSON = "application/json"
MAX_BYTES = 256 * 1024
"""Longest message of an agent, in bytes."""
_OF_CALLER = (
    "authorization",
    "cookie",
    "host",
    "origin",
    "sec-fetch-site",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
)
"""Headers that say who calls, and by which name the service is reached."""
_SECONDS = 120.0
"""Seconds that one request of a tool may be silent."""


class AgentEndpoint:
    """Answers the messages of agents; ``service`` is the whole application, guards and all."""

    def __init__(self, service: Application) -> None:
        self._service = service
        self._running: asyncio.Task[None] | None = None
        self._manager: asyncio.Future[StreamableHTTPSessionManager] | None = None

    async def answer(self, request: Request) -> Response:
        """Return what answers a request; raises ``InvalidDocument`` for what is no message, ``UnsupportedSyntax``, ``TooLarge``."""
        choose(request.headers.get("accept"), (JSON,))
        if request.headers.get("content-type", JSON).partition(";")[0].strip().lower() != JSON:
            raise UnsupportedSyntax(
                "a message is sent as JSON", hint=f"Content-Type: {JSON}", detail={"offered": [JSON]}
            )
        body = await body_of(request, MAX_BYTES)
        check_message(body)
        manager = await self._started()
        return _Forwarded(manager.handle_request, body)

    async def _started(self) -> StreamableHTTPSessionManager:
        """Return what speaks the protocol; the first agent waits until it is imported."""
        loop = asyncio.get_running_loop()
        if self._manager is None or self._manager.get_loop() is not loop:
            self._manager = loop.create_future()
            self._running = asyncio.create_task(self._run(self._manager))
        return await asyncio.shield(self._manager)

    async def _run(self, started: asyncio.Future[StreamableHTTPSessionManager]) -> None:
        """Keep the SDK's tasks in a task of their own, as long as the loop runs."""
        try:
            manager = await asyncio.to_thread(self._made)
            async with manager.run():
                started.set_result(manager)
                await asyncio.Event().wait()
        except Exception as error:
            if not started.done():
                self._manager = None
                started.set_exception(error)
                return
            raise

    def _made(self) -> StreamableHTTPSessionManager:
        from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
        from mcp.server.transport_security import TransportSecuritySettings

        from drumlin.api.mcp.server import server_of

        # Host and Origin were checked before, by ``api.edge.request_guard``.
        unchecked = TransportSecuritySettings(enable_dns_rebinding_protection=False)
        return StreamableHTTPSessionManager(
            server_of(self._client_of), json_response=True, stateless=True, security_settings=unchecked
        )

    @asynccontextmanager
    async def _client_of(self, request: Any) -> AsyncIterator[AsyncClient]:
        """Give the client that asks as the caller of a request."""
        headers = {name: value for name in _OF_CALLER if (value := request.headers.get(name)) is not None}
        headers["x-request-id"] = str(
            request.scope.get("request_id", "")
        )  # so that the log shows what belongs together
        address = request.client.host if request.client else ""
        async with client_within(self._service, headers, address, limit=_SECONDS, max_bytes=MAX_ANSWER) as client:
            yield client


def check_message(body: bytes) -> None:
    """Raise ``InvalidDocument`` for what is no message of JSON-RPC 2.0 (https://www.jsonrpc.org/specification#request_object)."""
    hint = 'a message is {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}'
    try:
        message = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidDocument(f"the body is not JSON: {error}", hint=hint) from error
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        raise InvalidDocument("the body is not one message of JSON-RPC 2.0", hint=hint)
    id, method = message.get("id", 0), message.get("method", "")
    if isinstance(id, bool) or not isinstance(id, str | int) or not isinstance(method, str):
        raise InvalidDocument("the id of a message is a text or a whole number, its method a text", hint=hint)
    if not isinstance(message.get("params", {}), dict):
        raise InvalidDocument("the params of a message are an object", hint=hint)


class _Forwarded(Response):
    """An answer that another application gives to the request, whose body has been read."""

    def __init__(self, app: Application, body: bytes) -> None:
        super().__init__()
        self._app, self._body = app, body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Have it answer."""
        whole: Message | None = {"type": "http.request", "body": self._body, "more_body": False}

        async def again() -> Message:
            nonlocal whole
            if whole is None:
                return await receive()
            message, whole = whole, None
            return message

        headers = [(name, value) for name, value in scope["headers"] if name not in (b"accept", b"content-type")]
        sent = {**scope, "headers": [*headers, (b"accept", JSON.encode()), (b"content-type", JSON.encode())]}
        await self._app(sent, again, send)
