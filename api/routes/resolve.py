"""``/resolve``: entity × metric × window → endpoint, exact query, unit, curl line; for one, or for many at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Depends, Query
from pydantic import Field

from drumlin.api.bootstrap import Services, now, parts
from drumlin.api.http.bodies import JsonRoute
from drumlin.api.http.entity_selection import GROUP_HELP, UNIT_HELP, GroupedSelection, grouped
from drumlin.api.http.problems import problem_of
from drumlin.api.http.streaming import BodyStream
from drumlin.api.http.time_window import window
from drumlin.kg.errors import DrumlinError, InvalidInput
from drumlin.kg.telemetry import Choice
from drumlin.kg.telemetry.formats import NDJSON
from drumlin.kg.telemetry.resolution import CUSTOM, Resolution, Unresolved
from drumlin.kg.telemetry.series import Window

router = APIRouter(tags=["telemetry"], route_class=JsonRoute)
Service = Annotated[Services, Depends(parts)]
SELECTOR = "How a workload's pods are picked: exact (those known to have run), pattern (of their names), auto (exact where all are known)."
_LINES = 200  # that are written at one time


class ResolveRequest(GroupedSelection):
    """Which metrics of which entities, over which window."""

    metrics: list[str] = Field([], max_length=100, description="Names of metrics; all that each entity has when empty.")
    query: str | None = Field(None, description="PromQL of your own, limited to each entity; instead of metrics.")
    last: str | None = Field(None, description="Window up to now: 30d, 12h (default 1h).")
    start: str | None = Field(None, description="Begin of the window: RFC 3339 or epoch seconds.")
    end: str | None = Field(None, description="End of the window; now when absent.")
    step: str | None = Field(None, description="Distance of the points: 5m; chosen when absent.")
    datasource: str | None = Field(None, description="Name of the datasource to use.")
    unit: list[str] = Field([], max_length=20, description=UNIT_HELP)
    selector: Choice = Field("auto", description=SELECTOR)


@router.get("/resolve", summary="Resolve a metric or the logs of an entity")
def resolve(
    service: Service,
    entity: Annotated[
        str | None, Query(description="Short id or IRI of the entity, or of a group (applicationGroup/shop).")
    ] = None,
    metric: Annotated[str, Query(description="Name of the metric, or logs.")] = CUSTOM,
    query: Annotated[str | None, Query(description="PromQL of your own, limited to the entity.")] = None,
    last: Annotated[str | None, Query(description="Window up to now: 30d, 12h (default 1h).")] = None,
    start: Annotated[str | None, Query(description="Begin of the window: RFC 3339 or epoch seconds.")] = None,
    end: Annotated[str | None, Query(description="End of the window; now when absent.")] = None,
    step: Annotated[str | None, Query(description="Distance of the points: 5m; chosen when absent.")] = None,
    datasource: Annotated[str | None, Query(description="Name of the datasource to use.")] = None,
    unit: Annotated[list[str] | None, Query(description=UNIT_HELP)] = None,
    group_by: Annotated[str | None, Query(max_length=300, description=GROUP_HELP)] = None,
    selector: Annotated[Choice, Query(description=SELECTOR)] = "auto",
) -> dict[str, Any]:
    """Return the exact query for the pods that ran in the window, where to send it, and a curl line that runs as it is.

    With ``group_by`` the answer has ``items``: a query for each group, with ``entity`` of the pods in or of that entity alone.
    """
    span = window(last, start, end, now())
    if group_by is not None:
        body = ResolveRequest(
            entities=None if entity is None else [entity],
            metrics=[] if metric == CUSTOM else [metric],
            group_by=group_by,
            unit=unit or [],
        )
        body.query, body.step, body.datasource = query, step, datasource
        return {"items": [_told(each) for each in _many(service, body, span)]}
    if entity is None:
        raise InvalidInput("name the entity, or group_by", hint="entity=prod/payments/deployment/checkout")
    if metric == "logs":
        return service.resolver.resolve_logs(entity, span, datasource=datasource).to_dict()
    found = service.resolver.resolve(
        entity, metric, span, datasource=datasource, step=step, query=query, unit=unit or (), selector=selector
    )
    return found.to_dict()


@router.post("/resolve", summary="Resolve the metrics of many entities")
def resolve_many(service: Service, body: ResolveRequest) -> BodyStream:
    """Return NDJSON: per entity and metric, in order, what GET returns or ``entity, metric, problem``."""
    span = window(body.last, body.start, body.end, now())
    return BodyStream(_as_lines(_many(service, body, span)), NDJSON)


def _many(service: Services, body: ResolveRequest, span: Window) -> Iterator[Resolution | Unresolved]:
    entities, among = grouped(service, body, span)
    pairs = _pairs(service, entities, body)
    return service.resolver.resolve_many(
        pairs,
        span,
        datasource=body.datasource,
        step=body.step,
        query=body.query,
        unit=body.unit,
        among=among,
        selector=body.selector,
    )


def _pairs(service: Services, entities: list[str], body: ResolveRequest) -> Iterator[tuple[str, str]]:
    for entity in entities:
        names = [CUSTOM] if body.query else body.metrics or _metrics(service, entity)
        yield from ((entity, name) for name in names)


def _metrics(service: Services, entity: str) -> list[str]:
    """Return the metrics of an entity; of one that has none, ``*``, so that its line says why."""
    try:
        return service.resolver.metrics_of(entity)
    except DrumlinError:
        return ["*"]


def _told(found: Resolution | Unresolved) -> dict[str, Any]:
    if isinstance(found, Unresolved):
        return {"entity": found.entity, "metric": found.metric, "problem": problem_of(found.error)}
    return found.to_dict()


def _as_lines(found: Iterator[Resolution | Unresolved]) -> Iterator[bytes]:
    waiting: list[dict[str, Any]] = []
    for each in found:
        waiting.append(_told(each))
        if len(waiting) == _LINES:
            yield msgspec.json.Encoder(enc_hook=str).encode_lines(waiting)
            waiting = []
    yield msgspec.json.Encoder(enc_hook=str).encode_lines(waiting)
