"""The built-in forecast on generated series of known course: it beats the naive ones, and its interval covers what it promises."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from statistics import fmean

import pyarrow as pa
import pytest

from drumlin.kg.errors import InvalidInput
from drumlin.kg.telemetry.baseline import predict

DAY = 24  # points
HOUR = timedelta(hours=1)
BEGIN = datetime(2026, 10, 1, tzinfo=UTC)
LEARNT = 28  # days

Values = list[float | None]


def course(kind: str, seed: int, horizon: int = 1) -> tuple[Values, Values]:
    """Return four weeks of a series and what comes after them: a day's and a week's course, noise, and what its kind adds."""
    drawn = random.Random(f"{kind} {seed}")
    base, swing, weekend = drawn.uniform(5, 50), drawn.uniform(0.2, 0.6), drawn.uniform(0.3, 0.8)
    noise, phase = drawn.uniform(0.03, 0.15), drawn.uniform(0, 6.28)
    changed, factor = LEARNT - drawn.uniform(1.5, 10), drawn.choice([0.5, 1.6, 2.0])
    found: Values = []
    for n in range((LEARNT + horizon) * DAY):
        day = n / DAY
        level = base
        if kind != "noise":
            level *= 1 + swing * math.sin(2 * math.pi * day + phase)
            level *= weekend if int(day) % 7 >= 5 else 1
        if kind == "trend":
            level *= 1.1 ** (day / 7)  # ten per cent a week
        if kind == "level shift" and day > changed:
            level *= factor
        spread = base if kind == "even noise" else level
        value = level + spread * drawn.gauss(0, noise)
        missing = kind == "gaps" and (drawn.random() < 0.02 or int(day * 8) % 37 == 5)
        found.append(None if missing else value)
    return found[: LEARNT * DAY], found[LEARNT * DAY :]


def _table(values: Values) -> pa.Table:
    stamps = [BEGIN + n * HOUR for n in range(len(values))]
    return pa.table({"ds": pa.array(stamps, pa.timestamp("ms", "UTC")), "y": pa.array(values, pa.float64())})


def _pairs(came: Values, guesses: Values) -> Iterator[tuple[float, float]]:
    for value, guess in zip(came, guesses, strict=True):
        if value is not None and guess is not None:
            yield value, guess


def _off(came: Values, guesses: Values) -> float:
    """Return the mean error as a share of the mean value."""
    pairs = list(_pairs(came, guesses))
    return fmean(abs(value - guess) for value, guess in pairs) / fmean(value for value, _ in pairs)


@pytest.mark.parametrize(
    ("kind", "horizon"),
    [
        *((kind, 1) for kind in ("seasonal", "trend", "level shift", "noise", "even noise", "gaps")),
        *((kind, 7) for kind in ("seasonal", "trend", "level shift")),
    ],
)
def test_the_interval_covers_what_it_promises_and_the_forecast_beats_repeating_the_week(
    kind: str, horizon: int
) -> None:
    """On data that it has not seen, 75 to 85 % lie between q0.1 and q0.9, and the error is below that of last week's values."""
    inside: list[bool] = []
    errors: list[float] = []
    naive: list[float] = []
    for seed in range(24):
        past, came = course(kind, seed, horizon)
        table = predict(_table(past), timedelta(days=horizon), HOUR).table
        bounds = zip(came, table["q0.1"].to_pylist(), table["q0.9"].to_pylist(), strict=True)
        inside += [low <= value <= high for value, low, high in bounds if value is not None]
        errors.append(_off(came, table["y"].to_pylist()))
        naive.append(_off(came, past[-7 * DAY :][: horizon * DAY]))
    assert 0.75 <= fmean(inside) <= 0.85
    assert fmean(errors) < fmean(naive)
    if kind == "level shift":  # the naive forecast is off by the whole shift for a week
        assert fmean(errors) < 0.7 * fmean(naive)
    if kind == "trend":
        assert fmean(errors) < 0.75 * fmean(naive)


def test_growth_and_a_change_of_level_are_followed_exactly() -> None:
    """Without noise the error is nothing: ten per cent a week, and a level that doubled three days or twelve hours ago."""
    for level in (
        lambda day: 1.1 ** (day / 7),
        lambda day: 2.0 if day >= LEARNT - 3 else 1.0,
        lambda day: 2.0 if day >= LEARNT - 0.5 else 1.0,
    ):
        values: Values = [
            (10 + 5 * math.sin(2 * math.pi * n / DAY)) * level(n / DAY) for n in range((LEARNT + 1) * DAY)
        ]
        found = predict(_table(values[: LEARNT * DAY]), timedelta(days=1), HOUR)
        assert found.table["y"].to_pylist() == pytest.approx(values[LEARNT * DAY :], rel=1e-9)


def test_what_is_missing_at_the_end_changes_nothing() -> None:
    """An outage of most of a day before the forecast: the level is that of the last day that there is."""
    values: Values = [(10 + n % DAY) * 1.5 ** (n // (14 * DAY)) for n in range(29 * DAY)]
    found = predict(_table([*values[: 28 * DAY - 20], *[None] * 20]), timedelta(days=1), HOUR)
    assert found.table["y"].to_pylist() == pytest.approx([(10 + n) * 1.5 for n in range(DAY)], rel=1e-9)


def test_it_says_what_it_learnt_from_and_how() -> None:
    """The window is that of the values that there are, not the one that was asked for; the model names the way."""
    values: Values = [None] * (20 * DAY) + [float(n % DAY) for n in range(8 * DAY)]
    found = predict(_table(values), timedelta(days=1), HOUR)
    assert found.trained == (BEGIN + timedelta(days=20), BEGIN + (28 * DAY - 1) * HOUR)
    assert found.model.startswith("seasonal-baseline (")
    assert found.coverage == 1.0


def test_what_can_be_negative_is_moved_by_a_difference() -> None:
    """A series around nothing has no ratio: it is predicted all the same, and may be below nothing."""
    values: Values = [math.sin(2 * math.pi * n / DAY) for n in range(14 * DAY)]
    found = predict(_table(values), timedelta(days=1), HOUR).table
    assert found["y"].to_pylist() == pytest.approx([math.sin(2 * math.pi * n / DAY) for n in range(DAY)], abs=1e-9)
    assert min(found["q0.1"].to_pylist()) < 0


@pytest.mark.parametrize("hours", [25, 30, 48, 49, 75, 200])
def test_any_history_of_a_day_or_more_gives_every_point(hours: int) -> None:
    """However short the history, each point of the horizon has a value between its quantiles."""
    drawn = random.Random(hours)
    table = predict(_table([drawn.uniform(1, 2) for _ in range(hours)]), timedelta(days=2), HOUR).table
    assert table.num_rows == 48
    for low, y, high in zip(*(table[name].to_pylist() for name in ("q0.1", "y", "q0.9")), strict=True):
        assert low <= y <= high


def test_a_step_of_a_day_or_more_is_no_error() -> None:
    """There is no season within a day then: the week's, or the level, predicts."""
    stamps = [BEGIN + timedelta(days=n) for n in range(60)]
    history = pa.table({"ds": pa.array(stamps, pa.timestamp("ms", "UTC")), "y": [float(n % 7) for n in range(60)]})
    found = predict(history, timedelta(days=7), timedelta(days=1)).table
    assert found["y"].to_pylist() == [float(n % 7) for n in range(60, 67)]
    with pytest.raises(InvalidInput):
        predict(history.slice(0, 1), timedelta(days=7), timedelta(days=1))
