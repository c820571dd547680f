"""What is asked of a datasource for one metric, over any span of time: exactly the pods that ran in it.

A question knows the runs of its pods, so it can be put for the whole window, for one day of it (whose answer can then be kept), or for as
many parts as are needed to name all pods: a workload of 10,000 short jobs has few of them in an hour. Where runs are not known in full, the
pattern of names is asked for. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby
from typing import Literal, NamedTuple, Self

from drumlin.kg.telemetry.quoting import any_of
from drumlin.kg.telemetry.series import Grid

MAX_PODS = 2000
"""Pods that one query names (128 kB of names); a window with more of them is asked for in parts."""
LOOKBACK = 300
"""Seconds that a server looks back for the last sample of a series."""
MAX_CUTS = 30
"""Points of a window that are asked for one by one, since a pod ended shortly before."""
SHORTEST_PART = 900
"""Seconds of a window below which the pattern of names is asked for."""
EDGE_SHARE = 2e-4
"""Share of a window that counters may be off by where pods began and ended; beyond it these points are asked for precisely."""
FEW_POINTS = 1500
"""Points of a window whose counters are all asked for precisely: a day every minute."""
_SLACK = 60  # seconds between the run of a pod that is known and the samples of its containers


class PodRun(NamedTuple):
    """One run of a pod, in seconds since the epoch; ``end`` None: it still runs."""

    name: str
    start: float
    end: float | None


Selector = Literal["exact", "pattern"]
"""What picks the series of a workload: the names of the pods that ran, or the pattern of its pods' names."""

Span = tuple[float, float]
"""From when until when, in seconds since the epoch; may be infinite."""


class QueryPart(NamedTuple):
    """One query and the points that it is for; ``pods`` are the names in it, none for a pattern."""

    grid: Grid
    query: str
    pods: tuple[str, ...]
    selector: Selector = "exact"


@dataclass(frozen=True, slots=True)
class QueryTemplate:
    """How one metric of one entity is asked for. ``write`` makes a query of a regular expression of pods' names.

    ``runs`` None: the query is the same at any time, with ``pattern`` for the pods. ``reach`` is how far a point looks back, in seconds.
    ``unknown`` are the spans, apart and in order, in which pods may have run that are not among ``runs``: points that look into one are
    asked for by the pattern.
    ``lingers`` is for how many seconds a server shows a gauge of a pod that has ended.
    ``write_precise`` writes the query that is right to the sample and costs the server more. It is for points that look at the beginning or
    end of a pod, when ``scrape`` is how often a counter is scraped, in seconds; for all, when that is infinite; for none, when it is 0.
    """

    write: Callable[[str | None], str]
    runs: tuple[PodRun, ...] | None = None
    pattern: str | None = None
    reach: int = LOOKBACK
    unknown: tuple[Span, ...] = ()
    lingers: int = 0
    scrape: float = 0
    write_precise: Callable[[str | None], str] | None = None

    def pods(self, grid: Grid) -> tuple[str, ...]:
        """Return the names of the pods that ran in a grid's span, sorted."""
        return _pods(self.runs or (), self.reach, grid)

    def segments(self, grid: Grid) -> Iterator[tuple[Selector, Grid]]:
        """Cut a grid where the selector changes; the segments follow one another and cover it."""
        if self.runs is None:
            yield "pattern" if self.pattern else "exact", grid
            return
        if not self.unknown:
            yield "exact", grid
            return
        at = 0
        for first, last in self.unknown:
            begin = max(at, _ceiling((first - grid.start) / grid.step, grid.points))
            end = min(grid.points, 1 + _floor((last + self.reach - grid.start) / grid.step, grid.points))
            if begin >= end:
                continue
            if at < begin:
                yield "exact", _slice(grid, at, begin)
            yield "pattern", _slice(grid, begin, end)
            at = end
        if at < grid.points:
            yield "exact", _slice(grid, at, grid.points)

    def parts(self, grid: Grid) -> list[QueryPart]:
        """Return the queries that together cover a grid; none for a span in which no pod ran.

        Where too many run at one time, one query with the pattern of names is all that is left.
        """
        if self.runs is None:
            return [QueryPart(grid, self.write(self.pattern), (), "pattern" if self.pattern else "exact")]
        found: list[QueryPart] = []
        for selector, segment in self.segments(grid):
            if selector == "exact" and not self._crowded(segment):
                found += [
                    QueryPart(span, self.write(any_of(names)), names) for span, names in self._spans(segment) if names
                ]
            else:
                found.append(QueryPart(segment, self.write(self.pattern), (), "pattern"))
        return found

    def crowded(self, grid: Grid) -> bool:
        """Return whether more pods are known to have run at one time than a query can name."""
        if self.runs is None:
            return False
        return any(self._crowded(segment) for selector, segment in self.segments(grid) if selector == "exact")

    def intervals(self, grid: Grid) -> list[tuple[Selector, Grid]]:
        """Return which selector a grid's points are asked for by; neighbours differ."""
        told: list[tuple[Selector, Grid]] = [
            ("pattern" if selector == "pattern" or self._crowded(segment) else "exact", segment)
            for selector, segment in self.segments(grid)
        ]
        if len(told) == 1:
            return told
        joined: list[tuple[Selector, Grid]] = []
        for selector, group in groupby(told, key=lambda each: each[0]):
            grids = [segment for _, segment in group]
            joined.append(
                ("pattern" if selector == "pattern" else "exact", Grid(grids[0].start, grids[-1].end, grid.step))
            )
        return joined

    def _crowded(self, segment: Grid) -> bool:
        runs = self.runs or ()
        return len(runs) > MAX_PODS and any(len(names) > MAX_PODS for _, names in self._spans(segment))

    def _spans(self, grid: Grid) -> tuple[tuple[Grid, tuple[str, ...]], ...]:
        return _halved(self.runs or (), self.reach, grid)

    def with_precise(self, grid: Grid, scrape: float, write: Callable[[str | None], str]) -> Self:
        """Return a question that asks by ``write`` where it matters in a grid's span.

        For all of a few points. Of many for those at edges of pods, when what a server extrapolates there, half a scrape on average, is
        more than ``EDGE_SHARE`` of the span.
        """
        if grid.points <= FEW_POINTS:
            return replace(self, scrape=math.inf, write_precise=write)
        first = grid.start - self.reach
        inside = sum(first < at < grid.end for run in self.runs or () for at in run[1:] if at is not None)
        if inside * scrape / 2 <= EDGE_SHARE * (grid.end - grid.start):
            return self
        return replace(self, scrape=scrape, write_precise=write)

    def refined(self, part: QueryPart) -> list[QueryPart]:
        """Return the queries that give what a part asks for, also at the points shortly after a pod began or ended."""
        return self._counted_precisely(part) if self.scrape else self._of_the_living(part)

    def precisely(self, part: QueryPart) -> str:
        """Return the precise query for the points of a part."""
        assert self.write_precise is not None
        return self.write_precise(any_of(part.pods) if part.pods else self.pattern)

    def _counted_precisely(self, part: QueryPart) -> list[QueryPart]:
        """Ask for the points that look at an edge in a way that is right there; for all points where there are many edges."""
        grid, found, at = part.grid, list[QueryPart](), part.grid.start
        spans = self._edges(grid)
        if len(spans) > MAX_CUTS:
            spans = ((grid.start, grid.end),)
        for first, last in spans:
            begin = max(at, grid.start + math.ceil((first - grid.start) / grid.step) * grid.step)
            end = min(grid.end, grid.start + math.floor((last - grid.start) / grid.step) * grid.step)
            if begin > end:
                continue
            if at < begin:
                found.append(part._replace(grid=Grid(at, begin - grid.step, grid.step)))
            found.append(part._replace(grid=Grid(begin, end, grid.step), query=self.precisely(part)))
            at = end + grid.step
        return [*found, part._replace(grid=Grid(at, grid.end, grid.step))] if at <= grid.end else found

    def told_precise(self, grid: Grid) -> Iterator[str]:
        """Yield the spans of a grid that are asked for precisely, for ``identity``."""
        return (f"{first} {last}" for first, last in self._edges(grid))

    def _edges(self, grid: Grid) -> tuple[Span, ...]:
        """Return the spans, apart and in order, whose points are asked for precisely: those that look at an edge of a pod."""
        if not self.scrape:
            return ()
        if self.scrape == math.inf:
            return ((grid.start, grid.end),)
        before, after = self.scrape + _SLACK, self.reach + self.scrape + _SLACK
        moments = (at for run in self.runs or () for at in (run.start, run.end) if at is not None)
        found = union((at - before, at + after) for at in moments)
        return tuple((first, last) for first, last in found if first <= grid.end and last >= grid.start)

    def _of_the_living(self, part: QueryPart) -> list[QueryPart]:
        """Cut out of a part the points at which a pod that is known to have ended would still show, and ask for them without it.

        Nothing is cut where that would be many queries; then it shows for as long as a gauge's last sample may be old.
        """
        grid, ended = part.grid, [run for run in self.runs or () if run.end is not None] if part.pods else []
        late: set[int] = set()
        for run in ended if self.lingers else ():
            end = math.floor(run.end or 0)
            first = max(grid.start, end // grid.step * grid.step + grid.step)
            late |= {*range(first, min(end + self.lingers, grid.end) + 1, grid.step)[: MAX_CUTS + 1]}
            if len(late) > MAX_CUTS:
                return [part]
        found: list[QueryPart] = []
        start = grid.start
        for point in sorted(late):
            if point > start:
                found.append(part._replace(grid=Grid(start, point - grid.step, grid.step)))
            living = self._living(point)
            if found and found[-1].pods == living and found[-1].grid.end == point - grid.step:
                found[-1] = found[-1]._replace(grid=Grid(found[-1].grid.start, point, grid.step))
            elif living:
                found.append(QueryPart(Grid(point, point, grid.step), self.write(any_of(living)), living))
            start = point + grid.step
        return [*found, part._replace(grid=Grid(start, grid.end, grid.step))] if start <= grid.end else found

    def _living(self, point: int) -> tuple[str, ...]:
        runs = (run for run in self.runs or () if run.start <= point and (run.end is None or run.end >= point))
        return tuple(sorted({run.name for run in runs}))

    def identity(self, grid: Grid) -> str:
        """Return a text that is equal for two spans' questions when their queries are; cheaper than the query."""
        if self.runs is None:
            return "\n".join((self.write(self.pattern), *self.told_precise(grid)))
        told: list[str] = []
        for selector, segment in self.segments(grid):
            if segment != grid:
                told.append(f"{segment.start} {segment.end}")
            told += [self.write(self.pattern)] if selector == "pattern" else [self.write(""), *self.pods(segment)]
        first = grid.start - self.lingers
        ends = sorted(f"{run.end}" for run in self.runs if self.lingers and run.end and first <= run.end <= grid.end)
        return "\n".join((*told, *ends, *self.told_precise(grid)))


def _pods(runs: Iterable[PodRun], reach: int, grid: Grid) -> tuple[str, ...]:
    first = grid.start - reach
    return tuple(sorted({run.name for run in runs if run.start <= grid.end and (run.end is None or run.end >= first)}))


@lru_cache(maxsize=4)  # a resolution looks at it several times; of 20,000 runs it takes a tenth of a second
def _halved(runs: tuple[PodRun, ...], reach: int, grid: Grid) -> tuple[tuple[Grid, tuple[str, ...]], ...]:
    """Halve a grid until the pods of each part can be named, or until it is too short for that."""
    names = _pods(runs, reach, grid)
    if len(names) <= MAX_PODS or grid.points < 2 or grid.end - grid.start <= SHORTEST_PART:
        return ((grid, names),)
    first, second = grid.halves()
    return (*_halved.__wrapped__(runs, reach, first), *_halved.__wrapped__(runs, reach, second))


def complement(known: Iterable[Span]) -> tuple[Span, ...]:
    """Return the spans that lie between and around ``known`` ones, in order; a span that only touches the next leaves nothing between."""
    found: list[Span] = []
    at = -math.inf
    for first, last in sorted(known):
        if first > at:
            found.append((at, first))
        at = max(at, last)
    return (*found, (at, math.inf)) if at < math.inf else tuple(found)


def union(spans: Iterable[Span]) -> tuple[Span, ...]:
    """Return spans joined where they overlap or touch, in order."""
    found: list[Span] = []
    for first, last in sorted(spans):
        if found and first <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
    return tuple(found)


def _slice(grid: Grid, begin: int, end: int) -> Grid:
    """Return the points from number ``begin`` to before ``end``."""
    return Grid(grid.start + begin * grid.step, grid.start + (end - 1) * grid.step, grid.step)


def _ceiling(number: float, most: int) -> int:
    return math.ceil(min(max(number, 0), most))


def _floor(number: float, most: int) -> int:
    return math.floor(min(max(number, -1), most))
