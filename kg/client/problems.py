"""Problem documents (RFC 9457) back into the errors that the service raised, and what a proxy in front of it says.

https://www.rfc-editor.org/rfc/rfc9457.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import httpx
import msgspec

from drumlin.kg import errors
from drumlin.kg.errors import DrumlinError


def retry_after(response: httpx.Response) -> float | None:
    """Return the seconds that a server asks to wait; None when it does not say. https://www.rfc-editor.org/rfc/rfc9110#section-10.2.3."""
    said = response.headers.get("Retry-After", "").strip()
    if said.isascii() and said.isdigit():
        return float(said)
    try:
        return max(0.0, (parsedate_to_datetime(said) - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError):  # the latter: a date without a zone
        return None


_ACCESS = "this is no answer of a service, so a proxy in front of it asks for a token: does it know this one, and may it do this?"


def raise_for_problem(response: httpx.Response) -> None:
    """Raise the service's error as its problem document (RFC 9457) describes it; ``detail`` has its ``status``, ``retryAfter``."""
    if response.is_redirect and response.status_code != 303:  # that leads to a document of the service's own
        to = response.headers["Location"].partition("?")[0]
        status = {"status": response.status_code}
        raise errors.SourceUnavailable(
            f"{response.request.url.path} leads elsewhere: {to}", hint=_ACCESS, detail=status
        )
    if response.status_code < 400:
        return
    try:
        body = msgspec.json.decode(response.content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        body = {}
    if not isinstance(body, dict):
        body = {}
    message = str(
        body.get("detail") or f"{response.request.method} {response.request.url.path}: HTTP {response.status_code}"
    )
    if response.status_code in (401, 403) and "type" not in body:
        raise errors.SourceUnavailable(message, hint=_ACCESS, detail={"status": response.status_code})
    if (seconds := retry_after(response)) is not None:
        body = {"retryAfter": seconds, **body}
    raise _error(str(body.get("type", "")), message, {"status": response.status_code, **body}, response.status_code)


def error_of(problem: Mapping[str, Any]) -> DrumlinError:
    """Return the error that a problem document describes."""
    return _error(
        str(problem.get("type", "")), str(problem.get("detail", "")), problem, int(problem.get("status", 500))
    )


_BY_STATUS: Mapping[int, type[DrumlinError]] = {
    404: errors.ResourceNotFound,
    401: errors.Unauthenticated,
    403: errors.Forbidden,
    409: errors.Conflict,
    410: errors.ResourceGone,
    412: errors.PreconditionFailed,
    413: errors.TooLarge,
    415: errors.UnsupportedSyntax,
    422: errors.InvalidInput,
    429: errors.Throttled,
    502: errors.SourceUnavailable,
    503: errors.StoreUnavailable,
    504: errors.SourceUnavailable,
}


def _error(kind: str, message: str, body: Mapping[str, Any], status: int) -> DrumlinError:
    if body.get("violations"):
        found = tuple(errors.Violation(**{"path": None, "value": None, **each}) for each in body["violations"])
        return errors.ShapeViolation(found)
    name = "".join(part.capitalize() for part in kind.rpartition("/")[2].split("-"))
    known = getattr(errors, name, None)
    special = known in (errors.GraphOwned, errors.ShapeViolation)
    chosen = (
        known
        if isinstance(known, type) and issubclass(known, DrumlinError) and not special
        else _BY_STATUS.get(status, DrumlinError)
    )
    detail = {key: value for key, value in body.items() if key not in ("type", "title", "detail", "hint", "instance")}
    error: DrumlinError = chosen(message, hint=body.get("hint"))
    error.detail.update(detail)
    if isinstance(error, errors.QueryRejected):
        error.reason = str(error.detail.pop("reason", error.reason))
    return error
