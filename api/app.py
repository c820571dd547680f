"""The HTTP application: routes, request ids, metrics of its own, errors as problem documents."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import structlog
from fastapi import Depends, FastAPI, Request
from starlette.middleware.cors import CORSMiddleware

from api import openapi, problems
from api.alive import Alive
from api.assembly import Parts
from api.compression import Compression, Headers, Message, Receive, Scope, Send
from api.direct import Direct
from api.heads import Headed, with_head
from api.hot import Application, Hot
from api.metrics import Metrics
from api.parameters import known_only
from api.request_ids import request_id as id_of_request
from api.routes import (
    admin,
    audit,
    datasources,
    events,
    export,
    forecasts,
    history,
    linked,
    logs,
    ontology,
    operations,
    queries,
    resolve,
    search,
    sparql,
    store,
    subgraph,
    subgraphs,
    update,
)
from queries.catalogue import Catalogue

EXPOSED = ["ETag", "Link", "Location", "X-Request-Id", "X-Drumlin-Generation", "X-Drumlin-Owner", "X-Drumlin-Graphs",
           "X-Drumlin-Left-Out", "X-Drumlin-Last-Event-Id"]  # fmt: skip
"""Headers that scripts of other origins may read."""


_STRICT = (
    admin,
    audit,
    subgraphs,
    export,
    linked,
    resolve,
    history,
    ontology,
    search,
    events,
    datasources,
    forecasts,
    logs,
)
"""Routes that refuse every parameter that they do not have; the others look at them themselves, or take what a protocol allows."""


def create_app(parts: Parts) -> Application:
    """Build the application over ``parts``; it closes them when the server ends."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        parts.close()

    app = FastAPI(
        title="Drumlin",
        summary="The semantic map of Kubernetes clusters and their telemetry.",
        version="0.1.0",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,  # such an answer would name the host that the request named
        lifespan=lifespan,
    )
    app.state.parts = parts
    app.state.metrics = Metrics(parts)
    app.state.subscribers = events.Subscribers(parts.feed)
    strict = [each.router for each in _STRICT]
    others = [each.router for each in (subgraph, sparql, update, store, operations)]
    others.append(queries.router_of(Catalogue.load(parts.iris, parts.settings.queries)))
    routers = [*strict, *others]
    with_head(routers)
    for router in strict:
        app.include_router(router, dependencies=[Depends(known_only)])
    for router in others:
        app.include_router(router)
    problems.register(app, routers)
    app.openapi = openapi.described(app)  # type: ignore[method-assign]  # FastAPI's own way to complete its document
    app.add_middleware(Headed)
    app.add_middleware(Direct, parts=parts)
    app.add_middleware(Compression)
    app.add_middleware(Contained)
    metrics, origins = app.state.metrics, parts.settings.cors
    if origins:
        app.add_middleware(_OtherOrigins, origins=origins)
    app.add_middleware(Observed, metrics=metrics)

    def around(answering: Application) -> Application:
        return _OtherOrigins(answering, origins) if origins else answering

    asked = Hot(app, parts, parts.asking, metrics, around) if parts.asking else app
    return Alive(asked, parts, metrics, around)


class _OtherOrigins(CORSMiddleware):
    """Lets scripts of ``origins`` read answers."""

    def __init__(self, app: Application, origins: tuple[str, ...]) -> None:
        super().__init__(app, allow_origins=origins, allow_methods=["*"], allow_headers=["*"], expose_headers=EXPOSED)


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


_LISTS = frozenset({b"accept", b"accept-encoding", b"if-match", b"if-none-match", b"prefer"})


def _joined(headers: Headers) -> Headers:
    """Return headers with those that are lists in one line each: several lines mean the same (RFC 9110 §5.3)."""
    names = [name for name, _ in headers]
    if len(set(names)) == len(names):
        return headers
    lists = {name: b", ".join(value for key, value in headers if key == name) for name in _LISTS.intersection(names)}
    return [*((name, value) for name, value in headers if name not in lists), *lists.items()]


class Observed:
    """Gives every request an id (the client's own when it is sane), counts it and binds the id to the log."""

    def __init__(self, app: Application, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on (ASGI)."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope["headers"] = _joined(scope["headers"])
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
            await send(message)

        try:
            await self._app(scope, receive, tell)
        finally:
            route = getattr(scope.get("route"), "path", "unmatched")
            self._metrics.observe(scope["method"], route, status, time.perf_counter() - began)
            structlog.contextvars.unbind_contextvars("request_id")
