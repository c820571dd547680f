"""``/queries``: the saved queries, each a typed end point of its own. Which there are is known when the application is made."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from math import isfinite
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Depends, Header, Query
from pydantic import WithJsonSchema
from starlette.responses import Response

from drumlin.api import querying
from drumlin.api.bootstrap import Services, parts
from drumlin.api.http.negotiation import choose, unnamed
from drumlin.api.http.strict_parameters import known_only
from drumlin.api.querying import ParsedQuery
from drumlin.kg.errors import TooLarge
from drumlin.kg.sparql import gate
from drumlin.kg.sparql.dataset import Dataset
from drumlin.queries.catalogue import Parameter, QueryCatalogue, SavedQuery

Service = Annotated[Services, Depends(parts)]
JSON, RESULTS, CSV, TSV = "application/json", "application/sparql-results+json", "text/csv", "text/tab-separated-values"
SPARQL = "application/sparql-query"
_OFFERED = (JSON, CSV, RESULTS, TSV, SPARQL)
_FORMATS = {"json": JSON, "csv": CSV, "tsv": TSV, "srj": RESULTS, "rq": SPARQL}
MAX_JSON_ROWS = 100_000
MAX_JSON_BYTES = 64 << 20
"""Bytes of the rows of one answer in JSON, which is made before it is sent."""
_PREFIX = "parameter_"  # a parameter may bear a word of Python (from)

_KNOWN = [Depends(known_only)]  # before a parameter that is missing: it may have been misspelt
_SCHEMAS: Mapping[str, dict[str, Any]] = {
    "integer": {"type": "integer"},
    "decimal": {"type": "number"},
    "boolean": {"type": "boolean"},
    "dateTime": {"type": "string", "format": "date-time"},
}


def router_of(catalogue: QueryCatalogue) -> APIRouter:
    """Make the routes: the list, and one for each query."""
    router = APIRouter(tags=["queries"])
    router.add_api_route(
        "/queries", _listing(catalogue), methods=["GET"], summary="List the saved queries", dependencies=_KNOWN
    )
    for query in catalogue.queries.values():
        router.add_api_route(
            f"/queries/{query.name}",
            _endpoint(query),
            methods=["GET"],
            summary=query.title,
            description=_described(query),
            operation_id=f"query_{query.name.replace('-', '_')}",
            response_class=Response,
            dependencies=_KNOWN,
            responses={200: {"content": {each: {} for each in _OFFERED}}},
        )
    router.add_api_route("/queries/{name}", _unknown(catalogue), methods=["GET"], include_in_schema=False)
    return router


def _listing(catalogue: QueryCatalogue) -> Callable[[], dict[str, Any]]:
    def list_queries() -> dict[str, Any]:
        """Return each query's name, title, parameters and columns."""
        told = [msgspec.to_builtins(each) for each in catalogue.queries.values()]
        return {"items": [{key: value for key, value in each.items() if key != "text"} for each in told]}

    return list_queries


def _unknown(catalogue: QueryCatalogue) -> Callable[[str], None]:
    def unknown(name: str) -> None:
        catalogue.get(name)

    return unknown


def _described(query: SavedQuery) -> str:
    columns = "\n".join(f"* `{each.name}`: {each.description}" for each in query.columns)
    return f"{query.description}\n\nColumns:\n{columns}"


def _endpoint(query: SavedQuery) -> Callable[..., Response]:
    """Return a function whose signature is the query's: FastAPI makes the documentation of it."""

    def ask(service: Services, accept: str | None, wanted: str | None, explain: bool, **given: str | None) -> Response:
        given = {name.removeprefix(_PREFIX): value for name, value in given.items()}
        return _answer(
            service,
            query,
            {name: value for name, value in given.items() if value is not None},
            accept,
            wanted,
            explain=explain,
        )

    fixed = {
        "service": Service,
        "accept": Annotated[str | None, Header()],
        "wanted": Annotated[
            str | None, Query(alias="format", description="json, csv, tsv, srj or rq; wins over Accept.")
        ],
        "explain": Annotated[bool, Query(description="SPARQL JSON of no rows says why, as `warnings`.")],
    }
    defaults: dict[str, Any] = {"accept": None, "wanted": None, "explain": False}
    kind = inspect.Parameter.KEYWORD_ONLY
    ask.__signature__ = inspect.Signature(  # type: ignore[attr-defined]  # FastAPI reads it
        [
            *(
                inspect.Parameter(_PREFIX + each.name, kind, annotation=_annotated(each), **_default(each))
                for each in query.parameters
            ),
            *(
                inspect.Parameter(
                    name, kind, annotation=note, **({"default": defaults[name]} if name in defaults else {})
                )
                for name, note in fixed.items()
            ),
        ],
        return_annotation=Response,
    )
    return ask


def _annotated(parameter: Parameter) -> Any:
    schema = _SCHEMAS.get(parameter.type, {"type": "string"})
    return Annotated[
        str,
        WithJsonSchema(schema),
        Query(alias=parameter.name, description=f"{parameter.description} ({parameter.type})"),
    ]


def _default(parameter: Parameter) -> dict[str, Any]:
    return {} if parameter.default is None else {"default": parameter.default}


def _answer(
    service: Services,
    query: SavedQuery,
    values: Mapping[str, str],
    accept: str | None,
    wanted: str | None,
    *,
    explain: bool,
) -> Response:
    if wanted and wanted not in _FORMATS:
        raise unnamed(wanted, _FORMATS, _OFFERED)
    media_type = _FORMATS[wanted] if wanted else choose(accept, _OFFERED)
    text = bound(service, query, values)
    if media_type == SPARQL:
        return Response(text, media_type=SPARQL)
    gated = gate.check(text, max_bytes=service.settings.query_bytes)
    if media_type == JSON:
        return _plain(service, query, gated.text)
    parsed = ParsedQuery(gated.text, Dataset(), media_type, timeout=None, volatile=gated.volatile)
    if explain:
        return querying.explained(service, parsed, query.named(values, service.iris))
    return querying.run(service, parsed)


def bound(service: Services, query: SavedQuery, values: Mapping[str, str]) -> str:
    """Return a saved query with its parameters, and what it fetches, bound; raises what binding and fetching raise."""
    return query.bound(values, service.iris, _fetched(service) if query.fetches else ())


def _fetched(service: Services) -> Iterator[tuple[str | None, ...]]:
    """Yield the alerts of now, once for each entity that they are about."""
    for each in service.alerts.fetch().alerts:
        for iri in each.subjects(service.iris):
            yield iri, each.name, each.state, each.severity, each.since


def _plain(service: Services, query: SavedQuery, text: str) -> Response:
    """Answer with rows as plain objects: what is unbound is absent, numbers and booleans are JSON's own."""
    rows: list[msgspec.Raw] = []
    size = 0
    with querying.solutions(service, text) as (solutions, generation):
        for row in solutions.rows:
            written = msgspec.json.encode({name: _value(term) for name, term in row.items()})
            rows.append(msgspec.Raw(written))
            size += len(written)
            if len(rows) > MAX_JSON_ROWS or size > MAX_JSON_BYTES:
                raise TooLarge(
                    f"the rows are too many for JSON; the limit is {MAX_JSON_ROWS:,}, or {MAX_JSON_BYTES:,} bytes of them",
                    hint="ask for format=csv",
                )
    body = {"query": query.name, "columns": solutions.variables, "rows": rows}
    return Response(msgspec.json.encode(body), media_type=JSON, headers=querying.headers_of(generation))


def _value(term: Mapping[str, str]) -> Any:
    name = term.get("datatype", "").rpartition("#")[2]
    text = term["value"]
    if name == "boolean":
        return text in ("true", "1")
    if name in ("integer", "decimal", "double", "float"):
        try:
            return int(text) if name == "integer" else float(text) if isfinite(float(text)) else text
        except ValueError:
            return text  # ill-typed in the data: the text is the truth
    return text
