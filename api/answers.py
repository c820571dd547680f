"""What each route answers with: media types of success by status, and the problems that it reports; the examples of ``examples.json``.

A table, because no signature says it: most routes negotiate what they write. ``api.http.openapi`` makes the document of it; Schemathesis
holds a running service to it (tests/service/test_openapi_conformance.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import msgspec

from drumlin.kg import rdf
from drumlin.kg.graphs import patch
from drumlin.kg.sparql import protocol

JSON, NDJSON, TEXT, HTML = "application/json", "application/x-ndjson", "text/plain", "text/html"
ARROW, PARQUET, CSV = "application/vnd.apache.arrow.stream", "application/vnd.apache.parquet", "text/csv"
RDF = tuple(each.media_type for each in rdf.SYNTAXES)
JSONLD, TURTLE, NTRIPLES, NQUADS, TRIG = (
    RDF[0],
    "text/turtle",
    "application/n-triples",
    "application/n-quads",
    "application/trig",
)
RESULTS = ("application/sparql-results+json", "application/sparql-results+xml", CSV, "text/tab-separated-values")
STREAM, BATCH = "text/event-stream", "application/cloudevents-batch+json"
BYTES = "application/octet-stream"
"""What clients that were generated send where they know no closer media type."""
QUERY, UPDATE = "application/sparql-query", "application/sparql-update"
NODE_GRAPH = "application/vnd.grafana.node-graph+json"
SAVED_QUERY = "GET /queries/*"
"""Stands for each saved query."""


@dataclass(frozen=True, slots=True)
class Answers:
    """``success`` maps a status to the media types of its body (none: no body)."""

    success: Mapping[int, tuple[str, ...]]
    problems: tuple[int, ...] = ()


def _json(*problems: int) -> Answers:
    return Answers({200: (JSON,)}, problems)


_READ = Answers({200: (*RDF, JSON), 304: ()}, (400, 404, 406, 410, 413, 501))
_ASKED = Answers({200: (*RESULTS, *RDF, JSON), 304: ()}, (400, 403, 406, 413, 415, 429, 500, 501, 504))
_CHANGED = (400, 404, 409, 410, 412, 413, 415, 428, 504, 507)
_SERIES = Answers({200: (JSON, ARROW, PARQUET, CSV, NDJSON)}, (400, 404, 406, 413, 415, 502))
_WRITTEN: Mapping[int, tuple[str, ...]] = {200: (*RDF, JSON), 201: (*RDF, JSON), 204: ()}
_PUT = Answers(_WRITTEN, (400, 406, 409, 412, 413, 415, 428, 507))

ANSWERS: Mapping[str, Answers] = {
    "GET /agents": _json(400, 404),
    "GET /agents/{guid}": _json(400, 404),
    "PUT /agents/{guid}": Answers({200: (JSON,), 201: (JSON,)}, (400, 404, 409, 412, 413, 415, 507)),
    "DELETE /agents/{guid}": _json(400, 404, 409, 412, 507),
    "POST /agents/{guid}/heartbeat": Answers({200: (JSON,), 204: ()}, (400, 404, 413, 415)),
    "POST /v1/logs": Answers({200: (JSON, "application/x-protobuf")}, (400, 404, 409, 412, 413, 415, 507)),
    "GET /alerts": _json(400, 404, 502),
    "GET /compare": _json(400, 404, 410, 501),
    "GET /values": Answers({200: (JSON, ARROW, CSV, NDJSON)}, (406, 413)),
    "POST /values": Answers({200: (JSON, ARROW, CSV, NDJSON)}, (400, 403, 406, 413, 415, 500, 504)),
    "GET /.well-known/void": Answers({200: RDF}, (406, 500, 504)),
    "GET /admin/audit": Answers({200: (JSON, NDJSON, *RDF)}, (406, 409)),
    "POST /admin/backup": Answers({200: ("application/x-tar",)}, (409, 501, 507)),
    "GET /admin/check": _json(409, 501),
    "POST /admin/optimize": _json(409, 501, 507),
    "PATCH /api/v0/graph": _json(404, 413),
    "GET /api/v0/graph": _json(404),
    "GET /api/v0/graph/update": _json(403, 404),
    "POST /api/v0/graph/update": _json(404, 413),
    "POST /api/v0/graph/compact": _json(404),
    "GET /context/v1.jsonld": Answers({200: (JSONLD,), 304: ()}),
    "GET /datasources": _json(404),
    "POST /datasources/import": _json(400, 404, 409, 502, 507),
    "GET /doc/{id}": _READ,
    "GET /events": Answers({200: (STREAM, BATCH, JSON)}, (406, 410, 429)),
    "GET /export": Answers({200: (NQUADS, JSONLD, TRIG, TURTLE)}, (400, 404, 406, 413, 415)),
    "GET /forecasts": _json(400),
    "POST /forecasts": Answers({201: (JSON,)}, (400, 404, 409, 413, 415, 502, 507)),
    "DELETE /forecasts": _json(400, 404, 409, 502, 507),
    "GET /forecasts/value": _json(400, 404, 502),
    "GET /forecasts/points": Answers({200: (ARROW,)}, (400, 404, 502)),
    "GET /graph": Answers(
        {200: (JSON, "text/vnd.mermaid", "text/vnd.graphviz", "image/svg+xml", NODE_GRAPH)}, (400, 404, 406)
    ),
    "GET /history": _SERIES,
    "POST /history": Answers(_SERIES.success, (*_SERIES.problems, 403, 500, 504)),
    "GET /id/{id}": Answers({303: ()}, (400,)),
    "GET /livez": _json(),
    "GET /logs": Answers({200: (NDJSON, TEXT)}, (400, 404, 406, 502)),
    "POST /mcp": Answers({200: (JSON,), 202: (), 400: (JSON,), 404: (JSON,)}, (400, 404, 406, 413, 415)),
    "GET /metrics": Answers({200: (TEXT,)}),
    "GET /ns": Answers({200: (HTML, *RDF), 304: ()}, (406,)),
    "GET /ns/{part}": Answers({200: (*RDF, HTML), 303: (), 304: ()}, (404, 406)),
    "GET /profiles": _json(),
    "GET /profiles/{name}": Answers({200: (NTRIPLES,)}, (404, 406, 500, 504)),
    "GET /profiles/{name}/rules": Answers({200: RDF, 304: ()}, (404, 406)),
    "GET /queries": _json(),
    SAVED_QUERY: Answers({200: (JSON, *RESULTS, QUERY)}, (400, 404, 406, 413, 500, 502, 504)),
    "GET /sd/{name}": _json(400, 404, 500, 504),
    "GET /readyz": Answers({200: (JSON,), 503: (JSON,)}),
    "GET /resolve": _json(400, 404),
    "POST /resolve": Answers({200: (NDJSON,)}, (400, 403, 413, 415, 500, 504)),
    "GET /search": _json(),
    "GET /sparql": _ASKED,
    "POST /sparql": _ASKED,
    "POST /sparql/update": Answers({204: ()}, (400, 403, 404, 409, 413, 415, 501, 504, 507)),
    "GET /store": Answers({200: RDF, 304: ()}, (400, 404, 406)),
    "PUT /store": Answers({201: (), 204: ()}, _CHANGED),
    "POST /store": Answers({201: (), 204: ()}, _CHANGED),
    "DELETE /store": Answers({204: ()}, (400, 404, 409, 410, 412, 428, 507)),
    "GET /subgraph/{id}": _READ,
    "PUT /subgraph/{id}": _PUT,
    "POST /subgraph/{id}": Answers({201: (*RDF, JSON)}, (400, 406, 409, 412, 413, 415, 507)),
    "PATCH /subgraph/{id}": Answers({200: (*RDF, JSON), 204: ()}, (*_PUT.problems, 403, 404, 410)),
    "DELETE /subgraph/{id}": Answers({204: ()}, (400, 404, 409, 410, 412, 428, 507)),
    "GET /subgraphs": _json(),
    "POST /subgraphs": Answers({200: (NDJSON,)}, (400, 404, 409, 410, 412, 413, 415, 428, 507)),
}
_DOCUMENTS, _FILES = (*RDF, JSON), (*RDF, "multipart/form-data")
BODIES: Mapping[str, tuple[str, ...]] = {
    "PUT /subgraph/{id}": _DOCUMENTS,
    "POST /subgraph/{id}": _DOCUMENTS,
    "PATCH /subgraph/{id}": tuple(patch.MEDIA_TYPES),
    "POST /subgraphs": (NDJSON, BYTES),
    "POST /sparql": (QUERY, protocol.FORM),
    "POST /sparql/update": (UPDATE, protocol.FORM),
    "PUT /store": _FILES,
    "POST /store": _FILES,
    "POST /store/{path}": _FILES,
    "POST /forecasts": (ARROW, BYTES),
}
"""Media types of the bodies that routes read as they come."""
_GRAPHS = {"type": "array", "items": {"type": "string", "format": "iri"}}
_SECONDS = {
    "type": "number",
    "exclusiveMinimum": 0,
    "description": "Seconds that it may take, where that is less than the limit.",
}
ASKED: Mapping[str, Mapping[str, Any]] = {
    "query": {"type": "string", "description": "The SPARQL query."},
    "default-graph-uri": {
        **_GRAPHS,
        "description": "Graphs whose statements are the default graph; the union of all when absent.",
    },
    "named-graph-uri": {**_GRAPHS, "description": "Graphs that GRAPH reads; all when absent."},
    "format": {
        "type": "string",
        "description": "How the result is written; wins over Accept.",
        "examples": ["json", "turtle"],
    },
    "timeout": _SECONDS,
    "explain": {
        "type": "boolean",
        "description": "Whether an empty SELECT in JSON says which of its terms occur nowhere.",
    },
}
"""Parameters of a query, in the address or the fields of a form (https://www.w3.org/TR/sparql11-protocol/#query-operation)."""
CHANGED: Mapping[str, Mapping[str, Any]] = {
    "update": {"type": "string", "description": "The SPARQL update."},
    "using-graph-uri": {
        **_GRAPHS,
        "description": "Graphs whose statements a WHERE part reads; the union of all when absent.",
    },
    "using-named-graph-uri": {**_GRAPHS, "description": "Graphs that GRAPH reads in a WHERE part; all when absent."},
    "timeout": _SECONDS,
}
"""The same of an update."""
FORMS: Mapping[str, Mapping[str, Any]] = {
    "POST /sparql": {"type": "object", "required": ["query"], "properties": ASKED},
    "POST /sparql/update": {"type": "object", "required": ["update"], "properties": CHANGED},
}
"""Schemas of the forms that routes take."""


def in_address(fields: Mapping[str, Mapping[str, Any]], *, without: str = "") -> list[dict[str, Any]]:
    """Describe fields as parameters of the query string, one of them left out."""
    return [
        {"name": name, "in": "query", "required": False, "description": schema["description"], "schema": dict(schema)}
        for name, schema in fields.items()
        if name != without
    ]


_BINARY = (ARROW, PARQUET, "application/x-protobuf", "application/x-tar")


class Example(msgspec.Struct, forbid_unknown_fields=True):
    """A request as it was sent to the sample cluster's service, and what came; long answers are cut. ``status`` 0: not recorded yet.

    ``replayed`` is false where the answer takes a server that the sample has none of.
    """

    route: str
    path: str
    headers: dict[str, str] = {}
    body: Any = None
    status: int = 0
    media_type: str = ""
    answer: Any = None
    replayed: bool = True


def examples() -> list[Example]:
    """Return the recorded examples in the order in which they were sent (``scripts/rest-examples`` records them)."""
    return msgspec.json.decode(files("drumlin.api").joinpath("examples.json").read_bytes(), type=list[Example])


def answers_of(method: str, path: str) -> Answers:
    """Return what a route answers with: JSON, as long as it is not in the table."""
    return ANSWERS.get(SAVED_QUERY if path.startswith("/queries/") else f"{method.upper()} {path}", _json())


def is_json(media_type: str) -> bool:
    """Return whether a body is one JSON value."""
    return media_type == JSON or media_type.endswith("+json")


def schema_of(media_type: str) -> dict[str, Any]:
    """Return the schema of a body that has no closer one: any JSON, text, or bytes (none)."""
    if media_type == BYTES:
        return {"type": "string", "format": "binary"}
    if media_type in _BINARY or is_json(media_type):
        return {}
    return {"type": "string"}
