"""Composition of the HTTP service: FastAPI's routes behind the entry of ``api.edge``."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from operator import attrgetter

from fastapi import APIRouter, Depends, FastAPI
from fastapi.routing import APIRoute
from starlette.convertors import PathConvertor, register_url_convertor

from drumlin.api.access.authentication import Authenticator
from drumlin.api.access.code_flow import CodeFlow
from drumlin.api.access.issued_tokens import IssuedTokens, send_form
from drumlin.api.access.sessions import Sessions
from drumlin.api.access.token_review import TokenReviewer
from drumlin.api.bootstrap import Services, token_file
from drumlin.api.edge.access_guard import AccessGuard
from drumlin.api.edge.entry import EdgeApplication
from drumlin.api.edge.request_guard import RequestGuard
from drumlin.api.http import openapi, problems
from drumlin.api.http.bulkheads import Bulkhead, Bulkheads, confine
from drumlin.api.http.hosts import Hosts
from drumlin.api.http.owners import users_only
from drumlin.api.http.strict_parameters import known_only
from drumlin.api.mcp.http import AgentEndpoint
from drumlin.api.metrics import Metrics
from drumlin.api.routes import (
    admin,
    agents,
    agents_mcp,
    alerts,
    audit,
    compare,
    datasources,
    events,
    export,
    forecasts,
    graph,
    history,
    legacy,
    linked,
    logs,
    ontology,
    operations,
    pages,
    peers,
    queries,
    resolve,
    search,
    service_discovery,
    sign_in,
    sparql,
    store,
    subgraph,
    subgraphs,
    update,
    values,
)
from drumlin.api.views import DomainViews
from drumlin.kg.model.authority import is_loopback
from drumlin.queries.catalogue import QueryCatalogue

_STRICT = (
    admin,
    agents,
    audit,
    subgraph,
    subgraphs,
    compare,
    export,
    linked,
    resolve,
    history,
    values,
    alerts,
    ontology,
    search,
    events,
    datasources,
    forecasts,
    graph,
    logs,
    agents_mcp,
    peers,
)
"""Routes that refuse every parameter that they do not have; the others look at them themselves, or take what a protocol allows."""


class _AnyPath(PathConvertor):
    """Starlette's own ends where a line does; an id may have several (``%0A``)."""

    regex = "(?s:.*)"


def create_app(parts: Services, address: str = "127.0.0.1", *, insecure: bool = False) -> EdgeApplication:
    """Build the application over ``parts``, for a server that listens on ``address``; it closes them when the server ends.

    As long as there are no tokens, everybody may do everything when the address is on loopback, and elsewhere when ``insecure``.
    """
    unguarded = insecure or is_loopback(address)
    review = TokenReviewer(parts.settings.token_review).verify if parts.settings.token_review else None
    signed = parts.settings.takes_signed_tokens
    issued = IssuedTokens(parts.settings.issuer, review=review) if signed else None
    authenticator = Authenticator(
        parts.settings, token_file(parts.settings, parts.store), unguarded=unguarded, issued=issued
    )

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        if authenticator.limits or parts.settings.limits_callers:
            views.begin()
        yield
        views.close()
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
    views = DomainViews(parts, app.state.metrics)
    app.state.saved_queries = QueryCatalogue.load(parts.iris, parts.settings.queries)
    app.state.authenticator = authenticator
    app.state.sessions = Sessions(parts.settings.base)
    app.state.code_flow = (
        CodeFlow(parts.settings.issuer, issued, f"{parts.settings.base}/signin/callback", send_form) if issued else None
    )
    strict = [pages.router, pages.telemetry_router, *(each.router for each in _STRICT)]
    of_users = [each.router for each in (forecasts, datasources, update, store)]
    others = [agents.otlp_router, *(each.router for each in (sparql, update, store, operations, legacy))]
    # An issuer adds parameters of its own to the address that it sends a browser back to.
    saved = [service_discovery.router, queries.router_of(app.state.saved_queries)]  # their parameters are the queries'
    others = [sign_in.router, pages.queries_router, *others, *saved]
    routers = [*strict, *others]
    _add_head(routers)
    _confine(routers)
    for router in (*strict, *others):
        rules = [known_only] if router in strict else []
        rules += [users_only] if router in of_users else []
        app.include_router(router, dependencies=[Depends(each) for each in rules])
    problems.register(app, routers)
    app.openapi = openapi.described(app)  # type: ignore[method-assign]  # FastAPI's own way to complete its document
    guard = RequestGuard(parts.settings, Hosts(parts.settings, address))
    access = AccessGuard(authenticator, app.state.sessions, parts.store, parts.audit)
    service = EdgeApplication(app, parts, views, guard, access, app.state.metrics)
    app.state.mcp = AgentEndpoint(service)
    return service


def _confine(routers: Sequence[APIRouter]) -> None:
    """Give each sort of blocking work threads of its own; entity reads, search and the ontology stay in the framework's pool."""
    of: Mapping[str, Callable[[Bulkheads], Bulkhead]] = {
        "telemetry": attrgetter("telemetry"),
        "queries": attrgetter("queries"),
        "operations": attrgetter("administration"),
        "graph store": attrgetter("queries"),
    }
    probes = {"/readyz", "/livez", "/metrics"}
    for router in routers:
        choose = next((of[str(tag)] for tag in router.tags if tag in of), None)
        for route in router.routes:
            if isinstance(route, APIRoute) and choose is not None:
                confine(route, attrgetter("probes") if route.path in probes else choose)


def _add_head(routers: Sequence[APIRouter]) -> None:
    """Answer HEAD wherever GET is (RFC 9110 §9.1)."""
    for route in (each for router in routers for each in router.routes):
        if isinstance(route, APIRoute) and route.methods and "GET" in route.methods:
            route.methods.add("HEAD")
