"""``/livez``, ``/readyz``, ``/metrics`` and the front page: what operators and newcomers ask first."""

from __future__ import annotations

import html
from importlib.metadata import version
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.responses import HTMLResponse, JSONResponse, Response

from api.assembly import Parts, parts
from kg.settings import Settings

VERSION = version("drumlin")
router = APIRouter(tags=["operations"])
Service = Annotated[Parts, Depends(parts)]


@router.get("/livez", summary="Is the process alive?")
def livez(service: Service) -> dict[str, str]:
    """Answer as long as the process can, and say who it is."""
    return alive(service.settings)  # run once: api.alive answers in front of the routes


def alive(settings: Settings) -> dict[str, str]:
    """Say who answers, for as long as it can; ``drumlin follow`` says the same."""
    return {"status": "alive", "base": settings.base, "cluster": settings.cluster, "version": VERSION}


@router.get("/readyz", summary="Can it be used?")
def readyz(service: Service) -> Response:
    """200 once the store answers and each source has been read in full; else 503 saying what is missing of the first that was not."""
    body: dict[str, Any] = {"status": "ready", "generation": service.store.generation}
    if missing := next((found for each in service.exporting if (found := each.missing)), None):
        body |= {"status": "syncing", **missing}
        return JSONResponse(body, status_code=503, headers={"Retry-After": "2"})
    return JSONResponse(body)


@router.get("/metrics", summary="Metrics for Prometheus")
def metrics(request: Request) -> Response:
    """Requests by route and status, their time, the store's generation, the exporter's state."""
    return Response(generate_latest(request.app.state.metrics.registry), media_type=CONTENT_TYPE_LATEST)


@router.get("/", response_class=HTMLResponse, include_in_schema=False)
def front(service: Service) -> str:
    """Show what is in the graph and where to go from here."""
    rows = "".join(
        f"<tr><td><a href='subgraphs?type={name}'>{name}</a></td><td>{count}</td></tr>"
        for kind, count in sorted(service.counting.counts().entities.items(), key=lambda found: -found[1])
        if (name := html.escape(kind.rpartition("#")[2]))
    )
    return _PAGE.format(cluster=html.escape(service.settings.cluster), rows=rows, generation=service.store.generation)


_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Drumlin · {cluster}</title>
<style>
:root {{ color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif }}
body {{ max-width: 46rem; margin: 2rem auto; padding: 0 1rem }}
td {{ padding: .1rem 1.5rem .1rem 0 }} td + td {{ text-align: right; font-variant-numeric: tabular-nums }}
textarea {{ width: 100%; box-sizing: border-box; font: 14px/1.4 ui-monospace, monospace }}
</style>
<h1>Drumlin</h1>
<p>The map of cluster <strong>{cluster}</strong> and its telemetry, at generation {generation}.</p>
<table>{rows}</table>
<h2>Ask</h2>
<form action="sparql"><label for="query">SPARQL</label>
<textarea id="query" name="query" rows="6">PREFIX : &lt;https://w3id.org/drumlin/ns#&gt;
SELECT ?workload ?namespace ?phase WHERE {{ ?workload a :Deployment ; :namespace ?namespace ; :phase ?phase }}</textarea>
<p><button name="format" value="csv">Run as CSV</button> <button name="format" value="json">Run as JSON</button></p></form>
<h2>More</h2>
<ul>
<li><a href="subgraphs">/subgraphs</a> all entities</li>
<li><a href="openapi.json">/openapi.json</a> every route</li>
<li><a href="export?format=nquads">/export</a> the whole graph</li>
<li><a href="metrics">/metrics</a>, <a href="readyz">/readyz</a></li>
</ul>
</html>"""
