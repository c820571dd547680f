"""InfluxQL for one metric of one entity, from where its datasource says that it is. https://docs.influxdata.com/influxdb/v1/query_language/spec/.

A point of the grid is the step that ends there, as PromQL's ranges are: buckets are shifted by a nanosecond, so that each holds its end and
not its start. Times are bound parameters (``$start``, ``$end``), so the query is the same for any window. Pure; every value is quoted.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from kg.errors import ResourceNotFound
from kg.servers import SeriesSettings
from kg.telemetry.datasources import Datasource

_FILL = "fill(none)"


def write(template: str, values: Mapping[str, str], step: timedelta, datasource: Datasource) -> str:
    """Return the query for a template's metric. ``values``: ``namespace`` and ``node`` are names, ``pods`` a regular expression.

    Raises ``ResourceNotFound`` when the datasource does not say where it keeps the metric.
    """
    place = datasource.series.get(template)
    if place is None:
        known = f"; it has {', '.join(sorted(datasource.series))}" if datasource.series else ""
        raise ResourceNotFound(
            f"datasource {datasource.name} does not say where it keeps {template}{known}",
            hint=f'add [datasource.series."{template}"] with measurement and field to it in drumlin.toml',
        )
    conditions = [*_of_entity(values, datasource), *(f"{identifier(k)} = {string(v)}" for k, v in place.where.items())]
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    seconds = int(step.total_seconds())
    buckets = f"time({seconds}s, 1ns)"
    inner = f"SELECT {_reading(place)} FROM {identifier(place.measurement)}{where} GROUP BY "  # noqa: S608 - as here
    inner += f"{buckets}, * {_FILL}" if place.read == "gauge" else "*"
    factor = place.scale / seconds if place.read == "rate" else place.scale
    scaled = "" if factor == 1 else f" * {factor!r}"
    outer = f'SELECT {place.across}("y"){scaled} AS "y" FROM ({inner})'  # noqa: S608 - every part is quoted
    return f"{outer} WHERE time > $start AND time <= $end GROUP BY {buckets} {_FILL}"


def identifier(text: str) -> str:
    """Write the name of a measurement, field or tag."""
    return '"' + _escaped(text, '"') + '"'


def string(text: str) -> str:
    """Write a text as a string literal."""
    return "'" + _escaped(text, "'") + "'"


def whole(pattern: str) -> str:
    """Write a regular expression (RE2) as one that has to match all of a value."""
    return "/^(?:" + pattern.replace("/", "\\/") + ")$/"


def _reading(place: SeriesSettings) -> str:
    name = identifier(place.field)
    return f'mean({name}) AS "y"' if place.read == "gauge" else f'non_negative_difference({name}) AS "y"'


def _of_entity(values: Mapping[str, str], datasource: Datasource) -> list[str]:
    def tag(name: str) -> str:
        return identifier(datasource.labels.get(name, name))

    found = [f"{tag(name)} = {string(values[name])}" for name in ("namespace", "node") if name in values]
    return [*found, *([f"{tag('pod')} =~ {whole(values['pods'])}"] if "pods" in values else [])]


def _escaped(text: str, mark: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace(mark, f"\\{mark}")
