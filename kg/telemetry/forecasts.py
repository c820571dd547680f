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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from kg.errors import DrumlinError, InvalidInput, ResourceNotFound, SourceUnavailable
from kg.iris import Iris
from kg.jsonld import CONTEXT_IRI, NodeDocument
from kg.store.protocol import Store
from kg.telemetry import forecast_points as points_of
from kg.telemetry.arrow import pa, pc
from kg.telemetry.datasources import Datasource
from kg.telemetry.durations import iso_duration, parse_duration
from kg.telemetry.fetch.parquet import gridded
from kg.telemetry.history import Failure, Series
from kg.telemetry.resolution import Resolution, iso
from kg.telemetry.resolve import Resolver
from kg.telemetry.series import Column, Gap, Gaps, Grid, Key, Step, Window, assemble, fill, gaps_of, place
from kg.telemetry.templates import Meaning

MAX_QUERY = 10_000
"""Characters of a query that the graph keeps; the metric tells where the rest is."""
MERGED = 400
"""Forecasts of one metric that a window may be put together from."""
_LISTED = """PREFIX drumlin: <https://w3id.org/drumlin/ns#> PREFIX prov: <http://www.w3.org/ns/prov#>
PREFIX dcat: <http://www.w3.org/ns/dcat#>
SELECT ?forecast ?metric ?model ?horizon ?step ?generated ?path ?datasource ?previous WHERE {
  ?forecast prov:wasDerivedFrom ?metric ; a drumlin:Forecast ; drumlin:model ?model ; drumlin:horizon ?horizon ;
    drumlin:step ?step ; prov:generatedAtTime ?generated ; dcat:distribution ?file .
  ?file drumlin:path ?path ; dcat:accessService ?datasource .
  OPTIONAL { ?forecast prov:wasRevisionOf ?previous } } ORDER BY DESC(?generated) DESC(STR(?forecast)) LIMIT 1000"""
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
        return found | ({"revisionOf": self.previous} if self.previous else {})


class _Found(NamedTuple):
    """One series of forecasts: those that its points come from, the newest first, and the points."""

    key: Key
    used: Sequence[Forecast]
    rows: pa.Table


class Forecasts:
    """Saves, reads and deletes the forecasts of one store. ``write`` registers a graph under its IRI, ``bury`` ends one."""

    def __init__(
        self,
        store: Store,
        iris: Iris,
        resolver: Resolver,
        write: Callable[[str, NodeDocument], None],
        bury: Callable[[str], object],
        now: Callable[[], datetime],
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

    def save(self, table: pa.Table, made: Made, datasource: str | None = None) -> Forecast:
        """Store the points and register the forecast; the graph is written last, so it never points at nothing.

        ``table`` has ``ds`` (times, UTC), ``y`` and optionally quantiles ``q0.1`` …. Raises ``InvalidDocument`` for other tables,
        ``ResourceNotFound`` when there is no such metric, or no datasource that takes forecasts.
        """
        points = points_of.checked(table)
        server = self._server(datasource)
        self._resolver.meaning(made.entity, made.metric)  # raises when it has no such metric
        entity = self._iris.expand(made.entity)
        path = f"{self._folder(entity, made.metric)}/{self._now():%Y%m%dT%H%M%SZ}-{secrets.token_hex(4)}.parquet"
        points_of.store(points, server, path)
        with _ONE_AT_A_TIME:
            return self._register(made, Iris.metric(entity, made.metric), path, server)

    def _register(self, made: Made, metric: str, path: str, server: Datasource) -> Forecast:
        before = self.list(made.entity, made.metric, limit=1)
        found = Forecast(
            iri=self._iris.of_class("forecast", str(_uuid7())),
            metric=metric,
            model=made.model,
            horizon=made.horizon,
            step=made.step,
            generated=max([self._now(), *(each.generated for each in before)]),
            path=path,
            datasource=server.iri,
            previous=before[0].iri if before else None,
        )
        self._write(found.iri, _document(found, made, server))
        return found

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

    def list(self, entity: str, metric: str, *, limit: int = 100) -> list[Forecast]:
        """Return the forecasts of a metric, the newest first."""
        iri = Iris.metric(self._iris.expand(entity), metric)
        rows = self._store.look_up(_LISTED, {"metric": iri})
        return [_read(row, iri) for row in rows[:limit]]

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
        return points_of.load(self._holder(forecast), forecast.path)

    def history(
        self,
        pairs: Sequence[tuple[str, str]],
        window: Window | None,
        step: Step = "auto",
        gaps: Gaps = "null",
    ) -> Series:
        """Return forecasts as series: in a window each point by the newest forecast that has it, without one the newest forecast.

        ``auto`` is the step of the newest forecast; a longer one has the mean of what it covers, or the sum of what adds up. A metric
        without a forecast is listed in ``failures``; when all are, the first one's error is raised.
        """
        found: list[_Found] = []
        failures: list[Failure] = []
        for entity, metric in pairs:
            key = Key(self._iris.short(self._iris.expand(entity)), metric)
            try:
                found.append(_Found(key, *self._together(entity, metric, window)))
            except DrumlinError as error:
                failures.append(Failure(key, error))
        if not found:
            raise failures[0].error
        grid = _grid([rows for _, _, rows in found], window, step, found[0][1][0].step)
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

    def _series(self, found: Sequence[_Found], failures: Sequence[Failure], grid: Grid, gaps: Gaps) -> Series:
        columns: list[Column] = []
        queries: list[Resolution] = []
        coverage: dict[Key, float] = {}
        missing: dict[Key, tuple[Gap, ...]] = {}
        for key, used, rows in found:
            meaning = self._resolver.meaning(key.unique_id, key.metric)
            stamps = rows["ds"].cast(pa.int64())
            values = place([gridded(stamps, rows["y"], grid, "sum" if meaning.adds_up else "avg")], grid).values
            coverage[key] = (grid.points - values.null_count) / grid.points
            missing[key] = gaps_of(values, grid)
            columns.append(Column(key, meaning.unit, fill(values, gaps)))
            queries.append(self._resolution(key, used[0], grid, meaning))
        said = tuple(f"{each.key.unique_id} {each.key.metric} is missing: {each.error}" for each in failures)
        return Series(assemble(columns, grid, gaps), grid, tuple(queries), coverage, missing, said, tuple(failures))

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
        row.get("previous"),
    )


def _uuid7() -> uuid.UUID:
    """Return a UUID whose order is that of time, to a fraction of a millisecond: https://www.rfc-editor.org/rfc/rfc9562#section-5.7."""
    milliseconds, rest = divmod(time.time_ns(), 1_000_000)
    fraction = (rest << 12) // 1_000_000
    return uuid.UUID(int=milliseconds << 80 | 7 << 76 | fraction << 64 | 2 << 62 | secrets.randbits(62))


def _segment(text: str) -> str:
    """Write a text as one segment of a path, which never begins with a dot."""
    return re.sub(r"[^A-Za-z0-9_.-]", "_", text).lstrip(".") or "_"
