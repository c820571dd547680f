"""A forecast against what was measured since: both as one picture, with the errors and how often the intervals held."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from drumlin.api.bootstrap import Services, now
from drumlin.api.pages.charts import Chart, Point, chart
from drumlin.api.pages.wording import moment, number, percent
from drumlin.api.routes.forecasts import forecasts_of
from drumlin.kg.errors import MetricMissing
from drumlin.kg.telemetry import measures

_ROWS = 60  # of the table: the newest points
_FAR = 0.1  # below its nominal share an interval is worth a look


@dataclass(frozen=True, slots=True)
class HeldInterval:
    """An interval of a forecast: its nominal share, the share of points that it held, and whether that is far less."""

    nominal: str
    held: str
    state: str


@dataclass(frozen=True, slots=True)
class AccuracyView:
    """How good a forecast was so far; numbers as text, – for what cannot be said."""

    entity: str
    metric: str
    forecast: str
    model: str
    points: int
    mae: str
    mape: str
    chart: Chart | None
    intervals: tuple[HeldInterval, ...]
    rows: tuple[tuple[str, str, str, str], ...]


def accuracy(service: Services, entity: str, metric: str, id: str | None) -> AccuracyView:
    """Compare a forecast (the newest when none is named) with what came; ``client.forecasts.compare`` measures the same.

    Raises ``ResourceNotFound`` when there is no such forecast, ``MetricMissing`` when nothing of its time has come yet.
    """
    forecasts = forecasts_of(service)
    found = forecasts.find(entity, metric, id)
    predicted = forecasts.points(found)
    times = [at for at in predicted["ds"].to_pylist() if at is not None]
    first, last = min(times), max(times)
    if first > now():
        raise MetricMissing(
            f"it is too early: the forecast begins at {moment(first)}, and nothing of its time has come",
            hint="look again later, or at an earlier forecast",
        )
    plan = service.history.plan(entity, metric, start=first, end=min(last, now()), step=found.step)
    (series,) = service.history.stream(plan)
    (resolution,) = series.queries
    table, measured = measures.compare(predicted, series.table)
    unit = resolution.unit
    return AccuracyView(
        entity=service.iris.short(service.iris.expand(entity)),
        metric=metric,
        forecast=service.iris.short(found.iri),
        model=found.model,
        points=measured["points"],
        mae=number(measured["mae"], unit),
        mape="–" if measured["mape"] is None else percent(measured["mape"] / 100),
        chart=_chart(table, unit),
        intervals=tuple(_intervals(measured["intervalCoverage"])),
        rows=tuple(_row(each, unit) for each in reversed(table.to_pylist()[-_ROWS:])),
    )


def _chart(table: Any, unit: str) -> Chart | None:
    rows = [(_seconds(each["ds"]), each) for each in table.to_pylist()]
    actual: list[Point] = [(at, each["actual"]) for at, each in rows]
    predicted: list[Point] = [(at, each["forecast"]) for at, each in rows]
    names = sorted((name for name in table.column_names if name.startswith("q")), key=lambda name: float(name[1:]))
    band = [
        (at, each[names[0]], each[names[-1]])
        for at, each in rows
        if len(names) > 1 and each[names[0]] is not None and each[names[-1]] is not None
    ]
    return chart(actual, unit, predicted, band)


def _seconds(at: datetime) -> float:
    return at.timestamp()


def _intervals(held: dict[str, float | None]) -> Any:
    for nominal, share in sorted(held.items(), key=lambda item: float(item[0])):
        state = "" if share is None else "waiting" if share < float(nominal) - _FAR else "good"
        yield HeldInterval(percent(float(nominal)), "–" if share is None else percent(share), state)


def _row(each: dict[str, Any], unit: str) -> tuple[str, str, str, str]:
    both = each["forecast"], each["actual"]
    error = None if None in both else both[0] - both[1]
    return moment(each["ds"]), *(number(value, unit) for value in (*both, error))  # type: ignore[return-value]
