"""``/forecasts``: forecasts of a metric saved, listed, read back and deleted."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from api.assembly import Parts, now, parts
from api.bodies import body_of
from kg.errors import InvalidDocument
from kg.jsonld import NodeDocument, lines
from kg.telemetry import wire
from kg.telemetry.arrow import pa
from kg.telemetry.durations import parse_duration, parse_moment
from kg.telemetry.forecasts import Forecasts, Made

router = APIRouter(prefix="/forecasts", tags=["telemetry"])
Service = Annotated[Parts, Depends(parts)]
MAX_BYTES = 64 * 1024 * 1024

_Of = Annotated[str, Query(alias="entity", description="Short id or IRI of the entity.")]
_Metric = Annotated[str, Query(description="Name of the metric.")]


def forecasts_of(service: Parts) -> Forecasts:
    """Return the forecasts of a service; they are registered as a caller's graphs are."""

    def write(iri: str, document: NodeDocument) -> None:
        service.subgraphs.put(iri, lines(document))

    return Forecasts(service.store, service.iris, service.resolver, write, service.subgraphs.delete, now)


@router.post("", status_code=201, summary="Save a forecast")
async def save(
    request: Request,
    response: Response,
    service: Service,
    entity: _Of,
    metric: _Metric,
    model: Annotated[str, Query(min_length=1, max_length=200, description="Name of the method that predicted.")],
    horizon: Annotated[str, Query(description="How far ahead it predicts: 1d.")],
    step: Annotated[str, Query(description="Time between two points: 5m.")],
    trained_from: Annotated[str | None, Query(alias="trainedFrom", description="Start of its history.")] = None,
    trained_to: Annotated[str | None, Query(alias="trainedTo", description="End of its history.")] = None,
    query: Annotated[str | None, Query(description="Query of its history.")] = None,
    datasource: Annotated[str | None, Query(description="Where its points go: parquet or influxdb.")] = None,
) -> dict[str, Any]:
    """Store the points (an Arrow IPC stream of ``ds``, ``y`` and quantiles ``q0.1`` …) and register the forecast in the graph."""
    body = await body_of(request, MAX_BYTES)
    trained = (parse_moment(trained_from), parse_moment(trained_to)) if trained_from and trained_to else None

    def work() -> dict[str, Any]:
        service.subgraphs.read(entity, allow_gone=True)  # raises when there is no such entity
        made = Made(entity, metric, model, parse_duration(horizon), parse_duration(step), trained, query)
        return forecasts_of(service).save(_table(body), made, datasource).to_dict()

    saved = await run_in_threadpool(work)
    response.headers["Location"] = f"{service.settings.base}/subgraph/{service.iris.short(saved['id'])}"
    return saved


@router.get("", summary="List a metric's forecasts")
def list_forecasts(
    service: Service,
    entity: _Of,
    metric: _Metric,
    limit: Annotated[int, Query(ge=1, le=1000, description="Most forecasts.")] = 100,
) -> dict[str, list[dict[str, Any]]]:
    """Return the forecasts of a metric, the newest first."""
    return {"items": [each.to_dict() for each in forecasts_of(service).list(entity, metric, limit=limit)]}


@router.delete("", summary="Delete a forecast")
def delete_forecast(
    service: Service,
    entity: _Of,
    metric: _Metric,
    id: Annotated[str, Query(description="IRI or short id of the forecast.")],
) -> dict[str, Any]:
    """Turn a forecast's graph into a tombstone, and remove its Parquet file; points in an InfluxDB go with its retention policy."""
    return forecasts_of(service).delete(entity, metric, id).to_dict()


@router.get("/points", summary="Read a forecast's points")
def read_points(
    service: Service,
    entity: _Of,
    metric: _Metric,
    id: Annotated[str | None, Query(description="IRI or short id of the forecast; the newest when absent.")] = None,
) -> Response:
    """Return the points of one forecast as an Arrow IPC stream."""
    forecasts = forecasts_of(service)
    found = forecasts.find(entity, metric, id)
    sink = pa.BufferOutputStream()
    table = forecasts.points(found)
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    step = str(int(found.step.total_seconds()))
    headers = {"X-Drumlin-Forecast": found.iri, "X-Drumlin-Step": step}
    return Response(sink.getvalue().to_pybytes(), media_type=wire.MEDIA_TYPE, headers=headers)


def _table(body: bytes) -> pa.Table:
    try:
        with pa.ipc.open_stream(body) as stream:
            return stream.read_all()
    except (pa.ArrowInvalid, OSError) as error:
        raise InvalidDocument(
            "the body is no Arrow IPC stream", hint="send what pyarrow.ipc.new_stream writes"
        ) from error
