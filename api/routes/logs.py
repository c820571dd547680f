"""``/logs``: the log lines of an entity's pods, as NDJSON or as plain text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import msgspec
import structlog
from fastapi import APIRouter, Depends, Header, Query

from drumlin.api.bootstrap import Services, now, parts
from drumlin.api.http.negotiation import choose
from drumlin.api.http.problems import problem_of
from drumlin.api.http.streaming import BodyStream
from drumlin.api.http.time_window import window
from drumlin.kg.errors import DrumlinError
from drumlin.kg.telemetry import logs
from drumlin.kg.telemetry.fetch.loki import Direction
from drumlin.kg.telemetry.formats import NDJSON
from drumlin.kg.telemetry.logs import MAX_LINES, LogLines, as_dict

router = APIRouter(tags=["telemetry"])
Service = Annotated[Services, Depends(parts)]
TEXT = "text/plain"
log = structlog.get_logger()


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
) -> BodyStream:
    """Return lines, each once, in order of time; NDJSON ends with an object that has query, warnings and number of lines.

    When the server of the lines fails in between, that object has a ``problem``, and text ends with a line that says so.
    """
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
    return BodyStream(chunks, media_type, {"Vary": "Accept"})


def _as_ndjson(found: LogLines) -> Iterator[bytes]:
    count = 0
    about: dict[str, Any] = {}
    try:
        for line in found.lines:
            count += 1
            yield msgspec.json.encode(as_dict(line)) + b"\n"
    except DrumlinError as error:
        if not count:
            raise  # it still has a status of its own
        log.warning("logs_cut", lines=count, error=str(error))
        about["problem"] = problem_of(error)
    resolution = found.resolution
    about |= {"lines": count, "query": resolution.query, "warnings": list(resolution.warnings)}
    yield msgspec.json.encode(about) + b"\n"


def _as_text(found: LogLines) -> Iterator[bytes]:
    count = 0
    try:
        for line in found.lines:
            count += 1
            yield line.text.encode() + b"\n"
    except DrumlinError as error:
        if not count:
            raise
        log.warning("logs_cut", lines=count, error=str(error))
        yield f"--- cut after {count:,} lines: {error}\n".encode()
    yield b""
