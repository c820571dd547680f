"""``/values``: the current values of many entities in one call, for schedulers and rankers; JSON, CSV, NDJSON or Arrow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Depends, Header, Query
from pydantic import Field
from starlette.responses import Response

from drumlin.api.bootstrap import Services, parts
from drumlin.api.http import filter_validation
from drumlin.api.http.bodies import JsonRoute
from drumlin.api.http.entity_selection import UNIT_HELP, EntitySelection, selected
from drumlin.api.http.negotiation import choose, unnamed
from drumlin.api.routes.search import Filters
from drumlin.kg.errors import InvalidInput
from drumlin.kg.search.query import SearchQuery
from drumlin.kg.telemetry import formats, wire
from drumlin.kg.telemetry.durations import parse_duration, parse_moment
from drumlin.kg.telemetry.formats import CSV, NDJSON
from drumlin.kg.telemetry.values import CurrentValues

router = APIRouter(tags=["telemetry"], route_class=JsonRoute)
Service = Annotated[Services, Depends(parts)]
JSON = "application/json"
_FORMATS = {"json": JSON, "csv": CSV, "ndjson": NDJSON, "arrow": wire.MEDIA_TYPE}
_OFFERED = tuple(_FORMATS.values())
_AT = "Time of the values; now when absent."
_WINDOW = "How far rates and increases look back; four scrapes at least."
_STATUS = "CSV and NDJSON: a last line reports what is missing; without it there is nothing but rows."
_Format = Annotated[str | None, Query(alias="format", description="arrow, csv, ndjson or json; wins over Accept.")]


class WantedValues(EntitySelection):
    """Which metrics of which entities."""

    metrics: list[str] = Field(min_length=1, max_length=100, description="Names of metrics.")
    unit: list[str] = Field([], max_length=20, description=UNIT_HELP)
    at: str | None = Field(None, description=_AT)
    window: str = Field("5m", description=_WINDOW)
    datasource: str | None = Field(None, description="Name of the datasource to ask.")
    status: bool = Field(False, description=_STATUS)


@router.get("/values", summary="Read the current values of many entities")
def get_values(
    service: Service,
    narrowed: Filters,
    metric: Annotated[list[str], Query(max_length=100, description="Name of the metric; may be repeated.")],
    entity: Annotated[
        list[str] | None, Query(description="Short id or IRI; may be repeated. Without it, all that the filters match.")
    ] = None,
    prefix: Annotated[str, Query(description="Beginning of the short id.")] = "",
    after: Annotated[str, Query(description="Cursor: the id of the last entity seen.")] = "",
    limit: Annotated[int, Query(ge=1, le=10_000, description="Most entities.")] = 10_000,
    unit: Annotated[list[str] | None, Query(description=UNIT_HELP)] = None,
    at: Annotated[str | None, Query(description=_AT)] = None,
    window: Annotated[str, Query(description=_WINDOW)] = "5m",
    status: Annotated[bool, Query(description=_STATUS)] = False,
    wanted: _Format = None,
    accept: Annotated[str | None, Header()] = None,
) -> Response:
    """Return a row per entity and metric: entity, metric, value, unit, time of the newest sample, age in seconds, datasource.

    A server is asked once for each metric, however many entities there are. What there is no value of is listed with its reason:
    ``missing`` in JSON and in the metadata of Arrow; ``X-Drumlin-Missing`` counts it. ``datasource`` is a filter, and a single one is
    the datasource that is asked. ``next`` is the cursor for more entities, also in ``X-Drumlin-Next``; absent at the end.
    """
    named = narrowed.get("datasource", [])
    body = WantedValues(
        metrics=metric,
        unit=unit or [],
        at=at,
        window=window,
        status=status,
        datasource=named[0] if len(named) == 1 else None,
    )
    if entity is not None:
        if narrowed.keys() - {"datasource"} or prefix or after:
            raise InvalidInput("say which entities: either entity, or filters")
        return _answer(service, entity[:limit], body, wanted, accept, None)
    if not narrowed and not prefix:
        raise InvalidInput("say which entities: entity, or a filter", hint="type=Node")
    filter_validation.check(service, narrowed)
    found = service.search.find(SearchQuery("", narrowed, prefix, sort="id", after=after, limit=limit))
    ids = [each.id for each in found.items]
    return _answer(service, ids, body, wanted, accept, ids[-1] if found.next is not None else None)


@router.post("/values", summary="Read the current values of the entities that a body names")
def post_values(
    service: Service,
    body: WantedValues,
    wanted: _Format = None,
    accept: Annotated[str | None, Header()] = None,
) -> Response:
    """Do what GET does, for lists too long for an address, or the entities that a SPARQL query finds."""
    return _answer(service, selected(service, body), body, wanted, accept, None)


def _answer(
    service: Services,
    entities: Sequence[str],
    body: WantedValues,
    wanted: str | None,
    accept: str | None,
    after: str | None,
) -> Response:
    if wanted is not None and wanted not in _FORMATS:
        raise unnamed(wanted, _FORMATS, list(_OFFERED))
    media_type = choose(accept, _OFFERED) if wanted is None else _FORMATS[wanted]
    found = service.values.fetch(
        entities,
        body.metrics,
        at=parse_moment(body.at) if body.at else None,
        window=parse_duration(body.window),
        datasource=body.datasource,
        unit=body.unit,
    )
    headers = {
        "Vary": "Accept",
        "X-Drumlin-Values": str(len(found.values)),
        "X-Drumlin-Missing": str(len(found.missing)),
    }
    if after is not None:
        headers["X-Drumlin-Next"] = after
    return Response(_written(found, media_type, after, status=body.status), media_type=media_type, headers=headers)


def _written(found: CurrentValues, media_type: str, after: str | None, *, status: bool) -> bytes:
    table, account = found.table(), found.account()
    if media_type == CSV:
        text = formats.csv_of(table)
        return text + b"# " + msgspec.json.encode(account) + b"\n" if status else text
    if media_type == wire.MEDIA_TYPE:
        return wire.stream_of(table, account)
    rows: list[dict[str, Any]] = table.to_pylist()
    for row in rows:
        row["time"] = row["time"].isoformat().replace("+00:00", "Z")
    if media_type == NDJSON:
        return msgspec.json.Encoder().encode_lines([*rows, account] if status else rows)
    at = account.pop("at")
    return msgspec.json.encode({"at": at, "values": rows, **account, **({"next": after} if after else {})})
