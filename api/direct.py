"""``/subgraph/{id}`` without a framework: plain reads and writes are answered here, by the same functions as FastAPI's routes call.

FastAPI's routing, its injection and its thread for a request take 0.5 ms of processor time, more than reading a graph. What has a
query string, and every other method, goes on to the routes, which also document all of it.
"""

from __future__ import annotations

from fastapi import Request
from starlette.responses import Response

from api.assembly import Parts
from api.compression import Receive, Scope, Send
from api.hot import Application
from api.problems import error_response
from api.routes import subgraph
from api.writing import beside
from kg.errors import DrumlinError
from kg.neighbourhood import Following

_PREFIX = "/subgraph/"
_BYTES_OF_LINE = 128  # about what writing a statement costs, as a document's size


class _Route:
    """How the request is named in metrics."""

    path = "/subgraph/{id:path}"


class Direct:
    """Answers GET, HEAD, PUT and DELETE of one subgraph; passes everything else on (ASGI)."""

    def __init__(self, app: Application, parts: Parts) -> None:
        self._app, self._parts = app, parts
        self._answers = {"GET": self._read, "HEAD": self._read, "PUT": self._put, "DELETE": self._delete}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer or pass on."""
        answer = self._answers.get(scope.get("method", ""))
        if answer is None or scope["query_string"] or not scope["path"].startswith(_PREFIX):
            await self._app(scope, receive, send)
            return
        scope["route"] = _Route
        request = Request(scope, receive)
        try:
            response = await answer(request, subgraph.entity_id(request, scope["path"].removeprefix(_PREFIX)))
        except DrumlinError as error:
            response = error_response(request, error)
        await response(scope, receive, send)

    async def _read(self, request: Request, id: str) -> Response:
        headers, store = request.headers, self._parts.store
        wanted = subgraph.Wish(None, headers.get("accept"), headers.get("if-none-match"), Following(), None)
        name = self._parts.iris.root + subgraph.without_suffix(id)
        found = await beside(store, name, 0, lambda: subgraph.find(self._parts, id, wanted))
        size = _BYTES_OF_LINE * len(found.subgraph.lines)
        return await beside(store, name, size, lambda: subgraph.render(self._parts, found, wanted))

    async def _put(self, request: Request, id: str) -> Response:
        return await subgraph.replace(self._parts, request, id, subgraph.Sending.of(request.headers))

    async def _delete(self, request: Request, id: str) -> Response:
        return await subgraph.remove(self._parts, id, request.headers.get("if-match"))
