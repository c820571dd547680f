"""``/sparql/update``: SPARQL 1.1 Protocol, update operation (https://www.w3.org/TR/sparql11-protocol/#update-operation)."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from drumlin.api import answers
from drumlin.api.bootstrap import Services, parts
from drumlin.api.http.bodies import body_of
from drumlin.api.http.disconnects import on_disconnect
from drumlin.api.querying import FORM_BYTES
from drumlin.kg.cancellation import Cancellation
from drumlin.kg.sparql import gate, protocol

router = APIRouter(tags=["sparql"])

Service = Annotated[Services, Depends(parts)]


@router.post(
    "/sparql/update",
    summary="Run a SPARQL update",
    status_code=204,
    openapi_extra={"parameters": answers.in_address(answers.CHANGED, without="update")},
)
async def update(request: Request, service: Service) -> Response:
    """Run all operations of an update or none. WHERE parts read the union of all graphs unless they say otherwise.

    An update whose client leaves while it is evaluated is cancelled; nothing was written.
    Graphs below ``/id/`` keep their rules: valid as a whole, one owner, a tombstone when dropped.
    """
    limit = service.settings.query_bytes
    body = await body_of(request, limit + FORM_BYTES)

    def work() -> int:
        sent = protocol.read_update(request.scope["query_string"], request.headers.get("content-type"), body)
        gated = gate.check(sent.update, max_bytes=limit, expect="update")
        return service.updates.run(gated, sent.dataset, seconds=sent.seconds)

    of_this = Cancellation()
    async with on_disconnect(request.receive, of_this.cancel):
        generation = await service.bulkheads.updates.run(work, of_this=of_this)
    return Response(status_code=204, headers={"X-Drumlin-Generation": str(generation)})
