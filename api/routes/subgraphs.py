"""``/subgraph/{id}``: one entity's graph, in the syntax asked for; ``/subgraphs``: many of them.

An ETag is ``"{digest}-{syntax}"``: strong for one representation; If-Match compares the digest alone, so an ETag got with Turtle guards
a write made in JSON-LD. Conditional requests: RFC 9110 §13.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any
from urllib.parse import quote, unquote

import msgspec
from fastapi import APIRouter, Depends, Header, Path, Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response, StreamingResponse

from api import bodies
from api.assembly import Parts, parts
from api.negotiation import choose, rdf_syntax, sent_syntax
from api.problems import NotAcceptable
from kg import jsonld, rdf
from kg.errors import PreconditionFailed, ResourceGone
from kg.rdf import JSONLD, NQUADS, Lines, Syntax
from kg.store.protocol import ANY, Unconditional, Written
from kg.subgraphs import Subgraph

router = APIRouter(tags=["subgraphs"])

Service = Annotated[Parts, Depends(parts)]
Accept = Annotated[str | None, Header()]
IfMatch = Annotated[str | None, Header()]
IfNoneMatch = Annotated[str | None, Header()]
Format = Annotated[str | None, Query(alias="format", description="Syntax of the answer; wins over Accept.")]


def entity_id(
    request: Request,
    id: Annotated[
        str, Path(description="Short id (prod/payments/deployment/checkout) or IRI, as text that is encoded once.")
    ],
) -> str:
    """Return the id as the client wrote it: the server has decoded the path, and ids are percent-encoded text."""
    raw: bytes = request.scope.get("raw_path") or quote(request.scope["path"]).encode()
    path = raw.partition(b"?")[0].decode("latin-1").removeprefix(request.scope.get("root_path", ""))
    written = path.removeprefix("/subgraph/") or id
    # A full IRI or a short id may also come as one segment, its slashes encoded: then it is decoded once, as a whole.
    lower = written.lower()
    whole = lower.startswith(("http%3a", "https%3a")) or ("/" not in written and "%2f" in lower)
    return unquote(written) if whole else written


EntityId = Annotated[str, Depends(entity_id)]
_SUFFIXES = {each.suffix: each for each in rdf.SYNTAXES}


def write_graph(lines: Lines, iri: str, syntax: Syntax) -> bytes:
    """Write one graph as ``syntax``; JSON-LD is compacted with our context."""
    if syntax is JSONLD:
        return msgspec.json.format(msgspec.json.encode(jsonld.compact(lines, iri)), indent=2)
    return rdf.serialize(lines, syntax, graph=iri)


def _etag(digest: str, syntax: Syntax) -> str:
    return f'"{digest}-{syntax.name}"'


def _digests(header: str) -> list[str]:
    """Return the digests that an If-Match or If-None-Match header lists (weak marks and syntaxes are dropped)."""
    found = (part.strip().removeprefix("W/").strip('"') for part in header.split(","))
    return [each.partition("-")[0] for each in found if each]


def _expected(service: Parts, iri: str, if_match: str | None, if_none_match: str | None) -> str | Unconditional | None:
    """Turn the conditional headers into what the store checks under its lock."""
    if if_match is None and if_none_match is None:
        return ANY
    entry = service.subgraphs.live_entry(iri)
    current = entry.digest if entry else None
    if if_none_match is not None:
        if if_none_match.strip() != "*":
            raise PreconditionFailed(
                "If-None-Match on a write takes only *", hint="use If-Match to replace what you have read"
            )
        if current is not None:
            raise PreconditionFailed(f"{iri} exists", detail={"digest": current})
        return None
    assert if_match is not None
    if current is None or (if_match.strip() != "*" and current not in _digests(if_match)):
        raise PreconditionFailed(
            f"{iri} has changed since it was read", hint="read it again", detail={"digest": current}
        )
    return current


def _split(service: Parts, id: str, wanted: str | None) -> tuple[str, str | None]:
    """Read a suffix off the id; an id that exists as written wins over its reading as a suffix."""
    head, dot, _ = id.rpartition(".")
    suffix = id[len(head) :] if dot else ""
    if suffix in _SUFFIXES and wanted is None and not service.subgraphs.exists(id):
        return head, _SUFFIXES[suffix].name
    return id, wanted


@router.get("/subgraph/{id:path}", summary="Read one entity's graph")
@router.head("/subgraph/{id:path}", include_in_schema=False)
def read(
    id: EntityId,
    service: Service,
    accept: Accept = None,
    if_none_match: IfNoneMatch = None,
    wanted: Format = None,
) -> Response:
    """Return what the graph says about one entity, as JSON-LD, Turtle, N-Triples, N-Quads, TriG or RDF/XML."""
    id, wanted = _split(service, id, wanted)
    syntax, media_type = rdf_syntax(accept, wanted)
    try:
        subgraph = service.subgraphs.read(id)
    except ResourceGone as gone:
        tombstone = service.subgraphs.read(id, allow_gone=True)
        gone.detail["tombstone"] = jsonld.compact(tombstone.lines, tombstone.iri)
        raise
    headers = _headers(subgraph, syntax)
    if if_none_match and (
        if_none_match.strip() == "*"
        or headers["ETag"] in [part.strip().removeprefix("W/") for part in if_none_match.split(",")]
    ):
        return Response(status_code=304, headers=headers)
    return Response(write_graph(subgraph.lines, subgraph.iri, syntax), media_type=media_type, headers=headers)


def _headers(subgraph: Subgraph, syntax: Syntax) -> dict[str, str]:
    return {
        "ETag": _etag(subgraph.digest, syntax),
        "Vary": "Accept",
        "Cache-Control": "no-cache",
        "X-Drumlin-Owner": subgraph.owner,
    }


@router.put("/subgraph/{id:path}", summary="Create or replace one entity's graph")
async def put(
    id: EntityId,
    request: Request,
    service: Service,
    content_type: Annotated[str | None, Header()] = None,
    if_match: IfMatch = None,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """Make the graph hold exactly what the body says. 201 when it was not there, else 204; the same content changes nothing."""
    return await _write(id, request, service, content_type, if_match, if_none_match, create=False)


@router.post("/subgraph/{id:path}", summary="Create one entity's graph")
async def post(
    id: EntityId, request: Request, service: Service, content_type: Annotated[str | None, Header()] = None
) -> Response:
    """Create the graph: 201 and Location; 409 when it is there already."""
    return await _write(id, request, service, content_type, None, None, create=True)


async def _write(
    id: str,
    request: Request,
    service: Parts,
    content_type: str | None,
    if_match: str | None,
    if_none_match: str | None,
    *,
    create: bool,
) -> Response:
    syntax = sent_syntax(content_type)
    iri = service.iris.expand(id)
    data = await bodies.body_of(request, service.settings.document_bytes)

    def work() -> Written:
        lines = service.subgraphs.parse(data, syntax, iri)
        if create:
            return service.subgraphs.create(iri, lines)
        return service.subgraphs.put(iri, lines, expected=_expected(service, iri, if_match, if_none_match))

    written = await run_in_threadpool(work)
    headers = {"ETag": _etag(written.digest or "", syntax), "X-Drumlin-Generation": str(written.generation)}
    if written.outcome == "created":
        headers["Location"] = f"/subgraph/{service.iris.short(iri)}"
        return Response(status_code=201, headers=headers)
    return Response(status_code=204, headers=headers)


@router.delete("/subgraph/{id:path}", summary="Delete one entity", status_code=204)
async def delete(id: EntityId, service: Service, if_match: IfMatch = None) -> Response:
    """Turn the graph into a tombstone: reading it gives 410 from now on; its runs are kept."""
    iri = service.iris.expand(id)
    await run_in_threadpool(lambda: service.subgraphs.delete(iri, expected=_expected(service, iri, if_match, None)))
    return Response(status_code=204)


@router.get("/subgraphs", summary="List entities")
def list_(
    service: Service,
    type: Annotated[
        str | None, Query(description="Class, e.g. Deployment; Workload stands for all workload kinds.")
    ] = None,
    namespace: Annotated[str | None, Query(description="Kubernetes namespace.")] = None,
    owner: Annotated[str | None, Query(description="Who writes the graph: user, drumlin, or a source.")] = None,
    prefix: Annotated[str, Query(description="Beginning of the short id.")] = "",
    after: Annotated[str, Query(description="Cursor: the short id of the last item seen.")] = "",
    limit: Annotated[int, Query(ge=1, le=10_000)] = 1000,
    tombstones: Annotated[bool, Query(description="List deleted entities too.")] = False,
) -> dict[str, Any]:
    """List entities in the order of their ids; ``next`` is the cursor for more, absent at the end."""
    found, more = service.subgraphs.list(
        type=type, namespace=namespace, owner=owner, prefix=prefix, after=after, limit=limit, tombstones=tombstones
    )
    body: dict[str, Any] = {
        "items": [msgspec.to_builtins(each) for each in found],
        "generation": service.store.generation,
    }
    if more:
        body["next"] = found[-1].id
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
        document = jsonld.compact(lines, graph)
        del document["@context"]
        included = document.pop("@included", [])
        yield (b"" if first else b",\n") + msgspec.json.encode({"id": graph, "@graph": [document, *included]})
        first = False
    yield b"\n]}\n"
