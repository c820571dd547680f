"""``/livez``, ``/readyz``, ``/metrics`` and the front page: what operators and newcomers ask first."""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.responses import JSONResponse, Response

from drumlin.api.bootstrap import Services, parts
from drumlin.api.exporting import leaders_of, stale_of
from drumlin.api.http.problems import problem_of
from drumlin.kg.config.settings import Settings
from drumlin.kg.errors import StoreUnavailable
from drumlin.kg.store.embedded.store import EmbeddedStore
from drumlin.kg.threads import dead

VERSION = version("drumlin")
router = APIRouter(tags=["operations"])
Service = Annotated[Services, Depends(parts)]


@router.get("/livez", summary="Is the process alive?")
def livez(service: Service) -> dict[str, str]:
    """Answer as long as the process can, and say who it is; without a token, where one is asked for, only that it is alive."""
    return alive(service.settings)  # never run: the edge answers in front of the routes


def alive(settings: Settings) -> dict[str, str]:
    """Say who answers, for as long as it can; ``drumlin follow`` says the same."""
    return {"status": "alive", "base": settings.base, "cluster": settings.cluster, "version": VERSION}


def death() -> dict[str, Any] | None:
    """Return the problem document of a process that must be restarted; None while every thread that it needs is alive."""
    if not (names := dead()):
        return None
    return problem_of(
        StoreUnavailable(
            f"the service cannot go on: ended by an error: {', '.join(names)}",
            hint="restart it; its log has the error (thread_died)",
            detail={"threads": names},
        )
    )


@router.get("/readyz", summary="Can it be used?")
def readyz(request: Request, service: Service) -> Response:
    """200 once the store answers, its search index is whole and each source has been read in full; else 503 saying what is missing.

    A store whose disk took no writes when it was opened is ``read-only``, with the ``reason`` and a ``hint``, and 200, since reads work.
    A graph of an earlier life is ready at once, and what was ready stays so: while a cluster cannot be followed, ``stale`` says since
    when, why, and of which kinds; with the setting ``strict_ready`` that is 503. Without a token, where one is asked for, it has the
    ``status`` alone. Where processes are elected, ``leaders`` says which of them follows each cluster; those that stand by are ready.
    """
    body = _readiness(service)
    ready = body["status"] in ("ready", "read-only")
    if request.scope.get("caller") is None:
        body = {"status": body["status"]}
    return JSONResponse(body) if ready else JSONResponse(body, status_code=503, headers={"Retry-After": "2"})


def _readiness(service: Services) -> dict[str, Any]:
    body: dict[str, Any] = {"status": "ready", "generation": service.store.generation}
    if leaders := leaders_of(service.exporting):
        body["leaders"] = leaders
    if service.ending.is_set():
        return body | {"status": "stopping"}
    if isinstance(service.store, EmbeddedStore) and (why := service.store.unwritable):
        if not service.search.index.partial:
            return body | {"status": "read-only", "reason": str(why), "hint": why.hint}
        return body | {"status": "indexing"}
    if missing := next((found for each in service.exporting if (found := each.missing)), None):
        return body | {"status": "syncing", **missing}
    if service.search.index.partial:
        return body | {"status": "indexing"}
    if not (stale := stale_of(service.exporting)):
        return body
    return body | {"status": "stale" if service.settings.strict_ready else "ready", "stale": stale}


@router.get("/metrics", summary="Metrics for Prometheus")
def metrics(request: Request) -> Response:
    """Requests by route and status, their time, the store's generation, the exporter's state."""
    return Response(generate_latest(request.app.state.metrics.registry), media_type=CONTENT_TYPE_LATEST)
