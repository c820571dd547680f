"""The HTTP application: routes, request ids, metrics of its own, errors as problem documents."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import Depends, FastAPI
from starlette.convertors import PathConvertor, register_url_convertor
from starlette.middleware.cors import CORSMiddleware

from api import openapi, problems
from api.alive import Alive
from api.assembly import Parts
from api.compression import Compression
from api.direct import Direct
from api.heads import Headed, with_head
from api.hot import Application, Hot
from api.metrics import Metrics
from api.observing import Contained, Heard, Observed
from api.parameters import known_only
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
from api.streams import Patience
from queries.catalogue import Catalogue

EXPOSED = ["ETag", "Link", "Location", "X-Request-Id", "X-Drumlin-Generation", "X-Drumlin-Owner", "X-Drumlin-Graphs",
           "X-Drumlin-Left-Out", "X-Drumlin-Last-Event-Id"]  # fmt: skip
"""Headers that scripts of other origins may read."""


_STRICT = (
    admin,
    audit,
    subgraph,
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


class _AnyPath(PathConvertor):
    """Starlette's own ends where a line does; an id may have several (``%0A``)."""

    regex = "(?s:.*)"


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
    register_url_convertor("path", _AnyPath())
    app.state.parts = parts
    app.state.metrics = Metrics(parts)
    app.state.patience = Patience(app.state.metrics)
    app.state.subscribers = events.Subscribers(parts.feed)
    strict = [each.router for each in _STRICT]
    others = [each.router for each in (sparql, update, store, operations)]
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
    app.add_middleware(Compression)
    app.add_middleware(Contained)
    app.add_middleware(Heard)
    metrics, origins = app.state.metrics, parts.settings.cors
    if origins:
        app.add_middleware(_OtherOrigins, origins=origins)
    app.add_middleware(Observed, metrics=metrics, patience=app.state.patience)

    def around(answering: Application) -> Application:
        return _OtherOrigins(answering, origins) if origins else answering

    direct = Direct(app, parts, metrics, app.state.patience, around)
    asked = Hot(direct, parts, parts.asking, metrics, app.state.patience, around) if parts.asking else direct
    return Alive(asked, parts, metrics, around)


class _OtherOrigins(CORSMiddleware):
    """Lets scripts of ``origins`` read answers."""

    def __init__(self, app: Application, origins: tuple[str, ...]) -> None:
        super().__init__(app, allow_origins=origins, allow_methods=["*"], allow_headers=["*"], expose_headers=EXPOSED)
