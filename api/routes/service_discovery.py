"""``/sd/{name}``: what a Prometheus may scrape, in the form of its HTTP service discovery.

https://prometheus.io/docs/prometheus/latest/http_sd/. A list is the saved query ``targets-NAME``: its column ``target`` is the address,
``instance`` and columns that begin with ``__`` are labels as they stand, all others become ``__meta_drumlin_COLUMN``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Request
from starlette.responses import JSONResponse

from drumlin.api import querying
from drumlin.api.bootstrap import Services, parts
from drumlin.api.routes.queries import bound
from drumlin.kg.errors import InvalidDocument, InvalidInput, ResourceNotFound
from drumlin.kg.model.iris import Iris
from drumlin.kg.sparql import gate
from drumlin.queries.catalogue import QueryCatalogue, SavedQuery

router = APIRouter(tags=["queries"])
Service = Annotated[Services, Depends(parts)]
QUERY = "targets-"
"""How the names of saved queries begin that list targets."""
_TARGET, _AS_IT_IS = "target", "instance"


@router.get(
    "/sd/{name}",
    summary="List targets for a Prometheus",
    openapi_extra={
        "parameters": [
            {
                "name": "port",
                "in": "query",
                "required": False,
                "description": "Port of the exporter, of lists that have it: hosts and agents.",
                "schema": {"type": "integer", "minimum": 1, "maximum": 65535},
            }
        ]
    },
)
def list_targets(
    request: Request,
    service: Service,
    name: Annotated[str, Path(description="`hosts`, `agents`, `pods`, or NAME of a query `targets-NAME` of your own.")],
) -> JSONResponse:
    """Answer one group for each row of the saved query `targets-{name}`: `targets` and `labels`; ids are short ones.

    The parameters are those of the query.
    """
    query = _query(request.app.state.saved_queries, name)
    given = request.query_params.multi_items()
    if double := next((each for each, _ in given if [name for name, _ in given].count(each) > 1), None):
        raise InvalidInput(f"the parameter {double[:64]!r} is given twice and takes one value")
    text = gate.check(bound(service, query, dict(given)), max_bytes=service.settings.query_bytes).text
    with querying.solutions(service, text) as (solutions, generation):
        groups = [_group(row, service.iris) for row in solutions.rows if _TARGET in row]
    return JSONResponse(groups, headers=dict(querying.headers_of(generation)))


def _query(catalogue: QueryCatalogue, name: str) -> SavedQuery:
    query = catalogue.queries.get(QUERY + name)
    if query is None:
        known = sorted(each.removeprefix(QUERY) for each in catalogue.queries if each.startswith(QUERY))
        raise ResourceNotFound(f"there is no list of targets {name[:64]!r}", hint=f"there are {', '.join(known)}")
    if _TARGET not in {each.name for each in query.columns}:
        raise InvalidDocument(f"{query.name} has no column {_TARGET}", hint="select host:port as ?target")
    return query


def _group(row: Mapping[str, Mapping[str, str]], iris: Iris) -> dict[str, Any]:
    """Return one target with its labels."""
    texts = {name: _text(term, iris) for name, term in row.items() if name != _TARGET}
    return {"targets": [row[_TARGET]["value"]], "labels": {_label(name): text for name, text in texts.items()}}


def _text(term: Mapping[str, str], iris: Iris) -> str:
    value = term["value"]
    return iris.short(value) if term["type"] == "uri" and value.startswith(iris.root) else value


def _label(column: str) -> str:
    return column if column == _AS_IT_IS or column.startswith("__") else f"__meta_drumlin_{column}"
