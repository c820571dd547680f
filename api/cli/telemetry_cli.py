"""``drumlin resolve``, ``history``, ``logs``, ``datasources``, ``forecast``: what telemetry says of an entity."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, cast, get_args

import typer

from drumlin.api.cli import completion
from drumlin.api.cli.options import (
    Id,
    MetricName,
    Rows,
    Url,
    connect,
    form_option,
    id_argument,
    id_option,
    one_of,
    text_of,
)
from drumlin.kg.model.kind_names import spelled
from drumlin.kg.telemetry import Choice

Last = Annotated[str | None, typer.Option(help="Window up to now: 30d, 12h, 15m.", show_default=False)]
Start = Annotated[
    str | None, typer.Option(help="Begin of the window: RFC 3339 time or epoch seconds.", show_default=False)
]
Unit = Annotated[
    list[str] | None,
    typer.Option("--unit", help="Unit of the values: MB, GiB, %, kWh, cores … or UCUM.", show_default=False),
]
GroupBy = Annotated[
    str | None,
    typer.Option(
        "--group-by",
        help="Add up per applicationGroup, application, team, kind, namespace, node or label:KEY, of the entity or of `all`.",
        show_default=False,
    ),
]
End = Annotated[str | None, typer.Option(help="End of the window [default: now].", show_default=False)]
Selector = Annotated[
    str,
    typer.Option(
        help="How pods are picked: exact (known runs), pattern (of their names), auto: exact where all are known."
    ),
]


def resolve(
    id: Id,
    metric: MetricName,
    last: Last = None,
    start: Start = None,
    end: End = None,
    step: Annotated[str | None, typer.Option(help="Distance of the points: 5m.", show_default=False)] = None,
    datasource: Annotated[str | None, typer.Option(help="Name of the datasource to use.", show_default=False)] = None,
    unit: Unit = None,
    group_by: GroupBy = None,
    selector: Selector = "auto",
    url: Url = None,
    output: Rows = "table",
) -> None:
    """Turn entity × metric × window into an endpoint and an exact, runnable query.

    **Example**: `drumlin resolve prod/payments/deployment/checkout cpu_usage --last 6h`
    """
    from drumlin.api.cli import series
    from drumlin.api.cli.output import STRUCTURED, Output, emit_rows, emit_value, properties

    form = Output(output)
    window = {"last": last, "start": start, "end": end, "step": step}
    picked = _selector(selector)
    if group_by:
        series.show_groups(url, id, metric, {**window, "datasource": datasource}, unit, group_by, form)
        return
    with connect(url) as client:
        resolution = client.resolve(id, metric, **window, datasource=datasource, unit=unit, selector=picked)
    if form in STRUCTURED:
        emit_value(resolution, form)
    else:
        emit_rows(("property", "value"), properties(resolution), form)


def _selector(selector: str) -> Choice:
    one_of(selector, get_args(Choice), "--selector")
    return cast("Choice", selector)


def history(
    id: Annotated[str, id_argument("Short id or IRI of the entity; - reads them from stdin, one a line.")],
    metric: MetricName,
    last: Last = "1d",
    start: Start = None,
    end: End = None,
    step: Annotated[
        str, typer.Option(help="Distance of the points: 5m; auto stays below the server's limit.")
    ] = "auto",
    gaps: Annotated[str, typer.Option(help="What becomes of gaps: null, ffill, linear or drop.")] = "null",
    datasource: Annotated[str | None, typer.Option(help="Name of the datasource to use.", show_default=False)] = None,
    unit: Unit = None,
    group_by: GroupBy = None,
    selector: Selector = "auto",
    via: Annotated[str, typer.Option(help="service, or direct: fetch with the drumlin.toml here.")] = "service",
    forecast: Annotated[bool, typer.Option("--forecast", help="What was predicted, not what was measured.")] = False,
    explain: Annotated[bool, typer.Option("--explain", help="Print what would be asked, and ask nothing.")] = False,
    to: Annotated[
        Path | None, typer.Option(help="File to write: .parquet, .arrow, .csv or .ndjson.", show_default=False)
    ] = None,
    url: Url = None,
    output: Rows = "table",
) -> None:
    """Fetch a metric's history as a forecast-ready table (unique_id, ds, y).

    **Examples**: `drumlin history prod/payments/deployment/checkout cpu_usage --last 30d --step 5m -o csv > cpu.csv` ·
    `drumlin history - cpu_usage --last 30d --to all.parquet < ids.txt` ·
    `drumlin history all energy_joules --group-by team --last 30d --step 1d --unit kWh`
    """
    from drumlin.api.cli import series
    from drumlin.api.cli.output import Output

    one_of(gaps, ("null", "ffill", "linear", "drop"), "--gaps")
    one_of(via, ("service", "direct"), "--via")
    window = {"start": start, "end": end} if start else {"last": last, "end": end}
    options = {**window, "step": step, "gaps": gaps, "datasource": datasource, "unit": unit, "group_by": group_by}
    options["selector"] = _selector(selector)
    if forecast:
        options |= {"kind": "forecast", "last": None}
    ids = [spelled(line.strip()) for line in text_of("-").splitlines() if line.strip()] if id == "-" else [id]
    ids = [] if group_by and id == "all" else ids
    if explain:
        series.explain(url, ids, metric, options)
    elif to:
        series.save(url, to, ids, metric, options)
    else:
        series.show(url, ids, metric, {**options, "via": via}, Output(output))


def values(
    metric: Annotated[
        list[str],
        typer.Argument(help="Names of metrics: cpu_usage mem_usage …", autocompletion=completion.metrics),
    ],
    entity: Annotated[list[str] | None, id_option("--entity", "-e", help="Short id or IRI; may be repeated.")] = None,
    type: Annotated[
        list[str] | None, typer.Option(help="Class: Node, Deployment, Workload …", show_default=False)
    ] = None,
    namespace: Annotated[list[str] | None, typer.Option("--namespace", "-n", show_default=False)] = None,
    cluster: Annotated[list[str] | None, typer.Option(show_default=False)] = None,
    node: Annotated[list[str] | None, typer.Option(help="What runs on a node.", show_default=False)] = None,
    unit: Unit = None,
    at: Annotated[
        str | None, typer.Option(help="Another time than now: RFC 3339 or epoch seconds.", show_default=False)
    ] = None,
    window: Annotated[
        str | None, typer.Option(help="How far rates look back [default: 5m].", show_default=False)
    ] = None,
    datasource: Annotated[str | None, typer.Option(help="Name of the datasource to use.", show_default=False)] = None,
    url: Url = None,
    output: Rows = "table",
) -> None:
    """Read the current values of many entities at once: one query to each server for each metric.

    **Examples**: `drumlin values cpu_usage mem_usage --type Node --unit cores --unit GiB` ·
    `drumlin values cpu_usage --type Pod --node edge-a-1 -o csv`
    """
    from drumlin.api.cli import series
    from drumlin.api.cli.output import Output

    filters = {"type": type, "namespace": namespace, "cluster": cluster, "node": node}
    options = {"unit": unit, "at": at, "window": window, "datasource": datasource, **filters}
    series.show_values(url, metric, entity or None, options, Output(output))


def alerts(
    id: Annotated[
        str | None, id_argument("Short id or IRI of an entity; without one, all.", show_default=False)
    ] = None,
    state: Annotated[
        list[str] | None, typer.Option(help="pending, firing or suppressed; may be repeated.", show_default=False)
    ] = None,
    severity: Annotated[list[str] | None, typer.Option(help="critical, warning …", show_default=False)] = None,
    datasource: Annotated[str | None, typer.Option(help="Name of the datasource to ask.", show_default=False)] = None,
    url: Url = None,
    output: Rows = "table",
) -> None:
    """List the alerts that fire or are pending, of a pod, workload, node, namespace, cluster or domain, or all.

    **Example**: `drumlin alerts prod/payments/deployment/checkout`
    """
    from drumlin.api.cli import series
    from drumlin.api.cli.output import Output

    options = {"state": state, "severity": severity, "datasource": datasource}
    series.show_alerts(url, id, options, Output(output))


def logs(
    id: Annotated[str, id_argument("Short id or IRI of a workload or pod.")],
    last: Last = "1h",
    start: Start = None,
    end: End = None,
    filter: Annotated[str | None, typer.Option(help="Only lines that contain this text.", show_default=False)] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", help="Most lines; the newest.", min=1)] = 100,
    url: Url = None,
    output: Rows = "table",
) -> None:
    """Show an entity's log lines, the oldest first, from the Loki that holds them.

    **Example**: `drumlin logs prod/payments/deployment/checkout --last 6h --filter error`
    """
    from drumlin.api.cli import series
    from drumlin.api.cli.output import Output

    window = {"start": start, "end": end} if start else {"last": last, "end": end}
    series.show_logs(url, id, {**window, "filter": filter, "limit": limit}, Output(output))


def datasources(
    name: Annotated[str | None, typer.Argument(help="Only this one, with every template.", show_default=False)] = None,
    take: Annotated[
        bool, typer.Option("--import", help="Import the datasources of this Grafana into the graph.")
    ] = False,
    url: Url = None,
    output: Annotated[str, form_option("table", "json", "yaml", "csv", "tsv", "name")] = "table",
) -> None:
    """Look at each datasource: reachable, version, oldest sample, and which templates find nothing there, and why.

    Of a Prometheus it guesses the profile (which chart or managed service named its series), shows the evidence, looks for the label that
    tells clusters apart, and prints the lines to paste into drumlin.toml.

    **Examples**: `drumlin datasources prometheus-main` · `drumlin datasources grafana-main --import`
    """
    from drumlin.api.cli import series
    from drumlin.api.cli.output import Output

    if not take:
        series.show_datasources(url, name, Output(output))
    elif name:
        series.import_datasources(url, name, Output(output))
    else:
        raise typer.BadParameter("name the Grafana whose datasources are imported")


def forecast(
    id: Id,
    metric: MetricName,
    last: Annotated[str, typer.Option(help="History that it learns from.")] = "28d",
    horizon: Annotated[str, typer.Option(help="How far ahead.")] = "1d",
    step: Annotated[str, typer.Option(help="Distance of the points.")] = "5m",
    compare: Annotated[bool, typer.Option("--compare", help="Compare the newest forecast with what came.")] = False,
    backtest: Annotated[
        int | None,
        typer.Option(
            help="Measure the method at so many earlier days instead; nothing is saved.", min=1, show_default=False
        ),
    ] = None,
    url: Url = None,
    output: Rows = "table",
) -> None:
    """Forecast a metric by the same times of earlier weeks at today's level, save the points and register them in the graph.

    **Examples**: `drumlin forecast prod/payments/deployment/checkout energy_joules --horizon 1d` ·
    `drumlin forecast prod/payments/deployment/checkout cpu_usage --backtest 7`
    """
    from drumlin.api.cli import series
    from drumlin.api.cli.output import Output

    if compare and backtest:
        raise typer.BadParameter("--compare measures the newest forecast, --backtest the method: give one of them")
    options = {"last": last, "horizon": horizon, "step": step}
    if backtest:
        series.backtest(url, (id, metric), options, backtest, Output(output))
    else:
        series.forecast(url, (id, metric), options, compare=compare, output=Output(output))
