"""Fetching log lines from Loki: https://grafana.com/docs/loki/latest/reference/loki-http-api/. Every error of it is plain text.

Pages overlap: the next one begins a nanosecond before the last line, and lines that were there already are dropped. A cursor behind the
last line loses those that have the same time (measured: 7 of 36,000); one at its time loses the last lines of a chunk, which Loki leaves
out when ``start`` equals their time (measured: 1 of 39,413). Limits of the server (lines per query, length of its span, bytes that it
reads) are learnt from its refusals: what is asked is split, not given up.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple
from urllib.parse import quote

import msgspec

from drumlin.kg.telemetry.arrow import pa
from drumlin.kg.telemetry.datasources import Datasource
from drumlin.kg.telemetry.durations import parse_duration
from drumlin.kg.telemetry.fetch.connection import UNREADABLE, DatasourceRequest, Fetcher, ServerMessage, TooHeavy
from drumlin.kg.telemetry.fetch.prometheus import Fetched, decode_values
from drumlin.kg.telemetry.logql import nanoseconds
from drumlin.kg.telemetry.series import MAX_POINTS, Grid, Samples, moment

RANGE_PATH = "/loki/api/v1/query_range"
PAGE = 5000
"""Lines of one answer; Loki's own default maximum."""
_LONGEST = 30 * 86_400  # seconds of one query; Loki's default is 30d1h
_SHORTEST = 1  # seconds of one query that is still split
_ENTRIES = re.compile(r"max_entries_limit[a-z_]* \([0-9]+ > ([0-9]+)\)")
_LENGTH = re.compile(r"query length: [^,]+, limit: ([0-9a-z]+)\)")
_HEAVY = ("max_entries_limit", "query time range exceeds the limit", "would read too many bytes")
_CATEGORISED = {"X-Loki-Response-Encoding-Flags": "categorize-labels"}

Direction = Literal["forward", "backward"]


class LogLine(NamedTuple):
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


class _LokiSeries(msgspec.Struct):
    values: msgspec.Raw = msgspec.Raw(b"[]")


class _LokiMatrix(msgspec.Struct):
    result: list[_LokiSeries]


class _LinesAnswer(msgspec.Struct):
    status: str
    data: _Streams


class _MatrixAnswer(msgspec.Struct):
    status: str
    data: _LokiMatrix


class _LabelsAnswer(msgspec.Struct):
    status: str
    data: list[str] = []


class _LokiBuildInfo(msgspec.Struct):
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
        self._longest = _LONGEST

    def lines(self, query: str, span: Span, direction: Direction = "backward") -> Iterator[LogLine]:
        """Yield lines in order, page by page, each once: the oldest first (``forward``) or the newest (``backward``).

        A span longer than the server answers at once is read in parts. Raises ``DatasourceRefused`` when more lines than a page
        holds have the very same time, or are next to each other: they cannot be told apart by it.
        """
        place = _Place(span, forward=direction == "forward")
        left, more = span.limit, 0
        while left > 0 and not place.is_over:
            start, end = place.window(self._longest * 10**9)
            size = min(self._page, left + len(place.seen) + more)
            try:
                page = self._lines(query, start, end, size, direction)
            except TooHeavy as error:
                self._adapt(error, end - start, size)
                continue
            fresh = place.fresh(page, start)[:left]
            yield from fresh
            left -= len(fresh)
            if len(page) < size or place.is_beyond(page[-1].at, start):
                place.finish(page, start, end)
            elif fresh or place.leads_on(page[-1].at):
                place.go_to(page)
            elif size == self._page:
                at = page[-1].at
                hint = "filter for fewer lines, or for fewer pods"
                raise self._connection.refused(f"has {size:,} lines or more of the time {at} ns", query, hint=hint)
            else:  # nothing but what was there before: ask for more of it
                more += size
                continue
            more = 0

    def _adapt(self, error: TooHeavy, length: int, size: int = 0) -> None:
        """Ask for less from now on, as a refusal says; raises it when there is no less to ask for.

        It was asked for ``size`` lines of ``length`` nanoseconds; another thread may have learnt the limit meanwhile.
        """
        said = str(error)
        if "max_entries_limit" in said:
            found = _ENTRIES.search(said)
            most = int(found[1]) if found else size // 2
            if not 0 < most < size:
                raise error
            self._page = min(self._page, most)
            return
        found = _LENGTH.search(said)
        longest = parse_duration(found[1]) // timedelta(seconds=1) - 1 if found else length // 2 // 10**9
        if longest < _SHORTEST or longest * 10**9 >= length:
            raise error
        self._longest = min(self._longest, longest)

    def series(self, query: str, grid: Grid) -> Fetched:
        """Fetch the one series of a metric query on a grid of any length."""
        parts: list[Samples] = []
        start = grid.start
        while start <= grid.end:
            points = max(1, min(MAX_POINTS, self._longest // grid.step))
            chunk = Grid(start, min(grid.end, start + (points - 1) * grid.step), grid.step)
            try:
                parts += self._range(query, chunk)
            except TooHeavy as error:
                self._adapt(error, (chunk.end - chunk.start) * 10**9)
                continue
            start = chunk.end + grid.step
        return Fetched(tuple(parts))

    def _range(self, query: str, chunk: Grid) -> list[Samples]:
        form = {"query": query, "start": str(chunk.start), "end": str(chunk.end), "step": str(chunk.step)}
        result = self._decoded(DatasourceRequest("GET", RANGE_PATH, form, query), _MatrixAnswer).data.result
        if len(result) > 1:
            raise self._connection.refused(
                f"answered with {len(result)} series where one was expected", query, hint="aggregate with sum()"
            )
        try:
            return [decode_values(bytes(each.values)) for each in result]
        except pa.ArrowException as error:
            raise self._connection.refused("answered with values that are no numbers", query) from error

    def label_names(self, start: datetime, end: datetime) -> list[str]:
        """Return the label names of the streams that have lines in a span."""
        form = {"start": nanoseconds(start), "end": nanoseconds(end)}
        found: list[str] = self._decoded(
            DatasourceRequest("GET", "/loki/api/v1/labels", form, "labels"), _LabelsAnswer
        ).data
        return found

    def label_values(self, label: str, start: datetime, end: datetime) -> list[str]:
        """Return the values of one label, of the streams that have lines in a span."""
        form = {"start": nanoseconds(start), "end": nanoseconds(end)}
        path = f"/loki/api/v1/label/{quote(label, safe='')}/values"
        found: list[str] = self._decoded(DatasourceRequest("GET", path, form, label), _LabelsAnswer).data
        return found

    def oldest(self, label: str, now: datetime) -> datetime | None:
        """Return the time of the first line of the last 30 days (what one query may span), of the streams that have a label."""
        end = int(nanoseconds(now))
        lines = self.lines(f'{{{label}=~".+"}}', Span(end - _LONGEST * 10**9, end, 1), "forward")
        return next((moment(line.at // 10**9) for line in lines), None)

    def probe(self) -> str:
        """Return the server's version ("unknown" where its build does not say); raises when it does not answer like a Loki."""
        body = self._connection.ask(DatasourceRequest("GET", "/loki/api/v1/status/buildinfo", {}, "buildinfo"))
        try:
            return msgspec.json.decode(body, type=_LokiBuildInfo).version or "unknown"
        except UNREADABLE as error:
            raise self._connection.not_its_api("something that is not Loki's JSON", "buildinfo") from error

    def _lines(self, query: str, start: int, end: int, limit: int, direction: Direction) -> list[LogLine]:
        form = {"query": query, "start": str(start), "end": str(end), "limit": str(limit), "direction": direction}
        request = DatasourceRequest("GET", RANGE_PATH, form, query, headers=_CATEGORISED)
        streams = self._decoded(request, _LinesAnswer).data.result
        try:
            found = [line for stream in streams for line in _lines_of(stream)]
        except (ValueError, IndexError, AttributeError, TypeError) as error:
            raise self._connection.not_its_api("lines that are not Loki's", query) from error
        return sorted(found, key=lambda line: line.at, reverse=direction == "backward")

    def _decoded(self, request: DatasourceRequest, kind: type[Any]) -> Any:
        body = self._connection.ask(request)
        try:
            return msgspec.json.decode(body, type=kind)
        except UNREADABLE as error:
            raise self._connection.not_its_api("something that is not Loki's JSON", request.asked) from error


class _Place:
    """How far reading has come. ``cursor`` is the time that is read next, ``seen`` are the lines that will come again.

    A query begins a nanosecond before what it is for. Read forward, that is before the cursor; read backward, before the window's end.
    """

    def __init__(self, span: Span, *, forward: bool) -> None:
        self._span = span
        self._forward = forward
        self.cursor = span.start if forward else span.end - 1
        self.seen: frozenset[LogLine] = frozenset()

    @property
    def is_over(self) -> bool:
        """Whether all of the span was read."""
        return self.cursor >= self._span.end if self._forward else self.cursor < self._span.start

    def window(self, longest: int) -> tuple[int, int]:
        """Return start and end (not included) of the next query, which is for ``longest`` nanoseconds at most."""
        if self._forward:
            return self.cursor - 1, min(self.cursor + longest, self._span.end)
        return max(self._span.start, self.cursor + 1 - longest) - 1, self.cursor + 1

    def fresh(self, page: Sequence[LogLine], start: int) -> list[LogLine]:
        """Return the lines of a page that are wanted and were not there before."""
        first = self.cursor if self._forward else start + 1
        seen = self.seen
        edge = (self.cursor,) if seen else ()  # no other time is in both pages
        return [line for line in page if line.at >= first and (line.at not in edge or line not in seen)]

    def is_beyond(self, at: int, start: int) -> bool:
        """Return whether a page that ends at this time has left its window."""
        return not self._forward and at <= start

    def leads_on(self, at: int) -> bool:
        """Return whether this time is further than the cursor."""
        return at > self.cursor if self._forward else at < self.cursor

    def go_to(self, page: Sequence[LogLine]) -> None:
        """Go on at the last line of a page that may not be the last one of its window."""
        last = page[-1].at
        margin = last - 1 if self._forward else last
        kept = (line for line in (*page, *self.seen) if (line.at >= margin if self._forward else line.at <= margin))
        self.seen, self.cursor = frozenset(kept), last

    def finish(self, page: Sequence[LogLine], start: int, end: int) -> None:
        """Go on behind a window that was read to its end."""
        self.seen = frozenset(line for line in page if line.at >= end - 1) if self._forward else frozenset()
        self.cursor = end if self._forward else start


def _lines_of(stream: _Stream) -> Iterator[LogLine]:
    """Yield the lines of a stream: their metadata stands apart when the server categorises labels."""
    labels = tuple(sorted(stream.stream.items()))
    for at, text, *more in stream.values:
        own = more[0].get("structuredMetadata", {}) if more else {}
        yield LogLine(int(at), labels, str(text), tuple(sorted(own.items())))


def _told(_status: int, body: bytes) -> ServerMessage:
    words = body[:300].decode(errors="replace")
    return ServerMessage(words, any(each in words for each in _HEAVY))
