"""``drumlin resolve``, ``history``, ``logs``, ``datasources``, ``forecast``: what telemetry says of an entity."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from api.cli.options import Form, Url, form_of, one_of

Last = Annotated[str | None, typer.Option(help="Window up to now: 30d, 12h, 15m.", show_default=False)]
Start = Annotated[
    str | None, typer.Option(help="Begin of the window: RFC 3339 time or epoch seconds.", show_default=False)
]
End = Annotated[str | None, typer.Option(help="End of the window [default: now].", show_default=False)]


def resolve(
    id: Annotated[str, typer.Argument(help="Short id or IRI of the entity.")],
    metric: Annotated[str, typer.Argument(help="Name of the metric: cpu_usage, mem_usage …")],
    last: Last = None,
    start: Start = None,
    end: End = None,
    step: Annotated[str | None, typer.Option(help="Distance of the points: 5m.", show_default=False)] = None,
    datasource: Annotated[str | None, typer.Option(help="Name of the datasource to use.", show_default=False)] = None,
    url: Url = None,
    output: Form = "table",
) -> None:
    """Turn entity × metric × window into an endpoint and an exact, runnable query.

    **Example**: `drumlin resolve prod/payments/deployment/checkout cpu_usage --last 6h`
    """
    import kg
    from api.cli.output import Output, emit_json, emit_rows, properties

    form = form_of(output)
    with kg.connect(url) as client:
        resolution = client.resolve(id, metric, last=last, start=start, end=end, step=step, datasource=datasource)
    if form in (Output.json, Output.jsonld):
        emit_json(resolution)
    else:
        emit_rows(("property", "value"), properties(resolution), form)


def history(
    id: Annotated[str, typer.Argument(help="Short id or IRI of the entity; - reads them from stdin, one a line.")],
    metric: Annotated[str, typer.Argument(help="Name of the metric: cpu_usage, mem_usage …")],
    last: Last = "1d",
    start: Start = None,
    end: End = None,
    step: Annotated[
        str, typer.Option(help="Distance of the points: 5m; auto stays below the server's limit.")
    ] = "auto",
    gaps: Annotated[str, typer.Option(help="What becomes of gaps: null, ffill, linear or drop.")] = "null",
    datasource: Annotated[str | None, typer.Option(help="Name of the datasource to use.", show_default=False)] = None,
    via: Annotated[str, typer.Option(help="service, or direct: fetch with the drumlin.toml here.")] = "service",
    forecast: Annotated[bool, typer.Option("--forecast", help="What was predicted, not what was measured.")] = False,
    explain: Annotated[bool, typer.Option("--explain", help="Print what would be asked, and ask nothing.")] = False,
    to: Annotated[
        Path | None, typer.Option(help="File to write: .parquet, .arrow, .csv or .ndjson.", show_default=False)
    ] = None,
    url: Url = None,
    output: Form = "table",
) -> None:
    """Fetch a metric's history as a forecast-ready table (unique_id, ds, y).

    **Examples**: `drumlin history prod/payments/deployment/checkout cpu_usage --last 30d --step 5m -o csv > cpu.csv` ·
    `drumlin history - cpu_usage --last 30d --to all.parquet < ids.txt`
    """
    from api.cli import series

    one_of(gaps, ("null", "ffill", "linear", "drop"), "--gaps")
    one_of(via, ("service", "direct"), "--via")
    window = {"start": start, "end": end} if start else {"last": last, "end": end}
    options = {**window, "step": step, "gaps": gaps, "datasource": datasource}
    if forecast:
        options |= {"kind": "forecast", "last": None}
    ids = [line.strip() for line in sys.stdin if line.strip()] if id == "-" else [id]
    if explain:
        series.explain(url, ids, metric, options)
    elif to:
        series.save(url, to, ids, metric, options)
    else:
        series.show(url, ids, metric, {**options, "via": via}, form_of(output))


def logs(
    id: Annotated[str, typer.Argument(help="Short id or IRI of a workload or pod.")],
    last: Last = "1h",
    start: Start = None,
    end: End = None,
    filter: Annotated[str | None, typer.Option(help="Only lines that contain this text.", show_default=False)] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", help="Most lines; the newest.", min=1)] = 100,
    url: Url = None,
    output: Form = "table",
) -> None:
    """Show an entity's log lines, the oldest first, from the Loki that holds them.

    **Example**: `drumlin logs prod/payments/deployment/checkout --last 6h --filter error`
    """
    from api.cli import series

    window = {"start": start, "end": end} if start else {"last": last, "end": end}
    series.show_logs(url, id, {**window, "filter": filter, "limit": limit}, form_of(output))


def datasources(
    name: Annotated[str | None, typer.Argument(help="Only this one, with every template.", show_default=False)] = None,
    take: Annotated[
        bool, typer.Option("--import", help="Import the datasources of this Grafana into the graph.")
    ] = False,
    url: Url = None,
    output: Form = "table",
) -> None:
    """Look at each datasource: reachable, version, oldest sample, and which templates find nothing there, and why.

    **Examples**: `drumlin datasources prometheus-main` · `drumlin datasources grafana-main --import`
    """
    from api.cli import series

    if not take:
        series.show_datasources(url, name, form_of(output))
    elif name:
        series.import_datasources(url, name, form_of(output))
    else:
        raise typer.BadParameter("name the Grafana whose datasources are imported")


def forecast(
    id: Annotated[str, typer.Argument(help="Short id or IRI of the entity.")],
    metric: Annotated[str, typer.Argument(help="Name of the metric: cpu_usage, energy_joules …")],
    last: Annotated[str, typer.Option(help="History that it learns from.")] = "28d",
    horizon: Annotated[str, typer.Option(help="How far ahead.")] = "1d",
    step: Annotated[str, typer.Option(help="Distance of the points.")] = "5m",
    compare: Annotated[bool, typer.Option("--compare", help="Compare the newest forecast with what came.")] = False,
    url: Url = None,
    output: Form = "table",
) -> None:
    """Forecast a metric by its values at the same time of earlier weeks, save the points and register them in the graph.

    **Example**: `drumlin forecast prod/payments/deployment/checkout energy_joules --horizon 1d`
    """
    from api.cli import series

    options = {"last": last, "horizon": horizon, "step": step}
    series.forecast(url, (id, metric), options, compare=compare, output=form_of(output))
