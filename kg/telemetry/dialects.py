"""A metric in the language of the server that holds it: PromQL, LogQL, InfluxQL, SQL over Parquet. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from datetime import timedelta
from fractions import Fraction

from drumlin.kg.telemetry import curl, influxql, promql, renaming, units
from drumlin.kg.telemetry.datasources import Datasource
from drumlin.kg.telemetry.fetch import influxdb, loki, parquet, prometheus
from drumlin.kg.telemetry.promql import Matcher
from drumlin.kg.telemetry.series import Grid
from drumlin.kg.telemetry.templates import Template

ONE = Fraction(1)


def speaks(datasource: Datasource, template: Template) -> bool:
    """Return whether a datasource can be asked for a template's metric: Parquet may hold any, an InfluxDB what its ``series`` say."""
    kind = datasource.kind
    return kind in (template.datasource_type, "parquet") or (kind == "influxdb" and template.name in datasource.series)


def write(
    template: Template,
    values: Mapping[str, str],
    unique_id: str,
    *,
    window: timedelta,
    step: timedelta,
    datasource: Datasource,
    matchers: tuple[Matcher, ...],
    factor: Fraction = ONE,
    precise: bool = False,
) -> str:
    """Return the query for a metric of the entity with this short id; ``window`` is what a rate is taken over.

    ``precise``: exactly what was counted, for few points (``promql.render``).

    Every selector of it has ``matchers``; a Parquet file's series have full ids and need none. Values are multiplied with ``factor``.

    Raises ``ResourceNotFound`` when the datasource does not say where it has the metric.
    """
    if datasource.kind == "influxdb":
        return influxql.write(template.name, values, step, datasource, matchers, factor)
    if datasource.kind == "parquet":
        seconds = int(step.total_seconds())
        how: parquet.How = "sum" if template.adds_up else "avg"
        return parquet.write(unique_id, template.metric, how, seconds, datasource, factor)
    query = renaming.written(template, datasource)
    rendered = promql.render(
        query, values, window=window, step=step, datasource=datasource, matchers=matchers, precise=precise
    )
    return units.scaled(rendered, factor)


def endpoint(datasource: Datasource) -> str:
    """Return the address that a query is sent to."""
    return datasource.url + _PATHS.get(datasource.kind, "")


def command(datasource: Datasource, query: str, grid: Grid) -> str:
    """Write a query for a grid as a line that a shell runs."""
    if datasource.kind == "parquet":
        return f"duckdb -c {shlex.quote(query)}"
    if datasource.kind == "influxdb":
        form = {"db": datasource.database or "", "epoch": "s", "q": query, **influxdb.bounds(datasource, grid)}
    else:
        form = {"query": query, "start": str(grid.start), "end": str(grid.end), "step": str(grid.step)}
    return curl.command(datasource, _PATHS[datasource.kind], form)


_PATHS = {"prometheus": prometheus.RANGE_PATH, "loki": loki.RANGE_PATH, "influxdb": influxdb.QUERY_PATH}
