"""History: the data of many entities and metrics as one table, on one grid.

Resolve says what to ask; this asks it, each datasource with its own number of requests at one time, and never hides that
something is missing: a series without any point is an error that says why, gaps and coverage are part of the result, and a
series that failed is listed.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol, Self, get_args

import structlog

from drumlin.kg.errors import (
    Cancelled,
    DatasourceRefused,
    DrumlinError,
    InvalidDocument,
    InvalidInput,
    MetricMissing,
    SourceUnavailable,
    TooLarge,
)
from drumlin.kg.telemetry import Choice, lacking
from drumlin.kg.telemetry.arrow import pa
from drumlin.kg.telemetry.cache import DayCache
from drumlin.kg.telemetry.datasources import Datasource
from drumlin.kg.telemetry.fetch.influxdb import InfluxDB
from drumlin.kg.telemetry.fetch.parquet import Parquet
from drumlin.kg.telemetry.fetch.prometheus import Prometheus
from drumlin.kg.telemetry.gathering import Client, DatasourceClients, PendingFetch, gather
from drumlin.kg.telemetry.missing import explain_absence
from drumlin.kg.telemetry.resolution import Interval, Resolution, Unresolved
from drumlin.kg.telemetry.series import (
    Gap,
    Gaps,
    Grid,
    Key,
    SeriesColumn,
    Step,
    Window,
    assemble,
    choose_step,
    fill,
    gaps_of,
)
from drumlin.kg.telemetry.units import parse_unit

_log = structlog.get_logger()

MAX_VALUES = 20_000_000
"""Largest table, in values: about 0.6 GB. Of a stream it limits each series."""
PART_VALUES = 500_000
"""Values of one part of a stream, at least one series: about 14 MB."""
_AHEAD = 24  # series that are fetched or wait for their turn in the order, at most
_AHEAD_VALUES = 2_000_000  # and their values: 16 MB, unless two series have more


@dataclass(frozen=True, slots=True)
class SeriesFailure:
    """One series that could not be fetched, and why."""

    key: Key
    error: DrumlinError


@dataclass(frozen=True, slots=True)
class SeriesTable:
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
    failures: tuple[SeriesFailure, ...] = ()

    @property
    def step(self) -> timedelta:
        """Time between two points."""
        return timedelta(seconds=self.grid.step)

    @property
    def intervals(self) -> dict[Key, tuple[Interval, ...]]:
        """By what the series of each were picked, and when."""
        return {key: query.intervals for key, query in zip(self.coverage, self.queries, strict=True)}

    @property
    def unit(self) -> str | None:
        """The UCUM unit, or None when the metrics have different ones (the table's column has each)."""
        units = {query.unit for query in self.queries}
        return units.pop() if len(units) == 1 else None

    def longest_gap(self, key: Key) -> timedelta:
        """Return how long the longest run of missing points of one series is (points times step)."""
        return max((gap.end - gap.start + self.step for gap in self.gaps[key]), default=timedelta(0))


@dataclass(frozen=True, slots=True)
class _GriddedSeries:
    """One series fetched and put onto the grid."""

    resolution: Resolution
    column: SeriesColumn
    coverage: float
    gaps: tuple[Gap, ...]
    warnings: tuple[str, ...]


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be fetched: which series, over which window, on which grid."""

    wanted: tuple[tuple[str, str], ...]
    window: Window
    grid: Grid
    gaps: Gaps = "null"
    datasource: str | None = None
    query: str | None = None
    unit: tuple[str, ...] = ()
    among: frozenset[str] | None = None
    selector: Choice = "auto"

    @property
    def step(self) -> timedelta:
        """Time between two points."""
        return timedelta(seconds=self.grid.step)


class Resolves(Protocol):
    """What history needs of a resolver: that of this process, or a service elsewhere."""

    def least_step(self, metrics: Iterable[str]) -> timedelta:
        """Return the shortest automatic step for series of these metrics, of any datasource that may be asked."""

    def short(self, iri: str) -> str:
        """Return the short id of an IRI."""

    def datasource(self, resolution: Resolution) -> Datasource:
        """Return the datasource of a resolution, with access when it may be fetched from."""

    def resolve_many(
        self,
        pairs: Iterable[tuple[str, str]],
        window: Window,
        *,
        datasource: str | None,
        step: Step,
        query: str | None,
        unit: Sequence[str],
        among: frozenset[str] | None,
        selector: Choice,
    ) -> Iterator[Resolution | Unresolved]:
        """Resolve pairs of entity and metric in order."""


class History:
    """Fetches series for entities of the graph. Blocks; may be used by many threads; ``close`` ends its connections.

    ``days`` is where finished days are kept; without it every answer is fetched whole.
    """

    def __init__(
        self,
        resolver: Resolves,
        *,
        days: DayCache | None = None,
        clock: Callable[[], datetime] = _now,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._resolver = resolver
        self.days = days
        self._clock = clock
        self.clients = DatasourceClients(sleep)
        """The clients of the datasources, which current values share."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections, and the day cache."""
        self.clients.close()
        if self.days:
            self.days.close()

    def plan(
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
        query: str | None = None,
        unit: str | Sequence[str] = (),
        among: frozenset[str] | None = None,
        selector: Choice = "auto",
        limit: int | None = MAX_VALUES,
    ) -> Plan:
        """Say what would be fetched: every metric of every entity (full IRIs or short ids); nothing is asked.

        The window is ``start`` to ``end`` (now), or the ``last`` so much before ``end``. ``query`` is the caller's own PromQL, which
        is limited to each entity; ``selector`` says how a workload's pods are picked. Values are in the first of the units ``unit`` that
        fits a metric. Groups count the pods of the workloads and the pods ``among`` (IRIs) alone.

        Raises ``TooLarge`` for more than ``limit`` values, ``InvalidInput`` for a window, step or unit that cannot be.
        """
        if gaps not in get_args(Gaps):
            raise InvalidInput(f"{gaps!r} is no way to treat gaps", hint=f"there are {', '.join(get_args(Gaps))}")
        window = self._window(start, end, last)
        wanted = tuple((entity, metric) for entity in _unique(entities) for metric in _unique(metrics))
        if not wanted:
            raise InvalidInput("no entity or no metric was named")
        automatic = step is None or step == "auto"
        least = self._resolver.least_step(metric for _, metric in wanted) if automatic else timedelta(0)
        grid = Grid.over(window, choose_step(window, step, least))
        values = grid.points * len(wanted)
        if grid.points > MAX_VALUES:  # a series is held as a whole, also by a stream
            raise TooLarge(
                f"a series of {grid.points:,} points; the limit is {MAX_VALUES:,}",
                hint="take a longer step or a shorter window",
            )
        if limit is not None and values > limit:
            raise TooLarge(
                f"{len(wanted):,} series of {grid.points:,} points are {values:,} values; the limit is {limit:,}",
                hint="take a longer step, a shorter window, or fewer entities at a time",
            )
        wished = tuple(_unique(unit))
        for each in wished:
            parse_unit(each)
        return Plan(wanted, window, grid, gaps, datasource, query, wished, among, selector)

    def fetch(self, entities: str | Sequence[str], metrics: str | Sequence[str], **options: Any) -> SeriesTable:
        """Fetch what ``plan`` says into one table.

        A series that cannot be had is listed in ``failures``; when none can be had, the first one's error is raised:
        ``ResourceNotFound``, ``MetricMissing``, ``SourceUnavailable``. Raises what ``plan`` raises before anything is asked.
        """
        plan = self.plan(entities, metrics, **options)
        return join(list(self.stream(plan)))

    def stream(self, plan: Plan) -> Iterator[SeriesTable]:
        """Yield the series of a plan a part at a time, in its order and in bounded memory; closing the iterator ends the work.

        When none can be had, the first one's error is raised, before anything is yielded.
        """
        parts = self._parts(plan)
        failed: list[SeriesTable] = []
        for part in parts:
            failed.append(part)
            if part.queries:
                break
        else:
            raise failed[0].failures[0].error
        yield from failed
        yield from parts

    def _parts(self, plan: Plan) -> Iterator[SeriesTable]:
        results: list[_GriddedSeries] = []
        failures: list[SeriesFailure] = []
        most = max(1, PART_VALUES // plan.grid.points)
        with closing(self._outcomes(plan)) as outcomes:
            for outcome in outcomes:
                if isinstance(outcome, SeriesFailure):
                    failures.append(outcome)
                else:
                    results.append(outcome)
                if len(results) + len(failures) == most:
                    yield _series(results, failures, plan)
                    results, failures = [], []
        if results or failures:
            yield _series(results, failures, plan)

    def resolutions(self, plan: Plan) -> Iterator[Resolution | Unresolved]:
        """Resolve what a plan would ask, and ask nothing."""
        return self._resolver.resolve_many(
            plan.wanted,
            plan.window,
            datasource=plan.datasource,
            step=plan.step,
            query=plan.query,
            unit=plan.unit,
            among=plan.among,
            selector=plan.selector,
        )

    def _window(self, start: datetime | None, end: datetime | None, last: str | timedelta | None) -> Window:
        if (start is None) == (last is None):
            raise InvalidInput("give either a start or how long back (last), for example last=30d")
        until = end or self._clock()
        return Window(start, until) if start else Window.last(last or timedelta(0), until)

    def _outcomes(self, plan: Plan) -> Generator[_GriddedSeries | SeriesFailure, None, None]:
        """Resolve one after the other while earlier ones are fetched in threads, a few ahead of the caller; keep the order."""
        ahead = max(2, min(_AHEAD, _AHEAD_VALUES // plan.grid.points))
        running: deque[tuple[Key, PendingFetch[_GriddedSeries] | DrumlinError]] = deque()
        try:
            for found in self.resolutions(plan):
                running.append(self._begun(found, plan))
                while len(running) >= ahead or (running and _is_done(running[0][1])):
                    yield _settled(*running.popleft())
            while running:
                yield _settled(*running.popleft())
        finally:  # also when a caller has gone
            for _, outcome in running:
                if isinstance(outcome, PendingFetch):
                    outcome.cancel()

    def _begun(
        self, found: Resolution | Unresolved, plan: Plan
    ) -> tuple[Key, PendingFetch[_GriddedSeries] | DrumlinError]:
        if isinstance(found, Unresolved):
            return Key(found.entity, found.metric), found.error
        key = Key(self._resolver.short(found.entity), found.metric)
        try:
            return key, self.clients.submit(
                self._resolver.datasource(found), lambda client: self._one(client, key, found, plan)
            )
        except DrumlinError as error:  # it cannot be fetched from
            return key, error

    def _one(self, client: Client, key: Key, resolution: Resolution, plan: Plan) -> _GriddedSeries:
        grid = plan.grid
        days = None if isinstance(client, Parquet) else self.days  # files come later, and are as near as the cache
        gathered = gather(client, resolution, grid, days, self._clock())
        missing = gathered.values.null_count
        if missing == grid.points and not gathered.not_finite:
            raise _absence(client, resolution, grid)
        values = fill(gathered.values, plan.gaps)
        said = [f"{resolution.datasource}: {warning}" for warning in gathered.warnings]
        if gathered.not_finite:
            said.append(f"{gathered.not_finite} values were not finite (NaN or Inf) and are null")
        if filled := missing - values.null_count:
            said.append(f"{filled} of {grid.points} points were missing and are filled ({plan.gaps})")
        return _GriddedSeries(
            resolution=resolution,
            column=SeriesColumn(key, resolution.unit, values),
            coverage=(grid.points - missing) / grid.points,
            gaps=gaps_of(gathered.values, grid),
            warnings=tuple(f"{key.unique_id} {key.metric}: {each}" for each in (*resolution.warnings, *said)),
        )


def _absence(client: Client, resolution: Resolution, grid: Grid) -> MetricMissing:
    """Return why there is no point; where the server does not answer that, the error says so, and that there is none all the same."""
    try:
        return _explained(client, resolution, grid)
    except (DatasourceRefused, SourceUnavailable) as error:
        if isinstance(error, MetricMissing):
            raise
        return MetricMissing(
            f"datasource {resolution.datasource} has no point in the window; why could not be found out: {error}",
            hint="look whether its metric is there: drumlin datasources " + resolution.datasource,
            detail={"datasource": resolution.datasource, "query": resolution.query},
        )


def _explained(client: Client, resolution: Resolution, grid: Grid) -> MetricMissing:
    if isinstance(client, Prometheus):
        with suppress(InvalidDocument):  # a group's query may be longer than can be looked into
            return explain_absence(client, resolution.query, *grid.window)
    if isinstance(client, Parquet):
        return client.explain(resolution.query)
    if isinstance(client, InfluxDB):
        return lacking.explain(client, resolution.query)
    return MetricMissing(
        f"datasource {resolution.datasource} has nothing of it in the window",
        hint="take a longer window, or check the label names of the datasource in drumlin.toml",
        detail={"datasource": resolution.datasource, "query": resolution.query},
    )


def _unique(names: str | Sequence[str]) -> list[str]:
    return [names] if isinstance(names, str) else list(dict.fromkeys(names))


def _is_done(outcome: PendingFetch[_GriddedSeries] | DrumlinError) -> bool:
    return isinstance(outcome, DrumlinError) or outcome.done()


def _settled(key: Key, outcome: PendingFetch[_GriddedSeries] | DrumlinError) -> _GriddedSeries | SeriesFailure:
    try:
        if isinstance(outcome, DrumlinError):
            raise outcome
        return outcome.result()
    except Cancelled:
        raise
    except DrumlinError as error:
        _log.info("series_failed", entity=key.unique_id, metric=key.metric, reason=str(error))
        return SeriesFailure(key, error)


def _series(results: Sequence[_GriddedSeries], failures: Sequence[SeriesFailure], plan: Plan) -> SeriesTable:
    failed = [f"{each.key.unique_id} {each.key.metric} is missing: {each.error}" for each in failures]
    return SeriesTable(
        table=assemble([result.column for result in results], plan.grid, plan.gaps),
        grid=plan.grid,
        queries=tuple(result.resolution for result in results),
        coverage={result.column.key: result.coverage for result in results},
        gaps={result.column.key: result.gaps for result in results},
        warnings=(*failed, *(warning for result in results for warning in result.warnings)),
        failures=tuple(failures),
    )


def join(parts: Sequence[SeriesTable]) -> SeriesTable:
    """Return the parts of a stream (one at least) as one."""
    return SeriesTable(
        table=pa.concat_tables([part.table for part in parts]).unify_dictionaries(),
        grid=parts[0].grid,
        queries=tuple(query for part in parts for query in part.queries),
        coverage={key: share for part in parts for key, share in part.coverage.items()},
        gaps={key: found for part in parts for key, found in part.gaps.items()},
        warnings=tuple(warning for part in parts for warning in part.warnings),
        failures=tuple(failure for part in parts for failure in part.failures),
    )
