"""Fetching log lines from Loki: https://grafana.com/docs/loki/latest/reference/loki-http-api/. Every error of it is plain text.

Pages overlap: the next one begins at the time of the last line, not one nanosecond after it, and lines that were there already are
dropped; a cursor behind the last line loses those that have the same time (measured: 7 of 36,000).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, NamedTuple

import msgspec

from kg.telemetry.arrow import pa
from kg.telemetry.datasources import Datasource
from kg.telemetry.fetch.connection import Fetcher, Request, Told
from kg.telemetry.fetch.prometheus import Fetched, decode_values
from kg.telemetry.logql import nanoseconds
from kg.telemetry.series import MAX_POINTS, Grid, moment

RANGE_PATH = "/loki/api/v1/query_range"
PAGE = 5000
"""Lines of one answer; Loki's own default maximum."""
_LONGEST = 30 * 86_400  # seconds of one query; Loki's default is 30d1h
_CATEGORISED = {"X-Loki-Response-Encoding-Flags": "categorize-labels"}

Direction = Literal["forward", "backward"]


class Line(NamedTuple):
    """One log line: its time in nanoseconds, the labels of its stream, its text, and its own metadata."""

    at: int
    labels: tuple[tuple[str, str], ...]
    text: str
    metadata: tuple[tuple[str, str], ...] = ()


class _Stream(msgspec.Struct):
    stream: dict[str, str]
    values: list[list[Any]]


class _Streams(msgspec.Struct):
    resultType: str
    result: list[_Stream]


class _Series(msgspec.Struct):
    values: msgspec.Raw = msgspec.Raw(b"[]")


class _Matrix(msgspec.Struct):
    result: list[_Series]


class _LinesAnswer(msgspec.Struct):
    status: str
    data: _Streams


class _MatrixAnswer(msgspec.Struct):
    status: str
    data: _Matrix


class _LabelsAnswer(msgspec.Struct):
    status: str
    data: list[str] = []


class _BuildInfo(msgspec.Struct):
    version: str = ""


@dataclass(frozen=True, slots=True)
class Span:
    """What is read: from ``start`` to ``end`` (not included), in nanoseconds; at most ``limit`` lines."""

    start: int
    end: int
    limit: int


class Loki(Fetcher):
    """One configured Loki. Raises ``SourceUnavailable`` (no answer) and ``DatasourceRefused`` (an error as answer)."""

    def __init__(
        self, datasource: Datasource, *, sleep: Callable[[float], None] = time.sleep, page: int = PAGE
    ) -> None:
        super().__init__(datasource, _told, sleep=sleep)
        self._page = page

    def lines(self, query: str, span: Span, direction: Direction = "backward") -> Iterator[Line]:
        """Yield lines in order, page by page, each once: the oldest first (``forward``) or the newest (``backward``).

        A span longer than the server answers at once is read in parts. Raises ``DatasourceRefused`` when more lines than a page
        holds have the very same time: they cannot be told apart by it.
        """
        left = span.limit
        for part in _parts(span, direction):
            for line in self._within(query, Span(*part, left), direction):
                left -= 1
                yield line
            if not left:
                return

    def _within(self, query: str, span: Span, direction: Direction) -> Iterator[Line]:
        cursor = span.start if direction == "forward" else span.end - 1
        left, seen = span.limit, frozenset[Line]()
        while left > 0:
            size = min(self._page, left + len(seen))
            start, end = (cursor, span.end) if direction == "forward" else (span.start, cursor + 1)
            page = self._lines(query, start, end, size, direction)
            fresh = [line for line in page if line not in seen][:left]
            yield from fresh
            left -= len(fresh)
            if len(page) < size:
                return
            last = page[-1].at
            if not fresh and last == cursor:
                raise self._connection.refused(
                    f"has {size:,} lines or more of the time {last} ns",
                    query,
                    hint="filter for fewer lines, or for fewer pods",
                )
            seen = frozenset(line for line in page if line.at == last) | (seen if last == cursor else frozenset())
            cursor = last

    def series(self, query: str, grid: Grid) -> Fetched:
        """Fetch the one series of a metric query on a grid of any length."""
        parts = []
        for chunk in grid.chunks(max(1, min(MAX_POINTS, _LONGEST // grid.step))):
            form = {"query": query, "start": str(chunk.start), "end": str(chunk.end), "step": str(chunk.step)}
            result = self._decoded(Request("GET", RANGE_PATH, form, query), _MatrixAnswer).data.result
            if len(result) > 1:
                raise self._connection.refused(
                    f"answered with {len(result)} series where one was expected", query, hint="aggregate with sum()"
                )
            try:
                parts += [decode_values(bytes(each.values)) for each in result]
            except pa.ArrowException as error:
                raise self._connection.refused("answered with values that are no numbers", query) from error
        return Fetched(tuple(parts))

    def label_names(self, start: datetime, end: datetime) -> list[str]:
        """Return the label names of the streams that have lines in a span."""
        form = {"start": nanoseconds(start), "end": nanoseconds(end)}
        found: list[str] = self._decoded(Request("GET", "/loki/api/v1/labels", form, "labels"), _LabelsAnswer).data
        return found

    def oldest(self, label: str, now: datetime) -> datetime | None:
        """Return the time of the first line of the last 30 days (what one query may span), of the streams that have a label."""
        end = int(nanoseconds(now))
        lines = self.lines(f'{{{label}=~".+"}}', Span(end - _LONGEST * 10**9, end, 1), "forward")
        return next((moment(line.at // 10**9) for line in lines), None)

    def probe(self) -> str:
        """Return the server's version ("unknown" where its build does not say); raises when it does not answer like a Loki."""
        body = self._connection.ask(Request("GET", "/loki/api/v1/status/buildinfo", {}, "buildinfo"))
        try:
            return msgspec.json.decode(body, type=_BuildInfo).version or "unknown"
        except msgspec.MsgspecError as error:
            raise self._connection.not_its_api("something that is not Loki's JSON", "buildinfo") from error

    def _lines(self, query: str, start: int, end: int, limit: int, direction: Direction) -> list[Line]:
        form = {"query": query, "start": str(start), "end": str(end), "limit": str(limit), "direction": direction}
        request = Request("GET", RANGE_PATH, form, query, headers=_CATEGORISED)
        streams = self._decoded(request, _LinesAnswer).data.result
        try:
            found = [_line(stream, value) for stream in streams for value in stream.values]
        except (ValueError, IndexError, AttributeError, TypeError) as error:
            raise self._connection.not_its_api("lines that are not Loki's", query) from error
        return sorted(found, key=lambda line: line.at, reverse=direction == "backward")

    def _decoded(self, request: Request, kind: type[Any]) -> Any:
        body = self._connection.ask(request)
        try:
            return msgspec.json.decode(body, type=kind)
        except msgspec.MsgspecError as error:
            raise self._connection.not_its_api("something that is not Loki's JSON", request.asked) from error


def _parts(span: Span, direction: Direction) -> list[tuple[int, int]]:
    """Cut a span into parts that one query may have, in the order in which they are read."""
    longest = _LONGEST * 10**9
    parts = [(at, min(at + longest, span.end)) for at in range(span.start, span.end, longest)]
    return parts if direction == "forward" else parts[::-1]


def _line(stream: _Stream, value: list[Any]) -> Line:
    """Read one value: its metadata stands apart when the server categorises labels."""
    more = value[2].get("structuredMetadata", {}) if len(value) > 2 else {}
    return Line(int(value[0]), tuple(sorted(stream.stream.items())), str(value[1]), tuple(sorted(more.items())))


def _told(_status: int, body: bytes) -> Told:
    return Told(body[:300].decode(errors="replace"))
