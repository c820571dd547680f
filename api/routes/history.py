"""``/history``: the data itself, on an aligned grid, as Arrow IPC, Parquet, CSV, NDJSON or JSON; streamed in bounded memory."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Annotated, Any, Literal

import msgspec
from fastapi import APIRouter, Depends, Header, Query
from pydantic import Field
from starlette.responses import Response

from drumlin.api.bootstrap import Services, now, parts
from drumlin.api.http.bodies import JsonRoute
from drumlin.api.http.entity_selection import GROUP_HELP, UNIT_HELP, GroupedSelection, grouped, selected
from drumlin.api.http.negotiation import choose, unnamed
from drumlin.api.http.problems import problem_of
from drumlin.api.http.streaming import BodyStream
from drumlin.api.http.time_window import window
from drumlin.api.routes.forecasts import forecasts_of
from drumlin.api.routes.resolve import SELECTOR
from drumlin.kg.errors import InvalidInput
from drumlin.kg.telemetry import Choice, wire
from drumlin.kg.telemetry.formats import CSV, NDJSON, PARQUET, as_csv, as_ndjson, as_parquet
from drumlin.kg.telemetry.history import PART_VALUES, Plan, SeriesTable
from drumlin.kg.telemetry.resolution import CUSTOM, Unresolved
from drumlin.kg.telemetry.series import Window

router = APIRouter(tags=["telemetry"], route_class=JsonRoute)
Service = Annotated[Services, Depends(parts)]
Gaps = Literal["null", "ffill", "linear", "drop"]
Kind = Literal["actual", "forecast"]

JSON = "application/json"
_STREAMS: Mapping[str, Callable[[Iterable[SeriesTable]], Iterator[bytes]]] = {
    CSV: as_csv,
    wire.MEDIA_TYPE: wire.write,
    PARQUET: as_parquet,
    NDJSON: as_ndjson,
}
_WITH_STATUS = {CSV: partial(as_csv, status=True), NDJSON: partial(as_ndjson, status=True)}
_STATUS = "CSV and NDJSON: a last line reports failures and warnings; without it there is nothing but rows."
_FORMATS = {"json": JSON, "csv": CSV, "arrow": wire.MEDIA_TYPE, "parquet": PARQUET, "ndjson": NDJSON}
MAX_JSON_ROWS = 200_000
MAX_VALUES = 500_000_000
"""Values of one streamed answer."""

_Format = Annotated[
    str | None, Query(alias="format", description="arrow, parquet, csv, ndjson or json; wins over Accept.")
]
_Explain = Annotated[bool, Query(description="Return what would be asked, and ask nothing.")]


class HistoryRequest(GroupedSelection):
    """Which series, over which window, on which grid."""

    metrics: list[str] = Field([], max_length=100, description="Names of metrics.")
    query: str | None = Field(None, description="PromQL of your own, limited to each entity; instead of metrics.")
    last: str | None = Field(None, description="Window up to now: 30d, 12h (default 1h).")
    start: str | None = Field(None, description="Begin of the window: RFC 3339 or epoch seconds.")
    end: str | None = Field(None, description="End of the window; now when absent.")
    step: str = Field("auto", description="Distance of the points: 5m; auto stays below the server's limit.")
    gaps: Gaps = Field("null", description="What becomes of missing points.")
    datasource: str | None = Field(None, description="Name of the datasource to use.")
    unit: list[str] = Field([], max_length=20, description=UNIT_HELP)
    status: bool = Field(False, description=_STATUS)
    selector: Choice = Field("auto", description=SELECTOR)
    kind: Kind = Field(
        "actual", description="forecast: what was predicted; the newest forecast when no window is named."
    )


@router.get("/history", summary="Fetch a metric's history")
def get_history(
    service: Service,
    entity: Annotated[list[str] | None, Query(description="Short id or IRI; may be repeated.")] = None,
    metric: Annotated[list[str], Query(description="Name of the metric; may be repeated.")] = [],  # noqa: B006  how FastAPI gets a default; nobody changes it
    query: Annotated[str | None, Query(description="PromQL of your own, limited to each entity.")] = None,
    last: Annotated[str | None, Query(description="Window up to now: 30d, 12h (default 1h).")] = None,
    start: Annotated[str | None, Query(description="Begin of the window: RFC 3339 or epoch seconds.")] = None,
    end: Annotated[str | None, Query(description="End of the window; now when absent.")] = None,
    step: Annotated[
        str, Query(description="Distance of the points: 5m; auto stays below the server's limit.")
    ] = "auto",
    gaps: Annotated[Gaps, Query(description="What becomes of missing points.")] = "null",
    datasource: Annotated[str | None, Query(description="Name of the datasource to use.")] = None,
    selector: Annotated[Choice, Query(description=SELECTOR)] = "auto",
    kind: Annotated[Kind, Query(description="actual, or forecast: what was predicted.")] = "actual",
    unit: Annotated[list[str] | None, Query(description=UNIT_HELP)] = None,
    status: Annotated[bool, Query(description=_STATUS)] = False,
    group_by: Annotated[str | None, Query(max_length=300, description=GROUP_HELP)] = None,
    explain: _Explain = False,
    wanted: _Format = None,
    accept: Annotated[str | None, Header()] = None,
) -> Response:
    """Return a long table: unique_id, ds, y, metric, unit. Series that could not be had are listed, never left out in silence."""
    body = HistoryRequest(
        entities=entity,
        metrics=metric,
        query=query,
        last=last,
        start=start,
        end=end,
        step=step,
        gaps=gaps,
        datasource=datasource,
        selector=selector,
        kind=kind,
        unit=unit or [],
        status=status,
        group_by=group_by,
    )
    return _answer(service, body, accept, wanted, explain)


@router.post("/history", summary="Fetch the history of many entities")
def post_history(
    service: Service,
    body: HistoryRequest,
    explain: _Explain = False,
    wanted: _Format = None,
    accept: Annotated[str | None, Header()] = None,
) -> Response:
    """Do what GET does, for lists too long for an address, a filter, or the entities that a SPARQL query finds."""
    return _answer(service, body, accept, wanted, explain)


def _answer(service: Services, body: HistoryRequest, accept: str | None, wanted: str | None, explain: bool) -> Response:
    media_type = _media_type(accept, wanted)
    if body.kind == "forecast":
        return _predicted(service, body, media_type)
    span = window(body.last, body.start, body.end, now())
    entities, among = grouped(service, body, span)
    plan = service.history.plan(
        entities,
        [CUSTOM] if body.query else body.metrics,
        start=span.start,
        end=span.end,
        step=body.step,
        gaps=body.gaps,
        datasource=body.datasource,
        query=body.query,
        unit=body.unit,
        among=among,
        selector=body.selector,
        limit=MAX_JSON_ROWS if media_type == JSON and not explain else MAX_VALUES,
    )
    if explain:
        return Response(_explained(service, plan), media_type=JSON)
    return _streamed(service.history.stream(plan), plan, media_type, status=body.status)


def _predicted(service: Services, body: HistoryRequest, media_type: str) -> Response:
    """Answer with forecasts: in the window that was asked for, else the whole newest one of each series."""
    if body.query or body.datasource or body.group_by:
        raise InvalidInput(
            "a forecast is of a metric of an entity, and lies where it was saved: leave query, datasource and group_by away"
        )
    span = window(body.last, body.start, body.end, now()) if body.last or body.start else None
    pairs = [(entity, metric) for entity in selected(service, body) for metric in body.metrics]
    if not pairs:
        raise InvalidInput("no metric was named")
    found = forecasts_of(service).history(pairs, span, body.step, body.gaps, body.unit)
    plan = Plan(tuple(pairs), Window(*found.grid.window), found.grid, body.gaps)
    return _streamed(iter([found]), plan, media_type, status=body.status)


def _streamed(found: Iterator[SeriesTable], plan: Plan, media_type: str, *, status: bool) -> Response:
    """Answer with the stream; its first part is waited for, so that an error is answered as one."""
    headers = {"Vary": "Accept", "X-Drumlin-Series": str(len(plan.wanted))}
    first = next(found)
    if plan.grid.points * len(plan.wanted) <= PART_VALUES:  # all of it is in the first part
        headers["X-Drumlin-Failures"] = str(len(first.failures))
        headers["X-Drumlin-Warnings"] = str(len(first.warnings))
    if media_type == JSON:
        return Response(_as_json(first), media_type=JSON, headers=headers)
    write = _WITH_STATUS.get(media_type) if status else None
    chunks = (write or _STREAMS[media_type])(itertools.chain([first], found))
    return BodyStream(chunks, media_type, headers)


def _media_type(accept: str | None, wanted: str | None) -> str:
    if wanted is None:
        return choose(accept, (JSON, *_STREAMS))
    if wanted not in _FORMATS:
        raise unnamed(wanted, _FORMATS, list(_FORMATS.values()))
    return _FORMATS[wanted]


def _explained(service: Services, plan: Plan) -> bytes:
    found = [
        {"entity": each.entity, "metric": each.metric, "problem": problem_of(each.error)}
        if isinstance(each, Unresolved)
        else each.to_dict()
        for each in service.history.resolutions(plan)
    ]
    about = {"points": plan.grid.points, "step": plan.grid.step, "values": plan.grid.points * len(plan.wanted)}
    return msgspec.json.encode({**about, "queries": found}, enc_hook=str)


def _as_json(series: SeriesTable) -> bytes:
    columns: list[list[Any]] = [series.table[name].to_pylist() for name in series.table.column_names]
    rows = [dict(zip(series.table.column_names, row, strict=True)) for row in zip(*columns, strict=True)]
    return msgspec.json.encode({**wire.account(series), "rows": rows})
