"""``/forecasts``: forecasts of a metric saved, listed, read back and deleted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response

from drumlin.api.bootstrap import Services, now, parts
from drumlin.api.http.bodies import body_of
from drumlin.api.http.entity_selection import UNIT_HELP
from drumlin.api.http.problems import problem_of
from drumlin.kg.errors import InvalidInput
from drumlin.kg.graphs.ingest import Statements
from drumlin.kg.rdf.jsonld import NodeDocument, read
from drumlin.kg.telemetry import wire
from drumlin.kg.telemetry.arrow import pa
from drumlin.kg.telemetry.durations import parse_duration, parse_moment
from drumlin.kg.telemetry.forecast_points import points_of
from drumlin.kg.telemetry.forecasts import ForecastStore, Made, Unsaved
from drumlin.kg.telemetry.resolution import iso

router = APIRouter(prefix="/forecasts", tags=["telemetry"])
Service = Annotated[Services, Depends(parts)]
MAX_BYTES = 64 * 1024 * 1024

_Of = Annotated[str, Query(alias="entity", description="Short id or IRI of the entity.")]
_Metric = Annotated[str, Query(description="Name of the metric.")]


def forecasts_of(service: Services) -> ForecastStore:
    """Return the forecasts of a service; they are registered as a caller's graphs are."""

    def write(documents: Sequence[NodeDocument]) -> None:
        prepared = [service.subgraphs.prepare(each["id"], Statements(*read(each))) for each in documents]
        service.subgraphs.apply(prepared)

    return ForecastStore(
        service.store, service.iris, service.resolver, write, service.subgraphs.delete, now, service.parsers
    )


@router.post("", status_code=201, summary="Save forecasts")
async def save(
    request: Request,
    response: Response,
    service: Service,
    model: Annotated[str, Query(min_length=1, max_length=200, description="Name of the method that predicted.")],
    horizon: Annotated[str, Query(description="How far ahead it predicts: 1d.")],
    step: Annotated[str, Query(description="Time between two points: 5m.")],
    entity: Annotated[
        str | None, Query(description="Short id or IRI of the entity; absent when the column unique_id names many.")
    ] = None,
    metric: Annotated[str, Query(description="Name of the metric; absent when the column metric names it.")] = "",
    trained_from: Annotated[str | None, Query(alias="trainedFrom", description="Start of its history.")] = None,
    trained_to: Annotated[str | None, Query(alias="trainedTo", description="End of its history.")] = None,
    query: Annotated[str | None, Query(description="Query of its history.")] = None,
    datasource: Annotated[str | None, Query(description="Where its points go: parquet or influxdb.")] = None,
) -> dict[str, Any]:
    """Store the points (an Arrow IPC stream of ``ds``, ``y`` and quantiles ``q0.1`` …) and register the forecast in the graph.

    Without ``entity`` the stream is a long frame of many series, told apart by ``unique_id`` (and ``metric``): the answer has ``items``,
    one object a series in the order of the frame, with ``problem`` where it was not saved; when none was, the first one's error.
    """
    body = await body_of(request, MAX_BYTES)
    trained = (parse_moment(trained_from), parse_moment(trained_to)) if trained_from and trained_to else None
    how = Made(entity or "", metric, model, parse_duration(horizon), parse_duration(step), trained, query)
    if entity is None:
        return await service.bulkheads.telemetry.run(lambda: _save_many(service, body, how, datasource))
    if not metric:
        raise InvalidInput(
            "no metric is named", hint="name the metric of the entity that is forecast: metric=cpu_usage"
        )

    def work() -> dict[str, Any]:
        service.subgraphs.read(entity, allow_gone=True)  # raises when there is no such entity
        points = points_of(service.parsers.points(body))
        return forecasts_of(service).save(points, how, datasource).to_dict()

    saved = await service.bulkheads.telemetry.run(work)
    response.headers["Location"] = f"{service.settings.base}/subgraph/{service.iris.short(saved['id'])}"
    return saved


def _save_many(service: Services, body: bytes, how: Made, datasource: str | None) -> dict[str, Any]:
    found = forecasts_of(service).save_many(points_of(service.parsers.frame(body)), how, datasource)
    refused = [each for each in found if isinstance(each, Unsaved)]
    if refused and len(refused) == len(found):
        raise refused[0].error
    return {"items": [_refused(each) if isinstance(each, Unsaved) else each.to_dict() for each in found]}


def _refused(series: Unsaved) -> dict[str, Any]:
    return {"entity": series.entity, "metric": series.metric, "problem": problem_of(series.error)}


@router.get("", summary="List forecasts")
def list_forecasts(
    service: Service,
    entity: _Of,
    metric: Annotated[str | None, Query(description="Name of the metric; all metrics when absent.")] = None,
    limit: Annotated[int, Query(ge=1, le=1000, description="Most forecasts.")] = 100,
) -> dict[str, list[dict[str, Any]]]:
    """Return the forecasts of a metric, or of all metrics of an entity, the newest first."""
    return {"items": [each.to_dict() for each in forecasts_of(service).list(entity, metric, limit=limit)]}


@router.get("/value", summary="Read what is predicted for a moment")
def read_value(
    service: Service,
    entity: _Of,
    metric: _Metric,
    ahead: Annotated[str, Query(description="How far from now: 15m.")] = "15m",
    quantile: Annotated[
        str, Query(pattern=r"^(y|q0?\.[0-9]{1,4})$", description="y, or a quantile of the forecast: q0.9.")
    ] = "y",
    unit: Annotated[list[str] | None, Query(description=UNIT_HELP)] = None,
) -> dict[str, Any]:
    """Return one number and what it is: ``value``, ``unit``, ``at`` (end of the step that holds the moment), ``forecast``.

    KEDA's metrics-api scaler reads it with ``valueLocation: value``. 404 when no forecast reaches so far.
    """
    found = forecasts_of(service).value(entity, metric, now() + parse_duration(ahead), quantile, unit or [])
    return {
        "value": found.value,
        "unit": found.unit,
        "at": iso(found.at),
        "quantile": quantile,
        "forecast": found.forecast.iri,
        "model": found.forecast.model,
        "generatedAt": iso(found.forecast.generated),
    }


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
    if found.trained:
        headers["X-Drumlin-Trained"] = "/".join(map(iso, found.trained))
    return Response(sink.getvalue().to_pybytes(), media_type=wire.MEDIA_TYPE, headers=headers)
