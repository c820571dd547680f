"""``/subgraphs``: many graphs at once: listed and written."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Depends, Header, Query, Request
from starlette.responses import Response

from drumlin.api import bulk
from drumlin.api.bootstrap import Services, parts
from drumlin.api.http import filter_validation
from drumlin.api.http.bodies import lines_of
from drumlin.api.http.disconnects import on_disconnect
from drumlin.api.http.owners import Owner
from drumlin.api.routes.search import Filters, Tombstones
from drumlin.kg.cancellation import Cancellation
from drumlin.kg.search.query import SearchQuery

router = APIRouter(tags=["subgraphs"])

Service = Annotated[Services, Depends(parts)]


@router.get("/subgraphs", summary="List entities")
def list_(
    service: Service,
    narrowed: Filters,
    prefix: Annotated[str, Query(description="Beginning of the short id.")] = "",
    after: Annotated[str, Query(description="Cursor: the short id of the last item seen.")] = "",
    limit: Annotated[int, Query(ge=1, le=10_000)] = 1000,
    tombstones: Tombstones = False,
) -> dict[str, Any]:
    """List entities in the order of their ids; ``next`` is the cursor for more, absent at the end."""
    filter_validation.check(service, narrowed)
    question = SearchQuery("", narrowed, prefix, tombstones, "id", "", after, limit)
    found = service.search.find(question)
    body: dict[str, Any] = {"items": msgspec.to_builtins(found.items), "generation": found.generation}
    if found.next is not None:
        body["next"] = found.items[-1].id
    return body


@router.post("/subgraphs", summary="Write many graphs")
async def write_many(
    request: Request,
    service: Service,
    owner: Owner,
    atomic: Annotated[bool, Query(description="All lines in one transaction, or none.")] = False,
    content_type: Annotated[str | None, Header()] = None,
) -> Response:
    """Write many graphs, one JSON object a line, and get one result a line, in order: outcome and digest, or the problem.

    A line is ``{"op": "put"|"delete"|"remove", "id": …, "document": …}``: ``delete`` leaves a tombstone, ``remove`` leaves nothing.
    ``digest`` is what the graph must be now, as a digest or an ETag, null when it must not exist. A line that fails does not stop the
    others. With ``atomic`` (at most 10,000 lines, 128 MiB) the first problem is the answer, with the number of its ``line`` and
    the ``refusals`` of all lines, and nothing was written. All lines are written for one owner, ``user`` unless the header
    ``X-Drumlin-Owner`` names another.
    """
    bulk.check_type(content_type)
    lines = lines_of(request, service.settings.document_bytes + 4096)
    if atomic:
        batch = await bulk.together(lines)
        of_this = Cancellation()
        async with on_disconnect(request.receive, of_this.cancel):
            written = await service.bulkheads.bulk.run(
                lambda: bulk.write_together(service, batch, owner), of_this=of_this
            )
        return Response(written, media_type=bulk.MEDIA_TYPE)
    return Response(await bulk.results(service, lines, owner, request.receive), media_type=bulk.MEDIA_TYPE)
