"""``/datasources``: the servers that hold telemetry, and what a look at each of them shows."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query

from drumlin.api.bootstrap import Services, now, parts
from drumlin.kg.errors import ResourceNotFound
from drumlin.kg.graphs.ingest import Statements
from drumlin.kg.rdf.jsonld import NodeDocument, read
from drumlin.kg.telemetry import probing
from drumlin.kg.telemetry.importing import import_from
from drumlin.kg.telemetry.templates import did_you_mean

router = APIRouter(tags=["telemetry"])
Service = Annotated[Services, Depends(parts)]
_TOGETHER = 8  # datasources that are looked at at one time


@router.get("/datasources", summary="List datasources, and look whether each works")
def list_datasources(
    service: Service,
    name: Annotated[str | None, Query(description="Only this one.")] = None,
    probe: Annotated[bool, Query(description="Ask each configured one; false only lists them.")] = True,
) -> dict[str, list[dict[str, Any]]]:
    """Return per datasource: reachable, version, oldest sample, and per template what is missing and what is similar there.

    Of a Prometheus also the installation that its names fit (`profile`, with evidence), the label that tells clusters apart
    (`clusterLabel`), and the lines of `drumlin.toml` to paste (`configuration`).
    """
    known = service.resolver.datasources()
    wanted = [each for each in known if name in (None, each.name, each.iri)]
    if name and not wanted:
        raise ResourceNotFound(
            f"there is no datasource {name[:80]!r}", hint=did_you_mean(name, [each.name for each in known])
        )
    if not probe or any(each.shared for each in wanted):  # a look would show what else there is
        return {"items": [probing.describe(each) for each in wanted]}
    clusters = service.resolver.clusters()
    look = partial(probing.probe, catalogue=service.resolver.catalogue, now=now(), clusters=clusters)
    with ThreadPoolExecutor(_TOGETHER, "probe") as pool:
        return {"items": list(pool.map(look, wanted))}


@router.post("/datasources/import", summary="Import the datasources of a Grafana")
def import_datasources(
    service: Service,
    name: Annotated[str, Query(description="Name of the Grafana in the configuration, with its credential.")],
) -> dict[str, list[dict[str, Any]]]:
    """Write a graph for each datasource that the Grafana lists: name, kind, address; never what gets one in. Once more changes nothing."""
    known = service.resolver.datasources()
    grafana = next((each for each in known if each.kind == "grafana" and name in (each.name, each.iri)), None)
    if grafana is None:
        near = did_you_mean(name, [each.name for each in known if each.kind == "grafana"])
        raise ResourceNotFound(f"there is no Grafana {name[:80]!r} in the configuration", hint=near)

    def write(iri: str, document: NodeDocument) -> str:
        return service.subgraphs.put(iri, Statements(*read(document))).outcome

    return {"items": import_from(grafana, known, service.iris, write)}
