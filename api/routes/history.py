"""``/history``: the data itself, on an aligned grid, as Arrow IPC, CSV or JSON."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import msgspec
import pyarrow as pa
import pyarrow.csv
from fastapi import APIRouter, Depends, Header, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response, StreamingResponse

from api.assembly import Parts, now, parts
from api.negotiation import choose
from api.problems import NotAcceptable
from api.windows import window
from kg.errors import TooLarge
from kg.telemetry import wire
from kg.telemetry.history import Series

router = APIRouter(tags=["telemetry"])
Service = Annotated[Parts, Depends(parts)]
Gaps = Literal["null", "ffill", "linear", "drop"]

JSON, CSV = "application/json", "text/csv"
_FORMATS = {"json": JSON, "csv": CSV, "arrow": wire.MEDIA_TYPE}
MAX_JSON_ROWS = 200_000


class Wanted(BaseModel):
    """Which series, over which window, on which grid."""

    model_config = ConfigDict(extra="forbid")
    entities: list[str] = Field(min_length=1, max_length=10_000, description="Short ids or IRIs.")
    metrics: list[str] = Field(min_length=1, max_length=100, description="Names of metrics.")
    last: str | None = Field(None, description="Window up to now: 30d, 12h (default 1h).")
    start: str | None = Field(None, description="Begin of the window: RFC 3339 or epoch seconds.")
    end: str | None = Field(None, description="End of the window; now when absent.")
    step: str = Field("auto", description="Distance of the points: 5m; auto stays below the server's limit.")
    gaps: Gaps = Field("null", description="What becomes of missing points.")
    datasource: str | None = Field(None, description="Name of the datasource to use.")


@router.get("/history", summary="Fetch a metric's history")
def get_history(
    service: Service,
    entity: Annotated[list[str], Query(description="Short id or IRI; may be repeated.")],
    metric: Annotated[list[str], Query(description="Name of the metric; may be repeated.")],
    last: Annotated[str | None, Query(description="Window up to now: 30d, 12h (default 1h).")] = None,
    start: Annotated[str | None, Query(description="Begin of the window: RFC 3339 or epoch seconds.")] = None,
    end: Annotated[str | None, Query(description="End of the window; now when absent.")] = None,
    step: Annotated[
        str, Query(description="Distance of the points: 5m; auto stays below the server's limit.")
    ] = "auto",
    gaps: Annotated[Gaps, Query(description="What becomes of missing points.")] = "null",
    datasource: Annotated[str | None, Query(description="Name of the datasource to use.")] = None,
    wanted: Annotated[str | None, Query(alias="format", description="arrow, csv or json; wins over Accept.")] = None,
    accept: Annotated[str | None, Header()] = None,
) -> Response:
    """Return a long table: unique_id, ds, y, metric, unit. Series that could not be had are listed, never left out in silence."""
    body = Wanted(
        entities=entity, metrics=metric, last=last, start=start, end=end, step=step, gaps=gaps, datasource=datasource
    )
    return _answer(service, body, accept, wanted)


@router.post("/history", summary="Fetch the history of many entities")
def post_history(
    service: Service,
    body: Wanted,
    wanted: Annotated[str | None, Query(alias="format", description="arrow, csv or json; wins over Accept.")] = None,
    accept: Annotated[str | None, Header()] = None,
) -> Response:
    """Do what GET does, for lists too long for an address."""
    return _answer(service, body, accept, wanted)


def _answer(service: Parts, body: Wanted, accept: str | None, wanted: str | None) -> Response:
    media_type = _media_type(accept, wanted)
    span = window(body.last, body.start, body.end, now())
    series = service.history.fetch(
        body.entities,
        body.metrics,
        start=span.start,
        end=span.end,
        step=body.step,
        gaps=body.gaps,
        datasource=body.datasource,
    )
    headers = {
        "X-Drumlin-Failures": str(len(series.failures)),
        "X-Drumlin-Warnings": str(len(series.warnings)),
        "Vary": "Accept",
    }
    if media_type == JSON:
        return Response(_as_json(series), media_type=JSON, headers=headers)
    chunks = wire.write(series) if media_type == wire.MEDIA_TYPE else _as_csv(series.table)
    return StreamingResponse(chunks, media_type=media_type, headers=headers)


def _media_type(accept: str | None, wanted: str | None) -> str:
    if wanted is None:
        return choose(accept, (JSON, CSV, wire.MEDIA_TYPE))
    if wanted not in _FORMATS:
        raise NotAcceptable(f"format {wanted!r} is not offered", detail={"offered": list(_FORMATS)})
    return _FORMATS[wanted]


def _as_csv(table: pa.Table) -> Iterator[bytes]:
    """Write the table as CSV a batch at a time; a missing value is an empty field."""
    options = pa.csv.WriteOptions(include_header=True, quoting_style="needed")
    for batch in table.to_batches(max_chunksize=50_000) or [pa.RecordBatch.from_pylist([], schema=table.schema)]:
        text = io.BytesIO()
        plain = pa.Table.from_batches([batch]).cast(pa.schema([_plain(each) for each in table.schema]))
        pa.csv.write_csv(plain, text, options)
        yield text.getvalue()
        options.include_header = False


def _plain(field: pa.Field) -> pa.Field:
    return pa.field(field.name, field.type.value_type) if pa.types.is_dictionary(field.type) else field


def _as_json(series: Series) -> bytes:
    table = series.table
    if table.num_rows > MAX_JSON_ROWS:
        raise TooLarge(
            f"{table.num_rows:,} rows are too many for JSON (limit {MAX_JSON_ROWS:,})",
            hint="ask for format=csv or format=arrow",
        )
    columns: list[list[Any]] = [table[name].to_pylist() for name in table.column_names]
    rows = [dict(zip(table.column_names, row, strict=True)) for row in zip(*columns, strict=True)]
    return msgspec.json.encode({**wire.account(series), "rows": rows})
