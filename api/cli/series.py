"""Series on the command line: a readable extract, or every row for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.progress import Progress

from drumlin.api.cli.options import connect
from drumlin.api.cli.output import STRUCTURED, Output, emit, emit_rows, emit_value, progress
from drumlin.kg.errors import DrumlinError, SourceUnavailable
from drumlin.kg.telemetry.measures import flattened

if TYPE_CHECKING:
    from drumlin.kg.client.series import Series

SHOWN = 5


def show(url: str | None, ids: list[str], metric: str, options: Mapping[str, Any], output: Output) -> None:
    """Fetch series, with a progress bar on stderr, and write them."""
    quiet = not progress.is_terminal  # where a bar would leave an empty line
    with connect(url) as client, Progress(console=progress, transient=True, disable=quiet) as bar:
        task = bar.add_task("fetching …", total=len(ids))
        found = client.history(ids or None, metric, progress=lambda done: bar.update(task, completed=done), **options)
    emit_series(found, output)


def show_groups(
    url: str | None,
    id: str,
    metric: str,
    options: Mapping[str, Any],
    unit: list[str] | None,
    group_by: str,
    output: Output,
) -> None:
    """Resolve the groups of the pods of one entity, or of ``all``, and write a line each."""
    given = {name: value for name, value in options.items() if value is not None}
    with connect(url) as client:
        found = client.resolve_many(None if id == "all" else id, metric, unit, group_by, **given)
    if output in STRUCTURED:
        emit_value(found, output)
        return
    rows = [
        (each["entity"].rpartition("/id/")[2], each["metric"], each.get("unit"), each.get("datasource"), _said(each))
        for each in found
    ]
    emit_rows(("group", "metric", "unit", "datasource", "query"), rows, output)


def _said(found: Mapping[str, Any]) -> Any:
    return found["problem"]["detail"] if "problem" in found else found["query"]


def show_values(
    url: str | None, metrics: list[str], entities: list[str] | None, options: Mapping[str, Any], output: Output
) -> None:
    """Read current values and write a row each; a missing value goes to stderr with its reason."""
    with connect(url) as client, progress.status("asking …"):
        found = client.values(metrics, entities, **options)
    for each in found.missing:
        hint = f"; {each['hint']}" if each.get("hint") else ""
        progress.print(
            f"note: {each['entity']} {each['metric']}: {each['detail']}{hint}", style="yellow", highlight=False
        )
    for warning in found.warnings:
        progress.print(f"note: {warning}", style="yellow", highlight=False)
    rows = [row | {"time": row["time"].isoformat().replace("+00:00", "Z")} for row in found]
    if output in STRUCTURED:
        emit_value({"values": rows, "missing": found.missing, "warnings": found.warnings}, output)
    else:
        emit_rows(found.columns, (tuple(row[name] for name in found.columns) for row in rows), output)


def show_alerts(url: str | None, id: str | None, options: Mapping[str, Any], output: Output) -> None:
    """List alerts, a line each; a server that could not be asked is a note on stderr."""
    with connect(url) as client, progress.status("asking …"):
        found = client.alerts(id, **options)
    for each in found["failures"]:
        progress.print(f"note: {each['problem']['detail']}", style="yellow", highlight=False)
    if output in STRUCTURED:
        emit_value(found, output)
        return
    columns = ("alert", "state", "severity", "entity", "since", "summary")
    rows = [{**each, "summary": each["annotations"].get("summary")} for each in found["items"]]
    emit_rows(columns, [tuple(row[name] for name in columns) for row in rows], output)


def save(url: str | None, path: Path, ids: list[str], metric: str, options: Mapping[str, Any]) -> None:
    """Fetch series into a file."""
    what = f"fetching {len(ids):,} series …"
    with connect(url) as client, progress.status(what) as status:
        failures = client.save_history(
            path, ids or None, metric, progress=lambda size: status.update(f"{what} {size / 1e6:,.1f} MB"), **options
        )
    for each in failures:
        progress.print(
            f"note: {each['unique_id']} {each['metric']} is missing: {each['detail']}", style="yellow", highlight=False
        )
    progress.print(f"{path}: {path.stat().st_size:,} bytes", highlight=False)


def explain(url: str | None, ids: list[str], metric: str, options: Mapping[str, Any]) -> None:
    """Write what would be asked: a comment with the numbers, then a runnable line per query."""
    with connect(url) as client:
        found = client.explain(ids or None, metric, **options)
    emit(f"# {len(found['queries']):,} series of {found['points']:,} points every {found['step']} s")
    for each in found["queries"]:
        if parts := each.get("parts"):
            emit(f"# the first of {len(parts)} parts; drumlin resolve -o json has all, --selector pattern needs one")
        emit(f"# {each['entity']} {each['metric']}: {each['problem']['detail']}" if "problem" in each else each["curl"])


def show_logs(url: str | None, id: str, options: Mapping[str, Any], output: Output) -> None:
    """Fetch log lines and write them, the oldest first; as text unless JSON or CSV is asked for.

    Lines that came before their server failed are written too; then the reason is raised.
    """
    cut: DrumlinError | None = None
    with connect(url) as client, progress.status("fetching …"):
        try:
            lines = client.logs(id, **options)[::-1]
        except SourceUnavailable as error:
            if "received" not in error.detail:
                raise
            lines, cut = error.detail.pop("received")[::-1], error
    if output is Output.table:
        for line in lines:
            emit(f"{line['time']} {line['labels'].get('pod', '')} {line['line']}")
    elif output in STRUCTURED:
        emit_value(lines, output)
    else:
        rows = ((line["time"], line["labels"].get("pod"), line["line"]) for line in lines)
        emit_rows(("time", "pod", "line"), rows, output)
    if cut:
        raise cut


def show_datasources(url: str | None, name: str | None, output: Output) -> None:
    """Look at the datasources and write a line each; one that was named is written with its templates."""
    with connect(url) as client, progress.status("asking …"):
        found = client.datasources(name)
    emit_datasources(found, output, named=name is not None)


def emit_datasources(found: Sequence[Mapping[str, Any]], output: Output, *, named: bool) -> None:
    """Write what a look at datasources showed: a line each, for those that are ``named`` also what is not found and how they name."""
    if output in STRUCTURED:
        emit_value(found, output)
        return
    columns = ("name", "type", "url", "state", "version", "oldest", "profile", "found")
    emit_rows(columns, [_datasource(each) for each in found], output, name="name")
    for each in found if named and output is Output.table else ():
        missing = [template for template in each.get("templates", ()) if not template["found"]]
        rows = [(template["template"], template["detail"], template.get("hint")) for template in missing]
        if "detail" in each:
            rows.append(("all", each["detail"], each.get("hint")))
        emit_rows(("template", "not found", "hint"), rows, output)
        if "clusterLabel" in each:
            _emit_naming(each)


def _emit_naming(each: Mapping[str, Any]) -> None:
    """Write how a server names its series or streams: what it looks like, what tells clusters apart, and the lines to paste."""
    profile, clusters = each.get("profile", {}), each["clusterLabel"]
    against = "does not fit" if profile.get("guess") else "differs"  # from the names of the templates
    kinds = {"evidence": "fits", "against": against, "missing": "missing", "notes": "note"}
    said = [(kind, text) for key, kind in kinds.items() for text in profile.get(key, ())]
    said += [("note", text) for text in clusters["notes"]]
    if clusters["label"]:
        said.append(("clusters", f"{clusters['label']} is {', '.join(clusters['values'])}"))
    said += [("cluster", f"{name}: {guess or 'unlike all'}") for name, guess in clusters.get("profiles", {}).items()]
    if profile:
        title = f": {profile['title']}" if profile["title"] else ""
        emit(f"profile: {_profile(each)}{title}")
    emit_rows(("naming", "what the server shows"), said, Output.table)
    if "configuration" in each:
        emit(f"# for drumlin.toml:\n{each['configuration']}")


def _profile(each: Mapping[str, Any]) -> str | None:
    """Return the profile that counts, or what the server looks like."""
    if not (found := each.get("profile")):
        return None
    if found["configured"]:
        other = found["guess"] if found["guess"] != found["configured"] and found["certain"] else None
        return f"{found['configured']} (looks like {other})" if other else str(found["configured"])
    if not found["guess"]:
        return "unlike all"
    if found["certain"]:
        return f"{found['guess']} (guessed)"
    return " or ".join([found["guess"], *found["rivals"]]) + " (not certain)"


def import_datasources(url: str | None, grafana: str, output: Output) -> None:
    """Import the datasources of a Grafana, and write what became of each."""
    with connect(url) as client, progress.status("importing …"):
        found = client.import_datasources(grafana)
    columns = ("name", "type", "outcome", "id")
    emit_rows(columns, [tuple(each.get(column) for column in columns) for each in found], output, name="name")


def _datasource(each: Mapping[str, Any]) -> tuple[Any, ...]:
    state = {True: "reachable", False: each.get("error"), None: "not asked"}[each.get("reachable")]
    templates = each.get("templates")
    found = f"{each['files']} files" if "files" in each else None
    if templates:
        found = f"{sum(template['found'] for template in templates)} of {len(templates)} templates"
    about = each["name"], each["type"], each["url"], state, each.get("version"), each.get("oldest")
    return *about, _profile(each), found


def forecast(
    url: str | None, of: tuple[str, str], options: Mapping[str, str], *, compare: bool, output: Output
) -> None:
    """Make and save the built-in forecast, or compare the newest one with what came; write what is known of it."""
    what = "comparing with what came" if compare else f"reading {options['last']} of history, forecasting"
    with connect(url) as client, progress.status(f"{what} …"):
        found = client.forecasts.compare(of) if compare else client.forecasts.seasonal(of, **options)
    found.pop("table", None)
    for warning in found.get("warnings", ()):
        progress.print(f"note: {warning}", style="yellow", highlight=False)
    if output in STRUCTURED:
        emit_value(found, output)
    else:
        rows = {name: value for name, value in flattened(found).items() if name != "warnings"}
        emit_rows(("property", "value"), list(rows.items()), output)


def backtest(url: str | None, of: tuple[str, str], options: Mapping[str, str], origins: int, output: Output) -> None:
    """Measure the built-in forecast at earlier starting points, and write how good it was from each and in all."""
    horizon, step, learn = (options[name] for name in ("horizon", "step", "last"))
    with connect(url) as client, progress.status(f"forecasting from {origins} earlier days …"):
        found = client.forecasts.backtest(of, origins=origins, horizon=horizon, step=step, learn=learn)
    if output in STRUCTURED:
        emit_value({"overall": found.overall, "origins": found.origins}, output)
        return
    rows = [flattened(each) for each in (*found.origins, {"origin": "all", **found.overall})]
    emit_rows(list(rows[0]), [tuple(row.values()) for row in rows], output)


def emit_series(series: Series, output: Output) -> None:
    """Write a series: the first and last rows as a table, all of them as CSV or JSON; what to know about it goes to stderr."""
    for warning in series.warnings:
        progress.print(f"note: {warning}", style="yellow", highlight=False)
    for key, intervals in series.intervals.items():
        if any(each["selector"] == "pattern" for each in intervals):
            spans = ", ".join(f"{each['selector']} {each['start']} to {each['end']}" for each in intervals)
            progress.print(f"note: {' '.join(key)} is picked by {spans}", highlight=False)
    table = series.to_arrow()
    names = table.column_names
    if output is Output.table:
        emit_rows(names, _extract(table), output)
        for key, coverage in series.coverage.items():
            emit(
                f"{key[1]} of {key[0]}: {len(series):,} rows every {series.step} s, {coverage:.1%} covered, unit {series.unit}"
            )
    elif output in STRUCTURED:
        emit_value(
            {
                "unit": series.unit,
                "step": series.step,
                "queries": series.queries,
                "series": [
                    {
                        "unique_id": key[0],
                        "metric": key[1],
                        "coverage": coverage,
                        "intervals": series.intervals.get(key, []),
                    }
                    for key, coverage in series.coverage.items()
                ],
                "warnings": series.warnings,
                "rows": list(_rows(table)),
            },
            output,
        )
    else:
        emit_rows(names, (tuple(row[name] for name in names) for row in _rows(table)), output)


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
