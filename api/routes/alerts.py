"""``/alerts``: what fires or is pending, matched to the entities that it is about."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query

from drumlin.api.bootstrap import Services, parts
from drumlin.api.http.problems import problem_of

router = APIRouter(tags=["telemetry"])
Service = Annotated[Services, Depends(parts)]


@router.get("/alerts", summary="List pending and firing alerts")
def get_alerts(
    service: Service,
    entity: Annotated[
        list[str] | None,
        Query(description="Only alerts about this entity or what is part of it; short id or IRI, may be repeated."),
    ] = None,
    state: Annotated[list[str] | None, Query(description="pending, firing or suppressed; may be repeated.")] = None,
    severity: Annotated[list[str] | None, Query(description="Value of the label severity; may be repeated.")] = None,
    datasource: Annotated[str | None, Query(description="Name of the datasource to ask.")] = None,
) -> dict[str, Any]:
    """Return the alerts of the configured Prometheus and Alertmanager datasources, with ``entities``, the most specific first.

    An alert about a pod concerns its workload, namespace, cluster and domain too. Where nothing names the cluster of an alert,
    ``unmatched`` says why. ``failures`` are the datasources that could not be asked. Nothing of it is stored.
    """
    found = service.alerts.fetch(entity, states=state or (), severities=severity or (), datasource=datasource)
    return {
        "items": [each.to_dict(service.iris) for each in found.alerts],
        "failures": [{"datasource": name, "problem": problem_of(error)} for name, error in found.failures],
    }
