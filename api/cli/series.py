"""Series on the command line: a readable extract, or every row for programs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.progress import Progress

import kg
from api.cli.output import Output, emit, emit_json, emit_rows, progress

if TYPE_CHECKING:
    from kg.client.series import Series

SHOWN = 5


def show(url: str | None, ids: list[str], metric: str, options: Mapping[str, Any], output: Output) -> None:
    """Fetch series, with a bar on stderr that tells how far it is, and write them."""
    with kg.connect(url) as client, Progress(console=progress, transient=True) as bar:
        task = bar.add_task("fetching …", total=len(ids))
        found = client.history(ids, metric, progress=lambda done: bar.update(task, completed=done), **options)
    emit_series(found, output)


def save(url: str | None, path: Path, ids: list[str], metric: str, options: Mapping[str, Any]) -> None:
    """Fetch series into a file."""
    what = f"fetching {len(ids):,} series …"
    with kg.connect(url) as client, progress.status(what) as status:
        client.save_history(
            path, ids, metric, progress=lambda size: status.update(f"{what} {size / 1e6:,.1f} MB"), **options
        )
    progress.print(f"{path}: {path.stat().st_size:,} bytes", highlight=False)


def explain(url: str | None, ids: list[str], metric: str, options: Mapping[str, Any]) -> None:
    """Write what would be asked: a comment with the numbers, then a runnable line per query."""
    with kg.connect(url) as client:
        found = client.explain(ids, metric, **options)
    emit(f"# {len(found['queries']):,} series of {found['points']:,} points every {found['step']} s")
    for each in found["queries"]:
        emit(f"# {each['entity']} {each['metric']}: {each['problem']['detail']}" if "problem" in each else each["curl"])


def show_logs(url: str | None, id: str, options: Mapping[str, Any], output: Output) -> None:
    """Fetch log lines and write them, the oldest first; as text unless JSON or CSV is asked for."""
    with kg.connect(url) as client, progress.status("fetching …"):
        lines = client.logs(id, **options)[::-1]
    if output is Output.table:
        for line in lines:
            emit(f"{line['time']} {line['labels'].get('pod', '')} {line['line']}")
    elif output is Output.csv:
        rows = ((line["time"], line["labels"].get("pod"), line["line"]) for line in lines)
        emit_rows(("time", "pod", "line"), rows, output)
    else:
        emit_json(lines)


def show_datasources(url: str | None, name: str | None, output: Output) -> None:
    """Look at the datasources and write a line each; one that was named is written with its templates."""
    with kg.connect(url) as client, progress.status("asking …"):
        found = client.datasources(name)
    if output in (Output.json, Output.jsonld):
        emit_json(found)
        return
    columns = ("name", "type", "url", "state", "version", "oldest", "found")
    emit_rows(columns, [_datasource(each) for each in found], output)
    for each in found if name else ():
        missing = [template for template in each.get("templates", ()) if not template["found"]]
        rows = [(template["template"], template["detail"], template.get("hint")) for template in missing]
        if "detail" in each:
            rows.append(("all", each["detail"], each.get("hint")))
        emit_rows(("template", "not found", "hint"), rows, output)


def import_datasources(url: str | None, grafana: str, output: Output) -> None:
    """Import the datasources of a Grafana, and write what became of each."""
    with kg.connect(url) as client, progress.status("importing …"):
        found = client.import_datasources(grafana)
    columns = ("name", "type", "outcome", "id")
    emit_rows(columns, [tuple(each.get(column) for column in columns) for each in found], output)


def _datasource(each: Mapping[str, Any]) -> tuple[Any, ...]:
    state = {True: "reachable", False: each.get("error"), None: "not asked"}[each.get("reachable")]
    templates = each.get("templates")
    found = f"{each['files']} files" if "files" in each else None
    if templates:
        found = f"{sum(template['found'] for template in templates)} of {len(templates)} templates"
    return each["name"], each["type"], each["url"], state, each.get("version"), each.get("oldest"), found


def forecast(
    url: str | None, of: tuple[str, str], options: Mapping[str, str], *, compare: bool, output: Output
) -> None:
    """Make and save the built-in forecast, or compare the newest one with what came; write what is known of it."""
    what = "comparing with what came" if compare else f"reading {options['last']} of history, forecasting"
    with kg.connect(url) as client, progress.status(f"{what} …"):
        if compare:
            found = client.forecasts.compare(of)
            found.pop("table")
        else:
            found = client.forecasts.seasonal(of, **options)
    if output in (Output.json, Output.jsonld):
        emit_json(found)
    else:
        emit_rows(("property", "value"), list(found.items()), output)


def emit_series(series: Series, output: Output) -> None:
    """Write a series: the first and last rows as a table, all of them as CSV or JSON; what to know about it goes to stderr."""
    for warning in series.warnings:
        progress.print(f"note: {warning}", style="yellow", highlight=False)
    table = series.to_arrow()
    names = table.column_names
    if output is Output.table:
        emit_rows(names, _extract(table), output)
        for key, coverage in series.coverage.items():
            emit(
                f"{key[1]} of {key[0]}: {len(series):,} rows every {series.step} s, {coverage:.1%} covered, unit {series.unit}"
            )
    elif output is Output.csv:
        emit_rows(names, (tuple(row[name] for name in names) for row in _rows(table)), output)
    else:
        emit_json(
            {
                "unit": series.unit,
                "step": series.step,
                "queries": series.queries,
                "warnings": series.warnings,
                "rows": list(_rows(table)),
            }
        )


def _extract(table: Any) -> list[tuple[Any, ...]]:
    rows = [tuple(row.values()) for row in table.slice(0, SHOWN).to_pylist()]
    if table.num_rows > 2 * SHOWN:
        rows.append(("…",) * table.num_columns)
    if table.num_rows > SHOWN:
        rows += [tuple(row.values()) for row in table.slice(max(SHOWN, table.num_rows - SHOWN)).to_pylist()]
    return rows


def _rows(table: Any) -> Any:
    for batch in table.to_batches(max_chunksize=10_000):
        for row in batch.to_pylist():
            row["ds"] = row["ds"].isoformat().replace("+00:00", "Z")
            yield row
