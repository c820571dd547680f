"""How good a forecast was, in the measures of the field: MAE, MAPE, MASE, quantile loss, interval coverage; and over many origins.

MASE: Hyndman and Koehler 2006, https://doi.org/10.1016/j.ijforecast.2006.03.001. Quantile (pinball) loss and coverage as in
https://otexts.com/fpp3/distaccuracy.html. Tables have ``ds``, ``y`` and quantiles ``q0.1`` …; no I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from drumlin.kg.errors import InvalidInput
from drumlin.kg.telemetry.arrow import pa, pc

SEASON = timedelta(days=1)
"""The season of the naive forecast that MASE compares with."""
MAX_ORIGINS = 1000
"""Starting points of one backtest."""

Measures = dict[str, Any]
Model = Callable[[Any, timedelta, timedelta], Any]
"""A model: history (an Arrow table of ``ds`` and ``y``), horizon and step → a table of ``ds``, ``y`` and quantiles."""


def compare(forecast: pa.Table, actual: pa.Table, scale: float | None = None) -> tuple[pa.Table, Measures]:
    """Join a forecast with what came, at equal times, and measure it.

    ``points``, ``mae`` (in the metric's unit), ``mape`` (%; points whose actual value is 0 are left out, None when there is no other),
    ``mase`` (``mae`` over ``scale``, the error of the naive forecast; None without one), ``quantileLoss`` (by quantile, in the metric's
    unit) and ``intervalCoverage`` (by the interval's nominal share, as a share).
    """
    quantiles = [name for name in forecast.column_names if name.startswith("q")]
    both = (
        forecast.select(["ds", "y", *quantiles])
        .rename_columns(["ds", "forecast", *quantiles])
        .join(actual.select(["ds", "y"]).rename_columns(["ds", "actual"]), "ds", join_type="inner")
        .sort_by("ds")
    )
    known = both.filter(pc.and_(pc.is_valid(both["forecast"]), pc.is_valid(both["actual"])))
    return known.select(["ds", "forecast", "actual", *quantiles]), _measured(known, quantiles, scale)


def _measured(known: pa.Table, quantiles: Sequence[str], scale: float | None) -> Measures:
    error = pc.abs(pc.subtract(known["forecast"], known["actual"]))
    relative = pc.divide(error, pc.abs(known["actual"])).filter(pc.not_equal(known["actual"], 0.0))
    mae, mape = pc.mean(error).as_py(), pc.mean(relative).as_py()
    return {
        "points": known.num_rows,
        "mae": mae,
        "mape": None if mape is None else 100 * mape,
        "mase": mae / scale if mae is not None and scale else None,
        "quantileLoss": {name: _pinball(known, name) for name in quantiles},
        "intervalCoverage": _coverage(known, quantiles),
    }


def _pinball(known: pa.Table, name: str) -> float | None:
    share = float(name[1:])
    under = pc.subtract(known["actual"], known[name])
    loss = pc.max_element_wise(pc.multiply(under, share), pc.multiply(under, share - 1))
    found: float | None = pc.mean(loss).as_py()
    return found


def _coverage(known: pa.Table, quantiles: Sequence[str]) -> dict[str, float | None]:
    """Return for each pair of quantiles with equal tails the share of the actual values that lie between them."""
    by_share = {round(float(name[1:]), 4): name for name in quantiles}
    found: dict[str, float | None] = {}
    for low in sorted(share for share in by_share if share < 0.5):
        if (high := round(1 - low, 4)) in by_share:
            above = pc.greater_equal(known["actual"], known[by_share[low]])
            below = pc.less_equal(known["actual"], known[by_share[high]])
            found[f"{round(high - low, 4):g}"] = pc.mean(pc.and_(above, below).cast(pa.float64())).as_py()
    return found


def naive_error(history: pa.Table, season: timedelta = SEASON) -> float | None:
    """Return the mean error, inside a history, of the forecast that repeats the season before: the scale of MASE; None without one."""
    back = season // timedelta(milliseconds=1)
    stamps = pc.cast(history["ds"], pa.int64()).to_pylist()
    known = {at: y for at, y in zip(stamps, history["y"].to_pylist(), strict=True) if y is not None}
    errors = [abs(y - known[at - back]) for at, y in known.items() if at - back in known]
    return sum(errors) / len(errors) or None if errors else None


class Backtest(NamedTuple):
    """What a model predicted from each starting point, joined with what came, and how good that was: each origin, and all together."""

    table: pa.Table
    origins: list[Measures]
    overall: Measures


def backtest(
    history: pa.Table,
    model: Model,
    origins: Sequence[datetime],
    *,
    horizon: timedelta,
    step: timedelta,
    learn: timedelta | None = None,
    tabled: Callable[[Any], pa.Table] = lambda table: table,
) -> Backtest:
    """Have a model predict from each origin with what was known by then (the last ``learn`` of it), and measure what it predicted.

    ``tabled`` makes a table of what the model returns. Predictions beyond ``horizon`` are left out. Raises ``InvalidInput`` when no
    origin has both a past and something to compare with.
    """
    if len(origins) > MAX_ORIGINS:
        raise InvalidInput(f"{len(origins):,} starting points; the limit is {MAX_ORIGINS:,}", hint="space them wider")
    tables: list[pa.Table] = []
    found: list[Measures] = []
    scales: list[float] = []
    for origin in origins:
        past, future = _split(history, origin, horizon, learn)
        if not past["y"].length() - past["y"].null_count or not future["y"].length() - future["y"].null_count:
            continue
        scale = naive_error(past)
        joined, measured = compare(_within(tabled(model(past, horizon, step)), origin, horizon), future, scale)
        if not measured["points"]:
            continue
        found.append({"origin": origin.isoformat().replace("+00:00", "Z"), **measured})
        tables.append(joined.add_column(0, "origin", pa.array([origin] * joined.num_rows, pa.timestamp("ms", "UTC"))))
        scales += [scale] * measured["points"] if scale else []
    if not tables:
        raise InvalidInput(
            "no starting point has both a history and something to compare with",
            hint="take a longer window, fewer starting points or a shorter horizon",
        )
    table = pa.concat_tables(tables, promote_options="default")
    quantiles = [name for name in table.column_names if name.startswith("q")]
    return Backtest(table, found, _measured(table, quantiles, sum(scales) / len(scales) if scales else None))


def _split(
    history: pa.Table, origin: datetime, horizon: timedelta, learn: timedelta | None
) -> tuple[pa.Table, pa.Table]:
    ds = history["ds"]
    before = pc.less_equal(ds, pa.scalar(origin, ds.type))
    if learn:
        before = pc.and_(before, pc.greater(ds, pa.scalar(origin - learn, ds.type)))
    after = pc.and_(pc.greater(ds, pa.scalar(origin, ds.type)), pc.less_equal(ds, pa.scalar(origin + horizon, ds.type)))
    return tuple(history.filter(each).select(["ds", "y"]) for each in (before, after))


def _within(predicted: pa.Table, origin: datetime, horizon: timedelta) -> pa.Table:
    ds = predicted["ds"]
    return predicted.filter(
        pc.and_(pc.greater(ds, pa.scalar(origin, ds.type)), pc.less_equal(ds, pa.scalar(origin + horizon, ds.type)))
    )


def flattened(measures: Mapping[str, Any]) -> dict[str, Any]:
    """Return measures as one level of names: ``quantileLoss q0.1``, ``intervalCoverage 0.8``."""
    found: dict[str, Any] = {}
    for name, value in measures.items():
        found |= (
            {f"{name} {each}": inner for each, inner in value.items()} if isinstance(value, dict) else {name: value}
        )
    return found
