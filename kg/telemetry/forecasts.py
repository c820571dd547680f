"""Forecasts: points of the future stored as Parquet or in InfluxDB, and registered in the graph; read back, and compared with what came.

Never in Prometheus: a sample of tomorrow makes it refuse those of today (measured; docs/forecasts.md). A forecast is one graph
(``{base}/id/forecast/{uuid}``) that derives from a metric, and one file or measurement with ``ds``, ``y`` and a column per quantile.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from kg.errors import InvalidDocument, InvalidInput, ResourceNotFound, SourceUnavailable
from kg.iris import Iris
from kg.jsonld import CONTEXT_IRI, NodeDocument
from kg.store.protocol import Store
from kg.telemetry.datasources import Datasource
from kg.telemetry.durations import iso_duration, parse_duration
from kg.telemetry.fetch.influxdb import InfluxDB
from kg.telemetry.fetch.parquet import directory_of
from kg.telemetry.resolution import iso

MAX_POINTS = 1_000_000
"""Points of one forecast."""
_QUANTILE = re.compile(r"q0?\.[0-9]{1,4}")
_STAMP = pa.timestamp("ms", "UTC")
_LISTED = """PREFIX drumlin: <https://w3id.org/drumlin/ns#> PREFIX prov: <http://www.w3.org/ns/prov#>
PREFIX dcat: <http://www.w3.org/ns/dcat#>
SELECT ?forecast ?metric ?model ?horizon ?step ?generated ?path ?datasource WHERE {
  ?forecast prov:wasDerivedFrom ?metric ; a drumlin:Forecast ; drumlin:model ?model ; drumlin:horizon ?horizon ;
    drumlin:step ?step ; prov:generatedAtTime ?generated ; dcat:distribution ?file .
  ?file drumlin:path ?path ; dcat:accessService ?datasource } ORDER BY DESC(?generated) LIMIT 1000"""


@dataclass(frozen=True, slots=True)
class Made:
    """How a forecast was made: of which metric, by which model, from which history, how far ahead and how finely."""

    entity: str
    metric: str
    model: str
    horizon: timedelta
    step: timedelta
    trained: tuple[datetime, datetime] | None = None


@dataclass(frozen=True, slots=True)
class Forecast:
    """A forecast as the graph knows it; ``path`` is where its points are in ``datasource``."""

    iri: str
    metric: str
    model: str
    horizon: timedelta
    step: timedelta
    generated: datetime
    path: str
    datasource: str

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {
            "id": self.iri,
            "derivedFrom": self.metric,
            "model": self.model,
            "horizon": iso_duration(self.horizon),
            "step": iso_duration(self.step),
            "generatedAt": iso(self.generated),
            "path": self.path,
            "accessService": self.datasource,
        }


class Forecasts:
    """Saves and reads the forecasts of one store. ``write`` registers a graph under its IRI."""

    def __init__(
        self,
        store: Store,
        iris: Iris,
        datasources: Sequence[Datasource],
        write: Callable[[str, NodeDocument], None],
        now: Callable[[], datetime],
    ) -> None:
        self._store = store
        self._iris = iris
        self._datasources = [each for each in datasources if each.kind in ("parquet", "influxdb") and each.access]
        self._write = write
        self._now = now

    def save(self, table: pa.Table, made: Made, datasource: str | None = None) -> Forecast:
        """Store the points and register the forecast; the graph is written last, so it never points at nothing.

        ``table`` has ``ds`` (times, UTC), ``y`` and optionally quantiles ``q0.1`` …. Raises ``InvalidDocument`` for other tables,
        ``ResourceNotFound`` when no datasource takes forecasts.
        """
        points = _checked(table)
        server = self._server(datasource)
        name = str(uuid.uuid4())
        iri = self._iris.of_class("forecast", name)
        entity = self._iris.short(self._iris.expand(made.entity))
        path = f"{_segment(made.metric)}/{'/'.join(map(_segment, entity.split('/')))}/{name}.parquet"
        found = Forecast(
            iri,
            Iris.metric(self._iris.expand(made.entity), made.metric),
            made.model,
            made.horizon,
            made.step,
            self._now(),
            path,
            server.iri,
        )
        _store_points(points, server, found)
        previous = self.list(made.entity, made.metric, limit=1)
        self._write(iri, _document(found, made, server, previous[0].iri if previous else None))
        return found

    def list(self, entity: str, metric: str, *, limit: int = 100) -> list[Forecast]:
        """Return the forecasts of a metric, the newest first."""
        iri = Iris.metric(self._iris.expand(entity), metric)
        rows = self._store.look_up(_LISTED, {"metric": iri})
        return [_read(row, iri) for row in rows[:limit]]

    def points(self, forecast: Forecast) -> pa.Table:
        """Return a forecast's points; raises ``SourceUnavailable`` when they are not where they should be."""
        server = next((each for each in self._datasources if each.iri == forecast.datasource), None)
        if server is None:
            raise SourceUnavailable(
                f"the points of {self._iris.short(forecast.iri)} are in a datasource that is not configured here",
                hint=f"add [[datasource]] {forecast.datasource.rpartition('/')[2]} to drumlin.toml",
            )
        return _load_points(server, forecast)

    def _server(self, wanted: str | None) -> Datasource:
        found = [each for each in self._datasources if wanted in (None, each.name, each.iri)]
        if not found:
            raise ResourceNotFound(
                "no datasource takes forecasts" if wanted is None else f"{wanted[:80]!r} takes no forecasts",
                hint='add [[datasource]] name = "forecasts" kind = "parquet" url = "file:///var/lib/drumlin/forecasts" to drumlin.toml',
            )
        return found[0]


def compare(forecast: pa.Table, actual: pa.Table) -> tuple[pa.Table, dict[str, float | int | None]]:
    """Join a forecast with what came, at equal times, and measure it: ``points``, ``mae`` (in the metric's unit) and ``mape`` (%).

    ``mape`` leaves out points whose actual value is 0, and is None when there is no other.
    """
    both = (
        forecast.select(["ds", "y"])
        .rename_columns(["ds", "forecast"])
        .join(actual.select(["ds", "y"]).rename_columns(["ds", "actual"]), "ds", join_type="inner")
        .sort_by("ds")
    )
    known = both.filter(pc.and_(pc.is_valid(both["forecast"]), pc.is_valid(both["actual"])))
    error = pc.abs(pc.subtract(known["forecast"], known["actual"]))
    relative = pc.divide(error, pc.abs(known["actual"])).filter(pc.not_equal(known["actual"], 0.0))
    mape = pc.mean(relative).as_py()
    return known, {
        "points": known.num_rows,
        "mae": pc.mean(error).as_py(),
        "mape": None if mape is None else 100 * mape,
    }


def seasonal(history: pa.Table, horizon: timedelta, step: timedelta, season: timedelta = timedelta(days=7)) -> pa.Table:
    """Forecast by the mean of the values at the same time of earlier seasons: the baseline that a model has to beat.

    ``history`` has ``ds`` and ``y`` of one series. A season without history falls back to that of a day. Quantiles are the spread of
    the errors that the same rule made inside the history. Raises ``InvalidInput`` when the history is shorter than a day.
    """
    values = dict(zip(pc.cast(history["ds"], pa.int64()).to_pylist(), history["y"].to_pylist(), strict=True))
    known = {at: y for at, y in values.items() if y is not None}
    stride = step // timedelta(milliseconds=1)
    if not known or max(known) - min(known) < _DAY:
        raise InvalidInput("a day of history is too little for a seasonal forecast", hint="take a longer window")
    long = season // timedelta(milliseconds=1)
    ends = max(known) // stride * stride
    stamps = [ends + n * stride for n in range(1, horizon // step + 1)]
    predicted = [_mean_before(known, at, long) for at in stamps]
    errors = sorted(y - guess for at, y in known.items() if (guess := _mean_before(known, at, long)) is not None)
    low, high = (errors[int(len(errors) * share)] if errors else 0.0 for share in (0.1, 0.9))
    columns = {"ds": pa.array(stamps, pa.int64()).cast(_STAMP), "y": pa.array(predicted, pa.float64())}
    for name, shift in (("q0.1", low), ("q0.9", high)):
        columns[name] = pc.add(columns["y"], shift)
    return pa.table(columns)


_DAY = 86_400_000  # milliseconds
_SEASONS = 4


def _mean_before(known: Mapping[int, float], at: int, season: int) -> float | None:
    for length in (season, _DAY):
        first = -(-max(at - max(known), 1) // length)  # the latest season that is over
        found = [known[at - n * length] for n in range(first, first + _SEASONS) if at - n * length in known]
        if found:
            return sum(found) / len(found)
    return None


def _checked(table: pa.Table) -> pa.Table:
    """Return the columns of a forecast in their types, ordered by time."""
    names = [name for name in table.column_names if name in ("ds", "y") or _QUANTILE.fullmatch(name)]
    if "ds" not in names or "y" not in names:
        raise InvalidDocument(
            f"a forecast has the columns ds and y; there are {', '.join(table.column_names[:20])}",
            hint="name quantiles q0.1, q0.5, q0.9",
        )
    if not 1 <= table.num_rows <= MAX_POINTS:
        raise InvalidDocument(f"a forecast has 1 to {MAX_POINTS:,} points, not {table.num_rows:,}")
    try:
        columns = [table[name].cast(_STAMP if name == "ds" else pa.float64()) for name in names]
    except pa.ArrowException as error:
        raise InvalidDocument("ds of a forecast are times, all others are numbers") from error
    found = pa.table(dict(zip(names, columns, strict=True))).sort_by("ds")
    if found["ds"].null_count or pc.count_distinct(found["ds"]).as_py() < found.num_rows:
        raise InvalidDocument("each time of a forecast occurs once", hint="save one forecast per series")
    return found


def _store_points(points: pa.Table, server: Datasource, forecast: Forecast) -> None:
    if server.kind == "influxdb":
        names = [name for name in points.column_names if name != "ds"]
        rows = (
            (at, {name: value for name in names if (value := row[name]) is not None})
            for at, row in zip(points["ds"].cast(pa.int64()).to_pylist(), points.to_pylist(), strict=True)
        )
        with InfluxDB(server) as client:
            client.write(_MEASUREMENT, {"forecast": forecast.path}, (row for row in rows if row[1]))
        return
    file = directory_of(server) / forecast.path
    unfinished = file.with_suffix(".part")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        pyarrow.parquet.write_table(points, unfinished, compression="zstd")
        unfinished.replace(file)
    except OSError as error:
        raise SourceUnavailable(
            f"datasource {server.name} cannot be written: {error.strerror}", hint="check its directory and who owns it"
        ) from error


_MEASUREMENT = "forecast"
_FIELDS = ("y", "q0.05", "q0.1", "q0.25", "q0.5", "q0.75", "q0.9", "q0.95")  # that are read back from InfluxDB


def _load_points(server: Datasource, forecast: Forecast) -> pa.Table:
    if server.kind == "influxdb":
        with InfluxDB(server) as client:
            rows = client.read(_MEASUREMENT, {"forecast": forecast.path}, _FIELDS)
        columns = dict(zip(("ds", *_FIELDS), zip(*rows, strict=True), strict=True)) if rows else {"ds": (), "y": ()}
        arrays = {
            name: pa.array(column, pa.int64() if name == "ds" else pa.float64()) for name, column in columns.items()
        }
        kept = {name: array for name, array in arrays.items() if name in ("ds", "y") or array.null_count < len(array)}
        return pa.table({**kept, "ds": kept["ds"].cast(_STAMP)})
    directory = directory_of(server).resolve()
    file = (directory / forecast.path).resolve()
    if not file.is_relative_to(directory):
        raise SourceUnavailable(f"the path of {forecast.iri} leads out of its datasource")
    try:
        return pyarrow.parquet.read_table(file)
    except (OSError, pa.ArrowException) as error:
        raise SourceUnavailable(
            f"the points of {forecast.iri} cannot be read from datasource {server.name}",
            hint="the file may have been removed",
        ) from error


def _document(forecast: Forecast, made: Made, server: Datasource, previous: str | None) -> NodeDocument:
    document: dict[str, Any] = {
        "@context": CONTEXT_IRI,
        "id": forecast.iri,
        "type": "Forecast",
        "name": made.metric,
        "derivedFrom": [forecast.metric],
        "model": made.model,
        "horizon": iso_duration(made.horizon),
        "step": iso_duration(made.step),
        "generatedAt": iso(forecast.generated),
        "distribution": [
            {
                "id": Iris.at(forecast.iri, server.name),
                "type": "SeriesFile",
                "path": forecast.path,
                "accessService": server.iri,
            }
        ],
    }
    if made.trained:
        document["trainedFrom"], document["trainedTo"] = map(iso, made.trained)
    if previous:
        document["revisionOf"] = previous
    return document


def _read(row: Mapping[str, str], metric: str) -> Forecast:
    return Forecast(
        row["forecast"],
        metric,
        row["model"],
        parse_duration(row["horizon"]),
        parse_duration(row["step"]),
        datetime.fromisoformat(row["generated"]),
        row["path"],
        row["datasource"],
    )


def _segment(text: str) -> str:
    """Write a text as one segment of a path, which never begins with a dot."""
    return re.sub(r"[^A-Za-z0-9_.-]", "_", text).lstrip(".") or "_"
