"""Foreign documents under ``/subgraph/x/…``: read, written and removed as any graph is, but for what only entities have.

They have no addresses of their own: ``api.routes.subgraph`` hands over ids that begin with ``x/``.
"""

from __future__ import annotations

from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from drumlin.api.bootstrap import Services
from drumlin.api.http.etags import expected_digest, matches
from drumlin.api.http.negotiation import rdf_syntax
from drumlin.api.http.problems import unconditional
from drumlin.kg import rdf
from drumlin.kg.rdf.syntax import Syntax
from drumlin.kg.store.protocol import Unconditional


def represent(service: Services, graph: str, accept: str | None, wanted: str | None, known: str | None) -> Response:
    """Answer with a document in the syntax asked for; 304 when the client has it."""
    syntax, media_type = rdf_syntax(accept, wanted)
    document = service.documents.read(graph)
    headers = {
        "ETag": f'"{document.digest}-{syntax.name}"',
        "Vary": "Accept",
        "Cache-Control": "no-cache",
        "X-Drumlin-Owner": document.owner,
    }
    if matches(known, headers["ETag"]):
        return Response(status_code=304, headers=headers)
    return Response(rdf.serialize(document.lines, syntax), media_type=media_type, headers=headers)


async def replace(
    service: Services,
    graph: str,
    syntax: Syntax,
    data: bytes,
    owner: str,
    if_match: str | None,
    if_none_match: str | None,
) -> Response:
    """Make a document say exactly what the body says: 201 when it was not there, else 204."""

    def put() -> Response:
        there = service.documents.digest(graph) is not None
        expected = _expected(service, graph, if_match, if_none_match)
        written = service.documents.put(graph, data, syntax, owner, expected)
        headers = {"ETag": f'"{written.digest}-{syntax.name}"', "Location": graph}
        return Response(status_code=204 if there else 201, headers=headers)

    return await run_in_threadpool(put)


async def remove(
    service: Services, graph: str, owner: str, if_match: str | None, if_none_match: str | None
) -> Response:
    """Remove a document; nothing is left of it."""

    def delete() -> Response:
        service.documents.remove(graph, owner, _expected(service, graph, if_match, if_none_match))
        return Response(status_code=204)

    return await run_in_threadpool(delete)


def _expected(
    service: Services, graph: str, if_match: str | None, if_none_match: str | None
) -> str | Unconditional | None:
    if if_match is None and if_none_match is None and service.settings.require_if_match:
        raise unconditional()
    return expected_digest(graph, if_match, if_none_match, lambda: service.documents.digest(graph))
