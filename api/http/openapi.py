"""The OpenAPI document: what FastAPI finds in the routes, and what it cannot know: bodies, media types, problems, examples.

OpenAPI 3.1 (https://spec.openapis.org/oas/v3.1.0). What a route answers with stands in ``api.answers``; here it becomes the document, each
answer and each problem with an example.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from typing import Any

import msgspec
from fastapi import FastAPI

from drumlin.api import answers
from drumlin.api.access.rules import ROUTES, rule_of
from drumlin.api.answers import Answers, Example
from drumlin.api.http import problems
from drumlin.api.http.asgi import SAFE_METHODS
from drumlin.kg import errors
from drumlin.kg.search.query import Result
from drumlin.kg.sparql import protocol

_METHODS = ("get", "put", "post", "patch", "delete")
_EXAMPLES: Mapping[int, errors.DrumlinError] = {
    400: errors.InvalidIdentifier("'x' names no entity", hint="write cluster/namespace/kind/name"),
    401: errors.Unauthenticated("this service asks for a bearer token, and the request has none", hint="send Authorization: Bearer TOKEN"),
    403: errors.QueryRejected("LOAD is not allowed: nothing is fetched because a query says so", reason="forbidden"),
    404: errors.ResourceNotFound("there is no prod/payments/deployment/x", hint="list what there is: GET /subgraphs"),
    406: errors.NotAcceptable("none of 'image/png' is offered here", detail={"offered": ["application/ld+json"]}),
    409: errors.GraphOwned("https://kg.example/id/prod/payments/deployment/checkout", "kubernetes", "user"),
    410: errors.ResourceGone("prod/payments/deployment/x was deleted; its tombstone remains"),
    412: errors.PreconditionFailed("forecast/x has changed since it was read", hint="read it again"),
    413: errors.TooLarge("the body has more than 1,048,576 bytes, the limit here"),
    415: errors.UnsupportedSyntax("the request has no Content-Type", detail={"offered": ["application/ld+json"]}),
    421: problems.HostRefused("evil.example is not a host of this service", detail={"host": "evil.example"}),
    422: errors.InvalidInput("limit: Input should be greater than or equal to 1"),
    428: errors.PreconditionRequired("this service takes a write only with If-Match or If-None-Match"),
    429: errors.Throttled("8 queries of yours are running, the most that may", hint="wait for one", detail={"retryAfter": 1}),
    500: errors.ReaderLost("the process that ran the query ended", hint="ask again"),
    501: errors.CapabilityMissing("a backup of a remote store is its own engine's business"),
    502: errors.SourceUnavailable("prometheus-main at http://prometheus:9090 does not answer"),
    503: errors.StoreUnavailable("the store cannot be written", hint="check free space of the store's directory"),
    504: errors.QueryRejected("the query took longer than 30 s and was stopped", reason="timeout"),
    507: errors.StoreFull("the disk of the store is full", hint="make room; writing goes on by itself"),
}  # fmt: skip
_ANYWHERE = (421, 422, 503)
_ELSEWHERE = problems.OriginRefused("pages of the origin https://evil.example may not change anything here")
"""What every method that may change something answers a web page of another origin with (403)."""
_NOT_GRANTED = errors.Forbidden(
    "grafana has the role reader, and this takes writer or admin", detail={"needs": ["writer", "admin"]}
)
"""What a caller without the role for a route is answered (403)."""
_GUESSING = problems.GuessesThrottled(
    "20 wrong tokens came from this address within 60 s; the limit is 20", detail={"retryAfter": 60}
)
"""What an address that tries many wrong tokens is answered (429)."""
_SCHEME = "bearer"
_ENTITY = "prod/payments/deployment/checkout"
_PARAMETERS: Mapping[str, Any] = {"id": _ENTITY, "entity": _ENTITY, "metric": "cpu_usage", "name": "dcat"}
_HEADERS: Mapping[str, tuple[str, tuple[int, ...]]] = {
    "ETag": ("Names these bytes; send it back in If-None-Match or If-Match.", (304,)),
    "Location": ("Where it is.", (201, 303)),
}


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
    schemas |= _schemas()
    document["components"]["securitySchemes"] = {
        _SCHEME: {
            "type": "http",
            "scheme": "bearer",
            "description": "A token of `drumlin token create` (docs/access.md).",
        }
    }
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    recorded = answers.examples()
    for path, item in document["paths"].items():
        item.pop("head", None)  # it is GET without the body
        for method in (each for each in _METHODS if each in item):
            route = answers.SAVED_QUERY if path.startswith("/queries/") else f"{method.upper()} {path}"
            own = [each for each in recorded if each.route == route and "/queries/" not in path.removeprefix(each.path)]
            _describe(item[method], method, path, own)


def _describe(operation: dict[str, Any], method: str, path: str, recorded: list[Example]) -> None:
    operation["operationId"] = re.sub(r"\W+", "_", f"{method}{path}").strip("_")
    found = answers.answers_of(method, path)
    operation["responses"] = _successes(operation["responses"], found, _SCHEMAS.get(f"{method} {path}"), recorded)
    _with_problems(operation["responses"], {*_ANYWHERE, *found.problems})
    rule = ROUTES.get(rule_of(method, path))
    public = rule is not None and rule.public
    # The empty requirement: a service without tokens, or with the setting ``anonymous``, answers without one.
    operation["security"] = [{}] if public else [{}, {_SCHEME: []}]
    _with_problem(operation["responses"], 401, _EXAMPLES[401])
    if 429 not in found.problems:
        _with_problem(operation["responses"], 429, _GUESSING)
    if method.upper() not in SAFE_METHODS and 403 not in found.problems:
        _with_problem(operation["responses"], 403, _ELSEWHERE)
    elif not public:
        _with_problem(operation["responses"], 403, _NOT_GRANTED)
    for each in operation.get("parameters", ()):
        if each["name"] in _PARAMETERS and "example" not in each and "const" not in str(each["schema"]):
            each["example"] = _PARAMETERS[each["name"]]
    if body := answers.BODIES.get(f"{method.upper()} {path}"):
        form = answers.FORMS.get(f"{method.upper()} {path}")
        content = {
            media_type: {"schema": form if form and media_type == protocol.FORM else answers.schema_of(media_type)}
            for media_type in body
        }
        operation["requestBody"] = {"required": True, "content": content}
    for each in (each for each in recorded if each.body is not None):
        media_type = each.headers["Content-Type"]
        operation["requestBody"]["content"][media_type]["example"] = each.body


def _successes(
    plain: Mapping[str, Any], found: Answers, schema: dict[str, Any] | None, recorded: list[Example]
) -> dict[str, Any]:
    """Describe each answer that is no problem: FastAPI's own schema where it has one and none is closer."""
    own: dict[str, Any] = next((each.get("content", {}) for status, each in plain.items() if status < "400"), {})
    told: dict[str, Any] = {}
    for status, media_types in found.success.items():
        content: dict[str, Any] = {}
        for media_type in media_types:
            known = _untitled(own.get(media_type, {}).get("schema")) if status < 300 else None
            content[media_type] = {
                "schema": schema if schema and answers.is_json(media_type) else known or answers.schema_of(media_type)
            }
            if (example := _example(recorded, status, media_type)) is not None:
                content[media_type]["example"] = example
        told[str(status)] = {"description": HTTPStatus(status).phrase, **({"content": content} if content else {})}
        if headers := _headers(found, status):
            told[str(status)]["headers"] = headers
    return told


def _untitled(schema: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return a schema without FastAPI's title, of which generators make the names of classes: two answers would have one."""
    return schema and {name: value for name, value in schema.items() if name != "title"}


def _headers(found: Answers, status: int) -> dict[str, Any]:
    told = {}
    for name, (description, statuses) in _HEADERS.items():
        if status in statuses or (name == "ETag" and status == 200 and 304 in found.success):
            told[name] = {"description": description, "schema": {"type": "string"}}
    return told


def _example(recorded: Iterable[Example], status: int, media_type: str) -> Any:
    return next((each.answer for each in recorded if (each.status, each.media_type) == (status, media_type)), None)


def _with_problems(responses: dict[str, Any], statuses: Iterable[int]) -> None:
    for status in sorted(statuses):
        _with_problem(responses, status, _EXAMPLES[status])


def _with_problem(responses: dict[str, Any], status: int, error: errors.DrumlinError) -> None:
    example = {**problems.problem_of(error), "status": status, "instance": "/…", "requestId": "3f2a…"}
    content = responses.setdefault(str(status), {"description": example["title"], "content": {}})["content"]
    content[problems.MEDIA_TYPE] = {"schema": {"$ref": "#/components/schemas/Problem"}, "example": example}


def _schemas() -> dict[str, Any]:
    """Return the named schemas of bodies that routes make without pydantic."""
    _, found = msgspec.json.schema_components((Result,), ref_template="#/components/schemas/{name}")
    result = found["Result"]
    result["required"] = [name for name in result["required"] if name != "next"]  # absent at the end
    page = {"type": "object", "required": ["items", "generation"], "properties": {
        "items": {"type": "array", "items": {"$ref": "#/components/schemas/SearchHit"}},
        "generation": {"type": "integer"}, "next": {"type": "string"}}}  # fmt: skip
    return {**found, "Page": page, "Event": _EVENT, "Problem": _PROBLEM}


_SCHEMAS: Mapping[str, dict[str, Any]] = {
    "get /search": {"$ref": "#/components/schemas/Result"},
    "get /subgraphs": {"$ref": "#/components/schemas/Page"},
    "get /events": {"type": "array", "items": {"$ref": "#/components/schemas/Event"}},
}
"""Bodies that have a closer schema than FastAPI knows."""
_EVENT = {
    "type": "object",
    "description": "A CloudEvent of one committed change.",
    "required": ["specversion", "id", "source", "type", "subject", "time", "data"],
    "properties": {
        "specversion": {"const": "1.0"},
        "id": {"type": "string", "description": "Where the event stands in the log; goes into Last-Event-ID."},
        "source": {"type": "string", "format": "uri"},
        "type": {"enum": [f"drumlin.subgraph.{each}" for each in ("created", "replaced", "deleted", "removed")]},
        "subject": {"type": "string", "description": "Short id of the entity, or the IRI of a foreign graph."},
        "time": {"type": "string", "format": "date-time"},
        "datacontenttype": {"const": "application/json"},
        "data": {"type": "object"},
    },
}
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
