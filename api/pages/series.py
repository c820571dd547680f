"""A metric of an entity as a picture with its query, unit and coverage, and what was forecast of it.

All viewers of a picture within ``KEPT`` seconds share one range query: a window ends at a multiple of them.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

from drumlin.api.bootstrap import Services, now
from drumlin.api.pages.charts import Chart, Point, Summary, chart, plotted, summary
from drumlin.api.pages.wording import moment, number, percent
from drumlin.api.routes.forecasts import forecasts_of
from drumlin.kg.errors import DrumlinError, ResourceNotFound
from drumlin.kg.telemetry.forecasts import Forecast
from drumlin.kg.telemetry.resolution import Resolution
from drumlin.kg.telemetry.series import Window

KEPT = 15
"""Seconds that a picture is the same for all."""
SPANS = ("1h", "24h", "7d", "30d")
"""Lengths of time that a page offers."""
_STEPS = {"7d": "1h", "30d": "3h"}  # a picture has some hundred points
_PICTURES = 256
_ROWS = 60  # of the table beside a picture: the newest points
_AHEAD = 0.5  # share of the window that a forecast is shown for beyond its end


@dataclass(frozen=True, slots=True)
class SeriesView:
    """A picture of a series with what one must know to trust it; times and numbers as text."""

    entity: str
    metric: str
    last: str
    unit: str
    coverage: str
    complete: bool
    gap: str
    step: str
    chart: Chart | None
    plot: str
    """The points as JSON, for a chart that a script draws: times in seconds, and a value or null of each line at each of them."""
    summary: Summary
    rows: tuple[tuple[str, str], ...]
    left_out: int
    query: str
    curl: str
    endpoint: str
    datasource: str
    datasource_iri: str
    links: tuple[tuple[str, str], ...]
    warnings: tuple[str, ...]
    model: str
    predicted: tuple[tuple[str, str, str], ...] = field(default=())
    unread_forecast: str = ""
    """Why the newest forecast cannot be read; empty when it can, or there is none."""


class SharedSeries:
    """Pictures by what they show: made once for all requests of the same time, and kept as long as nothing newer can be seen."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._known: OrderedDict[tuple[Any, ...], tuple[float, Future[SeriesView]]] = OrderedDict()

    def get(self, key: tuple[Any, ...], make: Callable[[], SeriesView]) -> SeriesView:
        """Return the picture of ``key``: the first request has it made by ``make``, the others wait. Raises what ``make`` raises."""
        with self._lock:
            known = self._known.get(key)
            first = known is None or known[0] <= self._clock()
            if first or known is None:
                known = self._known[key] = self._clock() + KEPT, Future()
            while len(self._known) > _PICTURES:
                self._known.popitem(last=False)
        if first:
            return self._make(key, known[1], make)
        try:
            return known[1].result()
        except DrumlinError as error:
            raise error.again() from None

    def _make(self, key: tuple[Any, ...], future: Future[SeriesView], make: Callable[[], SeriesView]) -> SeriesView:
        try:
            found = make()
        except BaseException as error:
            with self._lock:
                self._known.pop(key, None)  # the next one tries again
            future.set_exception(error)
            raise
        future.set_result(found)
        return found


def picture(service: Services, shared: SharedSeries, entity: str, metric: str, last: str) -> SeriesView:
    """Return the picture of a metric over the ``last`` so much; raises what ``/history`` raises."""
    end = datetime.fromtimestamp(int(now().timestamp()) // KEPT * KEPT, UTC)
    Window.last(last, end)  # refuses what is no length of time, before anybody waits
    return shared.get((entity, metric, last, end), lambda: _made(service, entity, metric, last, end))


def _made(service: Services, entity: str, metric: str, last: str, end: datetime) -> SeriesView:
    plan = service.history.plan(entity, metric, last=last, end=end, step=_STEPS.get(last, "auto"), limit=20_000)
    (found,) = service.history.stream(plan)
    (resolution,) = found.queries
    (key,) = found.coverage
    table = found.table
    measured: list[Point] = [
        (at.timestamp(), value) for at, value in zip(*(table[name].to_pylist() for name in ("ds", "y")), strict=True)
    ]
    forecast, ahead, unread = _forecast(service, entity, metric, plan.window)
    predicted: list[Point] = [(at, value) for at, value, _, _ in ahead]
    interval = [(at, low, high) for at, _, low, high in ahead if low is not None and high is not None]
    coverage, gap = found.coverage[key], found.longest_gap(key)
    known = [point for point in measured if point[1] is not None]
    return SeriesView(
        entity=service.iris.short(service.iris.expand(entity)),
        metric=metric,
        last=last,
        unit=resolution.unit,
        coverage=percent(coverage),
        complete=coverage >= 0.95,
        gap="" if not gap else str(gap),
        step=str(found.step),
        chart=chart(measured, resolution.unit, predicted, interval, end.timestamp()),
        plot=plotted(measured, resolution.unit, predicted, interval),
        summary=summary(measured),
        rows=tuple((moment(at), number(value, resolution.unit)) for at, value in reversed(known[-_ROWS:])),
        left_out=max(0, len(known) - _ROWS),
        **_asked(resolution),
        warnings=tuple(dict.fromkeys((*found.warnings, *resolution.warnings))),
        model=forecast.model if forecast else "",
        unread_forecast=unread,
        predicted=tuple(
            (moment(at), number(value, resolution.unit), _between(low, high, resolution.unit))
            for at, value, low, high in islice(ahead, _ROWS)
        ),
    )


def _asked(resolution: Resolution) -> dict[str, Any]:
    return {
        "query": resolution.query,
        "curl": resolution.curl,
        "endpoint": resolution.endpoint,
        "datasource": resolution.datasource,
        "datasource_iri": resolution.datasource_iri,
        "links": tuple(
            (name, url) for name, url in resolution.links.items() if url.startswith(("http://", "https://"))
        ),
    }


def _between(low: float | None, high: float | None, unit: str) -> str:
    return "" if low is None or high is None else f"{number(low, unit)} – {number(high, unit)}"


_Ahead = tuple[float, float | None, float | None, float | None]


def _forecast(service: Services, entity: str, metric: str, window: Window) -> tuple[Forecast | None, list[_Ahead], str]:
    """Return the newest forecast, its points in the window and a little beyond, and why they cannot be read.

    A point is time, value, and the interval's ends.
    """
    forecasts = forecasts_of(service)
    try:
        newest = forecasts.find(entity, metric)
        points = forecasts.points(newest)
    except ResourceNotFound:
        return None, [], ""
    except DrumlinError as error:  # what was measured is shown all the same
        return None, [], str(error)
    until = window.end + max((window.end - window.start) * _AHEAD, timedelta(hours=1))
    quantiles = sorted(
        (name for name in points.column_names if name.startswith("q")), key=lambda name: float(name.removeprefix("q"))
    )
    columns: Iterable[Any] = (
        points["ds"].to_pylist(),
        points["y"].to_pylist(),
        points[quantiles[0]].to_pylist() if quantiles else [None] * points.num_rows,
        points[quantiles[-1]].to_pylist() if quantiles else [None] * points.num_rows,
    )
    rows = list(zip(*columns, strict=True))
    inside = [(at.timestamp(), *rest) for at, *rest in rows if window.start <= at <= until]
    return (newest, inside, "") if inside else (None, [], "")
