"""The points of a forecast: what makes a table one, and how it is kept as Parquet or in InfluxDB. Never in Prometheus (docs/forecasts.md).

A file is there whole or not at all: it is written beside its place, made durable and then renamed, also when the machine stops in between.
"""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from drumlin.kg.disk import sync
from drumlin.kg.errors import InvalidDocument, SourceUnavailable, TooLarge
from drumlin.kg.parsers import HERE, Parsers
from drumlin.kg.telemetry.arrow import pa, parquet, pc
from drumlin.kg.telemetry.arrow_input import parquet_batches, read_stream, translated, within
from drumlin.kg.telemetry.datasources import Datasource
from drumlin.kg.telemetry.fetch.influxdb import InfluxDB
from drumlin.kg.telemetry.fetch.parquet import directory_of

_PIECE = 1 << 20  # bytes of points that go from one process to another together
MAX_POINTS = 1_000_000
"""Points of one forecast."""
MAX_SERIES = 10_000
"""Series of one long frame."""
MEASUREMENT = "forecast"
"""The measurement that an InfluxDB keeps forecasts in; the tag of that name is the forecast's path."""
_WRITERS = 8  # files that are written at once
_BEYOND = 253_402_300_800_000  # the year 10000 in milliseconds since the epoch
_QUANTILE = re.compile(r"q0?\.[0-9]{1,4}")


def points_job(payload: bytes) -> Iterator[bytes]:
    """Read the Arrow stream of a forecast (``kg.parsers.Parsers.points``)."""
    return _stream_of(checked(read_stream(payload, max_rows=MAX_POINTS)))


def frame_job(payload: bytes) -> Iterator[bytes]:
    """Read the Arrow stream of a long frame of many series (``kg.parsers.Parsers.frame``); each is checked by itself later."""
    return _stream_of(read_stream(payload, max_rows=MAX_POINTS))


def points_file_job(payload: bytes) -> Iterator[bytes]:
    """Read the Parquet file of a forecast, by its path (``kg.parsers.Parsers.points_in``)."""
    file = Path(os.fsdecode(payload))
    with translated(file.name):
        return _stream_of(checked(_read(file)))


def _stream_of(points: pa.Table) -> Iterator[bytes]:
    """Write points as an Arrow stream, in pieces."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, points.schema) as stream:
        stream.write_table(points)
    written = memoryview(sink.getvalue())
    return (bytes(written[start : start + _PIECE]) for start in range(0, len(written), _PIECE))


def points_of(stream: bytes) -> pa.Table:
    """Return the points in a stream that ``points_job`` or ``points_file_job`` wrote."""
    with pa.ipc.open_stream(stream) as found:
        return found.read_all()


def checked(table: pa.Table) -> pa.Table:
    """Return the columns of a forecast (``ds``, ``y``, ``q0.1`` …) in their types, ordered by time; NaN is a missing value.

    Raises ``InvalidDocument`` for a table without them, of another size, with a time that occurs twice or in no year from
    1970 to 9999, or with an infinite value.
    """
    with translated("the table is not a forecast", "name its columns ds, y, and quantiles q0.1, q0.5, q0.9"):
        return _checked(table)


def _checked(table: pa.Table) -> pa.Table:
    names = _columns(table.column_names)
    if "ds" not in names or "y" not in names:
        raise InvalidDocument(
            f"a forecast has the columns ds and y; there are {', '.join(table.column_names[:20])}",
            hint="name quantiles q0.1, q0.5, q0.9",
        )
    if not 1 <= table.num_rows <= MAX_POINTS:
        raise InvalidDocument(f"a forecast has 1 to {MAX_POINTS:,} points, not {table.num_rows:,}")
    try:
        columns = [table[name].cast(pa.timestamp("ms", "UTC") if name == "ds" else pa.float64()) for name in names]
    except pa.ArrowException as error:
        raise InvalidDocument("ds of a forecast are times, all others are numbers") from error
    found = pa.table({name: _known(each) for name, each in zip(names, columns, strict=True)}).sort_by("ds")
    if found["ds"].null_count or pc.count_distinct(found["ds"]).as_py() < found.num_rows:
        raise InvalidDocument(
            "each time of a forecast occurs once", hint="save one forecast per series: name each in a column unique_id"
        )
    least, greatest = (stamp.value for stamp in pc.min_max(found["ds"]).values())
    if not 0 <= least <= greatest < _BEYOND:
        raise InvalidDocument(
            "the times of a forecast lie between the years 1970 and 9999", hint="check the unit of ds"
        )
    return found


def _columns(names: Iterable[str]) -> list[str]:
    return [name for name in names if name in ("ds", "y") or _QUANTILE.fullmatch(name)]


def split(table: pa.Table, metric: str) -> dict[tuple[str, str], pa.Table]:
    """Return the series of a long frame by entity (``unique_id``) and metric (its column, else ``metric``), in their order.

    Raises ``InvalidDocument`` for a frame without them, ``TooLarge`` for more than ``MAX_SERIES``.
    """
    with translated(
        "the table is not a long frame", "name its columns unique_id, ds, y, and metric where there are several"
    ):
        return _split(table, metric)


def _split(table: pa.Table, metric: str) -> dict[tuple[str, str], pa.Table]:
    if "unique_id" not in table.column_names:
        raise InvalidDocument(
            "a table of many series has the column unique_id; there is none",
            hint="or name the entity of its only series",
        )
    words = ["unique_id", *(["metric"] if "metric" in table.column_names else [])]
    if not metric and len(words) == 1:
        raise InvalidDocument("no metric is named", hint="name it, or add the column metric")
    keys = [table[name].cast(pa.string()).combine_chunks() for name in words]
    if any(each.null_count for each in keys):
        raise InvalidDocument(f"a row has no {' or no '.join(words)}")
    rows = pa.table({**dict(zip(words, keys, strict=True)), "row": pa.array(range(table.num_rows), pa.int64())})
    places = rows.group_by(words, use_threads=False).aggregate([("row", "list")])
    if places.num_rows > MAX_SERIES:
        raise TooLarge(
            f"the table has {places.num_rows:,} series; the limit is {MAX_SERIES:,}", hint="send several tables"
        )
    of_points = table.select(_columns(table.column_names)).combine_chunks()
    names = zip(*(places[name].to_pylist() for name in words), strict=True)
    return {
        (name[0], name[1] if len(name) > 1 else metric): of_points.take(where.values)
        for name, where in zip(names, places["row_list"], strict=True)
    }


def store(pieces: Sequence[tuple[str, pa.Table]], server: Datasource) -> None:
    """Keep points in a datasource under their paths, all or none; raises ``SourceUnavailable`` when it cannot be written.

    What is already in an InfluxDB stays there: nothing names it.
    """
    if server.kind == "influxdb":
        with InfluxDB(server) as client:
            for path, points in pieces:
                client.write(MEASUREMENT, {MEASUREMENT: path}, _rows(points))
        return
    root = directory_of(server)
    files = [root / path for path, _ in pieces]
    unfinished = [file.with_suffix(".part") for file in files]
    folders = {folder for file, (path, _) in zip(files, pieces, strict=True) for folder in _folders(file, path)}
    try:
        with ThreadPoolExecutor(_WRITERS) as pool:  # each waits for the disk
            # One step of all before the next: a file system makes what it was given before durable together.
            deque(pool.map(_write_file, unfinished, [points for _, points in pieces]), maxlen=0)
            deque(pool.map(sync, unfinished), maxlen=0)
            for part, file in zip(unfinished, files, strict=True):
                part.replace(file)
            deque(
                pool.map(sync, folders), maxlen=0
            )  # so that the names, and those of new directories, outlive a crash as well
    except OSError as error:
        for file in (*files, *unfinished):
            file.unlink(missing_ok=True)
        raise SourceUnavailable(
            f"datasource {server.name} cannot be written: {error.strerror}", hint="check its directory and who owns it"
        ) from error


def _write_file(file: Path, points: pa.Table) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("wb") as out:
        parquet.write_table(points, out, compression="zstd")


def _folders(file: Path, path: str) -> Sequence[Path]:
    return [file.parent, *file.parent.parents][: path.count("/") + 1]


def remove(server: Datasource, path: str) -> None:
    """Remove points; those in an InfluxDB stay. Raises ``SourceUnavailable`` when the file cannot be removed."""
    if server.kind != "parquet":
        return
    try:
        _file_at(server, path).unlink(missing_ok=True)
    except OSError as error:
        raise SourceUnavailable(
            f"{path} cannot be removed from datasource {server.name}: {error.strerror}",
            hint="the forecast is deleted; remove the file by hand",
        ) from error


def _file_at(server: Datasource, path: str) -> Path:
    """Return the file of a path, which a graph may hold in any form; raises ``SourceUnavailable`` for one that can name none."""
    directory = directory_of(server).resolve()
    try:
        file = (directory / path).resolve()
    except (OSError, ValueError) as error:  # too long, a circle of links, or a NUL
        raise SourceUnavailable(
            f"the path {path[:80]!r} of a forecast names no file in datasource {server.name}"
        ) from error
    if not file.is_relative_to(directory):
        raise SourceUnavailable(f"the path {path[:80]!r} leads out of its datasource {server.name}")
    return file


def load(server: Datasource, path: str, parsers: Parsers = HERE) -> pa.Table:
    """Return the points under a path; raises ``SourceUnavailable`` when they are not where they should be."""
    if server.kind == "influxdb":
        return _from_influxdb(server, path)
    try:
        return points_of(parsers.points_in(_file_at(server, path)))
    except (InvalidDocument, TooLarge) as error:
        raise SourceUnavailable(
            f"{path} cannot be read as a forecast from datasource {server.name}",
            hint="the file may have been removed or replaced: save the forecast again",
        ) from error


def _read(file: Path) -> pa.Table:
    schema = parquet.read_schema(file)
    names = _columns(schema.names)
    batches = list(within(parquet_batches(file, names), MAX_POINTS))
    return pa.Table.from_batches(batches, pa.schema([schema.field(name) for name in names]))


def _known(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if not pa.types.is_floating(column.type):
        return column
    if pc.any(pc.is_inf(column)).as_py():
        raise InvalidDocument("the values of a forecast are finite numbers, or missing")
    return pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column)


def _rows(points: pa.Table) -> Iterable[tuple[int, Mapping[str, float]]]:
    names = [name for name in points.column_names if name != "ds"]
    columns = [points["ds"].cast(pa.int64()).to_pylist(), *(points[name].to_pylist() for name in names)]
    for at, *values in zip(*columns, strict=True):
        if fields := {name: value for name, value in zip(names, values, strict=True) if value is not None}:
            yield at, fields


def _from_influxdb(server: Datasource, path: str) -> pa.Table:
    with InfluxDB(server) as client:
        found = client.read(MEASUREMENT, {MEASUREMENT: path})
    if not found.get("ds"):
        raise SourceUnavailable(f"{path} is not in datasource {server.name}", hint="its retention may have removed it")
    arrays = {name: pa.array(column, pa.float64()) for name, column in sorted(found.items()) if name != "ds"}
    stamps = pa.array(found["ds"], pa.int64()).cast(pa.timestamp("ms", "UTC"))
    missing = pa.nulls(len(stamps), pa.float64())
    y = arrays.pop("y", missing)
    return pa.table(
        {"ds": stamps, "y": y, **{name: each for name, each in arrays.items() if each.null_count < len(each)}}
    )
