"""``/admin/audit``: does the whole store satisfy the rules? As JSON, as NDJSON with its progress, or as SHACL's own report."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from itertools import chain
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Depends, Header
from starlette.responses import Response

from drumlin.api.bootstrap import Services, parts
from drumlin.api.bulk import MEDIA_TYPE as NDJSON
from drumlin.api.http.negotiation import choose
from drumlin.api.http.streaming import BodyStream
from drumlin.kg import rdf
from drumlin.kg.errors import Conflict
from drumlin.kg.rdf.syntax import syntax_named
from drumlin.kg.validation.audit import AuditReport, audited, shacl_report

router = APIRouter(tags=["operations"])

_OFFERED = ("application/json", NDJSON, *(each.media_type for each in rdf.SYNTAXES))
_ONE = threading.Lock()


@router.get("/admin/audit", summary="Validate the whole store")
def run(service: Annotated[Services, Depends(parts)], accept: Annotated[str | None, Header()] = None) -> Response:
    """Validate every graph of one generation; takes about 20 s of a core for a million statements; one runs at a time (409).

    As NDJSON the answer begins at once: lines with ``done`` and ``total`` graphs, and the report as the last line.
    """
    media_type = choose(accept, _OFFERED)
    steps = _steps(service)
    report = next(steps)  # begun, it gives the lock back also when nobody reads on
    if media_type == NDJSON:
        return BodyStream(_lines(chain([report], steps), len(service.store.entries())), media_type)
    deque(steps, maxlen=0)
    if media_type == "application/json":
        return Response(msgspec.json.encode(_told(report)), media_type=media_type)
    return Response(rdf.serialize(shacl_report(report), syntax_named(media_type)), media_type=media_type)


def _steps(service: Services) -> Iterator[AuditReport]:
    if not _ONE.acquire(blocking=False):
        raise Conflict("an audit is running", hint="wait for it to end")
    try:
        yield from audited(service.store.export(), service.iris)
    finally:
        _ONE.release()


def _lines(steps: Iterator[AuditReport], total: int) -> Iterator[bytes]:
    report = AuditReport()
    for report in steps:
        yield msgspec.json.encode({"done": report.graphs + report.foreign, "total": total}) + b"\n"
    yield msgspec.json.encode(_told(report)) + b"\n"


def _told(report: AuditReport) -> dict[str, Any]:
    return {"conforms": report.conforms, **msgspec.to_builtins(report)}
