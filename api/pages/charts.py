"""Series as lines of an SVG picture, made here: a page shows them without any script. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec

from drumlin.api.pages.wording import number

WIDTH, HEIGHT = 720, 180
"""Units of the picture."""
_LEFT, _TOP, _BOTTOM = 8, 20, 160
_RIGHT = WIDTH - 8
_TICKS = (300, 900, 3_600, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800)

Point = tuple[float, float | None]
"""Seconds since the epoch, and a value; None where there is none."""


@dataclass(frozen=True, slots=True)
class Tick:
    """A mark on an axis: its place, and what it says."""

    at: float
    text: str


@dataclass(frozen=True, slots=True)
class Chart:
    """A picture: ``line`` and ``predicted`` are paths, ``band`` the area of an interval, ``dots`` points that stand alone."""

    line: str
    predicted: str
    band: str
    dots: tuple[tuple[float, float], ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    now: float | None
    width: int = WIDTH
    height: int = HEIGHT


@dataclass(frozen=True, slots=True)
class Summary:
    """What a series holds in words: the text alternative of its picture."""

    last: float | None
    least: float | None
    most: float | None
    mean: float | None
    points: int


def summary(points: Sequence[Point]) -> Summary:
    """Summarise a series."""
    known = [value for _, value in points if value is not None and math.isfinite(value)]
    if not known:
        return Summary(None, None, None, None, 0)
    return Summary(known[-1], min(known), max(known), sum(known) / len(known), len(known))


def chart(
    measured: Sequence[Point],
    unit: str,
    predicted: Sequence[Point] = (),
    interval: Sequence[tuple[float, float, float]] = (),
    now: float | None = None,
) -> Chart | None:
    """Draw a series, what was predicted of it, and the interval (time, least, most); None when there is nothing to draw."""
    times = [at for at, _ in (*measured, *predicted)]
    values = [value for _, value in (*measured, *predicted) if value is not None and math.isfinite(value)]
    values += [value for _, *both in interval for value in both if math.isfinite(value)]
    if not values:
        return None
    first, last = min(times), max(times)
    least, most = _bounds(values)

    def x(at: float) -> float:
        return round(_LEFT + (at - first) / ((last - first) or 1) * (_RIGHT - _LEFT), 1)

    def y(value: float) -> float:
        return round(_BOTTOM - (value - least) / (most - least) * (_BOTTOM - _TOP), 1)

    pieces = list(_pieces(measured))
    return Chart(
        " ".join(_path((x(at), y(value)) for at, value in piece) for piece in pieces if len(piece) > 1),
        " ".join(_path((x(at), y(value)) for at, value in piece) for piece in _pieces(predicted) if len(piece) > 1),
        _area([(x(at), y(low), y(high)) for at, low, high in interval if math.isfinite(low) and math.isfinite(high)]),
        tuple((x(piece[0][0]), y(piece[0][1])) for piece in pieces if len(piece) == 1),
        tuple(Tick(x(at), text) for at, text in _time_ticks(first, last)),
        tuple(Tick(y(value), number(value, unit)) for value in (least, (least + most) / 2, most)),
        x(now) if now is not None and first < now < last else None,
    )


def plotted(
    measured: Sequence[Point],
    unit: str,
    predicted: Sequence[Point] = (),
    interval: Sequence[tuple[float, float, float]] = (),
) -> str:
    """Return what ``chart`` draws as JSON, for a script that draws it: ``at`` in seconds, and a value or null of each line at each."""
    lines: dict[str, dict[float, float | None]] = {
        "y": dict(measured),
        "predicted": dict(predicted),
        "low": {at: low for at, low, _ in interval},
        "high": {at: high for at, _, high in interval},
    }
    times = sorted(set().union(*lines.values()))
    drawn = {name: [_finite(line.get(at)) for at in times] for name, line in lines.items()}
    return msgspec.json.encode({"unit": unit, "at": times, **drawn}).decode()


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _bounds(values: Sequence[float]) -> tuple[float, float]:
    """Return the values at the bottom and at the top: zero is in the picture where the values are near it."""
    least, most = min(values), max(values)
    if 0 < least < most * 0.7:
        least = 0.0
    if most == least:
        least, most = (0.0, most) if most > 0 else (least - 1, most + 1)
    return least, most + (most - least) * 0.05


def _pieces(points: Iterable[Point]) -> Iterator[list[tuple[float, float]]]:
    """Yield the runs of points without a gap."""
    piece: list[tuple[float, float]] = []
    for at, value in points:
        if value is not None and math.isfinite(value):
            piece.append((at, value))
        elif piece:
            yield piece
            piece = []
    if piece:
        yield piece


def _path(points: Iterable[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:g} {y:g}" for x, y in points)


def _area(points: Sequence[tuple[float, float, float]]) -> str:
    if len(points) < 2:
        return ""
    above = [(x, high) for x, _, high in points]
    below = [(x, low) for x, low, _ in reversed(points)]
    return f"{_path([*above, *below])}Z"


def _time_ticks(first: float, last: float) -> Iterator[tuple[float, str]]:
    """Yield up to eight marks at whole times; days by date, hours by time of day, in UTC."""
    size = next((each for each in _TICKS if (last - first) / each <= 8), _TICKS[-1])
    at = math.ceil(first / size) * size
    for _ in range(12):
        if at > last:
            return
        moment = datetime.fromtimestamp(at, UTC)
        yield at, moment.strftime("%m-%d" if size >= 86_400 or (moment.hour, moment.minute) == (0, 0) else "%H:%M")
        at += size
