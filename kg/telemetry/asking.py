"""What is asked of a datasource for one metric, over any span of time: exactly the pods that ran in it.

A question knows the runs of its pods, so it can be put for the whole window, for one day of it (whose answer can then be kept), or for as
many parts as are needed to name all pods: a workload of 10,000 short jobs has few of them in an hour. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from kg.telemetry.quoting import any_of
from kg.telemetry.series import Grid

MAX_PODS = 2000
"""Pods that one query names (128 kB of names); a window with more of them is asked for in parts."""
LOOKBACK = 300
"""Seconds that a server looks back for the last sample of a series."""
_SHORTEST_PART = 900  # seconds; below it the pattern of names is asked for


class PodRun(NamedTuple):
    """One run of a pod, in seconds since the epoch; ``end`` None: it still runs."""

    name: str
    start: float
    end: float | None


class Part(NamedTuple):
    """One query and the points that it is for; ``pods`` are the names in it."""

    grid: Grid
    query: str
    pods: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Question:
    """How one metric of one entity is asked for. ``write`` makes a query of a regular expression of pods' names.

    ``runs`` None: the query is the same at any time, with ``pattern`` for the pods. ``reach`` is how far a point looks back, in seconds.
    """

    write: Callable[[str | None], str]
    runs: tuple[PodRun, ...] | None = None
    pattern: str | None = None
    reach: int = LOOKBACK

    def pods(self, grid: Grid) -> tuple[str, ...]:
        """Return the names of the pods that ran in a grid's span, sorted."""
        first = grid.start - self.reach
        return tuple(
            sorted(
                {run.name for run in self.runs or () if run.start <= grid.end and (run.end is None or run.end >= first)}
            )
        )

    def parts(self, grid: Grid) -> list[Part]:
        """Return the queries that together cover a grid; none for a span in which no pod ran.

        When too many run at one time, one query with the pattern of names is all that is left.
        """
        if self.runs is None:
            return [Part(grid, self.write(self.pattern), ())]
        spans = list(self._spans(grid))
        if any(len(names) > MAX_PODS for _, names in spans):
            return [Part(grid, self.write(self.pattern), ())]
        return [Part(span, self.write(any_of(names)), names) for span, names in spans if names]

    def _spans(self, grid: Grid) -> Iterator[tuple[Grid, tuple[str, ...]]]:
        """Halve the grid until the pods of each part can be named, or until it is too short for that."""
        names = self.pods(grid)
        if len(names) <= MAX_PODS or grid.points < 2 or grid.end - grid.start <= _SHORTEST_PART:
            yield grid, names
        else:
            for half in grid.halves():
                yield from self._spans(half)

    def identity(self, grid: Grid) -> str:
        """Return a text that is equal for two spans' questions when their queries are; cheaper than the query."""
        return "\n".join((self.write(""), *self.pods(grid))) if self.runs is not None else self.write(self.pattern)
