"""Forecasts: points of the future kept in a datasource, and registered in the graph; read back as series, and listed.

A forecast is one graph (``{base}/id/forecast/{uuid}``) that derives from a metric, and one file or measurement with ``ds``, ``y`` and a
column per quantile. Points come first and the graph after them, so it never names what is not there. Each revises the one before it.
"""

from __future__ import annotations

import re
import secrets
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from drumlin.kg.errors import DrumlinError, InvalidInput, ResourceNotFound, SourceUnavailable, TooLarge
from drumlin.kg.model.iris import Iris
from drumlin.kg.parsers import HERE, Parsers
from drumlin.kg.rdf.jsonld import CONTEXT_IRI, NAMESPACE, NodeDocument
from drumlin.kg.rdf.syntax import is_iri
from drumlin.kg.store.protocol import Store
from drumlin.kg.telemetry import forecast_points as points_of
from drumlin.kg.telemetry.arrow import pa, pc
from drumlin.kg.telemetry.datasources import Datasource
from drumlin.kg.telemetry.durations import iso_duration, parse_duration
from drumlin.kg.telemetry.fetch.parquet import gridded
from drumlin.kg.telemetry.history import MAX_VALUES, SeriesFailure, SeriesTable
from drumlin.kg.telemetry.resolution import Resolution, iso
from drumlin.kg.telemetry.resolve import Resolver
from drumlin.kg.telemetry.series import Gap, Gaps, Grid, Key, SeriesColumn, Step, Window, assemble, fill, gaps_of, place
from drumlin.kg.telemetry.templates import Meaning

MAX_QUERY = 10_000
"""Characters of a query that the graph keeps; the metric shows where the rest is."""
MERGED = 400
"""Forecasts of one metric that a window may be put together from."""
_PREFIXES = """PREFIX prov: <http://www.w3.org/ns/prov#> PREFIX dcat: <http://www.w3.org/ns/dcat#>
"""
# Each look-up starts from given IRIs and has no OPTIONAL: the engine would scan all forecasts for it.
_OF_METRICS = """SELECT ?metric ?forecast ?generated WHERE { VALUES ?metric { %s }
  ?forecast prov:wasDerivedFrom ?metric ; prov:generatedAtTime ?generated }"""
_ABOUT = """SELECT ?forecast ?property ?value WHERE { VALUES ?forecast { %s } ?forecast ?property ?value }"""
_WHERE = """SELECT ?forecast ?property ?value WHERE { VALUES ?forecast { %s }
  ?forecast dcat:distribution ?file . ?file ?property ?value }"""
_TOGETHER = 200  # metrics, or forecasts, that are looked up at once
_ACCESS_SERVICE = "http://www.w3.org/ns/dcat#accessService"
_REVISION_OF = "http://www.w3.org/ns/prov#wasRevisionOf"
_SAVED = re.compile(r"[0-9]{8}T[0-9]{6}Z-[0-9a-f]{8}\.parquet")
_ONE_AT_A_TIME = threading.Lock()  # between looking for the last forecast and registering the one that revises it


@dataclass(frozen=True, slots=True)
class Made:
    """How a forecast was made: of which metric, by which model, from which history (window, query), how far ahead and how finely."""

    entity: str
    metric: str
    model: str
    horizon: timedelta
    step: timedelta
    trained: tuple[datetime, datetime] | None = None
    query: str | None = None

    def __post_init__(self) -> None:
        if not timedelta(0) < self.step <= self.horizon:
            raise InvalidInput("a forecast reaches a step ahead at least, and its step is longer than nothing")
        if self.trained and self.trained[0] >= self.trained[1]:
            raise InvalidInput("the history of a forecast ends before it starts")


@dataclass(frozen=True, slots=True)
class Forecast:
    """A forecast as the graph knows it; ``path`` is where its points are in ``datasource``; ``previous`` is the one it revises."""

    iri: str
    metric: str
    model: str
    horizon: timedelta
    step: timedelta
    generated: datetime
    path: str
    datasource: str
    previous: str | None = None
    trained: tuple[datetime, datetime] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        found = {
            "id": self.iri,
            "derivedFrom": self.metric,
            "model": self.model,
            "horizon": iso_duration(self.horizon),
            "step": iso_duration(self.step),
            "generatedAt": iso(self.generated),
            "path": self.path,
            "accessService": self.datasource,
        }
        if self.trained:
            found["trainedFrom"], found["trainedTo"] = map(iso, self.trained)
        return found | ({"revisionOf": self.previous} if self.previous else {})


@dataclass(frozen=True, slots=True)
class Unsaved:
    """A series of a long frame that was not saved, and why."""

    entity: str
    metric: str
    error: DrumlinError


class Ahead(NamedTuple):
    """What a forecast says of one moment: the point whose step holds it, its value, and the metric's unit."""

    forecast: Forecast
    at: datetime
    value: float
    unit: str


class _Saving(NamedTuple):
    """Checked points that are to be saved, how they were made, and the IRI of the metric."""

    made: Made
    metric: str
    points: pa.Table


class _Known(NamedTuple):
    """When a forecast was made, its IRI, and its metric's; of two that were made at once the one of the later name is the later."""

    generated: datetime
    forecast: str
    metric: str


class _Found(NamedTuple):
    """One series of forecasts: what it is of, those that its points come from, the newest first, and the points."""

    key: Key
    meaning: Meaning
    used: Sequence[Forecast]
    rows: pa.Table


class ForecastStore:
    """Saves, reads and deletes the forecasts of one store.

    ``write`` registers graphs, all or none; ``bury`` ends one; ``parsers`` read points.
    """

    def __init__(
        self,
        store: Store,
        iris: Iris,
        resolver: Resolver,
        write: Callable[[Sequence[NodeDocument]], object],
        bury: Callable[[str], object],
        now: Callable[[], datetime],
        parsers: Parsers = HERE,
    ) -> None:
        self._store = store
        self._iris = iris
        self._resolver = resolver
        self._datasources = [
            each for each in resolver.datasources() if each.kind in ("parquet", "influxdb") and each.access
        ]
        self._write = write
        self._bury = bury
        self._now = now
        self._parsers = parsers

    def save(self, table: pa.Table, made: Made, datasource: str | None = None) -> Forecast:
        """Store the points and register the forecast; the graph is written last, so it never points at nothing.

        ``table`` has ``ds`` (times, UTC), ``y`` and optionally quantiles ``q0.1`` …. Raises ``InvalidDocument`` for other tables,
        ``ResourceNotFound`` when there is no such metric, or no datasource that takes forecasts.
        """
        points = points_of.checked(table)
        server = self._server(datasource)
        metric = self._resolver.metric_iris([(made.entity, made.metric)])[made.entity, made.metric]
        if isinstance(metric, DrumlinError):
            raise metric
        return self._saved([_Saving(made, metric, points)], server)[0]

    def save_many(self, table: pa.Table, made: Made, datasource: str | None = None) -> list[Forecast | Unsaved]:
        """Save each series of a long frame, in the order of their first rows; one that cannot be saved says why and stops no other.

        ``unique_id`` of the table names the entities, ``metric`` the metrics (those of ``made`` without such a column); the rest is as
        for ``save``. Raises ``InvalidDocument`` for a table without ``unique_id``, ``TooLarge`` for more than ``MAX_SERIES`` series.
        """
        server = self._server(datasource)
        series = points_of.split(table, made.metric)
        refused: dict[tuple[str, str], DrumlinError] = {}
        ready: dict[tuple[str, str], _Saving] = {}
        for pair, metric in self._resolver.metric_iris(list(series)).items():
            try:
                if isinstance(metric, DrumlinError):
                    raise metric
                how = replace(made, entity=pair[0], metric=pair[1])
                ready[pair] = _Saving(how, metric, points_of.checked(series[pair]))
            except DrumlinError as error:
                refused[pair] = error
        saved = dict(zip(ready, self._saved(list(ready.values()), server), strict=True))
        return [saved[pair] if pair in saved else Unsaved(*pair, refused[pair]) for pair in series]

    def _saved(self, pieces: Sequence[_Saving], server: Datasource) -> list[Forecast]:
        """Store points that were checked, then register their forecasts."""
        paths = [self._path(each.made) for each in pieces]
        points_of.store([(path, each.points) for path, each in zip(paths, pieces, strict=True)], server)
        with _ONE_AT_A_TIME:
            return self._register(pieces, paths, server)

    def _path(self, made: Made) -> str:
        folder = self._folder(self._iris.expand(made.entity), made.metric)
        return f"{folder}/{self._now():%Y%m%dT%H%M%SZ}-{secrets.token_hex(4)}.parquet"

    def _register(self, pieces: Sequence[_Saving], paths: Sequence[str], server: Datasource) -> list[Forecast]:
        latest: dict[str, _Known] = {}
        for each in self._known([piece.metric for piece in pieces]):
            latest[each.metric] = max(each, latest.get(each.metric, each))
        found: list[Forecast] = []
        for (how, metric, _), path in zip(pieces, paths, strict=True):
            before = latest.get(metric)
            found.append(
                Forecast(
                    iri=self._iris.of_class("forecast", str(_uuid7())),
                    metric=metric,
                    model=how.model,
                    horizon=how.horizon,
                    step=how.step,
                    generated=max(self._now(), before.generated) if before else self._now(),
                    path=path,
                    datasource=server.iri,
                    previous=before.forecast if before else None,
                    trained=how.trained,
                )
            )
        self._write([_document(each, piece.made, server) for each, piece in zip(found, pieces, strict=True)])
        return found

    def _known(self, metrics: Sequence[str]) -> Iterator[_Known]:
        """Yield when each forecast of some metrics was made, in no order."""
        for named in _named(metrics):
            for row in self._store.look_up(_PREFIXES + _OF_METRICS % named):
                yield _Known(datetime.fromisoformat(row["generated"]), row["forecast"], row["metric"])

    def delete(self, entity: str, metric: str, id: str) -> Forecast:
        """End a forecast of a metric, its graph first, then its Parquet file; raises ``ResourceNotFound``.

        Only a file that was saved for this metric goes, whatever a document says; points in an InfluxDB go with its retention policy.
        Raises ``SourceUnavailable`` before anything is done when its datasource is not configured here.
        """
        found = self.find(entity, metric, id)
        server = self._holder(found)
        self._bury(found.iri)
        folder, _, name = found.path.rpartition("/")
        if folder == self._folder(self._iris.expand(entity), metric) and _SAVED.fullmatch(name):
            points_of.remove(server, found.path)
        return found

    def _folder(self, entity: str, metric: str) -> str:
        return "/".join(map(_segment, (metric, *self._iris.short(entity).split("/"))))

    def list(self, entity: str, metric: str | None = None, *, limit: int = 100) -> list[Forecast]:
        """Return the forecasts of a metric, or of all metrics of an entity, the newest first."""
        iri = self._iris.expand(entity)
        names = self._resolver.metrics_of(entity) if metric is None else [metric]
        graphs = [iri, self._iris.scraped(iri)] if self._iris.is_entity(iri) else [iri]
        metrics = [Iris.metric(graph, each) for graph in graphs for each in names]
        known = sorted(self._known(metrics), reverse=True)[:limit]
        said = self._said([each.forecast for each in known])
        return [found for each in known if (found := _read(each, said[each.forecast]))]

    def _said(self, forecasts: Sequence[str]) -> dict[str, dict[str, str]]:
        """Return what the graph says of forecasts and of where their points are: values by property."""
        found: dict[str, dict[str, str]] = {each: {} for each in forecasts}
        for named in _named(forecasts):
            for query in (_ABOUT, _WHERE):
                for row in self._store.look_up(_PREFIXES + query % named):
                    found[row["forecast"]][row["property"]] = row["value"]
        return found

    def find(self, entity: str, metric: str, id: str | None = None) -> Forecast:
        """Return a forecast of a metric by IRI or short id, or the newest; raises ``ResourceNotFound``."""
        wanted = self._iris.expand(id) if id else None
        for each in self.list(entity, metric, limit=1000):
            if wanted in (None, each.iri):
                return each
        raise ResourceNotFound(
            f"there is no such forecast of {metric[:80]} of {entity[:200]}"
            if id
            else f"there is no forecast of {metric[:80]} of {entity[:200]}",
            hint=f"make one: drumlin forecast {entity[:200]} {metric[:80]}",
        )

    def points(self, forecast: Forecast) -> pa.Table:
        """Return a forecast's points; raises ``SourceUnavailable`` when they are not where they should be."""
        return points_of.load(self._holder(forecast), forecast.path, self._parsers)

    def value(self, entity: str, metric: str, at: datetime, quantile: str = "y", unit: Sequence[str] = ()) -> Ahead:
        """Return what is predicted for a moment, by the newest forecast that has its point; ``quantile`` is ``y`` or ``q0.9`` ….

        A point stands for the step that ends there; it is in the first of the units ``unit`` that fits. Raises ``ResourceNotFound`` when no
        forecast reaches the moment, or has the quantile, ``InvalidInput`` when no unit fits.
        """
        meaning = self._resolver.meaning(entity, metric, unit)
        metric = meaning.metric
        known = self.list(entity, metric, limit=MERGED)
        for each in known:
            if each.generated + 2 * each.horizon < at:
                continue  # it predicted what is over by then
            points = self.points(each)
            inside = pc.and_(
                pc.greater_equal(points["ds"], pa.scalar(at, points["ds"].type)),
                pc.less(points["ds"], pa.scalar(at + each.step, points["ds"].type)),
            )
            if quantile not in points.column_names:
                continue
            if rows := points.filter(pc.and_(inside, pc.is_valid(points[quantile]))).to_pylist():
                return Ahead(each, rows[0]["ds"], rows[0][quantile] * meaning.factor, meaning.unit)
        if not known:
            self.find(entity, metric)  # raises, with what to do
        raise ResourceNotFound(
            f"no forecast of {metric[:80]} of {entity[:200]} has {quantile[:20]} at {iso(at)}",
            hint=f"ask for a moment nearer, or make one: drumlin forecast {entity[:200]} {metric[:80]}",
        )

    def history(
        self,
        pairs: Sequence[tuple[str, str]],
        window: Window | None,
        step: Step = "auto",
        gaps: Gaps = "null",
        unit: Sequence[str] = (),
    ) -> SeriesTable:
        """Return forecasts as series: in a window each point by the newest forecast that has it, without one the newest forecast.

        Values are in the first of the units ``unit`` that fits a metric; ``%`` of ``cpu_usage`` is ``cpu_utilisation``. ``auto`` is the
        step of the newest forecast; a longer one has the mean of what it covers, or the sum of what adds up. A metric without a forecast
        is listed in ``failures``; when all are, the first one's error is raised. Raises ``TooLarge`` for more than ``MAX_VALUES`` values.
        """
        found: list[_Found] = []
        failures: list[SeriesFailure] = []
        for entity, metric in pairs:
            key = Key(self._iris.short(self._iris.expand(entity)), metric)
            try:
                meaning = self._resolver.meaning(entity, metric, unit)
                key = key._replace(metric=meaning.metric)
                found.append(_Found(key, meaning, *self._together(entity, meaning.metric, window)))
            except DrumlinError as error:
                failures.append(SeriesFailure(key, error))
        if not found:
            raise failures[0].error
        grid = _grid([each.rows for each in found], window, step, found[0].used[0].step)
        if (values := grid.points * len(found)) > MAX_VALUES:  # two points can be as far apart as the calendar goes
            raise TooLarge(
                f"forecasts on a grid of {values:,} values; the limit is {MAX_VALUES:,}",
                hint="name a shorter window, or a longer step",
            )
        return self._series(found, failures, grid, gaps)

    def _together(self, entity: str, metric: str, window: Window | None) -> tuple[Sequence[Forecast], pa.Table]:
        """Return the forecasts that a window needs, the newest first, and their points, the newer one's where two have a time."""
        newest = self.find(entity, metric)
        if window is None:
            return [newest], self.points(newest).select(["ds", "y"])
        used: list[Forecast] = []
        rows: pa.Table | None = None
        expected = (window.end - window.start) // newest.step + 1
        for each in self.list(entity, metric, limit=MERGED):
            if each.generated + 2 * each.horizon < window.start or (rows is not None and rows.num_rows >= expected):
                continue  # it predicted what is over by then, or all points are there
            points = self.points(each).select(["ds", "y"])
            inside = pc.and_(pc.greater_equal(points["ds"], window.start), pc.less_equal(points["ds"], window.end))
            new = points.filter(inside)
            if rows is not None:
                new = new.filter(pc.invert(pc.is_in(new["ds"], value_set=rows["ds"].combine_chunks())))
            if new.num_rows:
                used.append(each)
                rows = new if rows is None else pa.concat_tables([rows, new])
        if rows is None:
            raise ResourceNotFound(
                f"no forecast of {metric} of {entity} has a point in the window", hint="take another window"
            )
        return used, rows.sort_by("ds")

    def _series(
        self, found: Sequence[_Found], failures: Sequence[SeriesFailure], grid: Grid, gaps: Gaps
    ) -> SeriesTable:
        columns: list[SeriesColumn] = []
        queries: list[Resolution] = []
        coverage: dict[Key, float] = {}
        missing: dict[Key, tuple[Gap, ...]] = {}
        for key, meaning, used, rows in found:
            stamps = rows["ds"].cast(pa.int64())
            values = place([gridded(stamps, rows["y"], grid, "sum" if meaning.adds_up else "avg")], grid).values
            coverage[key] = (grid.points - values.null_count) / grid.points
            missing[key] = gaps_of(values, grid)
            columns.append(SeriesColumn(key, meaning.unit, fill(pc.multiply(values, meaning.factor), gaps)))
            queries.append(self._resolution(key, used[0], grid, meaning))
        said = tuple(f"{each.key.unique_id} {each.key.metric} is missing: {each.error}" for each in failures)
        return SeriesTable(
            assemble(columns, grid, gaps), grid, tuple(queries), coverage, missing, said, tuple(failures)
        )

    def _resolution(self, key: Key, forecast: Forecast, grid: Grid, meaning: Meaning) -> Resolution:
        """Return where a series of forecasts comes from: the newest of them."""
        server = self._holder(forecast)
        start, end = grid.window
        return Resolution(
            entity=self._iris.expand(key.unique_id),
            metric=key.metric,
            unit=meaning.unit,
            quantity=meaning.quantity,
            metric_type=meaning.metric_type,
            datasource=server.name,
            datasource_iri=server.iri,
            endpoint=server.url,
            query=forecast.path,
            start=start,
            end=end,
            step=timedelta(seconds=grid.step),
            pods=(),
            selector="stored",
            curl="",
            fetchable=True,
        )

    def _holder(self, forecast: Forecast) -> Datasource:
        server = next((each for each in self._datasources if each.iri == forecast.datasource), None)
        if server is None:
            raise SourceUnavailable(
                f"the points of {self._iris.short(forecast.iri)} are in a datasource that is not configured here",
                hint=f"add [[datasource]] {forecast.datasource.rpartition('/')[2]} to drumlin.toml",
            )
        return server

    def _server(self, wanted: str | None) -> Datasource:
        found = [each for each in self._datasources if wanted in (None, each.name, each.iri)]
        if not found:
            raise ResourceNotFound(
                "no datasource takes forecasts" if wanted is None else f"{wanted[:80]!r} takes no forecasts",
                hint='add [[datasource]] name = "forecasts" kind = "parquet" url = "file:///var/lib/drumlin/forecasts" to drumlin.toml',
            )
        return found[0]


def _grid(tables: Sequence[pa.Table], window: Window | None, step: Step, own: timedelta) -> Grid:
    """Return the grid of forecasts: of the window that was asked for, or from their first point to their last."""
    chosen = own if step in (None, "auto") else step if isinstance(step, timedelta) else parse_duration(str(step))
    if window is not None:
        return Grid.over(window, chosen)
    stamps = [table["ds"].cast(pa.int64()) for table in tables]
    first, last = min(pc.min(each).as_py() for each in stamps), max(pc.max(each).as_py() for each in stamps)
    step_ms = int(chosen.total_seconds()) * 1000
    return Grid(-(-first // step_ms) * step_ms // 1000, -(-last // step_ms) * step_ms // 1000, step_ms // 1000)


def _document(forecast: Forecast, made: Made, server: Datasource) -> NodeDocument:
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
    if made.query and len(made.query) <= MAX_QUERY:
        document["query"] = made.query
    if forecast.previous:
        document["revisionOf"] = forecast.previous
    return document


def _read(known: _Known, said: Mapping[str, str]) -> Forecast | None:
    """Return a forecast of what the graph says, or None when that is not all that one has: somebody wrote it by hand."""
    own = {
        name: said.get(NAMESPACE + name) for name in ("model", "horizon", "step", "path", "trainedFrom", "trainedTo")
    }
    datasource = said.get(_ACCESS_SERVICE)
    model, horizon, step, path, *trained = own.values()
    if model is None or horizon is None or step is None or path is None or datasource is None:
        return None
    start, end = (datetime.fromisoformat(each) if each else None for each in trained)
    return Forecast(
        known.forecast,
        known.metric,
        model,
        parse_duration(horizon),
        parse_duration(step),
        known.generated,
        path,
        datasource,
        said.get(_REVISION_OF),
        (start, end) if start and end else None,
    )


def _named(iris: Sequence[str]) -> Iterator[str]:
    """Yield IRIs as a query lists them, some at a time."""
    legal = [each for each in iris if is_iri(each)]
    for start in range(0, len(legal), _TOGETHER):
        yield " ".join(f"<{each}>" for each in legal[start : start + _TOGETHER])


def _uuid7() -> uuid.UUID:
    """Return a UUID whose order is that of time, to a fraction of a millisecond: https://www.rfc-editor.org/rfc/rfc9562#section-5.7."""
    milliseconds, rest = divmod(time.time_ns(), 1_000_000)
    fraction = (rest << 12) // 1_000_000
    return uuid.UUID(int=milliseconds << 80 | 7 << 76 | fraction << 64 | 2 << 62 | secrets.randbits(62))


def _segment(text: str) -> str:
    """Write a text as one segment of a path, which never begins with a dot."""
    return re.sub(r"[^A-Za-z0-9_.-]", "_", text).lstrip(".") or "_"
