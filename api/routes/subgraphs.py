"""``/subgraphs``: many graphs at once: listed, written, exported."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Depends, Header, Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response, StreamingResponse

from api import bodies
from api.assembly import Parts, parts
from api.negotiation import choose, rdf_syntax
from api.problems import NotAcceptable
from api.representations import named_graph
from api.routes.search import Filters, Tombstones
from kg import jsonld, rdf
from kg.rdf import JSONLD, NQUADS
from kg.search import Question

router = APIRouter(tags=["subgraphs"])

Service = Annotated[Parts, Depends(parts)]
Accept = Annotated[str | None, Header()]
Format = Annotated[str | None, Query(alias="format", description="Syntax of the answer; wins over Accept.")]


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
) -> Response:
    """Write many graphs, one JSON object a line, and get one result a line, in order: outcome and digest, or the problem.

    A line is ``{"op": "put"|"delete"|"remove", "id": …, "document": …}``: ``delete`` leaves a tombstone, ``remove`` leaves nothing.
    ``digest`` is what the graph must have now; ``owner`` says who writes (``user`` when absent). A line that fails does not stop
    the others. With ``atomic`` the first problem is the answer, and nothing was written.
    """
    lines = bodies.lines_of(request, service.settings.document_bytes + 4096)
    if atomic:
        batch = await bodies.together(lines)
        return Response(await run_in_threadpool(bodies.write_together, service, batch), media_type=bodies.MEDIA_TYPE)
    return Response(await bodies.results(service, lines), media_type=bodies.MEDIA_TYPE)


@router.get("/export", summary="Export the whole store")
def export(
    service: Service,
    accept: Accept = None,
    wanted: Format = None,
) -> StreamingResponse:
    """Stream all graphs of one generation in the order of their ids: N-Quads, or JSON-LD (one document, an array of graphs)."""
    if wanted:
        syntax, media_type = rdf_syntax(None, wanted)
    else:
        media_type = choose(accept, (NQUADS.media_type, JSONLD.media_type))
        syntax, _ = rdf_syntax(media_type)
    if syntax not in (NQUADS, JSONLD):
        raise NotAcceptable(
            f"an export in {syntax.name} is not offered", detail={"offered": [NQUADS.media_type, JSONLD.media_type]}
        )
    chunks = _export_nquads(service) if syntax is NQUADS else _export_jsonld(service)
    return StreamingResponse(chunks, media_type=media_type)


def _export_nquads(service: Parts) -> Iterator[bytes]:
    for graph, lines in service.store.export():
        yield b"".join(rdf.to_nquads(sorted(lines), graph))


def _export_jsonld(service: Parts) -> Iterator[bytes]:
    """Write ``{"@context": …, "@graph": [{"@id": graph, "@graph": [document]}, …]}`` one graph at a time."""
    yield b'{"@context":' + msgspec.json.encode(jsonld.CONTEXT_IRI) + b',"@graph":[\n'
    first = True
    for graph, lines in service.store.export():
        yield (b"" if first else b",\n") + msgspec.json.encode(named_graph(graph, lines))
        first = False
    yield b"\n]}\n"
