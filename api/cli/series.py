"""Series on the command line: a readable extract, or every row for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from api.cli.output import Output, emit, emit_json, emit_rows, progress

if TYPE_CHECKING:
    from kg.client.series import Series

SHOWN = 5


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
