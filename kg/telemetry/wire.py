"""Series between service and client: an Arrow IPC stream whose schema carries what one must know to trust the data.

https://arrow.apache.org/docs/format/Columnar.html#ipc-streaming-format; the metadata key is ``drumlin``, its value JSON.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import pyarrow as pa

from kg.errors import InvalidDocument
from kg.telemetry.history import Series
from kg.telemetry.series import SCHEMA, Key

MEDIA_TYPE = "application/vnd.apache.arrow.stream"
_KEY = b"drumlin"


def account(series: Series) -> dict[str, Any]:
    """Return what belongs to the table: unit, step, queries, coverage and gaps per series, warnings, failures."""
    return {
        "unit": series.unit,
        "step": int(series.step.total_seconds()),
        "start": series.grid.window[0].isoformat(),
        "end": series.grid.window[1].isoformat(),
        "queries": [each.to_dict() for each in series.queries],
        "series": [_one(series, key) for key in series.coverage],
        "warnings": list(series.warnings),
        "failures": [
            {
                "unique_id": each.key.unique_id,
                "metric": each.key.metric,
                "error": type(each.error).__name__,
                "detail": str(each.error),
            }
            for each in series.failures
        ],
    }


def _one(series: Series, key: Key) -> dict[str, Any]:
    return {
        "unique_id": key.unique_id,
        "metric": key.metric,
        "coverage": series.coverage[key],
        "longestGap": int(series.longest_gap(key).total_seconds()),
        "gaps": [[gap.start.isoformat(), gap.end.isoformat()] for gap in series.gaps[key]],
    }


def write(series: Series) -> Iterator[bytes]:
    """Yield an Arrow IPC stream, a record batch at a time."""
    sink = pa.BufferOutputStream()
    schema = SCHEMA.with_metadata({_KEY: msgspec.json.encode(account(series))})
    written = 0
    with pa.ipc.new_stream(sink, schema) as stream:
        for batch in series.table.to_batches():
            stream.write_batch(batch.replace_schema_metadata(schema.metadata))
    data = sink.getvalue()
    for start in range(written, data.size, 1 << 20):
        yield data.slice(start, min(1 << 20, data.size - start)).to_pybytes()


def read(data: bytes) -> tuple[pa.Table, Mapping[str, Any]]:
    """Read a stream back into its table and account; raises ``InvalidDocument`` when it is cut or not one of ours."""
    try:
        table = pa.ipc.open_stream(data).read_all()
        found = msgspec.json.decode((table.schema.metadata or {})[_KEY])
    except (pa.ArrowInvalid, OSError, KeyError, msgspec.DecodeError) as error:
        raise InvalidDocument(
            "the answer is not a whole Arrow stream of series", hint="ask again; the connection may have been cut"
        ) from error
    return table.replace_schema_metadata(None), found
