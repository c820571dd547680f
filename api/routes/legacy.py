"""``/api/v0/graph``: the HTTP interface of the public peer's metadata service, for clients that speak it; off unless ``[legacy] enabled``.

Requests, answers and errors are those of glaciation-metadata-service 2.0.2, whose OpenAPI document is the contract: strings instead of
objects, ``{"detail": …}`` instead of problem documents, and a GET that changes something. What it does wrong is not copied: an update
with a DROP GRAPH is run whole, and sub-selects inside GRAPH are in its scope.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Depends, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, Response

from drumlin.api.bootstrap import Services, parts
from drumlin.api.http.bodies import body_of
from drumlin.kg.errors import DrumlinError, Forbidden, QueryRejected, ResourceNotFound
from drumlin.kg.graphs.legacy import NOT_SELECT, LegacyGraphs
from drumlin.kg.store.embedded.store import EmbeddedStore

router = APIRouter(tags=["legacy"])
Service = Annotated[Services, Depends(parts)]
SUCCESS = "Success"
_OF_THIS_PAGE = frozenset({"same-origin", "none"})
T = TypeVar("T")


class _Detail(Exception):
    """An answer of the peer that is no success."""

    def __init__(self, status: int, detail: Any) -> None:
        super().__init__(str(detail))
        self.response = JSONResponse({"detail": detail}, status_code=status)


def _legacy(service: Services) -> LegacyGraphs:
    if service.legacy is None:
        raise ResourceNotFound("the interface of the public peer is off", hint="set [legacy] enabled = true")
    return service.legacy


@router.patch("/api/v0/graph", summary="Append a snapshot (JSON-LD)", response_class=Response)
async def insert(request: Request, service: Service) -> Response:
    """Append a JSON-LD document as a graph named by its time; the answer is a sentence with the number of triples and the graph."""
    legacy = _legacy(service)
    data = await body_of(request, service.settings.document_bytes)

    def work() -> str:
        document = _object(data)
        triples, graph = _tried(lambda: legacy.insert(document), 500)
        if not triples:
            raise _Detail(400, "No triples could be extracted from JSON-LD.")
        return f"Success - Inserted {triples} triple(s) into graph <{graph}>."

    return await _answered(work)


@router.get("/api/v0/graph", summary="Ask a SELECT of the snapshots", response_class=Response)
async def search(request: Request, service: Service) -> Response:
    """Return the solutions of the SELECT in `query`, as SPARQL's JSON; `GRAPH` reads the snapshots of the last six hours."""
    legacy = _legacy(service)

    def work() -> dict[str, Any]:
        text = _query(request)
        return _tried(lambda: legacy.select(text), 500)

    return await _answered(work)


@router.get("/api/v0/graph/update", summary="Run an update (of the peer's clients)", response_class=Response)
async def update_by_get(request: Request, service: Service) -> Response:
    """Run the SPARQL Update in `query` on the snapshots; a page of another origin cannot."""
    legacy = _legacy(service)
    if request.headers.get("sec-fetch-site", "none") not in _OF_THIS_PAGE:
        raise Forbidden("a page of another origin can change nothing")
    return await _answered(lambda: _updated(legacy, _query(request)))


@router.post("/api/v0/graph/update", summary="Run an update of the snapshots", response_class=Response)
async def update(request: Request, service: Service) -> Response:
    """Run the SPARQL Update in `{"query": …}` on the snapshots, all of it or nothing."""
    legacy = _legacy(service)
    data = await body_of(request, service.settings.query_bytes)

    def work() -> str:
        body = _object(data)
        if body.keys() != {"query"} or not isinstance(body["query"], str):
            raise _Detail(400, "Request must contain only {'query': str}")
        return _updated(legacy, body["query"])

    return await _answered(work)


@router.post("/api/v0/graph/compact", summary="Optimise the snapshots' store", response_class=Response)
async def compact(service: Service) -> Response:
    """Remove what is too old, and optimise the store."""
    legacy = _legacy(service)
    store = service.legacy_store

    def work() -> str:
        _tried(legacy.expire, 500)
        if isinstance(store, EmbeddedStore):
            _tried(store.optimize, 500)
        return SUCCESS

    return await _answered(work)


def _updated(legacy: LegacyGraphs, text: str) -> str:
    _tried(lambda: legacy.update(text), 500)
    return SUCCESS


async def _answered(work: Callable[[], Any]) -> Response:
    """Run work that blocks; what it returns, or refuses, as the peer answers."""
    try:
        return JSONResponse(await run_in_threadpool(work))
    except _Detail as told:
        return told.response


def _tried(work: Callable[[], T], status: int) -> T:
    """Do what may be refused; the peer has 400 for a syntax error and ``status`` for anything else."""
    try:
        return work()
    except QueryRejected as error:
        refused = 500 if error.reason in ("timeout", NOT_SELECT) else 400
        raise _Detail(refused, f"Syntax error in query: {error}" if error.reason == "syntax" else str(error)) from error
    except DrumlinError as error:
        raise _Detail(status, str(error)) from error


def _object(data: bytes) -> dict[str, Any]:
    """Read a body as FastAPI does: 422 unless it is a JSON object."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        where, why = (
            (error.pos, error.msg) if isinstance(error, json.JSONDecodeError) else (0, "the text cannot be read")
        )
        detail = {
            "type": "json_invalid",
            "loc": ["body", where],
            "msg": "JSON decode error",
            "input": {},
            "ctx": {"error": why},
        }
        raise _Detail(422, [detail]) from error
    if not isinstance(found, dict):
        detail = {"type": "dict_type", "loc": ["body"], "msg": "Input should be a valid dictionary", "input": found}
        raise _Detail(422, [detail])
    return found


def _query(request: Request) -> str:
    query = request.query_params.get("query")
    if query is None:
        raise _Detail(422, [{"type": "missing", "loc": ["query", "query"], "msg": "Field required", "input": None}])
    return query
