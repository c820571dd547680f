"""Errors on HTTP: the only place that maps an error to a status. RFC 9457, ``application/problem+json``.

A 5xx never carries the text of an unexpected exception; those are logged with their traceback under the request's id.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any
from urllib.parse import quote

import msgspec
import structlog
from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Match, Route

from drumlin.api import answers
from drumlin.kg import errors
from drumlin.kg.config.explaining import explained, place
from drumlin.kg.errors import DrumlinError

log = structlog.get_logger()

PROBLEM_BASE = "https://w3id.org/drumlin/problem/"
MEDIA_TYPE = "application/problem+json"
PLAIN = "identity"
CODINGS = ("gzip", "zstd", PLAIN)
"""Content codings that a request's body may have."""

_STATUS: tuple[tuple[type[DrumlinError], int, str], ...] = (
    (errors.InvalidIdentifier, 400, "Invalid identifier"),
    (errors.ShapeViolation, 422, "Not well-shaped"),
    (errors.InvalidInput, 422, "Invalid input"),
    (errors.NotAcceptable, 406, "Not acceptable"),
    (errors.UnsupportedSyntax, 415, "Unsupported syntax"),
    (errors.TooLarge, 413, "Too large"),
    (errors.CapabilityMissing, 501, "Not within this store's reach"),
    (errors.ResourceGone, 410, "Gone"),
    (errors.ResourceNotFound, 404, "Not found"),
    (errors.EventsGone, 410, "Events gone"),
    (errors.Conflict, 409, "Conflict"),
    (errors.PreconditionFailed, 412, "Precondition failed"),
    (errors.PreconditionRequired, 428, "Precondition required"),
    (errors.Unauthenticated, 401, "Unauthenticated"),
    (errors.Forbidden, 403, "Forbidden"),
    (errors.IdentityUnavailable, 503, "Identity unavailable"),
    (errors.StoreFull, 507, "Store full"),
    (errors.Busy, 503, "Busy"),
    (errors.Cancelled, 499, "Client closed request"),
    (errors.StoreDamaged, 503, "Store damaged"),
    (errors.StoreUnavailable, 503, "Store unavailable"),
    (errors.MetricMissing, 404, "Metric missing"),
    (errors.Throttled, 429, "Too many queries"),
    (errors.ReaderLost, 500, "Reader lost"),
    (errors.SourceUnavailable, 502, "Source unavailable"),
)
_MAX_PARAMETERS = 100  # of which a problem document says what is wrong with them
_QUERY_STATUS = {
    "syntax": 400,
    "forbidden": 403,
    "too_large": 413,
    "complexity": 413,
    "memory": 413,
    "unknown_function": 422,
    "timeout": 504,
    "busy": 504,
}


class BodyCut(DrumlinError):
    """The connection ended before the body of the request did (RFC 9112 §8)."""


class BodyStalled(BodyCut):
    """Nothing came of the rest of a body for long."""


class HostInvalid(DrumlinError):
    """A request without a Host header, with several, or with one that is not a host (RFC 9112 §3.2)."""


class HostRefused(DrumlinError):
    """The request is for a host that is not this service; ``detail["host"]`` names it."""


class OriginRefused(DrumlinError):
    """A web page of an origin that is not allowed sent a request that may change something."""


class GuessesThrottled(errors.Throttled):
    """An address has sent too many wrong tokens; ``detail["retryAfter"]`` is in seconds."""


def unconditional() -> errors.PreconditionRequired:
    """Return the error of a write without a condition, where the service insists on one."""
    return errors.PreconditionRequired(
        "this service takes a write only with If-Match or If-None-Match",
        hint="send the ETag that you have read as If-Match, or If-None-Match: * to create",
    )


def status_of(error: DrumlinError) -> tuple[int, str]:
    """Return the HTTP status and the problem's title for an error."""
    if isinstance(error, errors.QueryRejected):
        return _QUERY_STATUS.get(error.reason, 400), "Query rejected"
    if isinstance(error, HostInvalid):
        return 400, "Invalid host"
    if isinstance(error, HostRefused):
        return 421, "Misdirected request"
    if isinstance(error, OriginRefused):
        return 403, "Origin refused"
    if isinstance(error, GuessesThrottled):
        return 429, "Too many wrong tokens"
    if isinstance(error, BodyCut):
        return (408 if isinstance(error, BodyStalled) else 400), "Incomplete body"
    for kind, status, title in _STATUS:
        if isinstance(error, kind):
            return status, title
    return 500, "Internal error"


def problem_of(error: DrumlinError) -> dict[str, Any]:
    """Describe an error as the members of a problem document (without those of the request)."""
    status, title = status_of(error)
    body: dict[str, Any] = {
        "type": PROBLEM_BASE + slug_of(error),
        "title": title,
        "status": status,
        "detail": str(error),
    }
    if error.hint:
        body["hint"] = error.hint
    if isinstance(error, errors.QueryRejected):
        body["reason"] = error.reason
    if isinstance(error, errors.ShapeViolation):
        body["violations"] = [
            _present(msgspec.structs.asdict(each) if isinstance(each, msgspec.Struct) else each)
            for each in error.violations
        ]
    for key, value in error.detail.items():
        body.setdefault(key, value)
    return body


def slug_of(error: DrumlinError) -> str:
    """Return the last part of the type of the problem that an error becomes."""
    return _slug(type(error).__name__)


def _present(violation: Any) -> dict[str, Any]:
    names = ("focus", "path", "value", "rule", "message", "suggestion")
    return {name: value for name in names if (value := getattr(violation, name)) is not None}


def _slug(name: str) -> str:
    return "".join(f"-{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("-")


def problem_response(request: Request, body: dict[str, Any], headers: dict[str, str] | None = None) -> Response:
    """Write a problem document for ``request``."""
    raw: bytes = request.scope.get("raw_path") or quote(request.url.path).encode()
    body = {**body, "instance": raw.partition(b"?")[0].decode("latin-1")}
    if request_id := request.scope.get("request_id"):
        body["requestId"] = request_id
    content = msgspec.json.encode(body, enc_hook=str)
    return Response(content, status_code=body["status"], media_type=MEDIA_TYPE, headers=headers)


def error_response(request: Request, error: DrumlinError) -> Response:
    """Answer an error raised on purpose; one that is the service's own (5xx) is logged."""
    body = problem_of(error)
    if body["status"] >= 500:
        log.warning(
            "request_failed",
            path=request.url.path,
            status=body["status"],
            error=type(error).__name__,
            detail=str(error),
        )
    headers: dict[str, str] = {}
    if "tombstone" in error.detail:  # a cache may keep a 410, whose tombstone has the form that is preferred
        headers |= {"Vary": "Prefer", "Cache-Control": "no-cache"}
    if body["status"] == 415:
        headers |= _taken(request.method, error.detail.get("offered", ()))
    if isinstance(error, errors.Unauthenticated | errors.Forbidden):
        headers["WWW-Authenticate"] = _challenge(error)
    if body["status"] == 503:
        headers["Retry-After"] = "2"
    if body["status"] == 429:
        headers["Retry-After"] = str(error.detail["retryAfter"])
    return problem_response(request, body, headers)


def _taken(method: str, offered: Sequence[str]) -> dict[str, str]:
    """Return the header that names what may be sent instead: codings (RFC 9110 §12.5.3), or media types (§15.5.16, RFC 5789, LDP §4)."""
    if not offered:
        return {}
    name = f"Accept-{method.capitalize()}" if method in ("PATCH", "POST") else "Accept"
    return {"Accept-Encoding" if PLAIN in offered else name: ", ".join(offered)}


def _challenge(error: DrumlinError) -> str:
    """Return the challenge that a client gets (RFC 6750 §3)."""
    parts = ['Bearer realm="drumlin"']
    if isinstance(error, errors.Forbidden):
        parts += ['error="insufficient_scope"', f'scope="{" ".join(error.detail.get("needs", ()))}"']
    elif "error" in error.detail:
        parts.append(f'error="{error.detail["error"]}"')
    return ", ".join(parts)


def no_such_route(request: Request) -> Response:
    """Answer a request for an address at which there is nothing."""
    return _plain(request, 404, "Not Found", {})


def _plain(request: Request, status: int, title: str, headers: dict[str, str]) -> Response:
    body = {
        "type": "about:blank",
        "title": title,
        "status": status,
        "detail": f"{request.method} {request.url.path}: {title}",
    }
    return problem_response(request, body, headers)


def method_refused(request: Request, allowed: Sequence[str]) -> Response:
    """Answer a method that an address does not have."""
    return _plain(request, 405, "Method Not Allowed", {"Allow": ", ".join(allowed)})


def _offers(routers: Sequence[APIRouter], request: Request) -> dict[str, str]:
    """Return the headers that say what can be done at an address: its methods (RFC 9110 §10.2.1), and what POST and PATCH take."""
    routes = (route for router in routers for route in router.routes)
    matching = [each for each in routes if isinstance(each, Route) and each.matches(request.scope)[0] is not Match.NONE]
    told = {"Allow": ", ".join(sorted({"OPTIONS"}.union(*(each.methods or () for each in matching))))}
    for method in ("PATCH", "POST"):
        if taken := dict.fromkeys(chain.from_iterable(_bodies(each, method) for each in matching)):
            told[f"Accept-{method.capitalize()}"] = ", ".join(taken)
    if {"PATCH", "POST", "PUT"}.intersection(told["Allow"].split(", ")):
        told["Accept-Encoding"] = ", ".join(CODINGS)
    return told


def _bodies(route: Route, method: str) -> Sequence[str]:
    """Return the media types of the bodies that a route takes; FastAPI reads those of pydantic's models itself."""
    if method not in (route.methods or ()):
        return ()
    reads_json = isinstance(route, APIRoute) and route.body_field is not None
    return answers.BODIES.get(f"{method} {route.path_format}", (answers.JSON,) if reads_json else ())


def crash_response(request: Request, error: Exception) -> Response:
    """Answer an error that nobody expected: the log has its traceback, the client only that there was one."""
    log.error("request_crashed", path=request.url.path, method=request.method, exc_info=error)
    body = {
        "type": "about:blank",
        "title": "Internal error",
        "status": 500,
        "detail": "an unexpected error; its traceback is in the service's log under this request's id",
    }
    return problem_response(request, body)


def parameters_response(request: Request, error: RequestValidationError) -> Response:
    """Answer a request whose parameters are not of their types, each with what is wrong with it."""
    found = [{"name": ".".join(place(each)), "reason": explained(each)} for each in error.errors()[:_MAX_PARAMETERS]]
    body = {
        "type": PROBLEM_BASE + "invalid-parameter",
        "title": "Invalid parameter",
        "status": 422,
        "detail": "; ".join(f"{each['name'].removeprefix('query.')}: {each['reason']}" for each in found),
        "parameters": found,
    }
    return problem_response(request, body)


def register(app: FastAPI, routers: Sequence[APIRouter]) -> None:
    """Answer every error that ``app`` knows with a problem document; ``routers`` are all that it includes."""

    async def known(request: Request, error: Exception) -> Response:
        assert isinstance(error, DrumlinError)
        return error_response(request, error)

    async def http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        if isinstance(error.__cause__, RecursionError):  # FastAPI had it parse the body
            return error_response(request, errors.InvalidDocument("the body is nested too deeply to be read as JSON"))
        headers = dict(error.headers or {})
        if error.status_code == 405:
            offers = _offers(routers, request)
            headers["Allow"] = offers["Allow"]
            if request.method == "OPTIONS":
                return Response(status_code=204, headers=offers)
        return _plain(request, error.status_code, str(error.detail), headers)

    async def parameters(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return parameters_response(request, error)

    async def unexpected(request: Request, error: Exception) -> Response:
        return crash_response(request, error)

    app.add_exception_handler(DrumlinError, known)
    app.add_exception_handler(Exception, unexpected)
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(RequestValidationError, parameters)
