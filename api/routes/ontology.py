"""``/ns``: the ontology as a page for people and as RDF for machines; its context; the graph in other vocabularies.

The namespace's own address need not resolve: this is the same document, wherever the service is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Path, Query, Request
from starlette.responses import Response

from drumlin.api import reference
from drumlin.api.bootstrap import Services, parts
from drumlin.api.http.etags import matches
from drumlin.api.http.negotiation import choose, named, rdf_syntax
from drumlin.api.http.streaming import BodyStream
from drumlin.api.pages.rendering import render
from drumlin.kg import rdf
from drumlin.kg.errors import ResourceNotFound
from drumlin.kg.graphs import vocabulary_mapping
from drumlin.kg.model.iris import CONTEXT_PATH
from drumlin.kg.rdf import jsonld
from drumlin.kg.rdf.syntax import JSONLD, NTRIPLES, TURTLE, syntax_named
from drumlin.ontology.vocabulary import CLASSES, CONCEPTS, PROPERTIES, SCHEMES

router = APIRouter(tags=["ontology"])
Accept = Annotated[str | None, Header()]
IfNoneMatch = Annotated[str | None, Header()]
Format = Annotated[str | None, Query(alias="format", description="html, turtle, jsonld, ntriples …; wins over Accept.")]

_HTML, _HTML_NAME = "text/html", "html"
_RDF = (TURTLE.media_type, *(each.media_type for each in rdf.SYNTAXES if each is not TURTLE), "application/json")
_PARTS = frozenset({"shapes", "metrics"})
_TERMS = CLASSES | PROPERTIES | CONCEPTS | SCHEMES.keys()
_DAY = "public, max-age=86400"
_HOUR = "public, max-age=3600"  # a release may add terms, and documents name this address
_NEGOTIATED: Mapping[str, str] = {"Vary": "Accept"}
_FOR_ANYBODY: Mapping[str, str] = {
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Expose-Headers": "ETag",
    "Cross-Origin-Resource-Policy": "cross-origin",
}
_PREFLIGHT: Mapping[str, str] = {
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Allow-Methods": "GET, HEAD, OPTIONS",
    "Access-Control-Allow-Headers": "*",
    "Access-Control-Max-Age": "86400",
    "Allow": "GET, HEAD, OPTIONS",
}


@cache
def _content(file: str, syntax: str) -> bytes:
    turtle = files("drumlin.ontology").joinpath(file).read_bytes()
    if syntax == TURTLE.name:
        return turtle
    return rdf.serialize(rdf.parse(turtle, TURTLE)[None], syntax_named(syntax))


def _cached(
    content: bytes, media_type: str, if_none_match: str | None, age: str, more: Mapping[str, str] = _NEGOTIATED
) -> Response:
    """Answer with an ETag of the content, or 304 when the client has it; ``more`` are headers of both."""
    etag = f'"{hashlib.blake2b(content, digest_size=12).hexdigest()}"'
    headers = {"ETag": etag, "Cache-Control": age, **more}
    if matches(if_none_match, etag):
        return Response(status_code=304, headers=headers)
    return Response(content, media_type=media_type, headers=headers)


def _rdf_of(file: str, accept: str | None, wanted: str | None, if_none_match: str | None) -> Response:
    syntax, media_type = rdf_syntax(None if wanted else choose(accept, _RDF), wanted)
    return _cached(_content(file, syntax.name), media_type, if_none_match, _DAY)


@router.get("/ns", summary="The ontology: a page, or RDF")
def ontology(
    request: Request, accept: Accept = None, wanted: Format = None, if_none_match: IfNoneMatch = None
) -> Response:
    """Return the reference of all terms as HTML for browsers, as Turtle, JSON-LD and every other RDF syntax for the rest."""
    if wanted is not None and wanted != _HTML_NAME:
        named(wanted, also=_HTML_NAME)
    if wanted == _HTML_NAME or (wanted is None and choose(accept, (_HTML, *_RDF)) == _HTML):
        page = render(request, "ontology.html", view=reference.page())
        return _cached(bytes(page.body), f"{_HTML}; charset=utf-8", if_none_match, _DAY)
    return _rdf_of("drumlin.ttl", accept, wanted, if_none_match)


@router.get("/ns/{part}", summary="Shapes and metric templates as RDF; the page of a term")
def part(
    request: Request,
    part: Annotated[str, Path(description="shapes, metrics, a term such as Deployment, or this version.")],
    accept: Accept = None,
    wanted: Format = None,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """Return the SHACL shapes, or the metric templates of all exporters (Turtle unless another syntax is asked for).

    The name of a term is a page for browsers; others are led to where the reference explains it: 303. The number of this version is the
    ontology itself: its version IRI ends in it.
    """
    if part == reference.page().version:
        return ontology(request, accept, wanted, if_none_match)
    if part in _PARTS:
        return _rdf_of(f"{part}.ttl", accept, wanted, if_none_match)
    if part not in _TERMS:
        close = get_close_matches(part[:64], _PARTS | _TERMS, n=1)
        hint = f"did you mean {close[0]}?" if close else "all terms are explained at /ns"
        raise ResourceNotFound(f"the ontology has no {part[:64]!r}", hint=hint)
    if wanted == _HTML_NAME or (wanted is None and choose(accept, (*_RDF, _HTML)) == _HTML):
        page = render(request, "ontology_term.html", view=reference.term_page(part))
        return _cached(bytes(page.body), f"{_HTML}; charset=utf-8", if_none_match, _DAY)
    return Response(status_code=303, headers={"Location": f"../ns#{part}", **_NEGOTIATED})


# PUBLIC: whoever may read a document elsewhere must be able to read its context, so no setting closes this route
# (``api.edge.request_guard.PUBLIC`` keeps what checks origins away from it).
@router.get(CONTEXT_PATH, summary="The JSON-LD context")
def context(if_none_match: IfNoneMatch = None) -> Response:
    """Return the context that documents name; a released key never changes its meaning under this path.

    Pages of every origin may read it, whatever `cors` says.
    """
    return _cached(jsonld.context_document(), JSONLD.media_type, if_none_match, _HOUR, _FOR_ANYBODY)


@router.options(CONTEXT_PATH, include_in_schema=False)
def may_read_context() -> Response:
    """Answer a browser that asks first, as it does for a page that accepts the profile of contexts."""
    return Response(status_code=204, headers=_PREFLIGHT)


@router.get("/profiles", summary="Other vocabularies that the graph can be had in")
def profiles() -> list[dict[str, Any]]:
    """List the alignments by name and title."""
    return [{"name": name, "title": title} for name, title in vocabulary_mapping.alignments().items()]


@router.get("/profiles/{name}", summary="The graph in another vocabulary")
def profile(name: str, service: Annotated[Services, Depends(parts)], accept: Accept = None) -> Response:
    """Stream what an alignment's rules make of the whole graph, as N-Triples; ``/profiles/{name}/rules`` has the rules."""
    choose(accept, (NTRIPLES.media_type, "text/plain"))
    vocabulary_mapping.source(name)
    return BodyStream(vocabulary_mapping.aligned(service.store, name), NTRIPLES.media_type)


@router.get("/profiles/{name}/rules", summary="The rules of an alignment as RDF")
def rules(name: str, accept: Accept = None, wanted: Format = None, if_none_match: IfNoneMatch = None) -> Response:
    """Return the CONSTRUCT rules, as Turtle unless another syntax is asked for."""
    vocabulary_mapping.source(name)
    return _rdf_of(f"align/{name}.ttl", accept, wanted, if_none_match)
