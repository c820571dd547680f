"""The values of one resolved metric on its grid: from the day cache what is there, the rest from its datasource, by its own threads."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, NamedTuple, TypeVar

from drumlin.kg import cancellation
from drumlin.kg.errors import InvalidInput, SourceUnavailable
from drumlin.kg.telemetry import cache
from drumlin.kg.telemetry.arrow import pa
from drumlin.kg.telemetry.cache import DAY, SETTLED, DayCache
from drumlin.kg.telemetry.datasources import Datasource
from drumlin.kg.telemetry.fetch.influxdb import InfluxDB
from drumlin.kg.telemetry.fetch.loki import Loki
from drumlin.kg.telemetry.fetch.parquet import Parquet
from drumlin.kg.telemetry.fetch.prometheus import Prometheus
from drumlin.kg.telemetry.resolution import Resolution
from drumlin.kg.telemetry.series import Grid, Samples, place

Client = Prometheus | Loki | InfluxDB | Parquet
T = TypeVar("T")

DECODING = 2
"""Threads of a datasource beside those that wait for its answers: while they decode, it is asked the next."""
SEATS = 24
"""Threads that wait for one datasource at most: half of those that the service has for telemetry."""
_PATIENCE = 1.0  # seconds that one waits for a seat
_KINDS: Mapping[str, type[Prometheus | Loki | InfluxDB]] = {
    "prometheus": Prometheus,
    "loki": Loki,
    "influxdb": InfluxDB,
}


class PendingFetch(Generic[T]):
    """Work of a datasource's threads that one thread waits for; ``seats`` are shared by all that wait for that datasource."""

    def __init__(self, datasource: Datasource, future: Future[T], seats: threading.Semaphore) -> None:
        self._datasource, self._future, self._seats = datasource, future, seats

    def done(self) -> bool:
        """Return whether the work is done."""
        return self._future.done()

    def cancel(self) -> None:
        """Do not begin the work, if it has not begun."""
        self._future.cancel()

    def result(self) -> T:
        """Wait for the work; raises what it raises, ``SourceUnavailable`` when too many wait already, and ``Cancelled``."""
        if not self._future.done():
            if not self._seats.acquire(timeout=_PATIENCE):
                raise SourceUnavailable(
                    f"datasource {self._datasource.name} is slow: {SEATS} requests wait for it already",
                    hint="ask again later, or look at its load",
                    detail={"datasource": self._datasource.name},
                )
            try:
                cancellation.wait_for(self._future)
            finally:
                self._seats.release()
        return self._future.result()


class DatasourceClients:
    """A client of each datasource with threads of its own, which all callers share: many of them do not ask it more than one does.

    Nor does one that is slow keep anybody from the others: at most ``SEATS`` threads wait for it. ``sleep`` waits between two tries.
    """

    def __init__(self, sleep: Callable[[float], None]) -> None:
        self._sleep = sleep
        self._known: dict[str, tuple[Client, ThreadPoolExecutor]] = {}
        self._seats: defaultdict[str, threading.Semaphore] = defaultdict(lambda: threading.Semaphore(SEATS))
        self._lock = threading.Lock()

    def submit(self, datasource: Datasource, work: Callable[[Client], T]) -> PendingFetch[T]:
        """Have work done with the client of a datasource; raises ``SourceUnavailable`` for one that is not fetched from."""
        with self._lock:
            client, pool = self._known.get(datasource.iri) or self._known.setdefault(
                datasource.iri, self._begun(datasource)
            )
            return PendingFetch(datasource, pool.submit(work, client), self._seats[datasource.iri])

    def close(self) -> None:
        """Close all connections; what has been submitted ends by itself."""
        with self._lock:
            for client, pool in self._known.values():
                pool.shutdown(wait=False)
                client.close()
            self._known.clear()

    def _begun(self, datasource: Datasource) -> tuple[Client, ThreadPoolExecutor]:
        if datasource.kind not in _KINDS and datasource.kind != "parquet":
            raise InvalidInput(
                f"{datasource.name} is a {datasource.kind}, which has no series",
                hint="resolve it instead, and open the links of the answer: GET /resolve",
            )
        client: Client = (
            Parquet(datasource)
            if datasource.kind == "parquet"
            else _KINDS[datasource.kind](datasource, sleep=self._sleep)
        )
        asking = datasource.access.concurrency if datasource.access else 1
        return client, ThreadPoolExecutor(asking + DECODING, f"history-{datasource.name}")


@dataclass(slots=True)
class Gathered:
    """Values on the whole grid, null where there is none; ``not_finite`` counts NaN and Inf among the fetched ones."""

    values: pa.DoubleArray
    warnings: dict[str, None]
    not_finite: int = 0


class _Piece(NamedTuple):
    """A part of the grid, within one day when days are cached; ``day`` is all of that day, ``key`` its name when it is finished."""

    grid: Grid
    day: Grid
    key: bytes | None


def gather(client: Client, resolution: Resolution, grid: Grid, days: DayCache | None, now: datetime) -> Gathered:
    """Gather the values; raises what the client raises."""
    gathered = Gathered(pa.nulls(0, pa.float64()), {})
    if days is None or DAY % grid.step:
        gathered.values = _fetch(client, resolution, grid, gathered)
        return gathered
    pieces = list(_pieces(client, resolution, grid, int((now - SETTLED).timestamp())))
    known = days.get([piece.key for piece in pieces if piece.key], DAY // grid.step)
    found: list[pa.DoubleArray] = []
    for stretch in _stretches(pieces, known):
        first = stretch[0]
        if first.key in known:
            at = (first.grid.start - first.day.start) // grid.step
            found.append(known[first.key].slice(at, first.grid.points))
        else:
            found.append(_fetched(client, resolution, stretch, days, gathered))
    gathered.values = pa.concat_arrays(found)
    return gathered


def _pieces(client: Client, resolution: Resolution, grid: Grid, settled: int) -> Iterator[_Piece]:
    """Cut the grid at midnights (UTC), and name the days that are finished."""
    for midnight in range(grid.start // DAY * DAY, grid.end + 1, DAY):
        day = Grid(midnight, midnight + DAY - grid.step, grid.step)
        piece = Grid(max(grid.start, day.start), min(grid.end, day.end), grid.step)
        finished = midnight + DAY <= settled and resolution.question is not None
        name = (
            cache.key(client.datasource, resolution.question.identity(day), day)
            if finished and resolution.question
            else None
        )
        yield _Piece(piece, day, name)


def _stretches(pieces: list[_Piece], known: dict[bytes, pa.DoubleArray]) -> Iterator[list[_Piece]]:
    """Yield each known day alone, and the days between them that have to be fetched together."""
    waiting: list[_Piece] = []
    for piece in pieces:
        if piece.key not in known:
            waiting.append(piece)
            continue
        if waiting:
            yield waiting
            waiting = []
        yield [piece]
    if waiting:
        yield waiting


def _fetched(
    client: Client, resolution: Resolution, stretch: list[_Piece], days: DayCache, gathered: Gathered
) -> pa.DoubleArray:
    """Fetch a stretch of days in one go, and keep those that are whole, finished, and of which there is something."""
    grid = Grid(stretch[0].grid.start, stretch[-1].grid.end, stretch[0].grid.step)
    warned = len(gathered.warnings)
    values = _fetch(client, resolution, grid, gathered)
    if len(gathered.warnings) == warned:
        whole = [
            (piece.key, piece.day, values.slice((piece.day.start - grid.start) // grid.step, piece.day.points))
            for piece in stretch
            if piece.key and piece.grid == piece.day
        ]
        days.put(each for each in whole if each[2].null_count < len(each[2]))
    return values


def _fetch(client: Client, resolution: Resolution, grid: Grid, gathered: Gathered) -> pa.DoubleArray:
    """Ask for a grid, with as many queries as its pods need."""
    samples: list[Samples] = []
    for part in resolution.asked_for(grid):
        fetched = client.series(part.query, part.grid)
        gathered.warnings.update(dict.fromkeys(fetched.warnings))
        samples += fetched.parts
    placed = place(samples, grid)
    gathered.not_finite += placed.not_finite
    return placed.values
