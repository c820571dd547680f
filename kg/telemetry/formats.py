"""Streams of series as files that other tools read: Parquet, CSV, NDJSON. Each is written a part at a time, in bounded memory.

What could not be had stands in Parquet's footer (key ``drumlin``). CSV and NDJSON hold nothing but rows, unless their status is asked for:
then it is their last line, a JSON object with ``failures`` and ``warnings`` (in CSV behind ``# ``).
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from drumlin.kg.telemetry.arrow import csv, pa, parquet, pc
from drumlin.kg.telemetry.history import SeriesTable
from drumlin.kg.telemetry.series import schema
from drumlin.kg.telemetry.wire import BufferSink, account, cut, merged

PARQUET, CSV, NDJSON = "application/vnd.apache.parquet", "text/csv", "application/x-ndjson"
_ROWS = 50_000  # that are turned into text at one time
_TAIL = 1 << 16  # bytes that are read at one time to find the last line


def as_parquet(parts: Iterable[SeriesTable]) -> Iterator[bytes]:
    """Yield a Parquet file (zstd), a row group per part."""
    sink = BufferSink()
    accounts: list[dict[str, Any]] = []
    with parquet.ParquetWriter(pa.PythonFile(sink, mode="w"), schema(), compression="zstd") as writer:
        for part in parts:
            accounts.append(account(part))
            if part.table.num_rows:
                writer.write_table(part.table)
            yield sink.take()
        writer.add_key_value_metadata({"drumlin": msgspec.json.encode(merged(accounts)).decode()})
    yield sink.take()


def as_csv(parts: Iterable[SeriesTable], *, status: bool = False) -> Iterator[bytes]:
    """Yield CSV with a header; a missing value is an empty field. ``status``: a comment line at the end reports what is missing."""
    options = csv.WriteOptions(include_header=True, quoting_style="needed")
    said = _StatusLine()
    for part in parts:
        said.take(part)
        for batch in part.table.to_batches(max_chunksize=_ROWS) or [pa.RecordBatch.from_pylist([], schema=schema())]:
            text = io.BytesIO()
            csv.write_csv(pa.Table.from_batches([batch]).cast(_plain()), text, options)
            yield text.getvalue()
            options.include_header = False
    yield b"# " + said.line() if status else b""


def csv_of(table: pa.Table) -> bytes:
    """Write a table without dictionaries as CSV with a header."""
    text = io.BytesIO()
    csv.write_csv(table, text, csv.WriteOptions(include_header=True, quoting_style="needed"))
    return text.getvalue()


@cache
def _plain() -> pa.Schema:
    """Return the schema of a table without dictionaries, which CSV cannot be written from."""
    kinds = ((each.name, each.type) for each in schema())
    return pa.schema([(name, kind.value_type if pa.types.is_dictionary(kind) else kind) for name, kind in kinds])


def as_ndjson(parts: Iterable[SeriesTable], *, status: bool = False) -> Iterator[bytes]:
    """Yield a JSON object a row. ``status``: the last line reports what is missing."""
    said = _StatusLine()
    for part in parts:
        said.take(part)
        for batch in part.table.to_batches(max_chunksize=_ROWS):
            yield _lines(batch)
    yield said.line() if status else b""


class _StatusLine:
    """What is known about the rows of a stream, collected a part at a time."""

    def __init__(self) -> None:
        self._failures: list[dict[str, str]] = []
        self._warnings: list[str] = []

    def take(self, part: SeriesTable) -> None:
        """Take in what is known about a part."""
        said = account(part)
        self._failures += said["failures"]
        self._warnings += said["warnings"]

    def line(self) -> bytes:
        """Write it as one line."""
        return msgspec.json.encode({"failures": self._failures, "warnings": self._warnings}) + b"\n"


def split_status(path: Path) -> list[dict[str, str]]:
    """Cut the status off a CSV or NDJSON file, and return its ``failures``.

    Raises ``InvalidDocument`` when the file has none: what came was not the whole.
    """
    with path.open("r+b") as file:
        size = at = file.seek(0, io.SEEK_END)
        tail = b""
        while at and b"\n" not in tail[:-1]:
            at = max(0, at - _TAIL)
            file.seek(at)
            tail = file.read(size - at)
        last = tail[:-1].rpartition(b"\n")[2] + b"\n"
        file.truncate(size - len(last))
    try:
        said = msgspec.json.decode(last.removeprefix(b"# "), type=dict[str, list[Any]])
        return said["failures"]
    except (msgspec.DecodeError, KeyError) as error:
        raise cut() from error


def _lines(batch: pa.RecordBatch) -> bytes:
    """Write a JSON object a row, column by column: seven times faster than by way of Python objects."""
    words = {name: _quoted(batch[name]) for name in ("unique_id", "metric", "unit")}
    ds = pc.strftime(batch["ds"].cast(pa.timestamp("s", "UTC")), "%Y-%m-%dT%H:%M:%SZ")
    y = pc.fill_null(batch["y"].cast(pa.string()), "null")
    pieces = ('{"unique_id":', words["unique_id"], ',"ds":"', ds, '","y":', y, ',"metric":', words["metric"])
    rows = pc.binary_join_element_wise(*pieces, ',"unit":', words["unit"], "}\n", "")
    _, _, text = rows.buffers()
    return memoryview(text or b"")[: pc.sum(pc.binary_length(rows)).as_py() or 0].tobytes()


def _quoted(words: pa.DictionaryArray) -> pa.StringArray:
    """Write each word as JSON does; there are few different ones."""
    written = [msgspec.json.encode(each).decode() for each in words.dictionary.to_pylist()]
    return pa.array(written, pa.string()).take(words.indices)


def account_of(path: Path) -> dict[str, Any]:
    """Return the account in the footer of a Parquet file that ``as_parquet`` wrote."""
    said: dict[str, Any] = msgspec.json.decode(parquet.read_metadata(path).metadata[b"drumlin"])
    return said
