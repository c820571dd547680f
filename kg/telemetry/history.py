"""History: the data of many entities and metrics as one table, on one grid.

Resolve says what to ask; this asks it, each datasource with its own number of requests at one time, and never hides that
something is missing: a series without any point is an error that says why, gaps and coverage are part of the result, and a
series that failed is listed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Self, get_args

import pyarrow as pa
import structlog

from kg.errors import DrumlinError, InvalidInput, TooLarge
from kg.telemetry.datasources import Datasource
from kg.telemetry.fetch.prometheus import Prometheus
from kg.telemetry.missing import explain_absence
from kg.telemetry.resolve import Resolution, Resolver
from kg.telemetry.series import Column, Gap, Gaps, Grid, Key, Step, Window, assemble, choose_step, fill, gaps_of, place

_log = structlog.get_logger()

MAX_VALUES = 20_000_000
"""Largest table, in values: about 0.6 GB."""
_THREADS = 8  # the number of requests at one time is each datasource's own


@dataclass(frozen=True, slots=True)
class Failure:
    """One series that could not be fetched, and why."""

    key: Key
    error: DrumlinError


@dataclass(frozen=True, slots=True)
class Series:
    """Fetched data with what one must know to trust it.

    ``coverage`` is the share of grid points that have a value (before any filling), ``gaps`` lists the runs that have none.
    ``failures`` are series that are not in the table. ``queries`` are what was asked, in the order of the table.
    """

    table: pa.Table
    grid: Grid
    queries: tuple[Resolution, ...]
    coverage: Mapping[Key, float]
    gaps: Mapping[Key, tuple[Gap, ...]]
    warnings: tuple[str, ...] = ()
    failures: tuple[Failure, ...] = ()

    @property
    def step(self) -> timedelta:
        """Time between two points."""
        return timedelta(seconds=self.grid.step)

    @property
    def unit(self) -> str | None:
        """The UCUM unit, or None when the metrics have different ones (the table's column tells each)."""
        units = {query.unit for query in self.queries}
        return units.pop() if len(units) == 1 else None

    def longest_gap(self, key: Key) -> timedelta:
        """Return how long the longest run of missing points of one series is (points times step)."""
        return max((gap.end - gap.start + self.step for gap in self.gaps[key]), default=timedelta(0))


@dataclass(frozen=True, slots=True)
class _Result:
    """One series fetched and put onto the grid."""

    resolution: Resolution
    column: Column
    coverage: float
    gaps: tuple[Gap, ...]
    warnings: tuple[str, ...]


def _now() -> datetime:
    return datetime.now(UTC)


class History:
    """Fetches series for entities of the graph. Blocks; may be used by many threads; ``close`` ends its connections."""

    def __init__(
        self, resolver: Resolver, *, clock: Callable[[], datetime] = _now, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._resolver = resolver
        self._clock = clock
        self._sleep = sleep
        self._clients: dict[str, Prometheus] = {}
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        with self._lock:
            for client in self._clients.values():
                client.close()
            self._clients.clear()

    def fetch(
        self,
        entities: str | Sequence[str],
        metrics: str | Sequence[str],
        *,
        start: datetime | None = None,
        end: datetime | None = None,
        last: str | timedelta | None = None,
        step: Step = "auto",
        gaps: Gaps = "null",
        datasource: str | None = None,
    ) -> Series:
        """Fetch every metric of every entity (full IRIs or short ids) into one table.

        The window is ``start`` to ``end`` (default: now), or the ``last`` so much before ``end``. A series that cannot be had is listed in
        ``failures``; when none can be had, the first one's error is raised: ``ResourceNotFound``, ``MetricMissing``,
        ``SourceUnavailable``. Raises ``TooLarge`` before anything is asked, ``InvalidInput`` for a window or step that cannot be.
        """
        if gaps not in get_args(Gaps):
            raise InvalidInput(f"{gaps!r} is no way to treat gaps", hint=f"there are {', '.join(get_args(Gaps))}")
        window = self._window(start, end, last)
        wanted = [(entity, metric) for entity in _unique(entities) for metric in _unique(metrics)]
        if not wanted:
            raise InvalidInput("no entity or no metric was named")
        chosen = choose_step(window, step, self._resolver.longest_scrape_interval)
        grid = Grid.over(window, chosen)
        if (values := grid.points * len(wanted)) > MAX_VALUES:
            raise TooLarge(
                f"{len(wanted):,} series of {grid.points:,} points are {values:,} values; the limit is {MAX_VALUES:,}",
                hint="take a longer step, a shorter window, or fewer entities at a time",
            )
        results, failures = self._all(wanted, window, chosen, grid, gaps, datasource)
        if not results:
            raise failures[0].error
        return _series(results, failures, grid, gaps)

    def _window(self, start: datetime | None, end: datetime | None, last: str | timedelta | None) -> Window:
        if (start is None) == (last is None):
            raise InvalidInput("give either a start or how long back (last), for example last=30d")
        until = end or self._clock()
        return Window(start, until) if start else Window.last(last or timedelta(0), until)

    def _all(
        self,
        wanted: Sequence[tuple[str, str]],
        window: Window,
        step: timedelta,
        grid: Grid,
        gaps: Gaps,
        datasource: str | None,
    ) -> tuple[list[_Result], list[Failure]]:
        """Resolve one after the other (the store is near) while fetching goes on in threads; keep the order."""
        running: list[tuple[Key, Future[_Result] | DrumlinError]] = []
        with ThreadPoolExecutor(min(_THREADS, len(wanted)), "history") as pool:
            for entity, metric in wanted:
                try:
                    resolution = self._resolver.resolve(entity, metric, window, datasource=datasource, step=step)
                except DrumlinError as error:
                    running.append((Key(entity, metric), error))
                else:
                    key = Key(self._resolver.short(resolution.entity), metric)
                    running.append((key, pool.submit(self._one, key, resolution, grid, gaps)))
        return _settle(running)

    def _one(self, key: Key, resolution: Resolution, grid: Grid, gaps: Gaps) -> _Result:
        client = self._client(self._resolver.datasource(resolution))
        fetched = client.series(resolution.query, grid)
        if not any(len(part.seconds) for part in fetched.parts):
            raise explain_absence(client, resolution.query, *grid.window)
        placed = place(fetched.parts, grid)
        missing = placed.values.null_count
        values = fill(placed.values, gaps)
        said = [f"{resolution.datasource}: {warning}" for warning in fetched.warnings]
        if placed.not_finite:
            said.append(f"{placed.not_finite} values were not finite (NaN or Inf) and are null")
        if filled := missing - values.null_count:
            said.append(f"{filled} of {grid.points} points were missing and are filled ({gaps})")
        return _Result(
            resolution=resolution,
            column=Column(key, resolution.unit, values),
            coverage=(grid.points - missing) / grid.points,
            gaps=gaps_of(placed.values, grid),
            warnings=tuple(f"{key.unique_id} {key.metric}: {each}" for each in (*resolution.warnings, *said)),
        )

    def _client(self, datasource: Datasource) -> Prometheus:
        with self._lock:
            if datasource.iri not in self._clients:
                self._clients[datasource.iri] = Prometheus(datasource, sleep=self._sleep)
            return self._clients[datasource.iri]


def _unique(names: str | Sequence[str]) -> list[str]:
    return [names] if isinstance(names, str) else list(dict.fromkeys(names))


def _settle(running: Sequence[tuple[Key, Future[_Result] | DrumlinError]]) -> tuple[list[_Result], list[Failure]]:
    results: list[_Result] = []
    failures: list[Failure] = []
    for key, outcome in running:
        try:
            if isinstance(outcome, DrumlinError):
                raise outcome
            results.append(outcome.result())
        except DrumlinError as error:
            _log.info("series_failed", entity=key.unique_id, metric=key.metric, reason=str(error))
            failures.append(Failure(key, error))
    return results, failures


def _series(results: Sequence[_Result], failures: Sequence[Failure], grid: Grid, gaps: Gaps) -> Series:
    failed = [f"{each.key.unique_id} {each.key.metric} is missing: {each.error}" for each in failures]
    return Series(
        table=assemble([result.column for result in results], grid, gaps),
        grid=grid,
        queries=tuple(result.resolution for result in results),
        coverage={result.column.key: result.coverage for result in results},
        gaps={result.column.key: result.gaps for result in results},
        warnings=(*failed, *(warning for result in results for warning in result.warnings)),
        failures=tuple(failures),
    )
