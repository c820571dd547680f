"""Frames of forecasting libraries as tables of a forecast, and series as frames that these libraries read.

Nixtla (statsforecast, neuralforecast, mlforecast): ``unique_id, ds`` and columns ``Model``, ``Model-lo-80``, ``Model-hi-80``,
https://nixtlaverse.nixtla.io/statsforecast/docs/getting-started/getting_started_complete.html.
Prophet: ``ds, yhat, yhat_lower, yhat_upper``, https://facebook.github.io/prophet/docs/quick_start.html.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from drumlin.kg.errors import InvalidDocument, InvalidInput
from drumlin.kg.telemetry.arrow import pa, pc
from drumlin.kg.telemetry.series import fill

_BOUND = re.compile(r"(.+)-(lo|hi)-([0-9]{1,2}(?:\.[0-9]+)?)")
_PROPHET: Mapping[str, str] = {
    "yhat": "y",
    "yhat_lower": "q0.1",
    "yhat_upper": "q0.9",
}  # its interval_width is 0.8 by default
_NO_MODEL = frozenset({"unique_id", "ds", "y", "metric", "unit", "cutoff"})


def tabled(frame: Any) -> pa.Table:
    """Return an Arrow table of a table, a pandas frame (an index ``unique_id`` becomes a column) or a polars frame."""
    if isinstance(frame, pa.Table):
        return frame
    if hasattr(frame, "to_arrow"):
        return frame.to_arrow()
    if "unique_id" in (getattr(frame.index, "names", None) or ()):
        frame = frame.reset_index()
    return pa.Table.from_pandas(frame, preserve_index=False)


def as_forecast(frame: Any, model: str = "") -> pa.Table:
    """Return the table of a forecast (``ds, y, q0.1`` …, ``unique_id`` of many series) that a library's frame says.

    Of several models the one named ``model`` is taken. Raises ``InvalidDocument`` when none of them has that name.
    """
    table = tabled(frame)
    names = table.column_names
    if "y" in names:
        return table
    if "yhat" in names:
        kept = {name: _PROPHET.get(name, name) for name in names if name in _PROPHET or name in _NO_MODEL}
        return table.select(list(kept)).rename_columns(list(kept.values()))
    models = [
        name for name in names if name not in _NO_MODEL and not _BOUND.fullmatch(name) and _is_number(table, name)
    ]
    if not models:
        return table  # the service says what is missing
    if model not in models and len(models) > 1:
        raise InvalidDocument(
            f"the table has the forecasts of {len(models)} models",
            hint=f"name one of them: model={models[0]!r}; there are {', '.join(models[:10])}",
        )
    chosen = model if model in models else models[0]
    kept = {name: name for name in names if name in _NO_MODEL} | {chosen: "y"}
    for name in names:
        bound = _BOUND.fullmatch(name)
        if bound and bound[1] == chosen:
            tail = (100 - float(bound[3])) / 200
            kept[name] = f"q{round(tail if bound[2] == 'lo' else 1 - tail, 4):g}"
    return table.select(list(kept)).rename_columns(list(kept.values()))


def _is_number(table: pa.Table, name: str) -> bool:
    kind = table.schema.field(name).type
    return bool(pa.types.is_floating(kind) or pa.types.is_integer(kind))


def nixtla(series: pa.Table, metric: str | None = None) -> pa.Table:
    """Return a long table of series as Nixtla's libraries read it: ``unique_id, ds`` (UTC without a zone), ``y``.

    They refuse gaps and missing values: those between two values are on a straight line here, those before the first and after the last
    value of a series are left out. Raises ``InvalidInput`` when the table has several metrics and none is named.
    """
    metrics = pc.unique(series["metric"]).to_pylist()
    if metric is None and len(metrics) > 1:
        raise InvalidInput(f"the table has {len(metrics)} metrics", hint=f"name one: metric={metrics[0]!r}")
    mine = series if metric is None else series.filter(pc.equal(series["metric"].cast(pa.string()), metric))
    parts = [_filled(mine.filter(pc.equal(mine["unique_id"].cast(pa.string()), id))) for id in _ids(mine)]
    schema = pa.schema({"unique_id": pa.string(), "ds": pa.timestamp("ms"), "y": pa.float64()})
    return pa.concat_tables([each.cast(schema) for each in parts]) if parts else schema.empty_table()


def _ids(table: pa.Table) -> list[str]:
    found: list[str] = pc.unique(table["unique_id"].cast(pa.string())).to_pylist()
    return found


def _filled(series: pa.Table) -> pa.Table:
    known = pc.indices_nonzero(pc.is_valid(series["y"])).to_pylist()
    inside = series.slice(known[0], known[-1] - known[0] + 1) if known else series.slice(0, 0)
    values = fill(inside["y"].combine_chunks(), "linear") if known else inside["y"]
    stamps = inside["ds"].cast(pa.timestamp("ms", "UTC")).cast(pa.timestamp("ms"))
    return pa.table({"unique_id": inside["unique_id"].cast(pa.string()), "ds": stamps, "y": values})
