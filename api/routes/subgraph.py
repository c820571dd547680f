"""``/subgraph/{id}``: one entity's graph, in the syntax asked for.

An ETag is ``"{digest}-{syntax}"``: strong for one representation; If-Match compares the digest alone, so an ETag got with Turtle guards
a write made in JSON-LD. JSON-LD names the context at the address where this service serves it, or carries it (``context=inline``), each
form under an ETag of its own. Conditional requests: RFC 9110 §13.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Annotated
from urllib.parse import quote, unquote

import msgspec
from fastapi import APIRouter, Depends, Header, Path, Query, Request
from starlette.responses import Response

from drumlin.api.bootstrap import Services, parts
from drumlin.api.http import async_write, bodies
from drumlin.api.http.asgi import Scope
from drumlin.api.http.etags import expected_digest, matches
from drumlin.api.http.negotiation import (
    JSON_OFFERED,
    ContextChoice,
    ContextStyle,
    Reply,
    choose,
    rdf_syntax,
    sent_syntax,
)
from drumlin.api.http.owners import Owner
from drumlin.api.http.past import generation_of
from drumlin.api.http.problems import unconditional
from drumlin.api.http.representations import Whole, context_of, etag, headers_of, neighbours, pretty, write_graph
from drumlin.api.routes import foreign
from drumlin.kg import rdf
from drumlin.kg.errors import (
    InvalidDocument,
    InvalidInput,
    NotAcceptable,
    ResourceGone,
    ResourceNotFound,
    UnsupportedSyntax,
)
from drumlin.kg.graphs import patch as patching
from drumlin.kg.graphs.entities import EntityGraph
from drumlin.kg.graphs.ingest import Statements
from drumlin.kg.graphs.neighbourhood import MAX_DEPTH, Traversal
from drumlin.kg.model.iris import CONTEXT_PATH
from drumlin.kg.rdf import jsonld
from drumlin.kg.rdf.syntax import JSONLD, Syntax
from drumlin.kg.store.protocol import Unconditional, Written
from drumlin.kg.telemetry import seed

router = APIRouter(tags=["subgraphs"])

Service = Annotated[Services, Depends(parts)]
Accept = Annotated[str | None, Header()]
IfMatch = Annotated[str | None, Header()]
IfNoneMatch = Annotated[str | None, Header()]
ContentType = Annotated[str | None, Header()]
Prefer = Annotated[
    str | None,
    Header(description="return=minimal (default) or return=representation; context=link (default) or context=inline."),
]
ReadPrefer = Annotated[str | None, Header(description="context=link (default) or context=inline.")]
ContextForm = Annotated[
    ContextStyle | None,
    Query(
        alias="context",
        description="JSON-LD only: link names the context by its address here, inline carries it; wins over Prefer.",
    ),
]
At = Annotated[
    str | None,
    Query(
        max_length=64,
        description="The graph as it was after this generation, or at this time (RFC 3339), as far as the change log reaches.",
        examples=["41", "2026-11-27T00:00:00Z"],
    ),
]
Format = Annotated[str | None, Query(alias="format", description="Syntax of the answer; wins over Accept.")]


def entity_id(
    request: Request,
    id: Annotated[
        str, Path(description="Short id (prod/payments/deployment/checkout) or IRI, as text that is encoded once.")
    ],
) -> str:
    """Return the id as the client wrote it: the server has decoded the path, and ids are percent-encoded text."""
    return id_of(request.scope, id)


def id_of(scope: Scope, id: str) -> str:
    """Return the id as the client of a request (ASGI) wrote it, ``id`` when the path is another."""
    raw: bytes = scope.get("raw_path") or quote(scope["path"]).encode()
    path = raw.partition(b"?")[0].decode("latin-1").removeprefix(scope.get("root_path", ""))
    written = path.removeprefix(next(filter(path.startswith, _PREFIXES), "")) or id
    # A full IRI or a short id may also come as one segment, its slashes encoded: then it is decoded once, as a whole.
    lower = written.lower()
    whole = lower.startswith(("http%3a", "https%3a")) or ("/" not in written and "%2f" in lower)
    return unquote(written) if whole else written


EntityId = Annotated[str, Depends(entity_id)]
_PREFIXES = ("/subgraph/", "/id/", "/doc/")
_SUFFIXES = {each.suffix: each for each in rdf.SYNTAXES}


def _expected(
    service: Services, iri: str, if_match: str | None, if_none_match: str | None
) -> str | Unconditional | None:
    """Turn the conditional headers into what the store checks under its lock."""
    if if_match is None and if_none_match is None and service.settings.require_if_match:
        raise unconditional()

    def current() -> str | None:
        entry = service.subgraphs.live_entry(iri)
        return entry.digest if entry else None

    return expected_digest(iri, if_match, if_none_match, current)


def without_suffix(id: str) -> str:
    """Return an id without what may be its suffix."""
    head, dot, suffix = id.rpartition(".")
    return head if dot + suffix in _SUFFIXES else id


def _split(service: Services, id: str, wanted: str | None) -> tuple[str, str | None]:
    """Read a suffix off the id; an id that exists as written wins over its reading as a suffix, and ``format`` over what it says."""
    head, dot, _ = id.rpartition(".")
    suffix = id[len(head) :] if dot else ""
    if suffix in _SUFFIXES and not service.subgraphs.exists(id):
        return head, wanted or _SUFFIXES[suffix].name
    return id, wanted


class Wish(msgspec.Struct, frozen=True):
    """What a client wants to see of an entity."""

    syntax: str | None
    accept: str | None
    known: str | None
    around: Traversal
    frame: str | None
    context: ContextChoice
    at: str | None = None


def wish(
    accept: Accept = None,
    if_none_match: IfNoneMatch = None,
    wanted: Format = None,
    depth: Annotated[
        int, Query(ge=0, le=MAX_DEPTH, description="How many links away entities are shown too, each with its graph.")
    ] = 0,
    include: Annotated[
        str | None,
        Query(
            description="Comma-separated: notes, incoming (entities that link here too), or terms of links to follow.",
            examples=["notes,managedBy"],
        ),
    ] = None,
    frame: Annotated[
        str | None,
        Query(
            description="JSON-LD only: a class whose frame is taken, a frame as JSON text, or seed: the flat document of system A.",
            examples=["Deployment"],
        ),
    ] = None,
    context: ContextForm = None,
    prefer: ReadPrefer = None,
    at: At = None,
) -> Wish:
    """Read what a client wants (FastAPI dependency)."""
    choice, around = ContextChoice.of(context, prefer), following(depth, include)
    if at is not None and (around.depth or around.notes or frame):
        raise InvalidInput("at shows one entity alone, as it was", hint="leave depth, include and frame away")
    return Wish(wanted, accept, if_none_match, around, frame, choice, at)


Wanted = Annotated[Wish, Depends(wish)]


@router.get("/subgraph/{id:path}", summary="Read one entity's graph")
def read(id: EntityId, service: Service, wanted: Wanted) -> Response:
    """Return what the graph says about one entity, as JSON-LD, Turtle, N-Triples, N-Quads, TriG or RDF/XML.

    JSON-LD names its context at the address where this service serves it; with ``context=inline``, or ``Prefer: context=inline``, it
    carries it, and is read without any service.

    With ``depth`` or ``include`` the graphs around it come too, at most 100: ``X-Drumlin-Graphs`` says how many there are,
    ``X-Drumlin-Left-Out`` how many more would have been. With ``frame`` they are one document in the shape of the frame.

    With ``at`` it is the graph as it was after a generation or at a time; ``X-Drumlin-Generation`` says which generation that is. 410
    when the change log does not reach so far, or when the entity was deleted then.
    """
    return represent(service, id, wanted)


def represent(service: Services, id: str, wanted: Wish) -> Response:
    """Answer with the representation of an entity, or foreign document, that a client asks for; 304 when it has it."""
    if document := service.documents.named(id):
        return foreign.represent(service, document, wanted.accept, wanted.syntax, wanted.known)
    return render(service, find(service, id, wanted), wanted)


class NegotiatedGraph(msgspec.Struct, frozen=True):
    """A graph, and the syntax in which it is wanted."""

    subgraph: EntityGraph
    syntax: Syntax
    media_type: str
    generation: int | None = None  # of which it is, when it is of the past


def find(service: Services, id: str, wanted: Wish) -> NegotiatedGraph:
    """Read the graph that a client asks for."""
    id, suffix = _split(service, id, wanted.syntax)
    accept = choose(wanted.accept, JSON_OFFERED) if wanted.frame and not suffix else wanted.accept
    syntax, media_type = rdf_syntax(accept, suffix)
    if wanted.frame and syntax is not JSONLD:
        raise NotAcceptable(f"a frame shapes JSON-LD, not {syntax.name}", detail={"offered": [JSONLD.media_type]})
    generation = None if wanted.at is None else generation_of(service.store, wanted.at)
    return NegotiatedGraph(_known(service, id, wanted.context, generation), syntax, media_type, generation)


def render(service: Services, read: NegotiatedGraph, wanted: Wish) -> Response:
    """Write a graph that was read as the client wants it."""
    subgraph, syntax, media_type, form = read.subgraph, read.syntax, read.media_type, wanted.context.form
    links = _links(service, subgraph, media_type, form, wanted.accept)
    if wanted.frame == seed.NAME:
        return _seed(service, read, wanted, links)
    found = None
    tag = etag(subgraph.digest, syntax, form)
    if wanted.around.depth or wanted.around.notes or wanted.frame:
        found = service.subgraphs.around(subgraph.iri, wanted.around)
        tag = etag(rdf.digest([found.digest, wanted.frame or ""]), syntax, form, weak=True)
    headers = headers_of(subgraph, syntax, tag, links)
    if read.generation is not None:
        headers["X-Drumlin-Generation"] = str(read.generation)
    if wanted.context.preferred and syntax is JSONLD:
        headers["Preference-Applied"] = f"context={form}"
    if matches(wanted.known, tag):
        return Whole(status_code=304, headers=headers)
    context = context_of(service.iris.context, form)
    if found is None:
        return Whole(write_graph(subgraph.text, subgraph.iri, syntax, context), media_type=media_type, headers=headers)
    return neighbours(found, syntax, media_type, headers, wanted.frame, context, service.iris.context)


def _seed(service: Services, read: NegotiatedGraph, wanted: Wish, links: str) -> Response:
    """Answer with the flat document of an entity; its ETag is weak, since it describes datasources too."""
    if wanted.around.depth or wanted.around.notes:
        raise InvalidInput("frame=seed shows one entity alone", hint="leave depth and include away")
    subgraph = read.subgraph
    known = {each.iri: each for each in service.resolver.datasources()}
    body = pretty(seed.document(jsonld.compact(subgraph.lines, subgraph.iri), known))
    tag = etag(rdf.digest_of(body.decode()), read.syntax, ContextStyle.link, weak=True)
    headers = headers_of(subgraph, read.syntax, tag, links)
    if matches(wanted.known, tag):
        return Whole(status_code=304, headers=headers)
    return Whole(body, media_type=read.media_type, headers=headers)


def following(depth: int, include: str | None) -> Traversal:
    """Read ``depth`` and ``include``; naming what to follow means one link at least. Raises ``InvalidInput``."""
    named = {each.strip() for each in (include or "").split(",")} - {""}
    notes, incoming = "notes" in named, "incoming" in named
    links = named - {"notes", "incoming"}
    unknown = sorted(each for each in links if jsonld.predicate(each) is None)
    if unknown:
        raise InvalidInput(f"include: {', '.join(unknown)} is not a term of the context", hint="see /context/v1.jsonld")
    predicates = frozenset(name for each in links if (name := jsonld.predicate(each)))
    return Traversal(max(depth, 1) if links or incoming else depth, predicates, incoming, notes)


def _known(service: Services, id: str, context: ContextChoice, generation: int | None) -> EntityGraph:
    """Read a graph, as it is or as it was after a generation; a tombstone is part of the error."""
    graphs = service.subgraphs
    read = graphs.read if generation is None else partial(graphs.read_at, generation=generation)
    try:
        return read(id)
    except ResourceGone as gone:
        tombstone = read(id, allow_gone=True)
        gone.detail["tombstone"] = jsonld.compact(
            tombstone.lines, tombstone.iri, context_of(service.iris.context, context.form)
        )
        raise


@lru_cache(64)
def _usual_links(base: str, media_type: str, context: ContextStyle, *, alternates: bool) -> str:
    """Return the links of every representation in one media type; NUL stands for the entity's short id, SOH for its IRI."""
    others = [each for each in rdf.SYNTAXES if each.media_type != media_type] if alternates else []
    links = [
        '<\1>; rel="describes"',
        *(f'<{base}/doc/\0{each.suffix}>; rel="alternate"; type="{each.media_type}"' for each in others),
    ]
    if media_type == "application/json" and context is ContextStyle.link:
        address = f"{base}{CONTEXT_PATH}"
        links.append(f'<{address}>; rel="http://www.w3.org/ns/json-ld#context"; type="application/ld+json"')
    return ", ".join(links)


def _links(service: Services, subgraph: EntityGraph, media_type: str, context: ContextStyle, accept: str | None) -> str:
    """Return the Link header: the thing itself, its other representations, remarks on it (RFC 8288).

    A client that names JSON-LD has got it, and gets no alternates: the document loaders of pyld fail where there are several.
    """
    short = service.iris.short(subgraph.iri)
    named = media_type in JSON_OFFERED and "json" in (accept or "").lower()
    links = _usual_links(service.iris.base, media_type, context, alternates=not named)
    links = links.replace("\0", short).replace("\1", subgraph.iri)
    if service.iris.noted(subgraph.iri) is None and service.subgraphs.has_notes(subgraph.iri):
        notes = service.iris.short(service.iris.notes(subgraph.iri))
        links += f', <{service.settings.base}/doc/{notes}>; rel="{jsonld.NAMESPACE}notes"'
    return links


@dataclass(frozen=True, slots=True)
class Sending:
    """What a write says beside its body."""

    content_type: str | None
    if_match: str | None
    if_none_match: str | None
    prefer: str | None
    accept: str | None
    owner: str
    context: ContextStyle | None = None


def sending(
    owner: Owner,
    content_type: ContentType = None,
    if_match: IfMatch = None,
    if_none_match: IfNoneMatch = None,
    prefer: Prefer = None,
    accept: Accept = None,
    context: ContextForm = None,
) -> Sending:
    """Read what a write says beside its body (FastAPI dependency)."""
    return Sending(content_type, if_match, if_none_match, prefer, accept, owner, context)


@router.put("/subgraph/{id:path}", summary="Create or replace one entity's graph")
async def put(id: EntityId, request: Request, service: Service, sent: Annotated[Sending, Depends(sending)]) -> Response:
    """Make the graph hold exactly what the body says. 201 when it was not there, else 204; the same content changes nothing."""
    syntax, data = await _sent(request, service, sent.content_type)
    return await replace(service, id, sent, syntax, data)


async def replace(service: Services, id: str, sent: Sending, syntax: Syntax, data: bytes) -> Response:
    """Make a graph hold exactly what the document ``data`` says."""
    if document := service.documents.named(id):
        return await foreign.replace(service, document, syntax, data, sent.owner, sent.if_match, sent.if_none_match)
    iri, reply = service.iris.expand(id), Reply.of(sent.prefer, sent.accept, syntax, sent.context)

    quick = async_write.quick_content(service.store, service.iris, data, syntax, iri)

    def prepare() -> async_write.Prepared:
        expected = _expected(service, iri, sent.if_match, sent.if_none_match)
        content = service.subgraphs.parse(data, syntax, iri) if quick is None else quick
        return service.subgraphs.putting(iri, content, owner=sent.owner, expected=expected)

    written = await async_write.write(service.store, prepare, service.bulkheads.writes, inline=quick is not None)
    return await async_write.run_inline_or_thread(
        service.store, iri, len(data), lambda: _written(service, iri, written, reply), service.bulkheads.writes
    )


@router.post("/subgraph/{id:path}", summary="Create one entity's graph")
async def post(
    id: EntityId,
    request: Request,
    service: Service,
    owner: Owner,
    content_type: ContentType = None,
    if_match: IfMatch = None,
    prefer: Prefer = None,
    accept: Accept = None,
    context: ContextForm = None,
) -> Response:
    """Create the graph: 201 and Location; 409 when it is there already."""
    syntax, data = await _sent(request, service, content_type)
    iri, reply = service.iris.expand(id), Reply.of(prefer, accept, syntax, context)

    def work() -> Response:
        if if_match is not None:
            _expected(service, iri, if_match, None)
        written = service.subgraphs.create(iri, service.subgraphs.parse(data, syntax, iri), owner=owner)
        return _written(service, iri, written, reply)

    return await service.bulkheads.writes.run(work)


@router.patch("/subgraph/{id:path}", summary="Change a part of one entity's graph")
async def patch(
    id: EntityId,
    request: Request,
    service: Service,
    owner: Owner,
    content_type: ContentType = None,
    if_match: IfMatch = None,
    if_none_match: IfNoneMatch = None,
    prefer: Prefer = None,
    accept: Accept = None,
    context: ContextForm = None,
) -> Response:
    """Apply a JSON merge-patch (null removes, arrays replace) or ground SPARQL Update; the result is validated as a whole."""
    kind = (content_type or "").partition(";")[0].strip().lower()
    if kind not in patching.MEDIA_TYPES:
        raise UnsupportedSyntax(
            f"a patch is sent as {' or '.join(patching.MEDIA_TYPES)}", detail={"offered": list(patching.MEDIA_TYPES)}
        )
    data = await bodies.body_of(request, service.settings.document_bytes)
    iri, reply = service.iris.expand(id), Reply.of(prefer, accept, JSONLD, context)

    def change(live: EntityGraph) -> Statements:
        if kind == patching.SPARQL_UPDATE:
            limit = service.settings.document_bytes
            return Statements(patching.updated(live.lines, iri, _text(data), max_bytes=limit, parsers=service.parsers))
        return service.subgraphs.parse(patching.merged(live.lines, iri, data, service.iris.context), JSONLD, iri)

    def work() -> Response:
        service.subgraphs.read(iri)  # 404 and 410 before 412
        expected = _expected(service, iri, if_match, if_none_match)
        written = service.subgraphs.patch(iri, change, owner=owner, expected=expected)
        return _written(service, iri, written, reply)

    return await service.bulkheads.writes.run(work)


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InvalidDocument("the patch is not UTF-8") from error


async def _sent(request: Request, service: Services, content_type: str | None) -> tuple[Syntax, bytes]:
    syntax = sent_syntax(content_type)
    return syntax, await bodies.body_of(request, service.settings.document_bytes)


def _written(service: Services, iri: str, written: Written, reply: Reply) -> Response:
    """Answer a write."""
    headers = {"X-Drumlin-Generation": str(written.generation)}
    address = f"/subgraph/{service.iris.short(iri)}"
    status = 201 if written.outcome == "created" else 204
    if status == 201:
        headers["Location"] = address
    if reply.wish in ("minimal", "representation"):
        headers["Preference-Applied"] = f"return={reply.wish}"
    now = _after(service, iri) if reply.wish == "representation" else None
    if now is None:
        return Whole(status_code=status, headers={**headers, "ETag": etag(written.digest or "", reply.syntax)})
    form = reply.context.form
    if reply.context.preferred and reply.syntax is JSONLD:
        headers["Preference-Applied"] += f", context={form}"
    links = _links(service, now, reply.media_type, form, accept=None)
    shown = headers_of(now, reply.syntax, etag(now.digest, reply.syntax, form), links)
    return Whole(
        write_graph(now.text, iri, reply.syntax, context_of(service.iris.context, form)),
        201 if status == 201 else 200,
        headers={**shown, **headers, "Content-Location": address},
        media_type=reply.media_type,
    )


def _after(service: Services, iri: str) -> EntityGraph | None:
    try:
        return service.subgraphs.read(iri)
    except ResourceNotFound:  # another write has deleted it since; this one was done all the same
        return None


@router.delete("/subgraph/{id:path}", summary="Delete one entity", status_code=204)
async def delete(
    id: EntityId, service: Service, owner: Owner, if_match: IfMatch = None, if_none_match: IfNoneMatch = None
) -> Response:
    """Turn the graph into a tombstone: reading it gives 410 from now on; its runs are kept."""
    return await remove(service, id, owner, if_match, if_none_match)


async def remove(service: Services, id: str, owner: str, if_match: str | None, if_none_match: str | None) -> Response:
    """Turn a graph into a tombstone, remove a foreign document."""
    if document := service.documents.named(id):
        return await foreign.remove(service, document, owner, if_match, if_none_match)
    iri = service.iris.expand(id)

    def prepare() -> async_write.Prepared:
        service.subgraphs.read(iri)
        expected = _expected(service, iri, if_match, if_none_match)
        return service.subgraphs.prepare_delete(iri, owner=owner, expected=expected), lambda written: written

    await async_write.write(
        service.store, prepare, service.bulkheads.writes, inline=False
    )  # the graph may be of any size
    return Whole(status_code=204)
