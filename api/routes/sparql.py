"""``/sparql``: SPARQL 1.1 Protocol, query operation (https://www.w3.org/TR/sparql11-protocol/#query-operation)."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from api.assembly import Parts, parts
from api.bodies import body_of
from api.negotiation import choose, named
from api.problems import MethodRefused, NotAcceptable
from api.routes import description
from api.streams import Stream
from kg.sparql import gate, protocol

router = APIRouter(tags=["sparql"])

Service = Annotated[Parts, Depends(parts)]
METHODS = ["GET", "HEAD", "OPTIONS", "POST"]
SOLUTIONS = {
    "json": "application/sparql-results+json",
    "srj": "application/sparql-results+json",
    "xml": "application/sparql-results+xml",
    "srx": "application/sparql-results+xml",
    "csv": "text/csv",
    "tsv": "text/tab-separated-values",
}
_PLAIN = {"application/json": SOLUTIONS["json"], "application/xml": SOLUTIONS["xml"]}
_PLAIN_GRAPHS = {"application/json": "application/ld+json", "application/xml": "application/rdf+xml"}
"""What many clients say when they mean JSON or XML of any kind."""


@router.api_route("/sparql", methods=["GET", "HEAD", "POST"], summary="Run a SPARQL query")
async def query(request: Request, service: Service) -> Response:
    """Answer a query sent by GET, as a form, or as a direct POST. The default graph is the union of all graphs.

    Without a query, a GET that accepts RDF gets the service description.
    """
    if description.wanted(request):
        return await run_in_threadpool(description.describe, request, service)
    limit = service.settings.query_bytes
    body = await body_of(request, limit + 65_536)
    sent = protocol.read_query(
        "GET" if request.method == "HEAD" else request.method,
        request.scope["query_string"],
        request.headers.get("content-type"),
        body,
    )
    gated = gate.check(sent.query, max_bytes=limit)
    media_type = result_type(request.headers.get("accept"), sent.format, protocol.offered(gated.form))

    def work() -> Stream:
        answer = service.store.answer(
            gated.text,
            media_type=media_type,
            dataset=sent.dataset,
            base=service.settings.base,
            timeout=sent.seconds,
        )
        headers = {"X-Drumlin-Generation": str(answer.generation), "Vary": "Accept", "Cache-Control": "no-cache"}
        return Stream(answer.chunks, answer.media_type, headers)

    return await run_in_threadpool(work)


def result_type(accept: str | None, wanted: str | None, offered: tuple[str, ...]) -> str:
    """Return the media type to write a result as: what ``format`` names, else what Accept likes most."""
    if not wanted:
        if offered is protocol.GRAPHS:
            return _PLAIN_GRAPHS.get(found := choose(accept, (*offered, *_PLAIN_GRAPHS)), found)
        return _PLAIN.get(found := choose(accept, (*offered, *_PLAIN)), found)
    if offered is protocol.GRAPHS:
        return named(wanted).media_type
    media_type = SOLUTIONS.get(wanted.lower(), wanted.lower().replace(" ", "+"))  # as in ``named``
    if media_type in offered:
        return media_type
    raise NotAcceptable(
        f"format {wanted[:64]!r} is not offered for this query",
        hint=f"name one of {', '.join(SOLUTIONS)}, or a media type",
        detail={"offered": list(offered)},
    )


@router.options("/sparql", include_in_schema=False)
def options() -> Response:
    """Say which methods there are."""
    return Response(
        status_code=204,
        headers={"Allow": ", ".join(METHODS), "Accept-Post": f"{protocol.DIRECT}, {protocol.FORM}"},
    )


@router.api_route("/sparql", methods=["PUT", "DELETE", "PATCH"], include_in_schema=False)
def refuse() -> Response:
    """Answer a method that the protocol does not know."""
    raise MethodRefused("a query is sent by GET or POST", detail={"allowed": METHODS})
