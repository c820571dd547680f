"""``/sparql/update``: SPARQL 1.1 Protocol, update operation (https://www.w3.org/TR/sparql11-protocol/#update-operation)."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from api.assembly import Parts, parts
from api.bodies import body_of
from api.problems import MethodRefused
from kg.sparql import gate, protocol

router = APIRouter(tags=["sparql"])

Service = Annotated[Parts, Depends(parts)]
METHODS = ["OPTIONS", "POST"]


@router.post("/sparql/update", summary="Run a SPARQL update", status_code=204)
async def update(request: Request, service: Service) -> Response:
    """Run all operations of an update or none. WHERE parts read the union of all graphs unless they say otherwise.

    Graphs below ``/id/`` keep their rules: valid as a whole, one owner, a tombstone when dropped.
    """
    limit = service.settings.query_bytes
    body = await body_of(request, limit + 65_536)
    sent = protocol.read_update(request.scope["query_string"], request.headers.get("content-type"), body)
    gated = gate.check(sent.update, max_bytes=limit, expect="update")
    generation = await run_in_threadpool(service.updates.run, gated, sent.dataset, seconds=sent.seconds)
    return Response(status_code=204, headers={"X-Drumlin-Generation": str(generation)})


@router.options("/sparql/update", include_in_schema=False)
def options() -> Response:
    """Say which methods there are."""
    return Response(status_code=204, headers={"Allow": ", ".join(METHODS), "Accept-Post": _TAKEN})


@router.api_route("/sparql/update", methods=["GET", "HEAD", "PUT", "DELETE", "PATCH"], include_in_schema=False)
def refuse() -> Response:
    """Answer a method that the protocol does not know."""
    raise MethodRefused("an update is sent by POST", detail={"allowed": METHODS})


_TAKEN = f"{protocol.DIRECT_UPDATE}, {protocol.FORM}"
