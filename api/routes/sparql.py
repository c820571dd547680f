"""``/sparql``: SPARQL 1.1 Protocol, query operation (https://www.w3.org/TR/sparql11-protocol/#query-operation)."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from drumlin.api import answers, querying
from drumlin.api.bootstrap import Services, parts
from drumlin.api.http.bodies import body_of
from drumlin.api.routes import description

router = APIRouter(tags=["sparql"])

Service = Annotated[Services, Depends(parts)]


@router.post(
    "/sparql",
    summary="Run a SPARQL query",
    openapi_extra={"parameters": answers.in_address(answers.ASKED, without="query")},
)
@router.api_route(
    "/sparql",
    methods=["GET", "HEAD"],
    summary="Run a SPARQL query",
    openapi_extra={"parameters": answers.in_address(answers.ASKED)},
)
async def query(request: Request, service: Service) -> Response:
    """Answer a query sent by GET, as a form, or as a direct POST. The default graph is the union of all graphs.

    Without a query, a GET that accepts RDF gets the service description. With ``explain=true`` a SELECT in JSON that finds nothing has
    ``warnings``: the terms of the query that occur nowhere in the graph, each with what may have been meant, and labels that are not kept.
    """
    if description.wanted(request):
        return await service.bulkheads.queries.run(lambda: description.describe(request, service))
    limit = service.settings.query_bytes
    body = await body_of(request, limit + querying.FORM_BYTES)

    def work() -> Response:
        headers = request.headers
        parsed = querying.parse(
            request.method,
            request.scope["query_string"],
            headers.get("accept"),
            headers.get("content-type"),
            body,
            max_bytes=limit,
        )
        explains = request.query_params.get("explain") == "true"
        return querying.explained(service, parsed) if explains else querying.run(service, parsed)

    return await service.bulkheads.queries.run(work)
