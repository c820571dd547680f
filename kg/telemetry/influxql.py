"""InfluxQL for one metric of one entity, from where its datasource says that it is. https://docs.influxdata.com/influxdb/v1/query_language/spec/.

A point of the grid is the step that ends there, as PromQL's ranges are: buckets are shifted by a nanosecond, so that each holds its end and
not its start. Times are bound parameters (``$start``, ``$end``), so the query is the same for any window. Pure; every value is quoted.

A gauge's series become one in buckets of a few scrapes before the mean of the step is taken: at a rollout each of two pods has a
mean of the hour, though one followed the other. A counter's difference over a gap is not counted, as what passed then is at no known time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction

from drumlin.kg.config.datasources import SeriesSettings
from drumlin.kg.errors import ResourceNotFound
from drumlin.kg.telemetry.datasources import Datasource
from drumlin.kg.telemetry.promql import Matcher
from drumlin.kg.telemetry.series import counted_range, rate_window

_FILL = "fill(none)"


def write(
    template: str,
    values: Mapping[str, str],
    step: timedelta,
    datasource: Datasource,
    matchers: tuple[Matcher, ...],
    factor: Fraction = Fraction(1),
) -> str:
    """Return the query for a template's metric. ``values``: ``namespace`` and ``node`` are names, the plurals regular expressions.

    ``matchers`` are tags that the series have besides; values are multiplied with ``factor``.

    Raises ``ResourceNotFound`` when the datasource does not say where it keeps the metric.
    """
    place = datasource.series.get(template)
    if place is None:
        known = f"; it has {', '.join(sorted(datasource.series))}" if datasource.series else ""
        raise ResourceNotFound(
            f"datasource {datasource.name} does not say where it keeps {template}{known}",
            hint=f'add [datasource.series."{template}"] with measurement and field to it in drumlin.toml',
        )
    conditions = [
        *(_condition(each.label, each.value, pattern=each.operator == "=~") for each in matchers),
        *_of_entity(values, datasource),
        *(_condition(tag, value) for tag, value in place.where.items()),
    ]
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    seconds = int(step.total_seconds())
    scale = float(Fraction(place.scale) * factor)
    source = f"FROM {identifier(place.measurement)}{where} GROUP BY"
    if place.read == "gauge":
        return _gauge(place, source, seconds, int(datasource.scrape_interval.total_seconds()), scale)
    gap = max(counted_range(rate_window(step, datasource.scrape_interval), datasource.scrape_interval), _LEAST_GAP)
    field = identifier(place.field)
    inner = f'SELECT non_negative_difference({field}) AS "y", elapsed({field}, 1s) AS "elapsed" {source} *'
    times = scale / seconds if place.read == "rate" else scale
    return _bucketed(place.across, inner, seconds, times, f'"elapsed" <= {math.ceil(gap.total_seconds())} AND ')


_LEAST_GAP = timedelta(minutes=10)
"""Time between two points that is not taken for a gap, since an InfluxDB does not report how often it is written."""


def _gauge(place: SeriesSettings, source: str, seconds: int, scrape: int, scale: float) -> str:
    """Return the mean over the step of what the series are together in buckets of some scrapes that divide it."""
    fine = next((each for each in range(4 * scrape, seconds, max(scrape, 1)) if seconds % each == 0), seconds)
    own = f'SELECT mean({identifier(place.field)}) AS "y" {source} {_buckets(fine)}, * {_FILL}'
    if fine == seconds:
        return _bucketed(place.across, own, seconds, scale)
    return _bucketed("mean", _bucketed(place.across, own, fine, 1), seconds, scale)


def _bucketed(function: str, inner: str, seconds: int, factor: float, condition: str = "") -> str:
    """Return the query that makes one value of each bucket of another's."""
    scaled = "" if factor == 1 else f" * {_number(factor)}"
    outer = f'SELECT {function}("y"){scaled} AS "y" FROM ({inner})'  # noqa: S608 - every part is quoted
    return f"{outer} WHERE {condition}time > $start AND time <= $end GROUP BY {_buckets(seconds)} {_FILL}"


def _buckets(seconds: int) -> str:
    return f"time({seconds}s, 1ns)"


def _number(value: float) -> str:
    """Write a number without an exponent, which InfluxQL does not read."""
    return format(Decimal(repr(value)), "f")


def identifier(text: str) -> str:
    """Write the name of a measurement, field or tag."""
    return '"' + _escaped(text, '"') + '"'


def string(text: str) -> str:
    """Write a text as a string literal."""
    return "'" + _escaped(text, "'") + "'"


def whole(pattern: str) -> str:
    """Write a regular expression (RE2) as one that has to match all of a value."""
    return "/^(?:" + pattern.replace("/", "\\/") + ")$/"


def _of_entity(values: Mapping[str, str], datasource: Datasource) -> list[str]:
    found = []
    for name in ("namespace", "node", "pod"):
        tag = datasource.labels.get(name, name)
        if name in values:
            found.append(_condition(tag, values[name]))
        elif f"{name}s" in values:
            found.append(_condition(tag, values[f"{name}s"], pattern=True))
    return found


def _condition(tag: str, value: str, *, pattern: bool = False) -> str:
    return f"{identifier(tag)} =~ {whole(value)}" if pattern else f"{identifier(tag)} = {string(value)}"


def _escaped(text: str, mark: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace(mark, f"\\{mark}")
