"""Log lines from Loki: no line is lost between pages, on recorded lines served as Loki serves them, and on a real Loki where there is one."""

from __future__ import annotations

import json
import os
import subprocess
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import islice
from operator import itemgetter
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumlin.api.demo.prometheus import Server, free_port, wait_ready
from drumlin.kg.config.datasources import DatasourceSettings
from drumlin.kg.errors import DatasourceRefused, InvalidInput, ResourceNotFound
from drumlin.kg.telemetry import logs
from drumlin.kg.telemetry.datasources import Datasource
from drumlin.kg.telemetry.fetch.loki import LogLine, Loki, Span
from drumlin.kg.telemetry.history import History
from drumlin.kg.telemetry.probing import probe
from drumlin.kg.telemetry.quoting import quote
from drumlin.kg.telemetry.resolve import Resolver
from drumlin.kg.telemetry.series import Grid, Window
from drumlin.kg.telemetry.templates import TemplateCatalogue
from tests.integration.conftest import at
from tests.integration.test_prometheus_history import LEDGER, NODE_A, documents
from tests.listening import listening
from tests.unit.telemetry_store import IRIS, GraphStore

RECORDED = Path(__file__).resolve().parents[3] / "shared" / "data" / "prom-loki-recorded"
QUERY = '{namespace="payments"}'


def _recording(name: str) -> dict:
    if not RECORDED.is_dir():
        if os.environ.get("CI") == "true":
            pytest.fail("no recordings in ../shared/data/prom-loki-recorded")
        pytest.skip("no recordings in ../shared/data/prom-loki-recorded")
    return json.loads((RECORDED / f"{name}.json").read_text())


class FakeLoki(ThreadingHTTPServer):
    """Serves lines as Loki does: start included, end not, at most ``limit``, grouped by stream; or one recorded answer.

    A stream's lines are in chunks of ``chunk``. A chunk that ends at a query's start is left out, its last lines with it, though they
    are of the time that is asked for. Limits are refused in Loki's recorded words.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.lines: list[tuple[int, dict[str, str], str]] = []
        self.recorded: dict | None = None
        self.requests: list[tuple[dict[str, str], dict[str, str]]] = []
        self.chunk = 4
        self.max_entries = 5000
        self.max_length = 30 * 86_400 + 3600  # seconds
        self.most_read = 10**9  # lines that a query may read
        self.fails_after: int | None = None  # requests that are answered
        self._sorted: tuple[int, list[tuple[int, str, str, int]]] = (-1, [])

    def select(self, start: int, end: int, limit: int, *, backward: bool) -> list[tuple[int, str, str, int]] | str:
        """Return time, stream, text and the end of the chunk of each line that Loki answers with, or its refusal."""
        length = (end - start) / 10**9
        if limit > self.max_entries:
            return f"max entries limit per query exceeded, limit > max_entries_limit_per_query ({limit} > {self.max_entries})"
        if length > self.max_length:
            days, hours = self.max_length // 86_400, self.max_length % 86_400 // 3600
            most = f"{days}d{hours}h" if hours else f"{days}d"
            return f"the query time range exceeds the limit (query length: {int(length) // 3600}h0m0s, limit: {most})"
        known = self._ordered()
        first, last = (bisect_left(known, at, key=itemgetter(0)) for at in (start, end))
        if last - first > self.most_read:
            return "the query would read too many bytes (query: 12 GB, limit: 10 GB); consider adding more specific stream selectors"
        order = range(last - 1, first - 1, -1) if backward else range(first, last)
        return list(islice((known[n] for n in order if known[n][3] > start), limit))

    def _ordered(self) -> list[tuple[int, str, str, int]]:
        if self._sorted[0] != len(self.lines):
            by_stream: dict[str, list[tuple[int, str]]] = {}
            for stamp, labels, text in self.lines:
                by_stream.setdefault(json.dumps(labels, sort_keys=True), []).append((stamp, text))
            found: list[tuple[int, str, str, int]] = []
            for stream, values in by_stream.items():
                values.sort(key=itemgetter(0))
                for at in range(0, len(values), self.chunk):
                    chunk = values[at : at + self.chunk]
                    found += [(stamp, stream, text, chunk[-1][0]) for stamp, text in chunk]
            self._sorted = len(self.lines), sorted(found, key=itemgetter(0))
        return self._sorted[1]


class _Handler(BaseHTTPRequestHandler):
    server: FakeLoki
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        form = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
        self.server.requests.append((form, dict(self.headers)))
        path = urlsplit(self.path).path
        if not self.server.recorded and path.startswith("/loki/api/v1/label/"):
            name = path.split("/")[5]
            values = sorted({labels[name] for _, labels, _ in self.server.lines if name in labels})
            self._send(200, json.dumps({"status": "success", "data": values}).encode())
            return
        told = {"/loki/api/v1/labels": self._labels(), "/loki/api/v1/status/buildinfo": {"version": "3.5.0"}}
        if not self.server.recorded and (known := told.get(urlsplit(self.path).path)):
            self._send(200, json.dumps(known).encode())
            return
        if self.server.recorded:
            answer = self.server.recorded["response"]
            body = answer["body"]
            content = body.encode() if isinstance(body, str) else json.dumps(body).encode()
            self._send(answer["status"], content)
            return
        if self.server.fails_after is not None and len(self.server.requests) > self.server.fails_after:
            self._send(500, b"something broke")
            return
        start, end, limit = (int(form[name]) for name in ("start", "end", "limit"))
        chosen = self.server.select(start, end, limit, backward=form["direction"] == "backward")
        if isinstance(chosen, str):
            self._send(400, chosen.encode())
            return
        streams: dict[str, list[list[str]]] = {}
        for stamp, stream, text, _ in chosen:
            streams.setdefault(stream, []).append([str(stamp), text])
        result = [{"stream": json.loads(stream), "values": values} for stream, values in streams.items()]
        self._send(200, msgspec.json.encode({"status": "success", "data": {"resultType": "streams", "result": result}}))

    def do_POST(self) -> None:
        """Take lines as Loki's push does."""
        body = msgspec.json.decode(self.rfile.read(int(self.headers["Content-Length"])))
        for each in body["streams"]:
            self.server.lines += [(int(stamp), each["stream"], text) for stamp, text in each["values"]]
        self._send(204, b"")

    def _labels(self) -> dict[str, object]:
        names = sorted({name for _, labels, _ in self.server.lines for name in labels})
        return {"status": "success", "data": names}

    def _send(self, status: int, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *args: object) -> None:
        """Keep quiet."""


@pytest.fixture
def server() -> Iterator[FakeLoki]:
    """A Loki on loopback."""
    with listening(FakeLoki()) as running:
        yield running


def _datasource(url: str, **more: object) -> Datasource:
    given = {"name": "loki-main", "kind": "loki", "url": url, "timeout": 20, **more}
    return Datasource.from_settings(DatasourceSettings.model_validate(given), IRIS, None)


def _here(server: FakeLoki, **more: object) -> Datasource:
    return _datasource(f"http://127.0.0.1:{server.server_port}", **more)


@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("page", [5, 7, 5000])
def test_no_line_is_lost_between_pages(server: FakeLoki, direction: str, page: int) -> None:
    """Pages of recorded lines, with several at the same time across their borders: each line comes once, in order of time."""
    recorded = _recording("loki_streams_forward")["response"]["body"]["data"]["result"]
    lines = [(int(value[0]), each["stream"], value[1]) for each in recorded for value in each["values"]]
    first = min(stamp for stamp, _, _ in lines)
    lines += [(first + 5 * (n // 2), {"pod": "a"}, f"n{n}") for n in range(40)]  # two at each time
    lines += [(first + 10, {"pod": "b"}, "same time, same text"), (first + 10, {"pod": "c"}, "same time, same text")]
    server.lines = lines
    with Loki(_here(server), page=page) as client:
        found = list(client.lines(QUERY, Span(first, max(lines)[0] + 1, 100_000), direction))

    expected = {LogLine(stamp, tuple(sorted(labels.items())), text) for stamp, labels, text in lines}
    assert set(found) == expected
    assert len(found) == len(expected)
    assert [line.at for line in found] == sorted((line.at for line in found), reverse=direction == "backward")
    assert server.requests[0][1]["X-Loki-Response-Encoding-Flags"] == "categorize-labels"


def test_more_lines_at_one_time_than_a_page_holds_are_an_error(server: FakeLoki) -> None:
    """They cannot be told apart by time: an error says so, instead of lines left out."""
    server.lines = [(1000, {}, str(n)) for n in range(9)]
    with (
        Loki(_here(server), page=5) as client,
        pytest.raises(DatasourceRefused, match="5 lines or more of the time 1000 ns"),
    ):
        list(client.lines(QUERY, Span(0, 2000, 100), "forward"))


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_more_days_than_one_query_may_span_are_read_in_parts(server: FakeLoki, direction: str) -> None:
    """Half a year of a line a day is asked for in parts of at most 30 days; all lines come, in order, up to the limit."""
    day = 86_400 * 10**9
    server.lines = [(n * day, {"pod": "a"}, str(n)) for n in range(180)]
    with Loki(_here(server), page=50) as client:
        found = [int(line.text) for line in client.lines(QUERY, Span(0, 180 * day, 1000), direction)]
        some = [int(line.text) for line in client.lines(QUERY, Span(0, 180 * day, 45), direction)]
    expected = list(range(180)) if direction == "forward" else list(range(180))[::-1]
    assert found == expected
    assert some == expected[:45]
    assert all(int(form["end"]) - int(form["start"]) <= 30 * day + 1 for form, _ in server.requests)


@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize(
    "limits",
    [{"max_entries": 7}, {"max_length": 3 * 86_400}, {"most_read": 9}, {"max_entries": 3, "max_length": 90_000}],
)
def test_the_limits_of_a_server_are_kept_by_asking_for_less(
    server: FakeLoki, direction: str, limits: dict[str, int]
) -> None:
    """Fewer lines at once, or a shorter span, as its refusals say: all lines come, and the limit is learnt once."""
    day = 86_400 * 10**9
    server.lines = [(n * day // 2, {"pod": "a"}, str(n)) for n in range(40)]
    for name, value in limits.items():
        setattr(server, name, value)
    with Loki(_here(server)) as client:
        for _ in range(2):
            found = [int(line.text) for line in client.lines(QUERY, Span(0, 20 * day, 1000), direction)]
            assert found == (list(range(40)) if direction == "forward" else list(range(40))[::-1])
            asked, server.requests = len(server.requests), []
    assert asked <= 40


def test_a_limit_that_leaves_nothing_to_ask_for_is_reported(server: FakeLoki) -> None:
    """In the server's own words, instead of asking for ever."""
    server.lines = [(n, {"pod": "a"}, str(n)) for n in range(40)]
    server.most_read = 3
    with Loki(_here(server)) as client, pytest.raises(DatasourceRefused, match="would read too many bytes"):
        list(client.lines(QUERY, Span(0, 100, 1000), "forward"))
    server.max_entries = 0
    with Loki(_here(server)) as client, pytest.raises(DatasourceRefused, match="max entries limit"):
        list(client.lines(QUERY, Span(0, 100, 1000), "forward"))


def test_a_managed_servers_longer_span_is_no_other_case(server: FakeLoki) -> None:
    """Whether it answers 32 days at once, or 31, or one: a volume of logs is asked for in spans that it takes."""
    server.recorded = {
        "response": {
            "status": 400,
            "body": "the query time range exceeds the limit (query length: 721h0m0s, limit: 1d1h)",
        }
    }
    with (
        Loki(_here(server)) as client,
        pytest.raises(DatasourceRefused, match="limit: 1d1h"),
    ):  # this one refuses whatever is asked
        client.series("sum(x)", Grid(0, 40 * 86_400, 3600))
    spans = [(int(form["end"]) - int(form["start"])) // 3600 for form, _ in server.requests]
    assert spans == [719, 23]


def test_the_limit_counts_lines_not_pages(server: FakeLoki) -> None:
    """The newest so many lines, over several pages, and no more."""
    server.lines = [(n // 2, {"pod": "a"}, str(n)) for n in range(50)]
    with Loki(_here(server), page=4) as client:
        found = list(client.lines(QUERY, Span(0, 100, 11)))
    assert [line.at for line in found] == [24, 24, 23, 23, 22, 22, 21, 21, 20, 20, 19]


HANDLED: dict[str, int | str] = {
    # a selector's lines: how many there are
    "loki_empty": 0,
    "loki_streams": 40,
    "loki_streams_forward": 20,
    "loki_streams_categorize_labels": 10,
    "loki_streams_escaped_selector": 1,
    "loki_streams_unicode_and_quotes": 0,
    "loki_tenant_ok": 5,
    "loki_tenant_other_empty": 0,
    # a refusal: Loki's own words
    "loki_404": "404 page not found",
    "loki_err_11000_points": "exceeded maximum resolution of 11,000 points",
    "loki_err_bad_step": "zero or negative query resolution step",
    "loki_err_empty_matcher": "at least one regexp or equality matcher",
    "loki_err_end_before_start": "end timestamp must not be before",
    "loki_err_limit": r"max entries limit per query exceeded",
    "loki_err_log_query_instant": "log queries are not supported as an instant query",
    "loki_err_max_series": r"maximum number of series \(500\) reached",
    "loki_err_no_query": "syntax error: unexpected",
    "loki_err_parse": "syntax error: unexpected",
    "loki_err_pipeline_error": "pipeline error: 'SampleExtractionErr'",
    "loki_err_query_too_long_range": "the query time range exceeds the limit",
    "loki_push_429": r"\(429\): ingestion rate limit exceeded",
    "loki_tenant_bad": "contains unsupported character",
    "loki_tenant_missing_401": r"\(401\): no org id",
    "loki_tenant_multi": r"\(500\): multiple org IDs present",
    # an answer to another question: never taken for lines
    "loki_buildinfo": "not Loki's JSON",
    "loki_detected_fields": "not Loki's JSON",
    "loki_format_query": "not Loki's JSON",
    "loki_index_stats": "not Loki's JSON",
    "loki_index_volume": "not Loki's JSON",
    "loki_label_values": "not Loki's JSON",
    "loki_label_values_nasty": "not Loki's JSON",
    "loki_labels": "not Loki's JSON",
    "loki_matrix_rate": "not Loki's JSON",
    "loki_push_400_no_labels": "not Loki's JSON",
    "loki_ready": "not Loki's JSON",
    "loki_series": "not Loki's JSON",
    "loki_vector": "not Loki's JSON",
}


def test_every_recording_is_accounted_for() -> None:
    """A recording that is added is read by a test, or this fails."""
    _recording("loki_streams")  # skips where there are none
    assert {file.stem for file in RECORDED.glob("loki_*.json")} == set(HANDLED)


@pytest.mark.parametrize("name", sorted(HANDLED))
def test_recordings_are_lines_or_an_error_in_lokis_words(server: FakeLoki, name: str) -> None:
    """Each recorded answer of a real Loki is its lines, all of them, or an error on one line; nothing is taken for an empty answer."""
    server.recorded = _recording(name)
    expected = HANDLED[name]
    with Loki(_here(server), sleep=lambda _: None) as client:
        if isinstance(expected, int):
            found = list(client.lines(QUERY, Span(0, 10, 5000)))
            assert len(found) == expected
            assert [each.at for each in found] == sorted((each.at for each in found), reverse=True)
        else:
            with pytest.raises(DatasourceRefused, match=expected) as error:
                list(client.lines(QUERY, Span(0, 10, 10)))
            assert "\n" not in str(error.value)
            assert error.value.hint


def test_recorded_answers_about_labels_and_versions_are_read(server: FakeLoki) -> None:
    """The names of labels, and a version that a build does not tell."""
    with Loki(_here(server)) as client:
        server.recorded = _recording("loki_labels")
        assert client.label_names(at(0), at(60)) == server.recorded["response"]["body"]["data"]
        server.recorded = _recording("loki_buildinfo")
        assert client.probe() == "unknown"
        server.recorded = _recording("loki_ready")
        with pytest.raises(DatasourceRefused, match="not Loki's JSON"):
            client.probe()


def test_values_that_break_quoting_are_asked_for_as_recorded() -> None:
    """The selector that a real Loki understood is the one that is written for such a pod."""
    asked = _recording("loki_streams_escaped_selector")["request"]["params"]["query"]
    value = next(each for each in _recording("loki_label_values_nasty")["response"]["body"]["data"] if "quote" in each)
    assert asked == f"{{app={quote(value)}}}"


class _Kept(Loki):
    """A Loki whose pages come from memory, as the HTTP API gives them: start included, end not, limited, in order, less chunks' ends."""

    def __init__(self, datasource: Datasource, page: int, kept: list[LogLine], chunk: int) -> None:
        super().__init__(datasource, page=page)
        self.kept: list[tuple[LogLine, int]] = []  # with the end of its chunk
        for pod in "ab":
            stream = sorted((line for line in kept if line.labels == (("pod", pod),)), key=lambda line: line.at)
            for first in range(0, len(stream), chunk):
                self.kept += [(line, stream[first : first + chunk][-1].at) for line in stream[first : first + chunk]]

    def _lines(self, _query: str, start: int, end: int, limit: int, direction: str) -> list[LogLine]:
        inside = [line for line, chunk_end in self.kept if start <= line.at < end and chunk_end > start]
        return sorted(inside, key=lambda line: line.at, reverse=direction == "backward")[:limit]


@given(
    st.lists(st.tuples(st.integers(0, 30), st.sampled_from("ab"), st.integers(0, 3)), max_size=60, unique=True),
    st.integers(17, 25),
    st.sampled_from(["forward", "backward"]),
    st.integers(1, 80),
    st.integers(1, 9),
    st.integers(1, 40),
)
def test_paging_loses_no_line_and_repeats_none(
    drawn: list[tuple[int, str, int]], page: int, direction: str, limit: int, chunk: int, longest: int
) -> None:
    """Whatever the times of the lines, the size of a page, the limit, chunks and parts: the first so many lines in order, each once."""
    kept = [LogLine(stamp, (("pod", pod),), str(text)) for stamp, pod, text in drawn]
    with _Kept(_datasource("http://127.0.0.1:9"), page, kept, chunk) as client:
        client._longest = longest / 10**9  # a few nanoseconds
        found = list(client.lines(QUERY, Span(0, 31, limit), direction))
    assert len(set(found)) == len(found) == min(limit, len(kept))
    ordered = sorted((line.at for line in kept), reverse=direction == "backward")
    assert [line.at for line in found] == ordered[:limit]
    assert set(found) <= set(kept)
    assert limit < len(kept) or set(found) == set(kept)


def test_the_look_at_a_loki_tells_which_label_is_missing(server: FakeLoki) -> None:
    """Reachable, its first line, and for logs and their volume the label that no stream has, with what is similar."""
    first = int(at(10).timestamp())
    server.lines = [(first * 10**9 + n, {"k8s_namespace_name": "payments", "k8s_pod_name": "a"}, "x") for n in range(3)]
    catalogue = TemplateCatalogue.shipped(frozenset({"loki"}))
    found = probe(_here(server), catalogue, at(60))
    assert found["reachable"]
    assert found["version"] == "3.5.0"
    templates = {each["template"]: each for each in found["templates"]}
    assert set(templates) == {"logs", "workload.log_lines", "workload.log_bytes"}
    assert (templates["logs"]["missing"], templates["logs"]["similar"][0]) == ("namespace", "k8s_namespace_name")
    renamed = _here(server, labels={"namespace": "k8s_namespace_name", "pod": "k8s_pod"})
    found = probe(renamed, catalogue, at(60))
    assert found["oldest"] == at(10).isoformat().replace("+00:00", "Z")
    assert (found["templates"][0]["missing"], found["templates"][0]["similar"][0]) == ("k8s_pod", "k8s_pod_name")
    right = probe(_here(server, labels={"namespace": "k8s_namespace_name", "pod": "k8s_pod_name"}), catalogue, at(60))
    assert all(each["found"] for each in right["templates"])
    server.lines = []
    assert probe(_here(server), catalogue, at(60))["templates"][0]["detail"] == "no line of the last day"


def test_the_look_at_a_loki_proposes_labels_and_binding(server: FakeLoki) -> None:
    """OTLP's labels are the collector's, and the label that tells clusters apart is found; nothing for what is configured."""
    otlp = {"k8s_namespace_name": "payments", "k8s_pod_name": "a"}
    server.lines = [(int(at(30).timestamp()) * 10**9, {**otlp, "cluster": each}, "x") for each in ("edge", "prod")]
    catalogue = TemplateCatalogue.shipped()

    found = probe(_here(server), catalogue, at(60), ["edge", "prod"])
    assert found["clusterLabel"] == {"label": "cluster", "values": ["edge", "prod"], "notes": []}
    labels = '{ namespace = "k8s_namespace_name", pod = "k8s_pod_name" }'
    assert found["configuration"].endswith(f'labels = {labels}\nmatchers = {{ cluster = "{{cluster}}" }}')
    right = _here(server, labels={"namespace": "k8s_namespace_name"}, matchers={"cluster": "{cluster}"})
    assert "configuration" not in probe(right, catalogue, at(60), ["edge", "prod"])


@pytest.mark.parametrize("metric", ["log_lines", "log_bytes"])
def test_the_volume_of_logs_is_history_like_any_other(server: FakeLoki, metric: str) -> None:
    """Lines and bytes per step come from Loki through the same call, with the recorded answer's values."""
    recorded = _recording("loki_matrix_rate")
    one = recorded["response"]["body"]["data"]["result"][:1]
    recorded["response"]["body"]["data"]["result"] = one
    server.recorded = recorded
    stamps = [int(stamp) for stamp, _ in one[0]["values"]]
    step = stamps[1] - stamps[0]
    catalogue = TemplateCatalogue.shipped(frozenset({"loki"}))
    resolver = Resolver(GraphStore(documents()), IRIS, [_here(server, tenant_header={"value": "team-a"})], catalogue)
    start, end = (datetime.fromtimestamp(each, UTC) for each in (stamps[0], stamps[-1]))
    with History(resolver) as history:
        series = history.fetch(LEDGER, metric, start=start, end=end, step=timedelta(seconds=step))
    values = [value for value in series.table["y"].to_pylist() if value is not None]
    assert values == [float(value) for _, value in one[0]["values"]]
    assert series.unit == ("{line}" if metric == "log_lines" else "By")
    form, headers = server.requests[0]
    assert f'({"count" if metric == "log_lines" else "bytes"}_over_time({{namespace="payments"' in form["query"]
    assert headers["X-Scope-OrgID"] == "team-a"


def test_a_busy_loki_is_asked_again(server: FakeLoki) -> None:
    """429 comes without Retry-After; the client backs off by itself, and gives up in the end."""
    server.recorded = _recording("loki_push_429")
    waits: list[float] = []
    with Loki(_here(server), sleep=waits.append) as client, pytest.raises(DatasourceRefused, match="429"):
        list(client.lines(QUERY, Span(0, 10, 10)))
    assert len(waits) == 2


def test_categorised_labels_keep_a_stream_whole(server: FakeLoki) -> None:
    """What a line has of its own (detected level, trace) is its metadata, not its stream's label."""
    server.recorded = _recording("loki_streams_categorize_labels")
    with Loki(_here(server)) as client:
        found = list(client.lines(QUERY, Span(0, 10, 100)))
    assert found
    assert all("detected_level" not in dict(line.labels) for line in found)
    assert any("detected_level" in dict(line.metadata) for line in found)


def test_a_volume_of_logs_is_a_series(server: FakeLoki) -> None:
    """A metric query of Loki is decoded as Prometheus' are; several series are refused."""
    server.recorded = _recording("loki_matrix_rate")
    one = server.recorded["response"]["body"]["data"]["result"][:1]
    server.recorded["response"]["body"]["data"]["result"] = one
    with Loki(_here(server)) as client:
        (part,) = client.series("sum(x)", Grid(1795788600, 1795814100, 300)).parts
    assert part.values.to_pylist() == [float(value) for _, value in one[0]["values"]]


def test_an_entitys_logs_are_asked_for_by_its_pods(server: FakeLoki) -> None:
    """Selector, tenant and filter go to the server; what is no workload or pod has no logs."""
    server.lines = [(int(at(10).timestamp()) * 10**9 + 5, {"pod": "ledger-797bcddfd6-n9hxf"}, "boom")]
    resolver = Resolver(GraphStore(documents()), IRIS, [_here(server, tenant_header={"value": "team-a"})])

    found = logs.fetch(resolver, LEDGER, Window(at(0), at(60)), containing='b"o')

    assert [logs.as_dict(line) for line in found.lines] == [
        {"time": "2026-11-01T00:10:00.000000005Z", "labels": {"pod": "ledger-797bcddfd6-n9hxf"}, "line": "boom"}
    ]
    form, headers = server.requests[0]
    assert form["query"] == '{namespace="payments",pod=~"ledger-797bcddfd6-n9hxf"} |= "b\\"o"'
    assert headers["X-Scope-OrgID"] == "team-a"
    with pytest.raises(ResourceNotFound):
        logs.fetch(resolver, NODE_A, Window(at(0), at(60)))
    with pytest.raises(InvalidInput):
        logs.fetch(resolver, LEDGER, Window(at(0), at(60)), limit=0)


@contextmanager
def _real_loki(directory: Path) -> Iterator[str]:
    binary = os.environ.get("LOKI_BIN")
    if not binary:
        pytest.skip("LOKI_BIN names no Loki binary")
    port = free_port()
    config = directory / "loki.yaml"
    config.write_text(
        f"auth_enabled: false\nserver: {{http_listen_address: 127.0.0.1, http_listen_port: {port}, grpc_listen_port: 0}}\n"
        f"common: {{path_prefix: {directory}, replication_factor: 1, ring: {{kvstore: {{store: inmemory}}}}, storage: {{filesystem: {{chunks_directory: {directory}/c, rules_directory: {directory}/r}}}}}}\n"
        "schema_config: {configs: [{from: 2020-01-01, store: tsdb, object_store: filesystem, schema: v13, index: {prefix: i_, period: 24h}}]}\n"
        "limits_config: {ingestion_rate_mb: 100, ingestion_burst_size_mb: 100}\n"
    )
    process = subprocess.Popen([binary, f"-config.file={config}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with Server(process, port) as running:
        assert wait_ready(running, "/ready")
        yield running.url


@contextmanager
def _fake_loki(_directory: Path) -> Iterator[str]:
    with listening(FakeLoki()) as running:
        running.chunk = 997
        yield f"http://127.0.0.1:{running.server_port}"


@pytest.mark.parametrize("backend", [_fake_loki, _real_loki])
def test_of_200_000_lines_none_is_lost_and_none_comes_twice(
    tmp_path: Path, backend: Callable[[Path], AbstractContextManager[str]]
) -> None:
    """Pushed to a Loki, many at one time and in several streams, and read in both directions: each line once, in order."""
    count = 200_000
    with backend(tmp_path) as url:
        begin = (int(time.time()) - 600) * 10**9
        for part in range(0, count, 20_000):
            streams = []
            for pod in range(4):
                numbers = range(part + pod, part + 20_000, 4)
                values = [[str(begin + (n // 12) * 10_000_000), f"line {n}"] for n in numbers]
                streams.append({"stream": {"namespace": "payments", "pod": f"p{pod}"}, "values": values})
            httpx.post(f"{url}/loki/api/v1/push", json={"streams": streams}, timeout=60).raise_for_status()
        for direction in ("forward", "backward"):
            with Loki(_datasource(url)) as client:
                span = Span(begin, begin + 600 * 10**9, count + 1)
                found = [(line.at, int(line.text[5:])) for line in client.lines(QUERY, span, direction)]
            assert len(found) == count
            assert {number for _, number in found} == set(range(count))
            assert [at for at, _ in found] == sorted((at for at, _ in found), reverse=direction == "backward")
