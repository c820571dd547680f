"""The points of a forecast: what makes a table one, and how it is kept as Parquet or in InfluxDB. Never in Prometheus (docs/forecasts.md).

A file is there whole or not at all: it is written beside its place, made durable and then renamed, also when the machine stops in between.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from kg.errors import InvalidDocument, SourceUnavailable
from kg.telemetry.arrow import pa, parquet, pc
from kg.telemetry.datasources import Datasource
from kg.telemetry.fetch.influxdb import InfluxDB
from kg.telemetry.fetch.parquet import directory_of

MAX_POINTS = 1_000_000
"""Points of one forecast."""
MEASUREMENT = "forecast"
"""The measurement that an InfluxDB keeps forecasts in; the tag of that name is the forecast's path."""
_QUANTILE = re.compile(r"q0?\.[0-9]{1,4}")


def checked(table: pa.Table) -> pa.Table:
    """Return the columns of a forecast (``ds``, ``y``, ``q0.1`` …) in their types, ordered by time; NaN is a missing value.

    Raises ``InvalidDocument`` for a table without them, of another size, with a time that occurs twice, or with an infinite value.
    """
    names = [name for name in table.column_names if name in ("ds", "y") or _QUANTILE.fullmatch(name)]
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
        raise InvalidDocument("each time of a forecast occurs once", hint="save one forecast per series")
    return found


def store(points: pa.Table, server: Datasource, path: str) -> None:
    """Keep points in a datasource under a path; raises ``SourceUnavailable`` when it cannot be written."""
    if server.kind == "influxdb":
        _into_influxdb(points, server, path)
        return
    file = directory_of(server) / path
    unfinished = file.with_suffix(".part")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with unfinished.open("wb") as out:
            parquet.write_table(points, out, compression="zstd")
            out.flush()
            os.fsync(out.fileno())
        unfinished.replace(file)
        for directory in [file.parent, *file.parent.parents][: path.count("/") + 1]:
            _sync(directory)  # so that the name, and those of new directories, outlive a crash as well
    except OSError as error:
        unfinished.unlink(missing_ok=True)
        raise SourceUnavailable(
            f"datasource {server.name} cannot be written: {error.strerror}", hint="check its directory and who owns it"
        ) from error


def remove(server: Datasource, path: str) -> None:
    """Remove points; those in an InfluxDB stay. Raises ``SourceUnavailable`` when the file cannot be removed."""
    if server.kind != "parquet":
        return
    try:
        (directory_of(server) / path).unlink(missing_ok=True)
    except OSError as error:
        raise SourceUnavailable(
            f"{path} cannot be removed from datasource {server.name}: {error.strerror}",
            hint="the forecast is deleted; remove the file by hand",
        ) from error


def load(server: Datasource, path: str) -> pa.Table:
    """Return the points under a path; raises ``SourceUnavailable`` when they are not where they should be."""
    if server.kind == "influxdb":
        return _from_influxdb(server, path)
    directory = directory_of(server).resolve()
    file = (directory / path).resolve()
    if not file.is_relative_to(directory):
        raise SourceUnavailable(f"the path {path} leads out of its datasource {server.name}")
    try:
        return parquet.read_table(file, partitioning=None)
    except (OSError, pa.ArrowException) as error:
        raise SourceUnavailable(
            f"{path} cannot be read from datasource {server.name}", hint="the file may have been removed"
        ) from error


def _known(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if not pa.types.is_floating(column.type):
        return column
    if pc.any(pc.is_inf(column)).as_py():
        raise InvalidDocument("the values of a forecast are finite numbers, or missing")
    return pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column)


def _into_influxdb(points: pa.Table, server: Datasource, path: str) -> None:
    with InfluxDB(server) as client:
        client.write(MEASUREMENT, {MEASUREMENT: path}, _rows(points))


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


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
