"""The OpenAPI document: what FastAPI finds in the routes, and what it cannot know: bodies that are read as they come, and problems.

OpenAPI 3.1 (https://spec.openapis.org/oas/v3.1.0). Every route tells the problems it may answer with, each with an example.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from fastapi import FastAPI

from api import problems
from kg import errors, jsonld, patching, rdf

_METHODS = ("get", "put", "post", "patch", "delete")
_EXAMPLES: Mapping[int, errors.DrumlinError] = {
    400: errors.InvalidIdentifier("'x' names no entity", hint="write cluster/namespace/kind/name"),
    404: errors.ResourceNotFound("there is no prod/payments/deployment/x", hint="list what there is: GET /subgraphs"),
    406: problems.NotAcceptable("none of 'image/png' is offered here", detail={"offered": ["application/ld+json"]}),
    409: errors.GraphOwned("https://kg.example/id/prod/payments/deployment/checkout", "kubernetes", "user"),
    410: errors.ResourceGone("prod/payments/deployment/x was deleted; its tombstone remains"),
    412: errors.PreconditionFailed("forecast/x has changed since it was read", hint="read it again"),
    413: errors.TooLarge("the body has more than 1,048,576 bytes, the limit here"),
    415: errors.UnsupportedSyntax("the request has no Content-Type", detail={"offered": ["application/ld+json"]}),
    422: errors.InvalidInput("limit: Input should be greater than or equal to 1"),
    428: errors.PreconditionRequired("this service takes a write only with If-Match or If-None-Match"),
    502: errors.SourceUnavailable("prometheus-main at http://prometheus:9090 does not answer"),
    503: errors.StoreUnavailable("the store cannot be written", hint="check free space of the store's directory"),
    504: errors.QueryRejected("the query took longer than 30 s and was stopped", reason="timeout"),
}
_ANYWHERE = (422, 503)
_READS = (400, 404, 406, 410)
_WRITES = (400, 409, 412, 413, 415, 428)
_MORE: Mapping[tuple[str, str], tuple[int, ...]] = {
    ("/subgraph/{id}", "get"): _READS,
    ("/subgraph/{id}", "put"): _WRITES,
    ("/subgraph/{id}", "post"): (400, 409, 413, 415),
    ("/subgraph/{id}", "patch"): (404, 410, *_WRITES),
    ("/subgraph/{id}", "delete"): (400, 404, 409, 410, 412, 428),
    ("/subgraphs", "post"): (409, 412, 413),
    ("/doc/{id}", "get"): _READS,
    ("/id/{id}", "get"): (400,),
    ("/events", "get"): (406, 410),
    ("/sparql", "get"): (400, 406, 413, 504),
    ("/sparql", "post"): (400, 406, 413, 415, 504),
    ("/export", "get"): (406,),
    ("/resolve", "get"): (400, 404),
    ("/history", "get"): (400, 404, 406, 413, 502),
    ("/history", "post"): (400, 404, 406, 413, 502),
}
_DOCUMENT = {
    "@context": jsonld.CONTEXT_IRI,
    "id": "https://kg.example/id/forecast/2026-11-28",
    "type": "Forecast",
    "name": "energy_joules",
    "model": "seasonal-naive",
}
_LINE = '{"op": "put", "id": "forecast/2026-11-28", "document": {"type": "Forecast", "name": "energy_joules"}}'


def described(app: FastAPI) -> Callable[[], dict[str, Any]]:
    """Return what makes the document of ``app``, once."""
    plain = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            with warnings.catch_warnings(action="ignore", category=UserWarning):  # ids that are given anew below
                _complete(plain())
        return app.openapi_schema or {}

    return openapi


def _complete(document: dict[str, Any]) -> None:
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    schemas["Problem"] = _PROBLEM
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    for path, item in document["paths"].items():
        item.pop("head", None)  # it is GET without the body
        for method in _METHODS:
            if method in item:
                item[method]["operationId"] = re.sub(r"\W+", "_", f"{method}{path}").strip("_")
                _with_problems(item[method]["responses"], _statuses(path, method))
                if body := _bodies().get((path, method)):
                    item[method]["requestBody"] = {"required": True, "content": body}


def _statuses(path: str, method: str) -> set[int]:
    found = {*_ANYWHERE, *_MORE.get((path, method), ())}
    return found | {400, 406, 504} if path.startswith("/queries/") else found


def _with_problems(responses: dict[str, Any], statuses: Iterable[int]) -> None:
    for status in sorted(statuses):
        error = _EXAMPLES[status]
        example = {**problems.problem_of(error), "status": status, "instance": "/…", "requestId": "3f2a…"}
        content = {problems.MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}, "example": example}}
        responses[str(status)] = {"description": example["title"], "content": content}


_PROBLEM = {
    "type": "object",
    "description": "A problem document (RFC 9457); further members tell facts of the kind of problem.",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string", "format": "uri-reference"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "hint": {"type": "string", "description": "What to do next."},
        "instance": {"type": "string"},
        "requestId": {"type": "string", "description": "The id under which the service has logged the request."},
    },
}


def _bodies() -> Mapping[tuple[str, str], dict[str, Any]]:
    """Return the bodies that routes read as they come."""
    anything = {"schema": {"type": "string"}}
    graph: dict[str, Any] = {each.media_type: anything for each in rdf.SYNTAXES}
    graph[rdf.JSONLD.media_type] = {"schema": {"type": "object"}, "example": _DOCUMENT}
    patch = {
        patching.MERGE_PATCH: {"schema": {"type": "object"}, "example": {"model": "arima", "description": None}},
        patching.SPARQL_UPDATE: {**anything, "example": 'INSERT DATA { <> <http://purl.org/dc/terms/title> "x" }'},
    }
    return {
        ("/subgraph/{id}", "put"): graph,
        ("/subgraph/{id}", "post"): graph,
        ("/subgraph/{id}", "patch"): patch,
        ("/subgraphs", "post"): {"application/x-ndjson": {**anything, "example": _LINE}},
        ("/sparql", "post"): {"application/sparql-query": {**anything, "example": "ASK { ?s ?p ?o }"}},
    }
