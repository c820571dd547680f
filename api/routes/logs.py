"""``/logs``: the log lines of an entity's pods, as NDJSON or as plain text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import msgspec
from fastapi import APIRouter, Depends, Header, Query

from api.assembly import Parts, now, parts
from api.negotiation import choose
from api.streams import Stream
from api.windows import window
from kg.telemetry import logs
from kg.telemetry.fetch.loki import Direction
from kg.telemetry.formats import NDJSON
from kg.telemetry.logs import MAX_LINES, Found, as_dict

router = APIRouter(tags=["telemetry"])
Service = Annotated[Parts, Depends(parts)]
TEXT = "text/plain"


@router.get("/logs", summary="Fetch log lines")
def get_logs(
    service: Service,
    entity: Annotated[str, Query(description="Short id or IRI of a workload or pod.")],
    last: Annotated[str | None, Query(description="Window up to now: 30d, 12h (default 1h).")] = None,
    start: Annotated[str | None, Query(description="Begin of the window: RFC 3339 or epoch seconds.")] = None,
    end: Annotated[str | None, Query(description="End of the window; now when absent.")] = None,
    containing: Annotated[str | None, Query(alias="filter", description="Only lines that contain this text.")] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_LINES, description="Most lines.")] = 1000,
    direction: Annotated[Direction, Query(description="backward: the newest lines first.")] = "backward",
    datasource: Annotated[str | None, Query(description="Name of the datasource to use.")] = None,
    accept: Annotated[str | None, Header()] = None,
) -> Stream:
    """Return lines, each once, in order of time; NDJSON ends with an object that tells query, warnings and number of lines."""
    media_type = choose(accept, (NDJSON, TEXT))
    found = logs.fetch(
        service.resolver,
        entity,
        window(last, start, end, now()),
        containing=containing,
        limit=limit,
        direction=direction,
        datasource=datasource,
    )
    chunks = _as_ndjson(found) if media_type == NDJSON else _as_text(found)
    return Stream(chunks, media_type, {"Vary": "Accept"})


def _as_ndjson(found: Found) -> Iterator[bytes]:
    count = 0
    for line in found.lines:
        count += 1
        yield msgspec.json.encode(as_dict(line)) + b"\n"
    resolution = found.resolution
    about = {"lines": count, "query": resolution.query, "warnings": list(resolution.warnings)}
    yield msgspec.json.encode(about) + b"\n"


def _as_text(found: Found) -> Iterator[bytes]:
    for line in found.lines:
        yield line.text.encode() + b"\n"
    yield b""
