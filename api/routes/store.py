"""``/store``: SPARQL 1.1 Graph Store HTTP Protocol (https://www.w3.org/TR/sparql11-http-rdf-update/).

A graph is named by ``?graph=IRI``, ``?default``, or directly by the address ``/store/…``, which is the graph ``{base}/store/…``.
Without any of these the resource is the whole dataset, in a syntax that names graphs; triples POSTed to it become a new graph with a
name of its own.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated
from urllib.parse import quote, unquote

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from drumlin.api.bootstrap import Services, parts
from drumlin.api.http.bodies import body_of
from drumlin.api.http.etags import expected_digest, matches
from drumlin.api.http.multipart import DocumentPart, parts_of
from drumlin.api.http.negotiation import choose, rdf_syntax, sent_syntax
from drumlin.api.http.problems import unconditional
from drumlin.api.http.streaming import BodyStream
from drumlin.kg import rdf
from drumlin.kg.errors import InvalidIdentifier, NotAcceptable, PreconditionFailed, UnsupportedSyntax
from drumlin.kg.rdf.syntax import JSONLD, NQUADS, TRIG, Lines, Syntax
from drumlin.kg.store.protocol import ANY, Unconditional, Written

router = APIRouter(tags=["graph store"])

Service = Annotated[Services, Depends(parts)]
_QUADS = (NQUADS.media_type, TRIG.media_type, JSONLD.media_type)
_PATHS = ("/store", "/store/{path:path}")


@dataclass(frozen=True, slots=True)
class GraphTarget:
    """What a request is about: ``graph`` is None for the whole dataset."""

    graph: str | None
    format: str | None


def target(request: Request, service: Service) -> GraphTarget:
    """Read the graph off the address; each part of it is percent-decoded exactly once."""
    raw: bytes = request.scope.get("raw_path") or request.scope["path"].encode()
    path = raw.partition(b"?")[0].decode("latin-1").removeprefix(request.scope.get("root_path", ""))
    direct = path.removeprefix("/store").strip("/") and path.removeprefix("/store/")
    given = [pair.partition("=") for pair in request.scope["query_string"].decode("latin-1").split("&") if pair]
    names = [_decoded(value) for name, _, value in given if name == "graph"]
    default = any(name == "default" for name, _, _ in given)
    if unknown := next((name for name, _, _ in given if name not in ("graph", "default", "format")), None):
        raise InvalidIdentifier(
            f"the parameter {unknown[:40]!r} is not known here", hint="say graph=, default or format="
        )
    if len(names) + default + bool(direct) > 1:
        raise InvalidIdentifier("one request is about one graph", hint="give ?graph=IRI once, or ?default, or a path")
    wanted = next((_decoded(value) for name, _, value in given if name == "format"), None)
    if default:
        return GraphTarget(service.graphs.scope.default, wanted)
    if direct:
        return GraphTarget(_absolute(service.graphs.root + direct), wanted)
    return GraphTarget(_absolute(names[0]) if names else None, wanted)


def _decoded(value: str) -> str:
    try:
        return unquote(value, errors="strict")  # a + is one: an IRI has no blanks
    except UnicodeDecodeError as error:
        raise InvalidIdentifier("a parameter does not decode to UTF-8") from error


def _absolute(graph: str) -> str:
    if not rdf.is_iri(graph):
        raise InvalidIdentifier(
            f"{graph[:200]!r} is not an absolute IRI", hint="percent-encode it once: ?graph=http%3A%2F%2F…"
        )
    return graph


About = Annotated[GraphTarget, Depends(target)]


# -- reading --------------------------------------------------------------------------------------------------------------
def read(request: Request, about: About, service: Service) -> Response:
    """Return a graph in the syntax asked for, or the whole dataset as N-Quads, TriG or JSON-LD."""
    accept = request.headers.get("accept")
    if about.graph is None:
        return _dataset(request, service, about.format)
    syntax, media_type = rdf_syntax(accept, about.format)
    lines = service.graphs.read(about.graph)
    headers = {
        "ETag": f'"{rdf.digest(lines)}-{syntax.name}"',
        "Vary": "Accept",
        "Cache-Control": "no-cache",
    }
    if matches(request.headers.get("if-none-match"), headers["ETag"]):
        return Response(status_code=304, headers=headers)
    return Response(rdf.serialize(lines, syntax), media_type=media_type, headers=headers)


def _dataset(request: Request, service: Services, wanted: str | None) -> Response:
    media_type = rdf_syntax(None, wanted)[1] if wanted else choose(request.headers.get("accept"), _QUADS)
    if media_type not in _QUADS:
        raise NotAcceptable(
            f"a dataset cannot be written as {media_type}",
            hint="name one graph: ?graph=IRI or ?default",
            detail={"offered": list(_QUADS)},
        )
    headers = {"Cache-Control": "no-cache", "Vary": "Accept"}
    return BodyStream(_written(service, rdf.syntax_named(media_type)), media_type, headers)


def _written(service: Services, syntax: Syntax) -> Iterator[bytes]:
    """Write all graphs of one generation, one at a time; the default graph has no name."""
    first = True
    if syntax is JSONLD:
        yield b"["
    for graph, lines in service.store.export():
        text = rdf.serialize(lines, syntax, graph=None if graph == service.graphs.scope.default else graph)
        if syntax is JSONLD:
            inner = text.strip()[1:-1]
            if not inner.strip():
                continue
            text = (b"" if first else b",\n") + inner
            first = False
        yield text
    if syntax is JSONLD:
        yield b"]\n"


# -- writing --------------------------------------------------------------------------------------------------------------
def _documents(content_type: str | None, body: bytes) -> list[DocumentPart]:
    """Return a request's documents: its body, or the parts of a form."""
    if (content_type or "").partition(";")[0].strip().lower() == "multipart/form-data":
        return parts_of(content_type or "", body)
    return [DocumentPart(sent_syntax(content_type), body)]


def _expected(request: Request, service: Services, graph: str | None) -> str | Unconditional | None:
    """Turn If-Match and If-None-Match into what the store checks under its lock."""
    if_match, if_none_match = request.headers.get("if-match"), request.headers.get("if-none-match")
    if graph is not None:
        if if_match is None and if_none_match is None and service.settings.require_if_match:
            raise unconditional()
        return expected_digest(graph, if_match, if_none_match, lambda: service.graphs.digest(graph))
    if if_match is not None or if_none_match is not None:
        raise PreconditionFailed("a whole dataset has no ETag", hint="name one graph: ?graph=IRI or ?default")
    return ANY


def _merged(service: Services, documents: list[DocumentPart], graph: str) -> Lines:
    return frozenset().union(*(service.graphs.parse(each.content, each.syntax, graph) for each in documents))


def _all(service: Services, documents: list[DocumentPart]) -> dict[str, Lines]:
    if plain := next((each.syntax for each in documents if not each.syntax.quads), None):
        raise UnsupportedSyntax(
            f"{plain.name} names no graphs",
            hint="send it to one graph: ?graph=IRI or ?default",
            detail={"offered": list(_QUADS)},
        )
    found: dict[str, Lines] = {}
    for each in documents:
        for graph, lines in service.graphs.parse_all(each.content, each.syntax, service.settings.base).items():
            found[graph] = found.get(graph, frozenset()) | lines
    return found


async def _write(request: Request, service: Services, write: Callable[[list[DocumentPart]], Response]) -> Response:
    body = await body_of(request, service.settings.document_bytes)
    content_type = request.headers.get("content-type")
    return await service.bulkheads.writes.run(lambda: write(_documents(content_type, body)))


def _told(service: Services, written: Written | None = None, location: str | None = None) -> Response:
    generation = written.generation if written else service.store.generation
    headers = {"X-Drumlin-Generation": str(generation)}
    if written and written.outcome == "created":
        headers["Location"] = location or address(service, written.graph)
        return Response(status_code=201, headers=headers)
    return Response(status_code=204, headers=headers)


def address(service: Services, graph: str) -> str:
    """Return where a graph can be read: its own name when that is an address of ours."""
    return (
        graph if graph.startswith(service.graphs.root) else f"{service.iris.base}/store?graph={quote(graph, safe='')}"
    )


async def put(request: Request, about: About, service: Service) -> Response:
    """Replace a graph: 201 when it was not there, else 204. Without a graph: replace all foreign graphs by the document's."""
    graph = about.graph

    def write(documents: list[DocumentPart]) -> Response:
        expected = _expected(request, service, graph)
        if graph is None:
            service.graphs.put_all(_all(service, documents))
            return _told(service)
        return _told(service, service.graphs.put(graph, _merged(service, documents, graph), expected=expected))

    return await _write(request, service, write)


async def post(request: Request, about: About, service: Service) -> Response:
    """Add to a graph. Without a graph: quads are added to the graphs they name, triples become a new graph (201, Location)."""
    graph = about.graph

    def write(documents: list[DocumentPart]) -> Response:
        expected = _expected(request, service, graph)
        if graph is not None:
            return _told(service, service.graphs.merge(graph, _merged(service, documents, graph), expected=expected))
        if any(each.syntax.quads for each in documents):
            service.graphs.merge_all(_all(service, documents))
            return _told(service)
        new = f"{service.graphs.root}{uuid.uuid4()}"
        return _told(service, service.graphs.put(new, _merged(service, documents, new), expected=None))

    return await _write(request, service, write)


async def delete(request: Request, about: About, service: Service) -> Response:
    """Remove a graph: 404 when it is not there; an entity's leaves a tombstone. Without a graph: remove all foreign ones."""
    graph = about.graph

    def work() -> Response:
        expected = _expected(request, service, graph)
        if graph is None:
            service.graphs.put_all({})
        else:
            service.graphs.remove(graph, expected=expected)
        return _told(service)

    return await service.bulkheads.writes.run(work)


_PARAMETERS = [
    {"name": "graph", "in": "query", "schema": {"type": "string", "format": "iri"}, "description": "Name of a graph."},
    {
        "name": "default",
        "in": "query",
        "schema": {"type": "string"},
        "allowEmptyValue": True,
        "description": "The default graph.",
    },
    {
        "name": "format",
        "in": "query",
        "schema": {"type": "string"},
        "description": "Syntax of the answer; wins over Accept.",
    },
]
_ROUTES = (
    ("GET", read, "Read a graph"),
    ("HEAD", read, ""),
    ("PUT", put, "Replace a graph"),
    ("POST", post, "Add to a graph"),
    ("DELETE", delete, "Remove a graph"),
)
for _path in _PATHS:
    for _method, _endpoint, _summary in _ROUTES:
        router.add_api_route(
            _path,
            _endpoint,
            methods=[_method],
            summary=_summary or None,
            include_in_schema=bool(_summary) and _path == "/store",
            openapi_extra={"parameters": _PARAMETERS},
        )
