"""The baseline that a model has to beat, and how forecasts are measured: pure arithmetic on tables of ``ds`` and ``y``."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from kg.errors import InvalidInput
from kg.telemetry.arrow import pa, pc

NAME = "seasonal-mean"
"""What the graph calls the baseline."""
_DAY = 86_400_000  # milliseconds
_SEASONS = 4


def compare(forecast: pa.Table, actual: pa.Table) -> tuple[pa.Table, dict[str, float | int | None]]:
    """Join a forecast with what came, at equal times, and measure it: ``points``, ``mae`` (in the metric's unit) and ``mape`` (%).

    ``mape`` leaves out points whose actual value is 0, and is None when there is no other.
    """
    both = (
        forecast.select(["ds", "y"])
        .rename_columns(["ds", "forecast"])
        .join(actual.select(["ds", "y"]).rename_columns(["ds", "actual"]), "ds", join_type="inner")
        .sort_by("ds")
    )
    known = both.filter(pc.and_(pc.is_valid(both["forecast"]), pc.is_valid(both["actual"])))
    error = pc.abs(pc.subtract(known["forecast"], known["actual"]))
    relative = pc.divide(error, pc.abs(known["actual"])).filter(pc.not_equal(known["actual"], 0.0))
    mape = pc.mean(relative).as_py()
    return known, {
        "points": known.num_rows,
        "mae": pc.mean(error).as_py(),
        "mape": None if mape is None else 100 * mape,
    }


def seasonal(history: pa.Table, horizon: timedelta, step: timedelta, season: timedelta = timedelta(days=7)) -> pa.Table:
    """Forecast by the mean of the values at the same time of earlier seasons: the baseline that a model has to beat.

    ``history`` has ``ds`` and ``y`` of one series. A season without history falls back to that of a day. Quantiles are the spread of
    the errors that the same rule made inside the history. Raises ``InvalidInput`` when the history is shorter than a day.
    """
    values = dict(zip(pc.cast(history["ds"], pa.int64()).to_pylist(), history["y"].to_pylist(), strict=True))
    known = {at: y for at, y in values.items() if y is not None}
    stride = step // timedelta(milliseconds=1)
    if not known or max(known) - min(known) < _DAY:
        raise InvalidInput("a day of history is too little for a seasonal forecast", hint="take a longer window")
    long, newest = season // timedelta(milliseconds=1), max(known)
    ends = max(values) // stride * stride  # of the window, also where its last points are missing
    stamps = [ends + n * stride for n in range(1, horizon // step + 1)]
    if not stamps:
        raise InvalidInput("the horizon is shorter than the step")
    predicted = [_mean_before(known, at, newest, long) for at in stamps]
    guesses = ((y, _mean_before(known, at, newest, long)) for at, y in known.items())
    errors = sorted(y - guess for y, guess in guesses if guess is not None)
    low, high = (errors[int(len(errors) * share)] if errors else 0.0 for share in (0.1, 0.9))
    least = 0.0 if min(known.values()) >= 0 else float("-inf")  # what was never negative will not be
    y = pa.array(predicted, pa.float64())
    below = pc.max_element_wise(pc.add(y, min(low, 0.0)), least, skip_nulls=False)
    stamped = pa.array(stamps, pa.int64()).cast(pa.timestamp("ms", "UTC"))
    return pa.table({"ds": stamped, "y": y, "q0.1": below, "q0.9": pc.add(y, max(high, 0.0))})


def _mean_before(known: Mapping[int, float], at: int, newest: int, season: int) -> float | None:
    for length in (season, _DAY):
        first = -(-max(at - newest, 1) // length)  # the latest season that is over
        found = [known[at - n * length] for n in range(first, first + _SEASONS) if at - n * length in known]
        if found:
            return sum(found) / len(found)
    return None
