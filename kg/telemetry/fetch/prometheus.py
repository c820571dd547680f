"""Fetching from Prometheus and what speaks like it (Thanos, Mimir, VictoriaMetrics): blocking, for use by many threads.

Queries go as POST forms (a long list of pods does not fit into a URL), with whole seconds. Values are decoded by msgspec and pyarrow
without ever becoming Python objects. API: https://prometheus.io/docs/prometheus/latest/querying/api/.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Generic, Literal, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from drumlin.kg.errors import DatasourceRefused, InvalidInput
from drumlin.kg.telemetry.arrow import csv, pa, pc
from drumlin.kg.telemetry.datasources import Datasource, Language
from drumlin.kg.telemetry.durations import parse_duration
from drumlin.kg.telemetry.fetch.connection import UNREADABLE, DatasourceRequest, Fetcher, Form, ServerMessage, TooHeavy
from drumlin.kg.telemetry.series import MAX_POINTS, Grid, Samples

RANGE_PATH = "/api/v1/query_range"
INSTANT_PATH = "/api/v1/query"
MAX_HALVINGS = 4
_NO_POST = frozenset({405, 501})
_NO_POST_OF_INDEX = _NO_POST | {403, 404}  # prom-label-proxy and others know labels and series as GET only
_LONGEST_FORM = 6000  # characters that fit into an address anywhere
_CONTAINERS = 4  # series that a pod may have of one metric

T = TypeVar("T")


class _RangeSeries(msgspec.Struct):
    metric: dict[str, str]
    values: msgspec.Raw = msgspec.Raw(b"[]")
    histograms: msgspec.Raw = msgspec.Raw(b"[]")


class _Matrix(msgspec.Struct):
    resultType: Literal["matrix"]  # a vector's points would be taken for none
    result: list[_RangeSeries]


class _Target(msgspec.Struct):
    labels: dict[str, str] = {}
    scrapeInterval: str = ""


class _Targets(msgspec.Struct):
    activeTargets: list[_Target]


class _Point(msgspec.Struct):
    metric: dict[str, str]
    value: tuple[float, str]


class _Vector(msgspec.Struct):
    resultType: Literal["vector"]
    result: list[_Point]


class FiringAlert(msgspec.Struct):
    """An alert as Prometheus lists it; ``state`` is pending or firing."""

    labels: dict[str, str]
    annotations: dict[str, str] = {}
    state: str = "firing"
    activeAt: str = ""
    value: str = ""


class _Alerts(msgspec.Struct):
    alerts: list[FiringAlert] = []


class Described(msgspec.Struct):
    """What a target says of a metric: its type, what it is, and its unit, which is mostly empty."""

    type: str = ""
    help: str = ""
    unit: str = ""


class _BuildInfo(msgspec.Struct):
    version: str = "unknown"


class _Error(msgspec.Struct):
    error: str = ""
    errorType: str = ""


class _ApiResponse(msgspec.Struct, Generic[T]):
    status: str
    data: T | None = None
    error: str = ""
    warnings: list[str] = []


@dataclass(frozen=True, slots=True)
class Fetched:
    """One series as it came, in parts of ascending time; empty when the server has no point of it."""

    parts: tuple[Samples, ...]
    warnings: tuple[str, ...] = ()


class Prometheus(Fetcher):
    """One configured datasource. Raises ``SourceUnavailable`` (no answer) and ``DatasourceRefused`` (an error as answer)."""

    def __init__(self, datasource: Datasource, *, sleep: Callable[[float], None] = time.sleep) -> None:
        super().__init__(datasource, _told, sleep=sleep)

    def series(self, query: str, grid: Grid) -> Fetched:
        """Fetch the one series of a query on a grid of any length, in chunks that the server's limits of points and samples allow.

        A chunk that is too heavy for the server all the same is halved, a few times at most.
        """
        parts: list[Samples] = []
        warnings: dict[str, None] = {}
        pending = [(chunk, 0) for chunk in grid.chunks(self._most_points(query))][::-1]
        while pending:
            chunk, halvings = pending.pop()
            try:
                samples, said = self._range(query, chunk)
            except TooHeavy:
                if halvings == MAX_HALVINGS or chunk.points < 2:
                    raise
                first, second = chunk.halves()
                pending += [(second, halvings + 1), (first, halvings + 1)]
                continue
            warnings.update(dict.fromkeys(said))
            if samples is not None:
                parts.append(samples)
        return Fetched(tuple(parts), tuple(warnings))

    def _most_points(self, query: str) -> int:
        """Compute how many points of a query the server's limit of samples allows: of each pod named in it, some containers.

        A grouping holds its groups beside what is grouped.
        """
        series = _CONTAINERS * (1 + query.count("|")) * (1 + query.count(" by ("))
        return max(1, min(MAX_POINTS, self._connection.access.max_samples // series))

    def instant(self, query: str, at: datetime) -> tuple[list[tuple[dict[str, str], float]], list[str]]:
        """Return the series of a query at one time, each with its labels and value (which may be no finite number), and warnings."""
        form = {"query": query, "time": str(int(at.timestamp())), "timeout": f"{self._connection.access.timeout:g}"}
        request = DatasourceRequest("POST", INSTANT_PATH, form, query)
        answer, found = self._read(self._connection.ask(request), request, _Vector)
        return [(each.metric, float(each.value[1])) for each in found.result], answer.warnings

    def label_names(self, match: str, start: datetime, end: datetime) -> list[str]:
        """Return the label names of the series that a selector matches; empty when it matches none."""
        form = {"match[]": match, **_span(start, end)}
        return self._real(self._get(DatasourceRequest("POST", "/api/v1/labels", form, match), list[str]), form)

    def label_names_of_all(self, start: datetime, end: datetime) -> list[str]:
        """Return the label names of all series of a span; empty when it has none."""
        form = {"match[]": '{__name__!=""}', **_span(start, end)}
        return self._real(
            self._get(DatasourceRequest("GET", "/api/v1/labels", _span(start, end), "labels"), list[str]), form
        )

    def _real(self, names: list[str], form: Form) -> list[str]:
        """Return label names; VictoriaMetrics names ``__name__`` also where it has no series at all."""
        if names != ["__name__"]:
            return names
        return (
            names
            if self._get(DatasourceRequest("POST", "/api/v1/series", form, "series"), list[dict[str, str]])
            else []
        )

    def label_values(
        self, label: str, start: datetime, end: datetime, match: str | Sequence[str] | None = None
    ) -> list[str]:
        """Return the values of one label, of the series that ``match``, one selector or any of several, selects when it is given."""
        form: Form = {**_span(start, end), **({"match[]": match} if match else {})}
        path = f"/api/v1/label/{quote(label, safe='')}/values"
        return self._get(DatasourceRequest("GET", path, form, str(match or label)), list[str])

    def labels_of(self, match: str, start: datetime, end: datetime) -> list[dict[str, str]]:
        """Return the labels of each series that a selector matches in a span."""
        form: Form = {"match[]": match, **_span(start, end)}
        return self._get(DatasourceRequest("POST", "/api/v1/series", form, match), list[dict[str, str]])

    def alerts(self) -> list[FiringAlert]:
        """Return the alerts that are pending or firing by the server's own rules."""
        return self._get(DatasourceRequest("GET", "/api/v1/alerts", {}, "alerts"), _Alerts).alerts

    def metadata(self) -> dict[str, Described]:
        """Return what targets say of their metrics, by name; empty where the server keeps none (remote write, VictoriaMetrics)."""
        try:
            said = self._get(DatasourceRequest("GET", "/api/v1/metadata", {}, "metadata"), dict[str, list[Described]])
        except DatasourceRefused:
            return {}
        return {name: each[0] for name, each in said.items() if each}

    def probe(self) -> str:
        """Return the server's version; raises when it does not answer like a Prometheus."""
        return self._get(DatasourceRequest("GET", "/api/v1/status/buildinfo", {}, "buildinfo"), _BuildInfo).version

    def language(self) -> Language:
        """Return what the server computes counters with: MetricsQL when it knows a function of its own."""
        query = "increase_prometheus(up[1m])"
        try:
            self._get(DatasourceRequest("POST", "/api/v1/query", {"query": query}, query), _Vector)
        except DatasourceRefused:
            return "promql"
        return "metricsql"

    def scrape_intervals(self) -> dict[str, timedelta]:
        """Return how often each job's targets are scraped, the longest of each: as the server has it configured, else as ``up`` shows.

        Empty when the server scrapes nothing and nobody sent it an ``up`` in the last hour.
        """
        asked = DatasourceRequest("GET", "/api/v1/targets", {"state": "active"}, "targets")
        try:
            targets = self._get(asked, _Targets).activeTargets
        except DatasourceRefused:  # Mimir and others have none
            targets = []
        found: dict[str, timedelta] = {}
        for target in targets:
            with suppress(InvalidInput):  # a server that writes them in its own way
                length = parse_duration(target.scrapeInterval)
                job = target.labels.get("job", "")
                found[job] = max(length, found.get(job, length))
        return found or self._seen()

    def number(self, query: str, at: datetime) -> float | None:
        """Return the value of a query of one number at a time; None when there is none."""
        form = {"query": query, "time": str(int(at.timestamp()))}
        points = self._get(DatasourceRequest("POST", "/api/v1/query", form, query), _Vector).result
        return float(points[0].value[1]) if points else None

    def _seen(self) -> dict[str, timedelta]:
        """Count the scrapes of the last hour, by the target of each job that has most."""
        form = {"query": "max by (job) (count_over_time(up[1h]))"}
        points = self._get(DatasourceRequest("POST", INSTANT_PATH, form, form["query"]), _Vector).result
        return {each.metric.get("job", ""): _interval(float(each.value[1])) for each in points}

    # -- one answer ---------------------------------------------------------------------------------------------------
    def _range(self, query: str, grid: Grid) -> tuple[Samples | None, list[str]]:
        form = {"query": query, "start": str(grid.start), "end": str(grid.end), "step": str(grid.step)}
        form["timeout"] = f"{self._connection.access.timeout:g}"
        request = DatasourceRequest("POST", RANGE_PATH, form, query)
        body = self._asked(request, _NO_POST)
        with suppress(pa.ArrowException):
            if (values := _lone(body)) is not None:
                return decode_values(values), []
        answer, found = self._read(body, request, _Matrix)
        result = found.result
        if len(result) > 1:
            raise self._connection.refused(
                f"answered with {len(result)} series where one was expected", query, hint="aggregate with sum()"
            )
        if not result:
            return None, answer.warnings
        if bytes(result[0].histograms) != b"[]":
            raise self._connection.refused(
                "answered with native histograms", query, hint="wrap the query in histogram_quantile() or -_sum()"
            )
        try:
            return decode_values(result[0].values), answer.warnings
        except pa.ArrowException as error:
            raise self._connection.refused("answered with values that are no numbers", query) from error

    def _get(self, request: DatasourceRequest, kind: type[T]) -> T:
        return self._read(self._asked(request, _NO_POST_OF_INDEX), request, kind)[1]

    def _asked(self, request: DatasourceRequest, refusals: frozenset[int]) -> bytes:
        """Return what is answered to a request; to a GET where a proxy refuses the POST and what is asked fits into an address."""
        try:
            return self._connection.ask(request)
        except DatasourceRefused as error:
            if (
                request.method != "POST"
                or error.detail.get("status") not in refusals
                or _length(request) > _LONGEST_FORM
            ):
                raise
        return self._connection.ask(replace(request, method="GET"))

    def _read(self, body: bytes, request: DatasourceRequest, kind: type[T]) -> tuple[_ApiResponse[T], T]:
        try:
            answer: _ApiResponse[T] = msgspec.json.decode(body, type=_ApiResponse[kind])  # type: ignore[valid-type]  # a type made at run time
        except msgspec.ValidationError as error:
            raise self._connection.not_its_api("JSON that is not the Prometheus API's", request.asked) from error
        except UNREADABLE as error:
            raise self._connection.not_its_api(
                "something that is not the Prometheus API's JSON", request.asked
            ) from error
        if answer.status != "success":
            raise self._connection.refused(f"answered with an error: {answer.error}", request.asked)
        if answer.data is None:
            raise self._connection.not_its_api("JSON that is not the Prometheus API's", request.asked)
        return answer, answer.data


_USUAL = (1, 2, 5, 10, 12, 15, 20, 30, 45, 60, 90, 120, 180, 240, 300, 600, 900, 1200, 1800, 3600)


def _interval(scrapes: float) -> timedelta:
    """Return the interval of so many scrapes in an hour, into which one more or less may fall."""
    fits = (each for each in _USUAL if abs(scrapes * each - 3600) <= each)
    return timedelta(seconds=next(fits, math.ceil(3600 / scrapes)))


def _length(request: DatasourceRequest) -> int:
    return len(urlencode(request.form, doseq=True))


def _span(start: datetime, end: datetime) -> dict[str, str]:
    return {"start": str(int(start.timestamp())), "end": str(int(end.timestamp()))}


def _told(status: int, body: bytes) -> ServerMessage:
    """Read a refusal; some proxies in front of the server write plain text."""
    try:
        said = msgspec.json.decode(body, type=_Error)
    except UNREADABLE:
        said = _Error(error=body[:300].decode(errors="replace"))
    heavy = (status == 422 and "too many samples" in said.error) or (status == 503 and said.errorType == "timeout")
    return ServerMessage(said.error, heavy)


_VALUES, _END = b'"values":[', b"}]}}"
_LONGEST_START = 8192


def _lone(body: bytes) -> memoryview | None:
    """Return the values of the only series of an answer that says nothing else, as Prometheus writes it; None for any other.

    So the values, nearly all of an answer, are gone through by nothing but what decodes them.
    """
    at = body.find(_VALUES, 0, _LONGEST_START) + len(_VALUES) - 1
    if at < len(_VALUES) or not body.endswith(_END) or body.find(b"{", at) >= 0:
        return None
    try:
        about = msgspec.json.decode(body[: at + 1] + b"]" + _END, type=_ApiResponse[_Matrix])
    except UNREADABLE:
        return None
    found = about.data.result if about.data and about.status == "success" and not about.warnings else []
    lone = len(found) == 1 and bytes(found[0].histograms) == b"[]"
    return memoryview(body)[at : -len(_END)] if lone else None


def decode_values(raw: bytes | memoryview | msgspec.Raw) -> Samples:
    """Decode the API's ``[[seconds, "value"], …]`` into arrays, without a Python object for any of them.

    Fractions of seconds are rounded. Raises ``pyarrow.ArrowException`` for what is no number.
    """
    try:
        return _cut(pa.py_buffer(raw))
    except pa.ArrowInvalid:
        return _lines(bytes(raw))


_DIGITS, _BETWEEN = 10, b',"'
_SHORTEST = len('[[1700000000,"0"]]')


def _cut(raw: pa.Buffer) -> Samples:
    """Decode pairs as servers write them: cut where one ends, each has ten digits, a comma, and a value in quotes.

    Three passes that leave Python's lock to others. Raises ``pyarrow.ArrowInvalid`` for every other way to write them.
    """
    if raw.size < _SHORTEST:
        raise pa.ArrowInvalid("too short")
    text = raw.slice(2, raw.size - 5)  # without the brackets around, and the quote before the last
    ends = pa.array([0, text.size], pa.int32()).buffers()[1]
    pairs = pc.split_pattern(pa.Array.from_buffers(pa.binary(), 1, [None, ends, text]), b'"],[').values
    if not pc.all(pc.equal(pc.binary_slice(pairs, _DIGITS, _DIGITS + len(_BETWEEN)), _BETWEEN)).as_py():
        raise pa.ArrowInvalid("written in another way")
    seconds = pc.binary_slice(pairs, 0, _DIGITS).view(pa.string())  # a view: nothing that is no ASCII can be a number
    values = pc.binary_replace_slice(pairs, 0, _DIGITS + len(_BETWEEN), b"").view(pa.string())
    return Samples(seconds.cast(pa.int64()), values.cast(pa.float64()))


_MARKS = bytes.maketrans(b"]", b"\n")


def _lines(raw: bytes) -> Samples:
    """Decode pairs however they are spaced, as CSV: ``]`` ends a line, quotes are the delimiters, all other marks go."""
    text = raw.translate(_MARKS, b"[, \n\r\t")
    if len(text) < 4:  # an empty list
        return Samples(pa.array([], pa.int64()), pa.array([], pa.float64()))
    try:
        table = _table(text, pa.int64())
        return Samples(table["t"].chunk(0), table["y"].chunk(0))
    except pa.ArrowInvalid:
        table = _table(text, pa.float64())
        return Samples(pc.round(table["t"].chunk(0)).cast(pa.int64()), table["y"].chunk(0))


def _table(text: bytes, stamps: pa.DataType) -> pa.Table:
    types = {"t": stamps, "y": pa.float64()}
    convert = csv.ConvertOptions(column_types=types, include_columns=["t", "y"], null_values=[])
    parse = csv.ParseOptions(delimiter='"', quote_char=False)
    read = csv.ReadOptions(use_threads=False, block_size=len(text) + 1, column_names=["t", "y", ""])
    return csv.read_csv(pa.BufferReader(text), read, parse, convert).combine_chunks()
