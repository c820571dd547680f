"""The pages: the HTML representation of what other routes answer as data, at the same addresses with ``.html``.

A browser, which prefers HTML, gets them at the plain addresses (``api.pages.addresses``). They call the functions that the routes of
the data call. An error is a page too, with the status of the problem document.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from datetime import datetime
from itertools import islice
from typing import Annotated, Any, Literal

import msgspec
from fastapi import APIRouter, Depends, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.responses import Response

from drumlin.api.bootstrap import Services, now, parts
from drumlin.api.http import filter_validation, problems
from drumlin.api.http.negotiation import ContextChoice
from drumlin.api.http.past import generation_of
from drumlin.api.http.relative_addresses import MAX_DEPTH, root_of
from drumlin.api.http.time_window import window
from drumlin.api.pages import about, accuracy, board, changes, comparing, entity, guide, home, query, rendering, series
from drumlin.api.pages.addresses import SUFFIX
from drumlin.api.pages.rendering import render
from drumlin.api.routes import alerts as alert_routes
from drumlin.api.routes import datasources as datasource_routes
from drumlin.api.routes import forecasts as forecast_routes
from drumlin.api.routes import peers as peer_routes
from drumlin.api.routes import search as search_routes
from drumlin.api.routes.compare import Begin, End
from drumlin.api.routes.events import wanted
from drumlin.api.routes.search import Filters, Tombstones
from drumlin.api.routes.subgraph import At, Wish, id_of, represent
from drumlin.kg.errors import DrumlinError, ResourceNotFound
from drumlin.kg.events.feed import EventFilter, Position
from drumlin.kg.graphs.neighbourhood import Traversal
from drumlin.kg.rdf.jsonld import NAMESPACE
from drumlin.kg.search.query import Sort
from drumlin.kg.telemetry import logs as log_lines
from drumlin.kg.telemetry.durations import parse_moment
from drumlin.queries.catalogue import QueryCatalogue

Service = Annotated[Services, Depends(parts)]
Fragment = Annotated[
    int | None,
    Query(ge=0, le=MAX_DEPTH, description="Only the part for a page that lies so many folders below the root."),
]
_SHOWN_LINES = 200
_FOREVER = "public, max-age=31536000, immutable"
_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml", ".txt": "text/plain"}


class PageRoute(APIRoute):
    """A route whose errors are pages."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler of the route, with errors as pages."""
        handle = super().get_route_handler()

        async def with_error_pages(request: Request) -> Response:
            try:
                return await handle(request)
            except DrumlinError as error:
                return _error_page(request, problems.error_response(request, error))
            except RequestValidationError as error:
                return _error_page(request, problems.parameters_response(request, error))

        return with_error_pages


def _error_page(request: Request, problem: Response) -> Response:
    """Show a problem document as a page; a part of a page shows it there."""
    body = msgspec.json.decode(problem.body)
    depth = request.query_params.get("fragment", "")
    fragment = int(depth) if depth.isascii() and depth.isdigit() and len(depth) < 3 else None
    kept = {name: value for name, value in problem.headers.items() if name in ("retry-after", "www-authenticate")}
    return render(request, "problem.html", status=problem.status_code, headers=kept, fragment=fragment, problem=body)


router = APIRouter(tags=["pages"], route_class=PageRoute, include_in_schema=False)
telemetry_router = APIRouter(tags=["telemetry"], route_class=PageRoute, include_in_schema=False)
queries_router = APIRouter(tags=["queries"], route_class=PageRoute, include_in_schema=False)


async def catalogue_of(request: Request) -> QueryCatalogue:
    """Return the saved queries of the application (FastAPI dependency)."""
    found: QueryCatalogue = request.app.state.saved_queries
    return found


Catalogue = Annotated[QueryCatalogue, Depends(catalogue_of)]


@router.get("/")
def front(request: Request, service: Service) -> Response:
    """Show what is in the graph, what is failing, and where to go from here."""
    return render(request, "home.html", view=home.view(service))


@router.get("/search.html")
def search(
    request: Request,
    service: Service,
    narrowed: Filters,
    q: Annotated[str, Query(max_length=1000)] = "",
    facet: Annotated[list[str] | None, Query()] = None,
    sort: Sort = "relevance",
    cursor: Annotated[str, Query(max_length=4096)] = "",
    limit: Annotated[int, Query(ge=1, le=1000)] = 50,
    tombstones: Tombstones = False,
    fragment: Fragment = None,
) -> Response:
    """Show a page of matches with the counts of each facet."""
    found = search_routes.search(service, narrowed, q, facet, sort, cursor, limit, tombstones)
    return render(
        request, "search.html", fragment=fragment, found=found, narrowed=narrowed, q=q, sort=sort, tombstones=tombstones
    )


@router.get("/doc/{id:path}.html")
def document(
    request: Request,
    service: Service,
    catalogue: Catalogue,
    id: str,
    part: Literal["around", "board"] | None = None,
    at: At = None,
    fragment: Fragment = None,
) -> Response:
    """Show one entity, as it is or was; an id that really ends in ``.html`` is answered as data when it was not asked for as a page."""
    written = id_of(request.scope, f"{id}{SUFFIX}")
    if not request.scope.get("negotiated_page") and service.subgraphs.exists(written):
        wish = Wish(None, request.headers.get("accept"), None, Traversal(), None, ContextChoice.of(None, None), at)
        return represent(service, written, wish)
    if at is not None:
        past = entity.past_view(service, written.removesuffix(SUFFIX), generation_of(service.store, at))
        return render(request, "entity_past.html", status=410 if past.gone else 200, view=past)
    if part == "board":
        iri = service.subgraphs.read(written.removesuffix(SUFFIX)).iri
        return render(request, "board.html", fragment=fragment, board=board.board_of(service, catalogue, iri))
    view = entity.view(service, catalogue, written.removesuffix(SUFFIX), whole=part is not None)
    if part is not None:
        return render(request, "entity_around.html", fragment=fragment, view=view)
    return render(request, "entity.html", status=410 if view.gone else 200, view=view, spans=series.SPANS)


@telemetry_router.get("/measured")
def measured(
    request: Request,
    service: Service,
    catalogue: Catalogue,
    entity: Annotated[str, Query()],
    fragment: Fragment = None,
) -> Response:
    """Show what is used of a node beside what it has and has given, or, for a domain, how its routes are."""
    graph = service.subgraphs.read(entity)
    iri, short = graph.iri, service.iris.short(graph.iri)
    if not board.is_node(graph):
        rows = board.quality_of(service, catalogue, iri)
        return render(request, "quality.html", fragment=fragment, rows=rows, short=short)
    usage, missing = board.usage_of(service, catalogue, iri)
    return render(request, "usage.html", fragment=fragment, rows=usage, missing=missing, short=short)


@telemetry_router.get("/history.html")
def history(
    request: Request,
    service: Service,
    entity: Annotated[str, Query()],
    metric: Annotated[str, Query()],
    last: Annotated[str, Query(max_length=20)] = "24h",
    fragment: Fragment = None,
) -> Response:
    """Show a metric as a picture with its query, unit and coverage."""
    view = series.picture(service, request.scope["view"].shared_series, entity, metric, last)
    return render(request, "series.html", fragment=fragment, view=view, spans=series.SPANS)


@telemetry_router.get("/logs.html")
def logs(
    request: Request,
    service: Service,
    entity: Annotated[str, Query()],
    last: Annotated[str, Query(max_length=20)] = "1h",
    containing: Annotated[str, Query(alias="filter", max_length=1000)] = "",
    fragment: Fragment = None,
) -> Response:
    """Show the newest log lines of an entity, those that contain a text when one is given."""
    span = window(last, None, None, now())
    found = log_lines.fetch(service.resolver, entity, span, containing=containing or None, limit=_SHOWN_LINES)
    lines = [log_lines.as_dict(each) for each in islice(found.lines, _SHOWN_LINES)]
    short = service.iris.short(service.iris.expand(entity))
    return render(
        request, "logs.html", fragment=fragment, entity=short, last=last, containing=containing, lines=lines,
        resolution=found.resolution.to_dict(), limit=_SHOWN_LINES, spans=series.SPANS,
    )  # fmt: skip


@telemetry_router.get("/datasources.html")
def datasources(
    request: Request,
    service: Service,
    name: str | None = None,
    probe: bool = True,
    fragment: Fragment = None,
) -> Response:
    """Show what a look at each datasource found."""
    items = datasource_routes.list_datasources(service, name, probe)["items"]
    return render(request, "datasources.html", fragment=fragment, items=items, name=name, iris=service.iris)


@router.get("/peers.html")
def peers(request: Request, service: Service, fragment: Fragment = None) -> Response:
    """Show the services that are followed, and how far each is."""
    items = peer_routes.list_peers(service)["items"]
    return render(request, "peers.html", fragment=fragment, items=items)


@telemetry_router.get("/alerts.html")
def alerts(
    request: Request,
    service: Service,
    entity: Annotated[list[str] | None, Query()] = None,
    fragment: Fragment = None,
) -> Response:
    """Show pending and firing alerts."""
    found = alert_routes.get_alerts(service, entity)
    return render(request, "alerts.html", fragment=fragment, found=found, entity=entity, iris=service.iris)


@telemetry_router.get("/forecasts.html")
def forecasts(
    request: Request,
    service: Service,
    entity: Annotated[str, Query()],
    metric: str | None = None,
    fragment: Fragment = None,
) -> Response:
    """Show the forecasts of an entity, each with its metric against what was measured."""
    items = forecast_routes.list_forecasts(service, entity, metric, 100)["items"]
    short = service.iris.short(service.iris.expand(entity))
    return render(
        request, "forecasts.html", fragment=fragment, items=items, entity=short, metric=metric, iris=service.iris
    )


@telemetry_router.get("/accuracy")
def forecast_accuracy(
    request: Request,
    service: Service,
    entity: Annotated[str, Query()],
    metric: Annotated[str, Query()],
    id: str | None = None,
    fragment: Fragment = None,
) -> Response:
    """Show a forecast against what was measured since."""
    view = accuracy.accuracy(service, entity, metric, id)
    return render(request, "accuracy.html", fragment=fragment, view=view)


@queries_router.get("/sparql.html")
def sparql(request: Request, service: Service, catalogue: Catalogue, fragment: Fragment = None) -> Response:
    """Show a form for queries, and what the query of the request finds; that alone as a part of a page."""
    asked = request.query_params.get("query", "").strip()
    view, problem, status = None, None, 200
    if asked:
        try:
            view = query.run(service, request.scope["query_string"])
        except DrumlinError as error:
            status, problem = problems.status_of(error)[0], problems.problem_of(error)
    return render(
        request, "sparql.html" if fragment is None else "sparql_answer.html", status=status, fragment=fragment, text=asked,
        view=view, problem=problem, saved=catalogue.queries.values(), terms=query.vocabulary(), example=query.EXAMPLE,
        namespace=NAMESPACE,
    )  # fmt: skip


@queries_router.get("/queries.html")
def saved_queries(request: Request, catalogue: Catalogue) -> Response:
    """Show the saved queries."""
    return render(request, "queries.html", saved=catalogue.queries.values())


@queries_router.get("/queries/{name}.html")
def saved_query(request: Request, service: Service, catalogue: Catalogue, name: str) -> Response:
    """Show a saved query with a form for its parameters, and what it finds once all are given."""
    saved = catalogue.get(name)
    given = {key: value for key, value in request.query_params.items() if value}
    missing = [each.name for each in saved.parameters if each.default is None and each.name not in given]
    view, problem, status = None, None, 200
    if not missing:
        try:
            view = query.ask_saved(service, saved, given)
        except DrumlinError as error:
            status, problem = problems.status_of(error)[0], problems.problem_of(error)
    return render(
        request, "saved_query.html", status=status, saved=saved, given=given, view=view, problem=problem,
        address=request.scope["query_string"].decode("latin-1"),
    )  # fmt: skip


def _change_page(
    request: Request,
    service: Services,
    chosen: EventFilter,
    entity: str | None,
    around: bool,
    before: str | None,
    since: str | None,
    until: str | None,
    limit: int,
    fragment: int | None,
) -> Response:
    filter_validation.check(service, {"type": chosen.type})
    begin, end = (_moment(each) for each in (since, until))
    place = None if before is None else Position.read(before if "." in before else f"{before}.0")
    page = changes.changes(
        service, chosen, entity=entity, around=around, before=place, since=begin, until=end, limit=limit
    )
    short = service.iris.short(service.iris.expand(entity)) if entity else ""
    return render(
        request, "changes.html", fragment=fragment, page=page, entity=short, around=around, chosen=chosen,
        since=since or "", until=until or "", before=before,
    )  # fmt: skip


def _moment(text: str | None) -> datetime | None:
    return parse_moment(text) if text else None


Chosen = Annotated[EventFilter, Depends(wanted)]
_Entity = Annotated[str | None, Query(description="Only the changes of this entity.")]
_Around = Annotated[bool, Query(description="Also the changes of what is linked with the entity.")]
_Before = Annotated[
    str | None,
    Query(max_length=40, description="Only what changed before this generation, or before the event of this id."),
]
_When = Annotated[str | None, Query(max_length=64, description="RFC 3339.")]


@router.get("/changes")
def what_changed(
    request: Request,
    service: Service,
    chosen: Chosen,
    entity: _Entity = None,
    around: _Around = False,
    before: _Before = None,
    since: _When = None,
    until: _When = None,
    limit: Annotated[int, Query(ge=1, le=changes.MAX_SHOWN)] = changes.MAX_SHOWN,
    fragment: Fragment = None,
) -> Response:
    """Show the newest changes, those of one entity when it is named."""
    return _change_page(request, service, chosen, entity or None, around, before, since, until, limit, fragment)


@router.get("/compare.html")
def compare(
    request: Request,
    service: Service,
    entity: Annotated[str, Query()],
    begin: Begin = "",
    end: End = "",
    fragment: Fragment = None,
) -> Response:
    """Show what differs of an entity between two generations or times: by itself, what its last change did."""
    view = comparing.comparison(service, entity, begin, end)
    return render(request, "compare.html", fragment=fragment, view=view, asked=(begin, end))


@router.get("/about")
def about_page(request: Request) -> Response:
    """Show the version, the licence, and the licences of what is served with it."""
    return render(request, "about.html", view=about.view())


@router.get("/docs")
def documentation(request: Request) -> Response:
    """Show every route of the OpenAPI document, grouped as there."""
    return render(request, "docs.html", groups=about.routes(request.app.openapi()), guide=bool(guide.files()))


@router.get("/docs/guide")
@router.get("/docs/guide/{path:path}")
def guide_file(
    request: Request,
    path: str = "",
    q: Annotated[str, Query(max_length=1000)] = "",  # noqa: ARG001  the script of its search page reads it
) -> Response:
    """Return a file of the guide; without one, lead to its first page."""
    if not path:
        return Response(status_code=307, headers={"Location": f"{root_of(request)}docs/guide/{guide.FIRST}"})
    if path not in guide.files():
        there = "it was built without that page" if guide.files() else "this service was installed without it"
        raise ResourceNotFound(
            f"there is no page {path[:64]!r} of the guide: {there}", hint="`make docs` in the repository builds it"
        )
    file = guide.FOLDER / path
    return Response(file.read_bytes(), media_type=guide.media_type(path), headers={"Cache-Control": "no-cache"})


@router.get("/static/{version}/{name}")
def static(version: str, name: str) -> Response:
    """Return a file of the pages; under the name of the current assets it may be kept for good."""
    path = rendering.STATIC / name
    if "/" in name or not path.is_file() or path.suffix not in _TYPES:
        raise ResourceNotFound(f"there is no file {name[:64]!r}", hint="load the page anew")
    age = _FOREVER if version == rendering.asset_folder() else "no-cache"
    headers: Mapping[str, str] = {"Cache-Control": age}
    return Response(path.read_bytes(), media_type=_TYPES[path.suffix], headers=headers)
