"""InfluxDB 1.x: points of forecasts written as line protocol and read back. https://docs.influxdata.com/influxdb/v1/tools/api/.

A query that fails may be answered with 200 and an ``error`` inside the result, so every result is looked into.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Self

import msgspec

from kg.telemetry.datasources import Datasource
from kg.telemetry.fetch.connection import Connection, Request, Told

_BATCH = 5000  # points of one write; what InfluxDB recommends


class _Series(msgspec.Struct):
    name: str = ""
    columns: list[str] = []
    values: list[list[Any]] = []


class _Result(msgspec.Struct):
    series: list[_Series] = []
    error: str = ""


class _Answer(msgspec.Struct):
    results: list[_Result] = []
    error: str = ""


class InfluxDB:
    """One configured database. Raises ``SourceUnavailable`` (no answer) and ``DatasourceRefused`` (an error as answer)."""

    def __init__(self, datasource: Datasource, *, sleep: Callable[[float], None] = time.sleep) -> None:
        self._connection = Connection(datasource, _told, sleep=sleep)
        self.datasource = datasource

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._connection.close()

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
            self._connection.ask(Request("POST", "/write", form, f"a write of {len(batch):,} points", content))

    def read(self, measurement: str, tags: Mapping[str, str], fields: Sequence[str]) -> list[list[Any]]:
        """Return rows of milliseconds and the values of ``fields``, in order of time."""
        wanted = ",".join(_identifier(field) for field in fields)
        where = " AND ".join(f"{_identifier(key)}={_string(value)}" for key, value in sorted(tags.items()))
        query = f"SELECT {wanted} FROM {_identifier(measurement)} WHERE {where}"  # noqa: S608 - every part is quoted
        return [row for series in self._query(query) for row in series.values]

    def measurements(self) -> list[str]:
        """Return the names of the measurements; raises when there is no such database, which the listing alone would not tell."""
        list(self._query(f"SHOW RETENTION POLICIES ON {_identifier(self.datasource.database or '')}"))
        return [str(row[0]) for series in self._query("SHOW MEASUREMENTS") for row in series.values]

    def _query(self, query: str) -> Iterator[_Series]:
        form = {"db": self.datasource.database or "", "epoch": "ms", "q": query}
        body = self._connection.ask(Request("POST", "/query", form, query))
        try:
            answer = msgspec.json.decode(body, type=_Answer)
        except msgspec.MsgspecError as error:
            raise self._connection.not_its_api("something that is not InfluxDB's JSON", query) from error
        for result in answer.results:
            if result.error:
                raise self._connection.refused(f"answered with an error: {result.error}", query)
            yield from result.series


def _name(text: str) -> str:
    """Escape a measurement, tag or field of the line protocol, which has no way to write a line break."""
    return "".join(f"\\{character}" if character in ",= " else character for character in text.replace("\n", " "))


def _identifier(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _string(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _told(_status: int, body: bytes) -> Told:
    try:
        return Told(msgspec.json.decode(body, type=_Answer).error)
    except msgspec.MsgspecError:
        return Told(body[:300].decode(errors="replace"))
