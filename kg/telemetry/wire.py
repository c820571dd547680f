"""Series between service and client, a part at a time: an Arrow IPC stream whose batches carry what one must know to trust them.

https://arrow.apache.org/docs/format/Columnar.html#ipc-streaming-format; each part's first batch has custom metadata ``drumlin`` (JSON). The
last batch is empty and says that it is the last: what was cut on its way is never taken for the whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from drumlin.kg.errors import InvalidDocument
from drumlin.kg.telemetry.arrow import pa
from drumlin.kg.telemetry.arrow_input import errors
from drumlin.kg.telemetry.history import SeriesTable
from drumlin.kg.telemetry.series import Key, schema

MEDIA_TYPE = "application/vnd.apache.arrow.stream"
_KEY = b"drumlin"
_LAST = b'{"last":true}'


def account(series: SeriesTable) -> dict[str, Any]:
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


def merged(accounts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Join the accounts of a stream's parts (one at least) into one."""
    found = list(accounts)
    whole = dict(found[0])
    for name in ("queries", "series", "warnings", "failures"):
        whole[name] = [each for part in found for each in part[name]]
    units = {query["unit"] for query in whole["queries"]}
    return {**whole, "unit": units.pop() if len(units) == 1 else None}


def _one(series: SeriesTable, key: Key) -> dict[str, Any]:
    return {
        "unique_id": key.unique_id,
        "metric": key.metric,
        "coverage": series.coverage[key],
        "longestGap": int(series.longest_gap(key).total_seconds()),
        "gaps": [[gap.start.isoformat(), gap.end.isoformat()] for gap in series.gaps[key]],
    }


class BufferSink:
    """A file that collects what is written until it is taken."""

    def __init__(self) -> None:
        self._chunks: list[bytes] = []
        self.closed = False

    def write(self, chunk: bytes) -> int:
        """Take a chunk."""
        self._chunks.append(bytes(chunk))
        return len(chunk)

    def flush(self) -> None:
        """Do nothing: nothing is held back."""

    def close(self) -> None:
        """Do nothing: what was written can still be taken."""

    def take(self) -> bytes:
        """Return what was written since the last time."""
        taken, self._chunks = b"".join(self._chunks), []
        return taken


def write(parts: Iterable[SeriesTable]) -> Iterator[bytes]:
    """Yield an Arrow IPC stream, a part at a time."""
    sink = BufferSink()
    with pa.ipc.new_stream(pa.PythonFile(sink, mode="w"), schema()) as stream:
        for part in parts:
            about = {_KEY: msgspec.json.encode(account(part))}
            for batch in part.table.to_batches() or [_nothing()]:
                stream.write_batch(batch, custom_metadata=about)
                about = {}
            yield sink.take()
        stream.write_batch(_nothing(), custom_metadata={_KEY: _LAST})
    yield sink.take()


def stream_of(table: pa.Table, said: Mapping[str, Any]) -> bytes:
    """Write a whole table as an Arrow IPC stream; what belongs to it stands in the schema's metadata, key ``drumlin``."""
    told = table.replace_schema_metadata({_KEY: msgspec.json.encode(said)})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, told.schema) as stream:
        stream.write_table(told)
    return bytes(sink.getvalue())


def table_of(content: bytes) -> tuple[pa.Table, dict[str, Any]]:
    """Read what ``stream_of`` wrote; raises ``InvalidDocument`` when it is cut or none of ours."""
    try:
        with pa.ipc.open_stream(content) as stream:
            table = stream.read_all()
        table.validate(full=True)
        said: dict[str, Any] = msgspec.json.decode((table.schema.metadata or {})[_KEY])
        return table, said
    except errors() as error:
        raise cut() from error
    except (KeyError, msgspec.DecodeError) as error:
        raise cut() from error


def _nothing() -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema=schema())


def read(source: bytes | BinaryIO, progress: Callable[[int], None] | None = None) -> tuple[pa.Table, dict[str, Any]]:
    """Read a stream back into its table and account; raises ``InvalidDocument`` when it is cut or not one of ours.

    ``progress`` is called with the number of series (also failed ones) that have come, after each part.
    """
    batches: list[pa.RecordBatch] = []
    accounts: list[dict[str, Any]] = []
    try:
        with pa.ipc.open_stream(source) as stream:
            whole = False
            while not whole:
                batch, about = stream.read_next_batch_with_custom_metadata()
                if about and _KEY in about:
                    said = msgspec.json.decode(about[_KEY])
                    whole = "last" in said
                    accounts += [] if whole else [said]
                    if progress and not whole:
                        progress(sum(len(each["series"]) + len(each["failures"]) for each in accounts))
                batch.validate(full=True)
                batches.append(batch)
        return pa.Table.from_batches(batches, schema()).unify_dictionaries(), merged(accounts)
    except errors() as error:
        raise cut() from error
    except (StopIteration, IndexError, RecursionError, msgspec.DecodeError) as error:
        raise cut() from error


def accounts_of(path: Path) -> list[dict[str, Any]]:
    """Return the accounts of the parts of a stream that was written into a file; raises ``InvalidDocument`` when it is cut."""
    found: list[dict[str, Any]] = []
    try:
        with pa.memory_map(str(path)) as source, pa.ipc.open_stream(source) as stream:
            while True:
                about = stream.read_next_batch_with_custom_metadata().custom_metadata
                said = msgspec.json.decode(about[_KEY]) if about and _KEY in about else {}
                if "last" in said:
                    return found
                found += [said] if said else []
    except errors() as error:
        raise cut() from error
    except (StopIteration, msgspec.DecodeError) as error:
        raise cut() from error


def cut() -> InvalidDocument:
    """Return the error that an answer is not whole."""
    return InvalidDocument(
        "the answer is not a whole stream of series", hint="ask again; the connection may have been cut"
    )
