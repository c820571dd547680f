"""``/resolve``: entity × metric × window → endpoint, exact query, unit, curl line."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query

from api.assembly import Parts, now, parts
from api.windows import window

router = APIRouter(tags=["telemetry"])
Service = Annotated[Parts, Depends(parts)]


@router.get("/resolve", summary="Resolve a metric or the logs of an entity")
def resolve(
    service: Service,
    entity: Annotated[str, Query(description="Short id or IRI of the entity.")],
    metric: Annotated[str, Query(description="Name of the metric, or logs.")],
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
    return service.resolver.resolve(entity, metric, span, datasource=datasource, step=step).to_dict()
