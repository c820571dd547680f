"""``/admin/audit``: does the whole store satisfy the rules? As JSON, or as SHACL's validation report in any RDF syntax."""

from __future__ import annotations

import threading
from typing import Annotated

import msgspec
from fastapi import APIRouter, Depends, Header
from starlette.responses import Response

from api.assembly import Parts, parts
from api.negotiation import choose
from kg import rdf
from kg.audit import audit, shacl_report
from kg.errors import Conflict
from kg.rdf import syntax_named

router = APIRouter(tags=["operations"])

_OFFERED = ("application/json", *(each.media_type for each in rdf.SYNTAXES))
_ONE = threading.Lock()


@router.get("/admin/audit", summary="Validate the whole store")
def run(service: Annotated[Parts, Depends(parts)], accept: Annotated[str | None, Header()] = None) -> Response:
    """Validate every graph of one generation; takes about half a minute for a million statements, and one runs at a time (409)."""
    media_type = choose(accept, _OFFERED)
    if not _ONE.acquire(blocking=False):
        raise Conflict("an audit is running", hint="wait for it to end")
    try:
        report = audit(service.store.export(), service.iris)
    finally:
        _ONE.release()
    if media_type == "application/json":
        return Response(
            msgspec.json.encode({"conforms": report.conforms, **msgspec.to_builtins(report)}), media_type=media_type
        )
    content = rdf.serialize(shacl_report(report), syntax_named(media_type))
    return Response(content, media_type=media_type)
