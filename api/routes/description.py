"""The service description: what ``GET /sparql`` answers when it is asked for RDF and not queried (https://www.w3.org/TR/sparql11-service-description/).

It names both endpoints, the formats, and the default dataset with VoID counts (https://www.w3.org/TR/void/).
"""

from __future__ import annotations

from collections.abc import Iterator

from fastapi import Request
from starlette.responses import Response

from drumlin.api.bootstrap import Services
from drumlin.api.http.header_lists import elements, parameters
from drumlin.api.http.negotiation import rdf_syntax
from drumlin.api.statistics import VOID, number
from drumlin.kg import rdf

_SD = "http://www.w3.org/ns/sparql-service-description#"
_TYPE = "<http://www.w3.org/1999/02/22-rdf-syntax-ns#type>"
FORMATS = "http://www.w3.org/ns/formats/"
"""Namespace of the names of formats (https://www.w3.org/ns/formats/)."""
_RESULTS = ("SPARQL_Results_JSON", "SPARQL_Results_XML", "SPARQL_Results_CSV", "SPARQL_Results_TSV")
GRAPHS = ("Turtle", "JSON-LD", "N-Triples", "RDF_XML", "N-Quads", "TriG", "N3")
"""Formats of graphs that are written here."""


def wanted(request: Request) -> bool:
    """Return whether a request to ``/sparql`` is no query but asks for RDF by name."""
    if request.method not in ("GET", "HEAD") or not set(request.query_params) <= {"format"}:
        return False
    named = {each.media_type for each in rdf.SYNTAXES}
    accept = {parameters(each)[0].lower() for each in elements(request.headers.get("accept", ""))}
    return "format" in request.query_params or not accept.isdisjoint(named)


def describe(request: Request, service: Services) -> Response:
    """Describe the service in the RDF syntax asked for."""
    syntax, media_type = rdf_syntax(request.headers.get("accept"), request.query_params.get("format"))
    content = rdf.serialize(frozenset(_lines(service)), syntax)
    return Response(content, media_type=media_type, headers={"Vary": "Accept", "Cache-Control": "no-cache"})


def _lines(service: Services) -> Iterator[str]:
    base = service.settings.base
    endpoint, update = f"<{base}/sparql>", f"<{base}/sparql/update>"
    for each, language in ((endpoint, "SPARQL11Query"), (update, "SPARQL11Update")):
        yield f"{each} {_TYPE} <{_SD}Service> ."
        yield f"{each} <{_SD}endpoint> {each} ."
        yield f"{each} <{_SD}supportedLanguage> <{_SD}{language}> ."
        for feature in ("UnionDefaultGraph", "EmptyGraphs"):
            yield f"{each} <{_SD}feature> <{_SD}{feature}> ."
        yield f"{each} <{_SD}defaultDataset> <{base}/sparql#dataset> ."
    for name in (*_RESULTS, *GRAPHS):
        yield f"{endpoint} <{_SD}resultFormat> <{FORMATS}{name}> ."
    yield from _dataset(service, f"<{base}/sparql#dataset>", f"<{base}/sparql#union>")


def _dataset(service: Services, dataset: str, union: str) -> Iterator[str]:
    counts = service.counting.counts()
    yield f"{dataset} {_TYPE} <{_SD}Dataset> ."
    yield f"{dataset} <{_SD}defaultGraph> {union} ."
    yield f"{dataset} <{VOID}documents> {number(counts.graphs)} ."
    yield f"{union} {_TYPE} <{_SD}Graph> ."
    yield f"{union} {_TYPE} <{VOID}Dataset> ."
    yield from counts.described(union)
