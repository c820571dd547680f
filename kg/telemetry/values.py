"""The current values of many entities, for schedulers and rankers: a few queries for all of them, and why what is missing is missing."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, Protocol

from drumlin.kg.errors import DrumlinError, InvalidInput, MetricMissing, TooLarge
from drumlin.kg.telemetry import current
from drumlin.kg.telemetry.arrow import pa
from drumlin.kg.telemetry.current import Asked, Current
from drumlin.kg.telemetry.fetch.prometheus import Prometheus
from drumlin.kg.telemetry.gathering import Client, DatasourceClients, PendingFetch
from drumlin.kg.telemetry.missing import explain_absence
from drumlin.kg.telemetry.resolution import Unresolved
from drumlin.kg.telemetry.series import Grid, Key, Window, choose_step, moment, place

DEFAULT_WINDOW = timedelta(minutes=5)
"""How far rates and increases look back, unless four scrapes take longer."""
LONGEST_WINDOW = timedelta(days=1)
MAX_WANTED = 200_000
_POINTS = 3  # of a server that knows series alone, of which the last counts


@dataclass(frozen=True, slots=True)
class CurrentValue:
    """One value. ``time`` is that of the newest sample it comes from (of several pods: the least new), where the server says so.

    ``age`` is in seconds.
    """

    key: Key
    value: float
    unit: str
    time: datetime
    age: float
    datasource: str


@dataclass(frozen=True, slots=True)
class CurrentValues:
    """Values in the order of the request, missing ones with their reasons, warnings of the servers, and the queries that were run."""

    at: datetime
    values: tuple[CurrentValue, ...]
    missing: tuple[tuple[Key, DrumlinError], ...]
    warnings: tuple[str, ...]
    queries: tuple[tuple[str, str], ...]

    def table(self) -> pa.Table:
        """Return the values as a table: entity, metric, value, unit, time, age, datasource."""
        rows = self.values
        columns: dict[str, list[Any]] = {
            "entity": [each.key.unique_id for each in rows],
            "metric": [each.key.metric for each in rows],
            "value": [each.value for each in rows],
            "unit": [each.unit for each in rows],
            "time": [each.time for each in rows],
            "age": [each.age for each in rows],
            "datasource": [each.datasource for each in rows],
        }
        return pa.table(columns, schema=schema())

    def account(self) -> dict[str, Any]:
        """Return what belongs to the table: time, what is missing and why, warnings, queries by datasource."""
        return {
            "at": self.at.isoformat().replace("+00:00", "Z"),
            "missing": [
                {
                    "entity": key.unique_id,
                    "metric": key.metric,
                    "error": type(error).__name__,
                    "detail": str(error),
                    **({"hint": error.hint} if error.hint else {}),
                }
                for key, error in self.missing
            ],
            "warnings": list(self.warnings),
            "queries": [{"datasource": name, "query": query} for name, query in self.queries],
        }


@cache
def schema() -> pa.Schema:
    """Return the schema of the table."""
    text = pa.string()
    columns = {"entity": text, "metric": text, "value": pa.float64(), "unit": text}
    columns |= {"time": pa.timestamp("ms", "UTC"), "age": pa.float64(), "datasource": text}
    return pa.schema(list(columns.items()))


class ResolvesCurrent(Protocol):
    """What current values need of a resolver."""

    def short(self, iri: str) -> str:
        """Return the short id of an IRI."""

    def current(
        self,
        pairs: Iterable[tuple[str, str]],
        at: datetime,
        window: timedelta,
        *,
        datasource: str | None,
        unit: Sequence[str],
    ) -> Iterator[Current | Unresolved]:
        """Resolve pairs of entity and metric for one time, in order."""


@dataclass(slots=True)
class _SampleSum:
    """What a query's series said of one entity: the sum, the least new time, whether a value was not finite."""

    total: float = 0.0
    values: int = 0
    time: float | None = None

    def take(self, said: str, value: float) -> None:
        if said == current.TIME:
            self.time = value if self.time is None else min(self.time, value)
        else:
            self.total += value
            self.values += 1


class Values:
    """Fetches current values. Blocks; for many threads. ``clients`` are shared with whatever else asks the datasources."""

    def __init__(self, resolver: ResolvesCurrent, clients: DatasourceClients, *, clock: Callable[[], datetime]) -> None:
        self._resolver = resolver
        self._clients = clients
        self._clock = clock

    def fetch(
        self,
        entities: Sequence[str],
        metrics: Sequence[str],
        *,
        at: datetime | None = None,
        window: timedelta = DEFAULT_WINDOW,
        datasource: str | None = None,
        unit: Sequence[str] = (),
    ) -> CurrentValues:
        """Return the values of every metric of every entity (IRI or short id) ``at`` a time (now).

        Nothing that cannot be had stops the rest: it is listed as missing, also when all is. Raises ``InvalidInput`` for no metric or a
        window that cannot be, ``TooLarge`` for too many.
        """
        if not metrics:
            raise InvalidInput("no metric was named", hint="metric=cpu_usage&metric=mem_usage")
        if len(entities) * len(metrics) > MAX_WANTED:
            raise TooLarge(
                f"{len(entities) * len(metrics):,} values; the limit is {MAX_WANTED:,}", hint="narrow the entities"
            )
        if not timedelta(seconds=1) <= window <= LONGEST_WINDOW:
            raise InvalidInput("the window of a rate is 1s to 1d")
        when = at or self._clock()
        pairs = [(entity, metric) for entity in entities for metric in metrics]
        resolved = list(self._resolver.current(pairs, when, window, datasource=datasource, unit=unit))
        outcomes = self._outcomes([each for each in resolved if isinstance(each, Current)], when)
        values: list[CurrentValue] = []
        missing: list[tuple[Key, DrumlinError]] = []
        for found in resolved:
            if isinstance(found, Unresolved):
                missing.append((Key(found.entity, found.metric), found.error))
                continue
            key = Key(self._resolver.short(found.entity), found.metric)
            outcome = outcomes.of[id(found)]
            if isinstance(outcome, DrumlinError):
                missing.append((key, outcome))
            else:
                value, time = outcome
                age = max(0.0, when.timestamp() - time)
                newest = datetime.fromtimestamp(time, UTC)
                values.append(CurrentValue(key, value, found.unit, newest, age, found.server.name))
        return CurrentValues(
            when, tuple(values), tuple(missing), tuple(outcomes.warnings), tuple(dict.fromkeys(outcomes.queries))
        )

    def _outcomes(self, wanted: Sequence[Current], at: datetime) -> _Outcomes:
        found = _Outcomes()
        running: list[tuple[tuple[Current, ...], PendingFetch[_Outcomes]]] = []
        for asked in _asked(wanted):
            try:
                work = _question(asked, at)
                running.append((asked.of, self._clients.submit(asked.server, work)))
            except DrumlinError as error:  # it is not fetched from
                found.of |= {id(each): error for each in asked.of}
        for members, future in running:
            try:
                found.add(future.result())
            except DrumlinError as error:
                found.of |= {id(each): error for each in members}
        return found


class _Outcomes:
    """What became of what was asked for, by the identity of each ``Current``: value and time in seconds, or the error."""

    def __init__(self) -> None:
        self.of: dict[int, tuple[float, float] | DrumlinError] = {}
        self.warnings: dict[str, None] = {}
        self.queries: list[tuple[str, str]] = []

    def add(self, other: _Outcomes) -> None:
        """Take in those of one query."""
        self.of |= other.of
        self.warnings |= other.warnings
        self.queries += other.queries


def _asked(wanted: Sequence[Current]) -> Iterator[Asked]:
    yield from current.queries(each for each in wanted if each.server.kind == "prometheus")
    for each in wanted:
        if each.server.kind != "prometheus":
            yield Asked(each.server, each.query(), (each,), lambda _: [0])


def _question(asked: Asked, at: datetime) -> Callable[[Client], _Outcomes]:
    def ask(client: Client) -> _Outcomes:
        found = _instant(client, asked, at) if isinstance(client, Prometheus) else _last(client, asked, at)
        found.queries.append((asked.server.name, asked.query))
        return found

    return ask


def _instant(client: Prometheus, asked: Asked, at: datetime) -> _Outcomes:
    series, warnings = client.instant(asked.query, at)
    readings: defaultdict[int, _SampleSum] = defaultdict(_SampleSum)
    for labels, value in series:
        for number in asked.owner(labels):
            readings[number].take(labels.get(current.SAID, current.VALUE), value)
    found = _Outcomes()
    found.warnings = {f"{asked.server.name}: {each}": None for each in warnings}
    absent = [number for number in range(len(asked.of)) if not readings[number].values]
    reason = _absence(client, asked, at, everything=len(absent) == len(asked.of)) if absent else None
    for number, each in enumerate(asked.of):
        reading = readings[number]
        if not reading.values and reason is not None:
            found.of[id(each)] = reason
        elif not math.isfinite(reading.total):
            found.of[id(each)] = _missing(asked, "its value is not finite (NaN or Inf)")
        else:
            found.of[id(each)] = (reading.total, at.timestamp() if reading.time is None else reading.time)
    return found


def _absence(client: Prometheus, asked: Asked, at: datetime, *, everything: bool) -> DrumlinError:
    """Return why there is no value; examined only where all entities lack one."""
    if everything and asked.about_all:
        with suppress(DrumlinError):  # it cannot say why
            return explain_absence(client, asked.about_all, at - timedelta(hours=1), at)
    return _missing(asked, f"datasource {asked.server.name} has no current sample of it")


def _last(client: Client, asked: Asked, at: datetime) -> _Outcomes:
    """Take the last point of a short series, from a server that knows series alone."""
    (wanted,) = asked.of
    step = choose_step(Window(at - wanted.window, at), wanted.window, timedelta(0))
    grid = Grid.over(Window(at - _POINTS * step, at), step)
    assert not isinstance(client, Prometheus)
    fetched = client.series(asked.query, grid)
    values = place(list(fetched.parts), grid).values.to_pylist()
    found = _Outcomes()
    found.warnings = {f"{asked.server.name}: {each}": None for each in fetched.warnings}
    last = next((n for n in reversed(range(len(values))) if values[n] is not None), None)
    if last is None:
        found.of[id(wanted)] = _missing(asked, f"datasource {asked.server.name} has no current sample of it")
    else:
        found.of[id(wanted)] = (values[last], float(moment(grid.start + last * grid.step).timestamp()))
    return found


def _missing(asked: Asked, what: str) -> MetricMissing:
    return MetricMissing(what, detail={"datasource": asked.server.name})
