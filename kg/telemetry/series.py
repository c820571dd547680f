"""Series on a grid: which timestamps are asked for, and how what came back becomes one Arrow table.

The grid is aligned to the epoch in UTC (every timestamp is a multiple of the step), so that two fetches of overlapping windows
ask for the same points and caches can serve them. Points that a server left out stay null and are reported; nothing is ever
interpolated unless it was asked for, and then that is reported too. No I/O here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache, lru_cache
from itertools import pairwise
from typing import Literal, NamedTuple, Self

from drumlin.kg.errors import InvalidInput
from drumlin.kg.telemetry.arrow import pa, pc
from drumlin.kg.telemetry.durations import parse_duration

MAX_POINTS = 11_000
"""Points that Prometheus answers per series and query; computed beforehand, since its own message misleads."""

_STEPS = (1, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400)
_DAY = 86_400
_MOST_KEPT = 200_000  # points of a grid whose timestamps are kept for the next series
_MOST_STRETCHES = 200  # of unbroken values; beyond it each point is looked up
_SECOND = timedelta(seconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Gaps = Literal["null", "ffill", "linear", "drop"]
"""What happens to missing points: kept as null, filled with the last value, on a straight line, or their rows dropped."""

Step = str | timedelta | None


@dataclass(frozen=True, slots=True)
class Window:
    """A span of time, both ends with a zone, kept in UTC: a day of 25 hours on somebody's clock has 25 hours here.

    ``InvalidInput`` when a zone is missing or the end is not after the start.
    """

    start: datetime
    end: datetime

    def __post_init__(self) -> None:
        if self.start.tzinfo is None or self.end.tzinfo is None:
            raise InvalidInput("a time without a zone is ambiguous", hint="write 2026-11-27T00:00:00Z")
        try:
            for name in ("start", "end"):
                object.__setattr__(self, name, getattr(self, name).astimezone(UTC))
        except OverflowError as error:
            raise InvalidInput("the window reaches beyond the calendar") from error
        if self.end <= self.start:
            raise InvalidInput(
                f"the window ends ({self.end.isoformat()}) before it starts ({self.start.isoformat()})",
                hint="start is the earlier one; without an end the window ends now",
            )
        if self.start < _EPOCH:
            raise InvalidInput("the window starts before 1970, where no server has anything")

    @classmethod
    def last(cls, length: str | timedelta, now: datetime) -> Self:
        """Return the window of this length (``30d``, ``P1D``) that ends ``now``."""
        span = parse_duration(length) if isinstance(length, str) else length
        try:
            return cls(now.astimezone(UTC) - span, now)
        except OverflowError as error:
            raise InvalidInput(f"{length} is longer than the calendar") from error


@dataclass(frozen=True, slots=True)
class Grid:
    """Aligned timestamps: from ``start`` to ``end``, both included, every ``step``; all in whole seconds since the epoch."""

    start: int
    end: int
    step: int

    @classmethod
    def over(cls, window: Window, step: timedelta) -> Self:
        """Return the grid's points inside a window; raises ``InvalidInput`` when there is none or the step is not whole seconds."""
        seconds = step // _SECOND
        if not 1 <= seconds <= 366 * _DAY or step % _SECOND:
            raise InvalidInput(f"a step of {step.total_seconds():g} s is not offered", hint="whole seconds, 1s to 366d")
        start = -((_EPOCH - window.start) // step) * seconds
        end = (window.end - _EPOCH) // step * seconds
        if end < start:
            raise InvalidInput(f"no multiple of the step ({seconds} s) lies in the window", hint="take a shorter step")
        return cls(start, end, seconds)

    @property
    def points(self) -> int:
        """How many timestamps there are."""
        return (self.end - self.start) // self.step + 1

    @property
    def window(self) -> tuple[datetime, datetime]:
        """First and last timestamp."""
        return moment(self.start), moment(self.end)

    def chunks(self, limit: int = MAX_POINTS) -> Iterator[Grid]:
        """Yield the grid in parts of at most ``limit`` points that do not overlap."""
        for start in range(self.start, self.end + 1, limit * self.step):
            yield Grid(start, min(self.end, start + (limit - 1) * self.step), self.step)

    def halves(self) -> tuple[Grid, Grid]:
        """Return both halves of a grid of two points or more."""
        first, second = self.chunks((self.points + 1) // 2)
        return first, second


def moment(seconds: int) -> datetime:
    """Return the UTC time of seconds since the epoch."""
    return datetime.fromtimestamp(seconds, UTC)


def choose_step(window: Window, step: Step, shortest_step: timedelta) -> timedelta:
    """Return the step to use: as asked, or for ``auto`` (and None) the shortest usual one whose points fit in one query.

    An automatic step is at least ``shortest_step`` (``least_step``) and a minute.
    """
    if isinstance(step, timedelta):
        return step
    if step is not None and step != "auto":
        return parse_duration(step)
    length = (window.end - window.start).total_seconds()
    shortest = max(length / MAX_POINTS, shortest_step.total_seconds(), 60)
    usual = next((each for each in _STEPS if each >= shortest), None)
    return timedelta(seconds=usual or -(-shortest // _DAY) * _DAY)


def least_step(scrape_interval: timedelta, *, counts: bool) -> timedelta:
    """Return the shortest step that shows something new at each point; of a counter, that whose windows do not overlap."""
    return rate_window(scrape_interval, scrape_interval) if counts else scrape_interval


def rate_window(step: timedelta, scrape_interval: timedelta) -> timedelta:
    """Return the window that a rate is taken over at each point: no gap between points, and four scrapes at least."""
    return max(step, 4 * scrape_interval)


def counted_range(window: timedelta, scrape_interval: timedelta) -> timedelta:
    """Return the range in which a window's samples are, and the one before them, from which on they count.

    A millisecond less than a scrape more: Prometheus 2's ranges hold both their ends, and where scrapes fall on the grid a whole one would
    have a sample too many.
    """
    return window + scrape_interval - timedelta(milliseconds=1)


def longest_gap(scrape_interval: timedelta) -> timedelta:
    """Return how long nothing may have been scraped before a window so that what was counted meanwhile counts in it.

    Ten minutes, though a scrape of half a minute may fail: where the interval is not known, it may be longer than it is taken for.
    """
    return max(scrape_interval * 5 / 2, timedelta(minutes=10))


_LEAST_LOOKBACK = timedelta(seconds=75)  # of servers whose interval was longer once


def lookback(scrape_interval: timedelta) -> timedelta:
    """Return how old the last sample of a gauge may be: a scrape may fail, but what has ended is soon left out.

    A server would take it for five minutes, unless the series is marked as ended, as those with timestamps of their own (cAdvisor) are not.
    """
    return max(scrape_interval * 5 / 2, _LEAST_LOOKBACK)


class Samples(NamedTuple):
    """Values as a server sent them: ascending ``seconds`` since the epoch (int64) and ``values`` (float64, may be NaN or Inf)."""

    seconds: pa.Int64Array
    values: pa.DoubleArray


class Placed(NamedTuple):
    """Values on the grid, null where there is none, and how many were there but not finite (NaN, Inf)."""

    values: pa.DoubleArray
    not_finite: int


def place(samples: Sequence[Samples], grid: Grid) -> Placed:
    """Put samples onto the grid; every point of it gets exactly one value or null."""
    seconds, values = _joined(samples)
    if not seconds.equals(seconds_of(grid)):
        values = _spread(seconds, values, grid)
    if not values.null_count and pc.all(pc.is_finite(values)).as_py():
        return Placed(values, 0)
    finite = pc.if_else(pc.is_finite(values), values, pa.scalar(None, pa.float64()))
    return Placed(finite, finite.null_count - values.null_count)


def _joined(samples: Sequence[Samples]) -> Samples:
    if len(samples) == 1:
        return samples[0]
    return Samples(
        pa.concat_arrays([each.seconds for each in samples] or [pa.array([], pa.int64())]),
        pa.concat_arrays([each.values for each in samples] or [pa.array([], pa.float64())]),
    )


def seconds_of(grid: Grid) -> pa.Int64Array:
    """Return the grid's timestamps in seconds; the last few are kept, since a request's series share one grid."""
    return _kept_seconds(grid) if grid.points <= _MOST_KEPT else _seconds(grid)


def _seconds(grid: Grid) -> pa.Int64Array:
    return pa.array(range(grid.start, grid.end + 1, grid.step), pa.int64())


_kept_seconds = lru_cache(maxsize=4)(_seconds)


def _spread(seconds: pa.Int64Array, values: pa.DoubleArray, grid: Grid) -> pa.DoubleArray:
    """Put nulls where points are missing. Values mostly come in few unbroken stretches, which are taken as they are."""
    if not len(seconds):
        return pa.nulls(grid.points, pa.float64())
    breaks = pc.indices_nonzero(pc.not_equal(pc.fill_null(pc.pairwise_diff(seconds), grid.step), grid.step))
    edges = [0, *breaks.to_pylist(), len(seconds)] if len(breaks) <= _MOST_STRETCHES else []
    stretches = [(seconds[first].as_py(), first, end) for first, end in pairwise(edges)]
    if not stretches or any((second - grid.start) % grid.step for second, _, _ in stretches):
        return _looked_up(seconds, values, grid)
    parts: list[pa.DoubleArray] = []
    filled = 0
    for second, first, end in stretches:
        at = (second - grid.start) // grid.step
        parts += [pa.nulls(max(at - filled, 0), pa.float64()), values.slice(first, end - first)]
        filled = at + end - first
    parts.append(pa.nulls(max(grid.points - filled, 0), pa.float64()))
    whole = pa.concat_arrays(parts)
    fits = len(whole) == grid.points  # a point that stands twice, or outside the grid, makes it longer
    return whole if fits else _looked_up(seconds, values, grid)


def _looked_up(seconds: pa.Int64Array, values: pa.DoubleArray, grid: Grid) -> pa.DoubleArray:
    return values.take(pc.index_in(seconds_of(grid), value_set=seconds))


class Gap(NamedTuple):
    """A run of missing points: the first and the last of them."""

    start: datetime
    end: datetime


def gaps_of(values: pa.DoubleArray, grid: Grid) -> tuple[Gap, ...]:
    """Return the runs of nulls, in order."""
    if not values.null_count:
        return ()
    found: list[list[int]] = []
    for position in pc.indices_nonzero(values.is_null()).to_pylist():
        if found and found[-1][1] == position - 1:
            found[-1][1] = position
        else:
            found.append([position, position])
    return tuple(Gap(*(moment(grid.start + at * grid.step) for at in gap)) for gap in found)


def fill(values: pa.DoubleArray, gaps: Gaps) -> pa.DoubleArray:
    """Fill nulls as asked; what has no value before it (``linear``: on either side) stays null."""
    if gaps == "ffill":
        return pc.fill_null_forward(values)
    if gaps == "linear" and values.null_count:
        return pa.array(_straight(values.to_pylist()), pa.float64())
    return values


def _straight(values: list[float | None]) -> list[float | None]:
    known = [position for position, value in enumerate(values) if value is not None]
    for left, right in pairwise(known):
        low, high = values[left], values[right]
        if right - left > 1 and low is not None and high is not None:
            for position in range(left + 1, right):
                share = (position - left) / (right - left)
                values[position] = low * (1 - share) + high * share
    return values


class Key(NamedTuple):
    """Which series: the entity's short id and the metric."""

    unique_id: str
    metric: str


class SeriesColumn(NamedTuple):
    """One series ready for the table."""

    key: Key
    unit: str
    values: pa.DoubleArray


@cache
def schema() -> pa.Schema:
    """Return the schema of every table: one row per series and timestamp, the long form that forecasting libraries read."""
    word = pa.dictionary(pa.int32(), pa.string())
    columns = {"unique_id": word, "ds": pa.timestamp("ms", "UTC"), "y": pa.float64(), "metric": word, "unit": word}
    return pa.schema(list(columns.items()))


def assemble(columns: Sequence[SeriesColumn], grid: Grid, gaps: Gaps) -> pa.Table:
    """Stack series into one table, in the order given; ``gaps`` has been applied to the values except for ``drop``."""
    stamps = pc.multiply(seconds_of(grid), 1000).cast(pa.timestamp("ms", "UTC"))
    unique, metric, unit = (_repeated([word(each) for each in columns], len(stamps)) for word in _WORDS)
    batches = [
        pa.RecordBatch.from_arrays([next(unique), stamps, each.values, next(metric), next(unit)], schema=schema())
        for each in columns
    ]
    table = pa.Table.from_batches(batches, schema())
    return table.filter(pc.is_valid(table["y"])) if gaps == "drop" else table


_WORDS: tuple[Callable[[SeriesColumn], str], ...] = (
    lambda each: each.key.unique_id,
    lambda each: each.key.metric,
    lambda each: each.unit,
)


def _repeated(words: Sequence[str], times: int) -> Iterator[pa.DictionaryArray]:
    """Yield each word as so many rows; equal words share their memory, since most tables have few metrics and units."""
    distinct = sorted(set(words))
    dictionary = pa.array(distinct, pa.string())

    @lru_cache(maxsize=1)
    def rows(word: str) -> pa.DictionaryArray:
        index = pa.scalar(distinct.index(word), pa.int32())
        return pa.DictionaryArray.from_arrays(pa.repeat(index, times), dictionary, safe=False)

    return map(rows, words)
