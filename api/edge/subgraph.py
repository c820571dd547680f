"""Plain reads and writes of ``/subgraph/{id}`` in front of FastAPI, by the functions that its routes call.

What has a query string, and every other method, goes on to the routes, which also document all of it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from fastapi import Request
from starlette.concurrency import run_in_threadpool

from drumlin.api.bootstrap import Services
from drumlin.api.edge.exchange import Exchange
from drumlin.api.http.asgi import Application, text_of
from drumlin.api.http.async_write import can_run_inline
from drumlin.api.http.bodies import body_of
from drumlin.api.http.negotiation import ContextChoice, sent_syntax
from drumlin.api.http.owners import owner_of
from drumlin.api.routes import subgraph
from drumlin.kg.graphs.neighbourhood import Traversal

_PREFIX = "/subgraph/"
_ALONE = Traversal()


class SubgraphEndpoint:
    """Answers GET, HEAD, PUT and DELETE of one subgraph."""

    def __init__(self, parts: Services) -> None:
        self._parts = parts
        self.methods: Mapping[str, Callable[[Exchange, str], Awaitable[Application]]] = {
            "GET": self._read,
            "HEAD": self._read,
            "PUT": self._put,
            "DELETE": self._delete,
        }

    async def __call__(self, exchange: Exchange) -> Application:
        """Answer; raises what becomes a problem document."""
        id = subgraph.id_of(exchange.scope, exchange.scope["path"].removeprefix(_PREFIX))
        return await self.methods[exchange.method](exchange, id)

    async def _read(self, exchange: Exchange, id: str) -> Application:
        parts, sent = self._parts, exchange.headers
        foreign = parts.documents.named(id) is not None
        context = ContextChoice.of(None, text_of(sent, b"prefer"))
        known = text_of(sent, b"if-none-match")
        wanted = subgraph.Wish(None, text_of(sent, b"accept"), known, _ALONE, None, context)
        name = parts.iris.full(subgraph.without_suffix(id))
        if foreign or not can_run_inline(parts.store, name, 0):
            return await run_in_threadpool(subgraph.represent, parts, id, wanted)
        found = subgraph.find(parts, id, wanted)
        if not can_run_inline(parts.store, name, len(found.subgraph.text)):
            return await run_in_threadpool(subgraph.render, parts, found, wanted)
        return subgraph.render(parts, found, wanted)

    async def _put(self, exchange: Exchange, id: str) -> Application:
        parts, sent = self._parts, exchange.headers
        sending = subgraph.Sending(
            text_of(sent, b"content-type"),
            text_of(sent, b"if-match"),
            text_of(sent, b"if-none-match"),
            text_of(sent, b"prefer"),
            text_of(sent, b"accept"),
            owner_of(parts, exchange.scope),
        )
        syntax = sent_syntax(sending.content_type)
        data = await body_of(Request(exchange.scope, exchange.receive), parts.settings.document_bytes)
        return await subgraph.replace(parts, id, sending, syntax, data)

    async def _delete(self, exchange: Exchange, id: str) -> Application:
        parts, sent = self._parts, exchange.headers
        owner = owner_of(parts, exchange.scope)
        return await subgraph.remove(parts, id, owner, text_of(sent, b"if-match"), text_of(sent, b"if-none-match"))
