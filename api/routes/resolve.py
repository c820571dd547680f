"""``/resolve``: entity × metric × window → endpoint, exact query, unit, curl line; for one, or for many at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Depends, Query
from pydantic import Field

from api.assembly import Parts, now, parts
from api.bodies import JsonRoute
from api.problems import problem_of
from api.selecting import Selection, selected
from api.streams import Stream
from api.windows import window
from kg.errors import DrumlinError
from kg.telemetry.formats import NDJSON
from kg.telemetry.resolution import CUSTOM, Resolution, Unresolved

router = APIRouter(tags=["telemetry"], route_class=JsonRoute)
Service = Annotated[Parts, Depends(parts)]
_LINES = 200  # that are written at one time


class Wanted(Selection):
    """Which metrics of which entities, over which window."""

    metrics: list[str] = Field([], max_length=100, description="Names of metrics; all that each entity has when empty.")
    query: str | None = Field(None, description="PromQL of your own, limited to each entity; instead of metrics.")
    last: str | None = Field(None, description="Window up to now: 30d, 12h (default 1h).")
    start: str | None = Field(None, description="Begin of the window: RFC 3339 or epoch seconds.")
    end: str | None = Field(None, description="End of the window; now when absent.")
    step: str | None = Field(None, description="Distance of the points: 5m; chosen when absent.")
    datasource: str | None = Field(None, description="Name of the datasource to use.")


@router.get("/resolve", summary="Resolve a metric or the logs of an entity")
def resolve(
    service: Service,
    entity: Annotated[str, Query(description="Short id or IRI of the entity.")],
    metric: Annotated[str, Query(description="Name of the metric, or logs.")] = CUSTOM,
    query: Annotated[str | None, Query(description="PromQL of your own, limited to the entity.")] = None,
    last: Annotated[str | None, Query(description="Window up to now: 30d, 12h (default 1h).")] = None,
    start: Annotated[str | None, Query(description="Begin of the window: RFC 3339 or epoch seconds.")] = None,
    end: Annotated[str | None, Query(description="End of the window; now when absent.")] = None,
    step: Annotated[str | None, Query(description="Distance of the points: 5m; chosen when absent.")] = None,
    datasource: Annotated[str | None, Query(description="Name of the datasource to use.")] = None,
) -> dict[str, Any]:
    """Return the exact query for the pods that ran in the window, where to send it, and a curl line that runs as it is."""
    span = window(last, start, end, now())
    if metric == "logs":
        return service.resolver.resolve_logs(entity, span, datasource=datasource).to_dict()
    return service.resolver.resolve(entity, metric, span, datasource=datasource, step=step, query=query).to_dict()


@router.post("/resolve", summary="Resolve the metrics of many entities")
def resolve_many(service: Service, body: Wanted) -> Stream:
    """Return NDJSON: per entity and metric, in order, what GET returns or ``entity, metric, problem``."""
    entities = selected(service, body)
    span = window(body.last, body.start, body.end, now())
    pairs = _pairs(service, entities, body)
    found = service.resolver.resolve_many(pairs, span, datasource=body.datasource, step=body.step, query=body.query)
    return Stream(_as_lines(found), NDJSON)


def _pairs(service: Parts, entities: list[str], body: Wanted) -> Iterator[tuple[str, str]]:
    for entity in entities:
        names = [CUSTOM] if body.query else body.metrics or _metrics(service, entity)
        yield from ((entity, name) for name in names)


def _metrics(service: Parts, entity: str) -> list[str]:
    """Return the metrics of an entity; of one that has none to tell, ``*``, so that its line says why."""
    try:
        return service.resolver.metrics_of(entity)
    except DrumlinError:
        return ["*"]


def _as_lines(found: Iterator[Resolution | Unresolved]) -> Iterator[bytes]:
    waiting: list[dict[str, Any]] = []
    for each in found:
        if isinstance(each, Unresolved):
            waiting.append({"entity": each.entity, "metric": each.metric, "problem": problem_of(each.error)})
        else:
            waiting.append(each.to_dict())
        if len(waiting) == _LINES:
            yield msgspec.json.Encoder(enc_hook=str).encode_lines(waiting)
            waiting = []
    yield msgspec.json.Encoder(enc_hook=str).encode_lines(waiting)
