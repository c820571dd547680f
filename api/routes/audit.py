"""``/admin/audit``: does the whole store satisfy the rules? As JSON, as NDJSON that tells how far it is, or as SHACL's own report."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from itertools import chain
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Depends, Header
from starlette.responses import Response

from api.assembly import Parts, parts
from api.bulk import MEDIA_TYPE as NDJSON
from api.negotiation import choose
from api.streams import Stream
from kg import rdf
from kg.audit import Report, audited, shacl_report
from kg.errors import Conflict
from kg.rdf import syntax_named

router = APIRouter(tags=["operations"])

_OFFERED = ("application/json", NDJSON, *(each.media_type for each in rdf.SYNTAXES))
_ONE = threading.Lock()


@router.get("/admin/audit", summary="Validate the whole store")
def run(service: Annotated[Parts, Depends(parts)], accept: Annotated[str | None, Header()] = None) -> Response:
    """Validate every graph of one generation; takes about 20 s of a core for a million statements; one runs at a time (409).

    As NDJSON the answer begins at once: lines with ``done`` and ``total`` graphs, and the report as the last line.
    """
    media_type = choose(accept, _OFFERED)
    steps = _steps(service)
    report = next(steps)  # begun, it gives the lock back also when nobody reads on
    if media_type == NDJSON:
        return Stream(_lines(chain([report], steps), len(service.store.entries())), media_type)
    deque(steps, maxlen=0)
    if media_type == "application/json":
        return Response(msgspec.json.encode(_told(report)), media_type=media_type)
    return Response(rdf.serialize(shacl_report(report), syntax_named(media_type)), media_type=media_type)


def _steps(service: Parts) -> Iterator[Report]:
    if not _ONE.acquire(blocking=False):
        raise Conflict("an audit is running", hint="wait for it to end")
    try:
        yield from audited(service.store.export(), service.iris)
    finally:
        _ONE.release()


def _lines(steps: Iterator[Report], total: int) -> Iterator[bytes]:
    report = Report()
    for report in steps:
        yield msgspec.json.encode({"done": report.graphs + report.foreign, "total": total}) + b"\n"
    yield msgspec.json.encode(_told(report)) + b"\n"


def _told(report: Report) -> dict[str, Any]:
    return {"conforms": report.conforms, **msgspec.to_builtins(report)}
