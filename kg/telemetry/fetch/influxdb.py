"""InfluxDB 1.x, or 2.x by the API of 1.x: series read, points of forecasts written as line protocol and read back. https://docs.influxdata.com/influxdb/v1/tools/api/.

A query that fails may be answered with 200 and an ``error`` inside the result, so every result is looked into.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from itertools import count, islice
from typing import Any, Literal

import msgspec

from drumlin.kg.errors import DatasourceRefused
from drumlin.kg.telemetry.arrow import pa
from drumlin.kg.telemetry.datasources import Datasource
from drumlin.kg.telemetry.fetch.connection import UNREADABLE, DatasourceRequest, Fetcher, ServerMessage
from drumlin.kg.telemetry.fetch.prometheus import Fetched
from drumlin.kg.telemetry.influxql import identifier, string
from drumlin.kg.telemetry.series import Grid, Samples, moment

QUERY_PATH = "/query"
_PAGE = 50_000  # points of one answer
_BATCH = 5000  # points of one write; what InfluxDB recommends


class _Series(msgspec.Struct):
    name: str = ""
    columns: list[str] = []
    values: list[list[Any]] = []


class _StatementResult(msgspec.Struct):
    series: list[_Series] = []
    error: str = ""


class _QueryResponse(msgspec.Struct):
    results: list[_StatementResult] = []
    error: str = ""


class InfluxDB(Fetcher):
    """One configured database. Raises ``SourceUnavailable`` (no answer) and ``DatasourceRefused`` (an error as answer)."""

    def __init__(self, datasource: Datasource, *, sleep: Callable[[float], None] = time.sleep) -> None:
        super().__init__(datasource, _told, sleep=sleep)

    def write(
        self, measurement: str, tags: Mapping[str, str], points: Iterable[tuple[int, Mapping[str, float]]]
    ) -> None:
        """Write points: milliseconds since the epoch and at least one field each. The same point written again replaces itself."""
        head = ",".join([_name(measurement), *(f"{_name(key)}={_name(value)}" for key, value in sorted(tags.items()))])
        written = (
            f"{head} {','.join(f'{_name(key)}={value!r}' for key, value in fields.items())} {at}"
            for at, fields in points
        )
        while batch := list(islice(written, _BATCH)):
            form = {"db": self.datasource.database or "", "precision": "ms"}
            content = "\n".join(batch).encode()
            self._connection.ask(
                DatasourceRequest("POST", "/write", form, f"a write of {len(batch):,} points", content)
            )

    def read(self, measurement: str, tags: Mapping[str, str]) -> dict[str, list[Any]]:
        """Return all points of a measurement with these tags, in order of time: ``ds`` in milliseconds, and a column per field."""
        where = " AND ".join(f"{identifier(key)} = {string(value)}" for key, value in sorted(tags.items()))
        query = f"SELECT *::field FROM {identifier(measurement)} WHERE {where} LIMIT {_PAGE}"  # noqa: S608 - every part is quoted
        found: dict[str, list[Any]] = {"ds": []}
        for page in count():
            rows = 0
            for series in self._query(f"{query} OFFSET {page * _PAGE}"):
                rows += len(series.values)
                for name, column in zip(series.columns, zip(*series.values, strict=True), strict=True):
                    found.setdefault("ds" if name == "time" else name, []).extend(column)
            if rows < _PAGE:
                return found
        raise AssertionError("unreachable")

    def series(self, query: str, grid: Grid) -> Fetched:
        """Fetch the one series of a query on a grid of any length, in chunks; its buckets end at the grid's points."""
        parts = [self._buckets(query, chunk) for chunk in grid.chunks()]
        return Fetched(tuple(part for part in parts if len(part.seconds)))

    def _buckets(self, query: str, grid: Grid) -> Samples:
        found = list(self._query(query, bounds(self.datasource, grid)))
        if len(found) > 1:
            raise self._connection.refused(f"answered with {len(found)} series where one was expected", query)
        rows = [(row[0] // 1000 + grid.step, row[1]) for each in found for row in each.values if row[1] is not None]
        rows = [row for row in rows if grid.start <= row[0] <= grid.end]
        try:
            seconds, values = zip(*rows, strict=True) if rows else ((), ())
            return Samples(pa.array(seconds, pa.int64()), pa.array(values, pa.float64()))
        except pa.ArrowException as error:
            raise self._connection.refused("answered with values that are no numbers", query) from error

    def version(self) -> str:
        """Return the server's version ("unknown" where it does not say, such as a 2.x)."""
        found: list[_Series] = []
        with suppress(DatasourceRefused):
            found = list(self._query("SHOW DIAGNOSTICS"))
        said = next(
            (dict(zip(each.columns, each.values[0], strict=False)) for each in found if each.name == "build"), {}
        )
        return str(said.get("Version", "unknown"))

    def oldest(self, measurement: str, field: str) -> datetime | None:
        """Return the time of a field's first point, or None when there is none."""
        query = f"SELECT first({identifier(field)}) FROM {identifier(measurement)}"  # noqa: S608 - every part is quoted
        rows = [row for series in self._query(query) for row in series.values]
        return moment(rows[0][0] // 1000) if rows else None

    def names(self, what: Literal["FIELD", "TAG"], measurement: str) -> list[str]:
        """Return the names of a measurement's fields or tags."""
        found = self._query(f"SHOW {what} KEYS FROM {identifier(measurement)}")
        return [str(row[0]) for series in found for row in series.values]

    def tag_values(self, tag: str, measurement: str) -> list[str]:
        """Return the values of a tag of a measurement."""
        found = self._query(f"SHOW TAG VALUES FROM {identifier(measurement)} WITH KEY = {identifier(tag)}")
        return [str(row[1]) for series in found for row in series.values]

    def measurements(self) -> list[str]:
        """Return the names of the measurements; raises when there is no such database, which the listing alone would not show."""
        try:
            list(self._query(f"SHOW RETENTION POLICIES ON {identifier(self.datasource.database or '')}"))
        except DatasourceRefused as error:  # a 2.x knows no policies, but says so of what it has no bucket for
            if "not found" in str(error):
                raise
        return [str(row[0]) for series in self._query("SHOW MEASUREMENTS") for row in series.values]

    def _query(self, query: str, form: Mapping[str, str] | None = None) -> Iterator[_Series]:
        form = {"db": self.datasource.database or "", "epoch": "ms", "q": query, **(form or {})}
        body = self._connection.ask(DatasourceRequest("POST", "/query", form, query))
        try:
            answer = msgspec.json.decode(body, type=_QueryResponse)
        except UNREADABLE as error:
            raise self._connection.not_its_api("something that is not InfluxDB's JSON", query) from error
        for result in answer.results:
            if result.error:
                raise self._connection.refused(f"answered with an error: {result.error}", query)
            yield from result.series


def bounds(datasource: Datasource, grid: Grid) -> dict[str, str]:
    """Return the parameters of a query for a grid: from a step and some scrapes before it, since a difference needs the point before."""
    earlier = grid.step + max(grid.step, 4 * int(datasource.scrape_interval.total_seconds()))
    span = {"start": (grid.start - earlier) * 10**9, "end": grid.end * 10**9}
    return {"params": msgspec.json.encode(span).decode()}


def _name(text: str) -> str:
    """Escape a measurement, tag or field of the line protocol, which has no way to write a line break."""
    return "".join(f"\\{character}" if character in ",= " else character for character in text.replace("\n", " "))


def _told(_status: int, body: bytes) -> ServerMessage:
    try:
        return ServerMessage(msgspec.json.decode(body, type=_QueryResponse).error)
    except UNREADABLE:
        return ServerMessage(body[:300].decode(errors="replace"))
