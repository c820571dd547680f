"""``/subgraphs``: many graphs at once: listed and written."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Depends, Header, Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from api import bulk, narrowing
from api.assembly import Parts, parts
from api.bodies import lines_of
from api.routes.search import Filters, Tombstones
from kg.search import Question

router = APIRouter(tags=["subgraphs"])

Service = Annotated[Parts, Depends(parts)]


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
    narrowing.check(service, narrowed)
    question = Question("", narrowed, prefix, tombstones, "id", "", after, limit)
    found = service.search.find(question)
    body: dict[str, Any] = {"items": msgspec.to_builtins(found.items), "generation": found.generation}
    if found.next is not None:
        body["next"] = found.items[-1].id
    return body


@router.post("/subgraphs", summary="Write many graphs")
async def write_many(
    request: Request,
    service: Service,
    atomic: Annotated[bool, Query(description="All lines in one transaction, or none.")] = False,
    content_type: Annotated[str | None, Header()] = None,
) -> Response:
    """Write many graphs, one JSON object a line, and get one result a line, in order: outcome and digest, or the problem.

    A line is ``{"op": "put"|"delete"|"remove", "id": …, "document": …}``: ``delete`` leaves a tombstone, ``remove`` leaves nothing.
    ``digest`` is what the graph must be now, as a digest or an ETag, null when it must not exist; ``owner`` says who writes (``user``
    when absent). A line that fails does not stop the others. With ``atomic`` (at most 10,000 lines, 128 MiB) the first problem is the
    answer, with the number of its ``line``, and nothing was written.
    """
    bulk.check_type(content_type)
    lines = lines_of(request, service.settings.document_bytes + 4096)
    if atomic:
        batch = await bulk.together(lines)
        return Response(await run_in_threadpool(bulk.write_together, service, batch), media_type=bulk.MEDIA_TYPE)
    return Response(await bulk.results(service, lines), media_type=bulk.MEDIA_TYPE)
