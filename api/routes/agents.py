"""``/agents``: what runs outside Kubernetes, as agents register it, and who is alive; ``/v1/logs``: the same from a Collector."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse

from drumlin.api.access.callers import Caller
from drumlin.api.bootstrap import Services, parts
from drumlin.api.http.bodies import body_of
from drumlin.exporters.agents import otlp, protobuf
from drumlin.exporters.agents.registration import MAX_BYTES, check_guid, decode, decode_relay
from drumlin.exporters.agents.registry import AgentRecord, Registered
from drumlin.kg.errors import InvalidDocument, InvalidInput, UnsupportedSyntax
from drumlin.kg.rdf.jsonld import NAMESPACE
from drumlin.kg.telemetry.resolution import iso

router = APIRouter(tags=["agents"])
otlp_router = APIRouter(tags=["agents"])
Service = Annotated[Services, Depends(parts)]
Guid = Annotated[str, Path(description="GUID of the agent.")]
JSON, PROTOBUF = "application/json", "application/x-protobuf"
MOST = 1000
"""Agents of one page."""


@router.get("/agents", summary="List agents")
def list_agents(
    service: Service,
    platform: Annotated[str | None, Query(description="docker, kubernetes, kvm or bare-metal.")] = None,
    tag: Annotated[str | None, Query(description="A tag, or the beginning of one: eu/lab finds eu/lab/rack-3.")] = None,
    origin: Annotated[str | None, Query(description="Site that the agent reports from.")] = None,
    name: Annotated[str | None, Query(description="Name of the agent, or of something that it manages.")] = None,
    namespace: Annotated[str | None, Query(description="Namespace of something that it manages.")] = None,
    managing: Annotated[
        str | None,
        Query(description="Short id or IRI of a thing: the agent that manages it first, the root agent last."),
    ] = None,
    after: Annotated[str | None, Query(description="`next` of the page before.")] = None,
    limit: Annotated[int, Query(ge=1, le=MOST, description="Most agents.")] = 100,
) -> dict[str, Any]:
    """Return agents by GUID, with ``lastSeen`` and ``silent``; ``managing`` returns the chain above one thing instead."""
    if managing is not None:
        if any((platform, tag, origin, name, namespace, after)):
            raise InvalidInput("managing takes no filter beside it", hint="leave the other parameters out")
        return {"items": [_told(service, each) for each in service.agents.managing(managing)], "next": None}
    found = service.agents.agents(platform=platform, origin=origin, tag=tag, name=name, namespace=namespace)
    rest = [each for each in found if after is None or each.guid > after]
    more = len(rest) > limit
    return {"items": [_told(service, each) for each in rest[:limit]], "next": rest[limit - 1].guid if more else None}


@router.get("/agents/{guid}", summary="Read an agent and what it manages")
def read_agent(service: Service, guid: Guid) -> dict[str, Any]:
    """Return an agent with its ``entities``: id, type, name, namespace, phase."""
    record = service.agents.find(check_guid(guid))
    entities = [
        {
            "id": service.iris.short(row["thing"]),
            "type": row["type"].removeprefix(NAMESPACE),
            "name": row["name"],
            "namespace": row.get("namespace"),
            "phase": row["phase"].removeprefix(NAMESPACE) if "phase" in row else None,
        }
        for row in service.agents.things(record.iri)
    ]
    return {**_told(service, record), "entities": entities}


@router.put(
    "/agents/{guid}",
    summary="Register an agent and what it manages",
    openapi_extra={"requestBody": {"required": True, "content": {JSON: {"schema": {"type": "object"}}}}},
)
async def register(request: Request, response: Response, service: Service, guid: Guid) -> dict[str, Any]:
    """Make the graph have exactly this of an agent, all or nothing: 201 when the agent is new, 200 with an outcome per key otherwise.

    What the agent had and does not name any more becomes a tombstone. Fields that are not documented are skipped, never kept.
    """
    check_guid(guid)
    body = await body_of(request, MAX_BYTES)
    found = await service.bulkheads.bulk.run(lambda: service.agents.register(guid, decode(body)))
    response.status_code = 201 if found.outcome == "created" else 200
    if found.outcome == "created":
        response.headers["Location"] = f"{service.settings.base}/agents/{guid}"
    return _registered(service, found)


@router.delete("/agents/{guid}", summary="Remove an agent and what it manages")
def remove(service: Service, guid: Guid) -> dict[str, Any]:
    """Turn the agent and all that it manages into tombstones; return their ids."""
    return {"removed": [service.iris.short(each) for each in service.agents.remove(check_guid(guid))]}


@router.post(
    "/agents/{guid}/heartbeat",
    summary="Say that an agent is alive, and agents below it",
    openapi_extra={"requestBody": {"content": {JSON: {"schema": {"type": "object"}}}}},
)
async def heartbeat(request: Request, service: Service, guid: Guid) -> Response:
    """Note the time in memory; nothing is written until the agent falls silent (three intervals) or is heard again (two heartbeats).

    A body ``{"agents": [GUID, …]}`` says the same of agents below it, at most 10,000: the answer (200) has ``unknown``, those that are not
    registered or not below it. Without a body the answer is 204.
    """
    check_guid(guid)
    body = await body_of(request, MAX_BYTES)
    others = decode_relay(body).agents
    unknown = await run_in_threadpool(service.agents.relay, guid, others)
    return JSONResponse({"unknown": unknown}) if body else Response(status_code=204)


@otlp_router.post(
    "/v1/logs",
    summary="Take entity events of OpenTelemetry",
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {
                JSON: {"schema": {"type": "object"}},
                PROTOBUF: {"schema": {"type": "string", "format": "binary"}},
            },
        }
    },
)
async def take_logs(
    request: Request, service: Service, content_type: Annotated[str | None, Header()] = None
) -> Response:
    """Register what the entity events of an OTLP request report: hosts, virtual machines and containers of the Collector that sends it.

    The Collector is an agent: its GUID is that of its token, else the resource's ``service.instance.id``. Other log records are not kept;
    ``partialSuccess`` counts them.
    """
    media_type = (content_type or "").partition(";")[0].strip().lower()
    if media_type not in (JSON, PROTOBUF):
        raise UnsupportedSyntax(
            f"{media_type[:80]!r} is not OTLP over HTTP",
            hint=f"send {PROTOBUF} or {JSON}",
            detail={"offered": [JSON, PROTOBUF]},
        )
    body = await body_of(request, MAX_BYTES)
    caller: Caller = request.scope["caller"]

    def work() -> tuple[int, str]:
        reports = otlp.from_json(body) if media_type == JSON else otlp.from_protobuf(body)
        return _observe(service, reports, caller)

    rejected, why = await service.bulkheads.bulk.run(work)
    return Response(_export_answer(media_type, rejected, why), media_type=media_type)


def _observe(service: Services, reports: list[otlp.CollectorReport], caller: Caller) -> tuple[int, str]:
    """Register each report; return how many records were not taken, and why."""
    rejected, why = 0, dict[str, None]()
    for report in reports:
        rejected += report.others
        if report.others:
            why["only entity events are kept here"] = None
        if not report.events:
            continue
        guid = caller.guid or report.guid
        if guid is None:
            raise InvalidDocument(
                "nothing tells which Collector this is",
                hint="set the resource attribute service.instance.id, or send an agent's token",
            )
        found = otlp.observed(report)
        for type, count in found.left_out.items():
            rejected += count
            why[f"entities of the type {type} are not registered by agents"] = None
        service.agents.observe(guid, found.registration, found.marks, above=found.above, ended=found.ended)
    return rejected, "; ".join(why)


def _export_answer(media_type: str, rejected: int, why: str) -> bytes:
    """Write an ExportLogsServiceResponse; one without anything rejected is empty."""
    if media_type == JSON:
        partial = {"partialSuccess": {"rejectedLogRecords": str(rejected), "errorMessage": why}} if rejected else {}
        return msgspec.json.encode(partial)
    if not rejected:
        return b""
    message = why.encode()[:1000]
    inner = b"\x08" + protobuf.varint(rejected) + b"\x12" + protobuf.varint(len(message)) + message
    return b"\x0a" + protobuf.varint(len(inner)) + inner


@otlp_router.post("/v1/metrics", include_in_schema=False)
@otlp_router.post("/v1/traces", include_in_schema=False)
async def refuse(request: Request) -> None:
    """Refuse samples and spans: they stay with the servers that hold them, and this service knows where that is."""
    signal = request.url.path.rpartition("/")[2]
    where = "a Prometheus (otlphttp to /api/v1/otlp)" if signal == "metrics" else "a Tempo or Jaeger"
    raise InvalidInput(
        f"{signal} are not kept here",
        hint=f"export them to {where}, name it in [[datasource]], and send only the logs with entity events here",
    )


def _told(service: Services, record: AgentRecord) -> dict[str, Any]:
    said: Mapping[str, str] = record.said
    seen, parent = service.agents.last_seen(record), said.get("managedBy")
    return {
        "guid": record.guid,
        "id": service.iris.short(record.iri),
        "name": said.get("name"),
        "platform": said.get("platform"),
        "origin": said.get("origin"),
        "version": said.get("version"),
        "tags": list(record.tags),
        "parent": service.iris.parse(parent).name.name if parent else None,
        "interval": said.get("heartbeatInterval"),
        "silent": record.silent,
        "lastSeen": iso(seen) if seen else None,
    }


def _registered(service: Services, found: Registered) -> dict[str, Any]:
    short = service.iris.short
    entities = [{"key": each.key, "id": short(each.iri), "outcome": each.outcome} for each in found.entities]
    return {
        "guid": found.guid,
        "id": short(found.iri),
        "outcome": found.outcome,
        "entities": entities,
        "removed": [short(each) for each in found.removed],
    }
