"""What surrounds every answer: an id, a count, a log that knows the id, patience; and a problem where nobody expected one."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import structlog
from fastapi import Request

from api import bodies, problems
from api.arrivals import arriving
from api.compression import Headers, Message, Receive, Scope, Send
from api.metrics import Metrics
from api.request_ids import request_id as id_of_request
from api.streams import Patience

if TYPE_CHECKING:
    from api.hot import Application  # which needs ``joined``


class Contained:
    """Answers what nobody expected with a problem, within the middlewares that give an answer its id and its origins."""

    def __init__(self, app: Application) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on (ASGI); an answer that has begun is cut by the error, which goes on."""
        begun = False

        async def tell(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._app(scope, receive, tell)
        except Exception as error:
            if scope["type"] != "http":
                raise
            response = problems.crash_response(Request(scope), error)
            if begun:
                raise
            await response(scope, receive, send)


class Heard:
    """Reads what an error leaves of the body of its request: many clients look for the answer only when they are done sending."""

    def __init__(self, app: Application) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on (ASGI); one that was to be asked for its body (``Expect``) has not sent it."""
        if (
            scope["type"] != "http"
            or scope["method"] not in _SENDING
            or any(name == b"expect" for name, _ in scope["headers"])
        ):
            await self._app(scope, receive, send)
            return
        more = True

        async def hear() -> Message:
            nonlocal more
            message = await receive()
            more = message.get("more_body", False)
            return message

        async def tell(message: Message) -> None:
            if more and message["type"] == "http.response.start" and 400 <= message["status"] != _STALLED:
                await bodies.discard(arriving(hear))
            await send(message)

        await self._app(scope, hear, tell)


_STALLED = 408
_SENDING = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_LISTS = frozenset({b"accept", b"accept-encoding", b"if-match", b"if-none-match", b"prefer"})


def joined(headers: Headers) -> Headers:
    """Return headers with those that are lists in one line each: several lines mean the same (RFC 9110 §5.3)."""
    names = [name for name, _ in headers]
    if len(set(names)) == len(names):
        return headers
    lists = {name: b", ".join(value for key, value in headers if key == name) for name in _LISTS.intersection(names)}
    return [*((name, value) for name, value in headers if name not in lists), *lists.items()]


def values_of(headers: Headers) -> dict[bytes, bytes]:
    """Return the values of headers by name: lists joined, of several that are none the first."""
    return dict(reversed(joined(headers)))


class Observed:
    """Gives every request an id (the client's own when it is sane), counts it and binds the id to the log."""

    def __init__(self, app: Application, metrics: Metrics, patience: Patience) -> None:
        self._app = app
        self._metrics = metrics
        self._patience = patience

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on (ASGI)."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope["headers"] = joined(scope["headers"])
        sent = next((value for name, value in scope["headers"] if name == b"x-request-id"), None)
        scope["request_id"] = request_id = id_of_request(sent)
        structlog.contextvars.bind_contextvars(request_id=request_id)
        began = time.perf_counter()
        status = 500

        async def tell(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", request_id.encode())]
            await self._patience.pass_on(message, scope, send)

        try:
            await self._app(scope, receive, tell)
        finally:
            route = getattr(scope.get("route"), "path", "unmatched")
            self._metrics.observe(scope["method"], route, status, time.perf_counter() - began)
            structlog.contextvars.unbind_contextvars("request_id")
