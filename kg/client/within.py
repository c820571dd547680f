"""Requests to a service in the same process (ASGI), whose answers come piece by piece, as over a connection.

Apart because httpx's own transport for that keeps an answer whole in memory, however large it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import suppress
from typing import Any

import httpx

Message = MutableMapping[str, Any]
AsgiApp = Callable[
    [MutableMapping[str, Any], Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]
]
_AHEAD = 4
"""Pieces of an answer that may wait to be read."""


class WithinTransport(httpx.AsyncBaseTransport):
    """Hands requests to ``app`` as those of a client at ``address``."""

    def __init__(self, app: AsgiApp, address: str) -> None:
        self._app, self._address = app, address

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Return an answer as soon as its head is there; raises what ``app`` raises until then."""
        body = await request.aread()
        answer = _AnswerStream(request, body)
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": request.method,
            "headers": [(name.lower(), value) for name, value in request.headers.raw],
            "scheme": request.url.scheme,
            "path": request.url.path,
            "raw_path": request.url.raw_path.partition(b"?")[0],
            "query_string": request.url.query,
            "server": (request.url.host, request.url.port),
            "client": (self._address, 0),
            "root_path": "",
        }
        answer.begin(self._app, scope)
        try:
            status, headers = await answer.head()
        except BaseException:  # nobody waits any more
            await answer.aclose()
            raise
        return httpx.Response(status, headers=headers, stream=answer)


class _AnswerStream(httpx.AsyncByteStream):
    """One request while it is answered: what the application receives and sends."""

    def __init__(self, request: httpx.Request, body: bytes) -> None:
        self._request = request
        self._body: bytes | None = body
        self._left = asyncio.Event()
        self._messages: asyncio.Queue[Message | None] = asyncio.Queue(_AHEAD)
        self._task: asyncio.Task[None] | None = None

    def begin(self, app: AsgiApp, scope: MutableMapping[str, Any]) -> None:
        """Have the application answer, in a task of its own."""
        self._task = asyncio.create_task(self._answered(app, scope))

    async def _answered(self, app: AsgiApp, scope: MutableMapping[str, Any]) -> None:
        try:
            await app(scope, self._receive, self._messages.put)
        finally:
            with suppress(asyncio.QueueFull):  # who reads sees that the task has ended
                self._messages.put_nowait(None)

    async def _receive(self) -> Message:
        if self._body is not None:
            message = {"type": "http.request", "body": self._body, "more_body": False}
            self._body = None
            return message
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _next(self) -> Message | None:
        """Return the next message, None when the application has ended; raises its error, and ``ReadTimeout`` after the request's limit."""
        assert self._task is not None
        message = None
        if not (self._task.done() and self._messages.empty()):
            try:
                async with asyncio.timeout(self._request.extensions.get("timeout", {}).get("read")):
                    message = await self._messages.get()
            except TimeoutError as error:
                raise httpx.ReadTimeout("nothing came", request=self._request) from error
        if message is None:
            await asyncio.wait([self._task])
            if self._task.cancelled():  # by the service, which ends requests of tokens that are revoked
                raise httpx.ReadError("the request was ended", request=self._request)
            self._task.result()
        return message

    async def head(self) -> tuple[int, list[tuple[bytes, bytes]]]:
        """Return status and headers."""
        if (message := await self._next()) is None:
            raise httpx.RemoteProtocolError("the request has no answer", request=self._request)
        return message["status"], list(message.get("headers", ()))

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield the body."""
        while (message := await self._next()) is not None:
            if body := message.get("body", b""):
                yield body
            if not message.get("more_body", False):
                return

    async def aclose(self) -> None:
        """End the request: what is still made of it is not wanted."""
        self._left.set()
        if self._task is not None and not self._task.done():
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
