"""``/subgraph/{id}`` without a framework: plain reads and writes are answered in front of it, by the functions that FastAPI's routes call.

FastAPI's routing, its injection, its middlewares and its thread for a request take 0.5 ms of processor time, more than reading a
graph. What has a query string, and every other method, goes on to the routes, which also document all of it.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping

import structlog
from fastapi import Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from api import bodies, compression
from api.arrivals import arriving
from api.assembly import Parts
from api.compression import Receive, Scope, Send
from api.hot import Application
from api.metrics import Metrics
from api.negotiation import sent_syntax
from api.observing import Heard, values_of
from api.problems import crash_response, error_response
from api.request_ids import request_id
from api.routes import subgraph
from api.streams import Patience
from api.writing import at_once
from kg.errors import DrumlinError
from kg.neighbourhood import Following

_PREFIX = "/subgraph/"
_ROUTE = "/subgraph/{id:path}"
_AROUND = Following()

Asked = Mapping[bytes, bytes]
"""The headers of a request."""


class Direct:
    """Answers GET, HEAD, PUT and DELETE of one subgraph; passes everything else on (ASGI).

    ``around`` wraps what answers them: the application's own middlewares do not see them.
    """

    def __init__(
        self,
        app: Application,
        parts: Parts,
        metrics: Metrics,
        patience: Patience,
        around: Callable[[Application], Application],
    ) -> None:
        self._app, self._parts, self._metrics, self._patience = app, parts, metrics, patience
        self._answers: Mapping[str, Callable[[Scope, Receive, Asked, str], Awaitable[Response]]] = {
            "GET": self._read,
            "HEAD": self._read,
            "PUT": self._put,
            "DELETE": self._delete,
        }
        self._answering = around(Heard(self._answer))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer or pass on."""
        ours = scope["type"] == "http" and scope["method"] in self._answers and not scope["query_string"]
        await (self._answering if ours and scope["path"].startswith(_PREFIX) else self._app)(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        began, status = time.perf_counter(), 500
        asked = values_of(scope["headers"])
        scope["request_id"] = id = request_id(asked.get(b"x-request-id"))
        try:
            response = await self._response(scope, receive, asked)
            status = response.status_code
            headers, body = await compression.whole(status, response.raw_headers, bytes(response.body), asked)
            headers = [*headers, (b"x-request-id", id.encode())]
            await send({"type": "http.response.start", "status": status, "headers": headers})
            await self._patience.pass_on({"type": "http.response.body", "body": body}, scope, send)
        finally:
            self._metrics.observe(scope["method"], _ROUTE, status, time.perf_counter() - began)

    async def _response(self, scope: Scope, receive: Receive, asked: Asked) -> Response:
        try:
            id = subgraph.id_of(scope, scope["path"].removeprefix(_PREFIX))
            return await self._answers[scope["method"]](scope, receive, asked, id)
        except DrumlinError as error:
            with structlog.contextvars.bound_contextvars(request_id=scope["request_id"]):
                return error_response(Request(scope), error)
        except Exception as error:  # noqa: BLE001 - what nobody expected is logged with its traceback
            with structlog.contextvars.bound_contextvars(request_id=scope["request_id"]):
                return crash_response(Request(scope), error)

    async def _read(self, _: Scope, __: Receive, asked: Asked, id: str) -> Response:
        parts = self._parts
        wanted = subgraph.Wish(None, _text(asked, b"accept"), _tags(asked, b"if-none-match"), _AROUND, None)
        name = parts.iris.root + subgraph.without_suffix(id)
        if not at_once(parts.store, name, 0):
            return await run_in_threadpool(subgraph.represent, parts, id, wanted)
        found = subgraph.find(parts, id, wanted)
        if not at_once(parts.store, name, len(found.subgraph.text)):
            return await run_in_threadpool(subgraph.render, parts, found, wanted)
        return subgraph.render(parts, found, wanted)

    async def _put(self, scope: Scope, receive: Receive, asked: Asked, id: str) -> Response:
        sent = subgraph.Sending(
            _text(asked, b"content-type"),
            _tags(asked, b"if-match"),
            _tags(asked, b"if-none-match"),
            _text(asked, b"prefer"),
            _text(asked, b"accept"),
        )
        syntax = sent_syntax(sent.content_type)
        data = await _body(scope, receive, asked, self._parts.settings.document_bytes)
        return await subgraph.replace(self._parts, id, sent, syntax, data)

    async def _delete(self, _: Scope, __: Receive, asked: Asked, id: str) -> Response:
        conditions = _tags(asked, b"if-match"), _tags(asked, b"if-none-match")
        return await subgraph.remove(self._parts, id, *conditions)


def _text(asked: Asked, name: bytes) -> str | None:
    value = asked.get(name)
    return None if value is None else value.decode("latin-1")


def _tags(asked: Asked, name: bytes) -> str | None:
    value = asked.get(name)
    return None if value is None else compression.plain_tags(value).decode("latin-1")


async def _body(scope: Scope, receive: Receive, asked: Asked, limit: int) -> bytes:
    """Read a body, nearly always a plain one, without what ``bodies.body_of`` needs for the others."""
    if b"content-encoding" in asked or b"expect" in asked:
        return await bodies.body_of(Request(scope, receive), limit)
    received, sent = bytearray(), arriving(receive)
    async for piece in sent:
        received += piece
        if len(received) > limit:
            await bodies.discard(sent)
            raise bodies.too_large(limit)
    return bytes(received)
