"""The baseline that a model has to beat: the same times of earlier weeks or days, moved to today's level. Pure arithmetic.

Five ways to predict are measured on the end of the history itself, from several starting points (rolling origin); the best one predicts.
Its errors there are the interval, so that it covers what it promises also where the series grows or has changed its level.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from statistics import fmean, median
from typing import NamedTuple

from drumlin.kg.errors import InvalidInput
from drumlin.kg.telemetry.arrow import pa, pc

NAME = "seasonal-baseline"
"""What the graph calls the baseline; the way that was chosen follows in brackets."""
LOW, HIGH = 0.1, 0.9
"""The quantiles that it predicts: an interval of 80 %."""
_DAY = 86_400_000  # milliseconds
_ORIGINS, _FEWEST = 14, 6
_MEASURED = 96  # points that are measured of each starting point, at most
_COMPARED = 6  # days whose last quarters are compared with the whole of them
_FEW = 3  # points of a quarter
_CHANGED, _UNUSUAL = 0.1, 5.0  # a level has changed when it is off by so much, and by so many times what is usual
_SEVERAL = 5
_BROKEN = 3.0  # a starting point with so many times the usual error lies before a change that is over

Values = Sequence[float | None]
_Way = Callable[[Values, int, Iterable[int]], list[float | None]]


class Prediction(NamedTuple):
    """A forecast (``ds, y, q0.1, q0.9``), how it was made, the history it is based on, and the share of that which has a value."""

    table: pa.Table
    model: str
    trained: tuple[datetime, datetime]
    coverage: float


def predict(history: pa.Table, horizon: timedelta, step: timedelta) -> Prediction:
    """Forecast one series from its history (``ds`` and ``y``, nulls where nothing is known) for the time after it.

    Raises ``InvalidInput`` when the history is shorter than a day or the horizon shorter than the step.
    """
    stride = step // timedelta(milliseconds=1)
    stamps = pc.cast(history["ds"], pa.int64()).to_pylist()
    known = {at: y for at, y in zip(stamps, history["y"].to_pylist(), strict=True) if y is not None}
    if not known or max(known) - min(known) < _DAY:
        raise InvalidInput("a day of history is too little for a seasonal forecast", hint="take a longer window")
    count = horizon // step
    if not count:
        raise InvalidInput("the horizon is shorter than the step")
    first, last = min(known), max(stamps) // stride * stride  # the window's end, also where its last points are missing
    values = [known.get(at) for at in range(last - (last - first) // stride * stride, last + 1, stride)]
    chosen = _best_of(values, count, max(1, round(_DAY / stride)))
    least = 0.0 if min(known.values()) >= 0 else float("-inf")  # what was never negative will not be
    y, low, high = (pa.array(each, pa.float64()) for each in chosen.interval(values, count))
    low, y = (pc.max_element_wise(each, least, skip_nulls=False) for each in (low, y))
    ahead = pa.array([last + n * stride for n in range(1, count + 1)], pa.int64()).cast(pa.timestamp("ms", "UTC"))
    return Prediction(
        pa.table({"ds": ahead, "y": y, f"q{LOW}": low, f"q{HIGH}": high}),
        f"{NAME} ({chosen.name})",
        (_moment(first), _moment(max(known))),
        sum(value is not None for value in values) / len(values),
    )


@dataclass(frozen=True, slots=True)
class _Best:
    """The way that was best, the others after it for what it does not know, and its errors by starting point."""

    name: str
    ways: Sequence[_Way]
    errors: Sequence[Sequence[float]]
    relative: bool

    def interval(self, values: Values, count: int) -> tuple[list[float | None], list[float | None], list[float | None]]:
        y = self._predicted(values, count)
        low, high = self._bounds()
        return y, [self._moved(each, min(low, 0.0)) for each in y], [self._moved(each, max(high, 0.0)) for each in y]

    def _predicted(self, values: Values, count: int) -> list[float | None]:
        found: list[float | None] = [None] * count
        for way in self.ways:
            missing = [lead for lead, each in enumerate(found) if each is None]
            if not missing:
                break
            for lead, each in zip(missing, way(values, len(values), missing), strict=True):
                found[lead] = each
        return found

    def _moved(self, y: float | None, error: float) -> float | None:
        if y is None:
            return None
        return y * (1 + error) if self.relative else y + error

    def _bounds(self) -> tuple[float, float]:
        """Return the errors that bound the interval: further out, the fewer of them are independent of each other."""
        errors = sorted(each for origin in self.errors for each in origin)
        if not errors:
            return 0.0, 0.0
        level = min(1.0, HIGH * (1 + 1 / _independent(self.errors)))
        return _quantile(errors, 1 - level), _quantile(errors, level)


def _best_of(values: Values, count: int, day: int) -> _Best:
    """Measure each way at the end of the history and return the best."""
    ways = _ways(day, positive=all(each is None or each >= 0 for each in values))
    length = min(count, max(1, len(values) // 3))
    leads = range(0, length, max(1, length // _MEASURED))
    pairs = {
        name: list(_measured(way, values, leads, _origins(len(values) - length, day))) for name, way in ways.items()
    }
    most = max(map(len, pairs.values()), default=0)
    size = fmean(abs(each) for each in values if each is not None) or 1.0  # of which a billionth is no difference
    order = sorted(ways, key=lambda name: (len(pairs[name]) * 2 < max(most, 1), round(_error(pairs[name]) / size, 9)))
    best = order[0]
    kept = _unbroken(pairs[best])
    relative = best.endswith("scaled") and all(guess > 0 for origin in kept for _, guess in origin)
    errors = [[(is_ - guess) / guess if relative else is_ - guess for is_, guess in origin] for origin in kept]
    return _Best(best, [ways[name] for name in order], errors, relative)


def _ways(day: int, *, positive: bool) -> Mapping[str, _Way]:
    """Return the ways to predict by name; what can be negative is moved by a difference, never by a ratio."""
    seasons = {"week": (7 * day, 4), **({"day": (day, 7)} if day > 1 else {})}
    moves = ("scaled", "shifted") if positive else ("shifted",)
    found: dict[str, _Way] = {
        f"{name}, {move}": partial(_seasonal, period=period, most=most, day=day, scaled=move == "scaled")
        for name, (period, most) in seasons.items()
        for move in moves
    }
    return found | {
        "level of a day": partial(_level, length=day),
        "level of an hour": partial(_level, length=max(1, day // 24)),
    }


def _seasonal(
    values: Values, origin: int, leads: Iterable[int], *, period: int, most: int, day: int, scaled: bool
) -> list[float | None]:
    """Predict by the same time of earlier seasons, each moved by what its level was to that of the last day: the median of them."""
    moves: dict[int, float | None] = {}
    found: list[float | None] = []
    end = _known_until(values, origin)
    length = _level_length(values, end, period, day, scaled=scaled)
    for lead in leads:
        guesses = []
        for back in range(lead // period + 1, lead // period + 1 + most):
            at = origin + lead - back * period
            if at < 0:
                break
            if back not in moves:
                moves[back] = _move(values, end, back * period, length, scaled=scaled)
            value, move = values[at], moves[back]
            if value is not None and move is not None:
                guesses.append(value * move if scaled else value + move)
        found.append(median(guesses) if guesses else None)
    return found


def _known_until(values: Values, origin: int) -> int:
    """Return the place after the last value before ``origin``: what came last may be missing."""
    return next((at for at in range(origin, 0, -1) if values[at - 1] is not None), 0)


def _level_length(values: Values, end: int, period: int, day: int, *, scaled: bool) -> int:
    """Return how much of what came last sets the level: a day, or its last quarter when that differs from the day as it never does."""
    quarter = day // 4
    if quarter < _FEW:
        return day
    apart = []
    for at in range(end, end - _COMPARED * day, -day):
        late, whole = (_move(values, at, period, length, scaled=scaled) for length in (quarter, day))
        if late is None or whole is None or (scaled and not whole):
            break
        apart.append(abs(late / whole - 1) if scaled else abs(late - whole))
    if len(apart) < _COMPARED:
        return day
    least = _CHANGED if scaled else 0.0
    return quarter if apart[0] > max(least, _UNUSUAL * median(apart[1:])) else day


def _move(values: Values, end: int, back: int, length: int, *, scaled: bool) -> float | None:
    """Return by what ``length`` before ``end`` differs from the same ``back`` before it; None when too little of them is known."""
    start = max(end - length, back)
    if start >= end:
        return None
    both = [
        (now, then)
        for now, then in zip(values[start:end], values[start - back : end - back], strict=True)
        if now is not None and then is not None
    ]
    if len(both) * 2 < length:
        return None
    now, then = sum(now for now, _ in both), sum(then for _, then in both)
    if scaled:
        return now / then if then > 0 else None
    return (now - then) / len(both)


def _level(values: Values, origin: int, leads: Iterable[int], *, length: int) -> list[float | None]:
    """Predict by the mean of what came last: for what has no season."""
    end = _known_until(values, origin)
    known = [each for each in values[max(0, end - length) : end] if each is not None]
    level = fmean(known) if known else None
    return [level for _ in leads]


_Origin = Sequence[tuple[float, float]]
"""What came and what was predicted, from one starting point."""


def _origins(last: int, day: int) -> Iterator[int]:
    """Yield starting points, a day apart, the latest first; with two weeks before them where that leaves enough, else a day."""
    yield max(last, 1)
    least = max(day, min(14 * day, last - _FEWEST * day))
    for back in range(1, _ORIGINS):
        if last - back * day < least:
            return
        yield last - back * day


def _measured(way: _Way, values: Values, leads: Sequence[int], origins: Iterable[int]) -> Iterator[_Origin]:
    for origin in origins:
        guesses = way(values, origin, leads)
        came = (values[origin + lead] if origin + lead < len(values) else None for lead in leads)
        pairs = [
            (is_, guess) for is_, guess in zip(came, guesses, strict=True) if is_ is not None and guess is not None
        ]
        if pairs:
            yield pairs


def _error(origins: Sequence[_Origin]) -> float:
    """Return the mean error, the worst of several starting points aside: it may lie just before a change of level."""
    errors = sorted(map(_off, origins))
    return fmean(errors[:-1] if len(errors) >= _SEVERAL else errors) if errors else float("inf")


def _off(origin: _Origin) -> float:
    return fmean(abs(is_ - guess) for is_, guess in origin)


def _unbroken(origins: Sequence[_Origin]) -> Sequence[_Origin]:
    """Leave out starting points just before a change of level: it is over, and says nothing about errors to come."""
    if not origins:
        return origins
    usual = median(map(_off, origins))
    return [each for each in origins if _off(each) <= _BROKEN * usual]


def _independent(errors: Sequence[Sequence[float]]) -> float:
    """Return as how many independent errors they count: those of one starting point resemble each other (intraclass correlation)."""
    total = sum(map(len, errors))
    size = total / len(errors)
    mean = sum(map(sum, errors)) / total
    variance = sum((each - mean) ** 2 for origin in errors for each in origin) / total
    if size <= 1 or variance <= 0:
        return total
    between = fmean((fmean(origin) - mean) ** 2 for origin in errors)
    alike = min(1.0, max(0.0, (between / variance * size - 1) / (size - 1)))
    return total / (1 + (size - 1) * alike)


def _quantile(ordered: Sequence[float], share: float) -> float:
    """Return a quantile of ordered values, between two of them where it falls there."""
    place = share * (len(ordered) - 1)
    below = min(int(place), len(ordered) - 1)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def _moment(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)
