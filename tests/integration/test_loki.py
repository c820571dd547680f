"""Log lines from Loki: no line is lost between pages, on recorded lines served as Loki serves them, and on a real Loki where there is one."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from api.demo.prometheus import Server, free_port, wait_ready
from kg.errors import DatasourceRefused, InvalidInput, ResourceNotFound
from kg.settings import DatasourceSettings
from kg.telemetry import logs
from kg.telemetry.datasources import Datasource
from kg.telemetry.fetch.loki import Line, Loki, Span
from kg.telemetry.resolve import Resolver
from kg.telemetry.series import Grid, Window
from tests.integration.conftest import at
from tests.integration.test_prometheus_history import LEDGER, NODE_A, documents
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
    """Serves lines as Loki does: start included, end not, at most ``limit``, grouped by stream; or one recorded answer."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.lines: list[tuple[int, dict[str, str], str]] = []
        self.recorded: dict | None = None
        self.requests: list[tuple[dict[str, str], dict[str, str]]] = []


class _Handler(BaseHTTPRequestHandler):
    server: FakeLoki

    def do_GET(self) -> None:
        form = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
        self.server.requests.append((form, dict(self.headers)))
        if self.server.recorded:
            answer = self.server.recorded["response"]
            body = answer["body"]
            content = body.encode() if isinstance(body, str) else json.dumps(body).encode()
            self._send(answer["status"], content)
            return
        backward = form["direction"] == "backward"
        chosen = [line for line in self.server.lines if int(form["start"]) <= line[0] < int(form["end"])]
        chosen = sorted(chosen, key=lambda line: line[0], reverse=backward)[: int(form["limit"])]
        streams: dict[str, dict] = {}
        for stamp, labels, text in chosen:
            key = json.dumps(labels, sort_keys=True)
            streams.setdefault(key, {"stream": labels, "values": []})["values"].append([str(stamp), text])
        body = {"status": "success", "data": {"resultType": "streams", "result": list(streams.values())}}
        self._send(200, json.dumps(body).encode())

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
    with FakeLoki() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


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
        found = list(client.lines(QUERY, Span(first, max(lines)[0] + 1, 100_000), direction))  # type: ignore[arg-type]

    expected = {Line(stamp, tuple(sorted(labels.items())), text) for stamp, labels, text in lines}
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


def test_the_limit_counts_lines_not_pages(server: FakeLoki) -> None:
    """The newest so many lines, over several pages, and no more."""
    server.lines = [(n // 2, {"pod": "a"}, str(n)) for n in range(50)]
    with Loki(_here(server), page=4) as client:
        found = list(client.lines(QUERY, Span(0, 100, 11)))
    assert [line.at for line in found] == [24, 24, 23, 23, 22, 22, 21, 21, 20, 20, 19]


@pytest.mark.parametrize(
    "name",
    [
        "loki_err_parse",
        "loki_err_limit",
        "loki_tenant_missing_401",
        "loki_err_max_series",
        "loki_err_query_too_long_range",
        "loki_404",
    ],
)
def test_recorded_errors_are_told_in_lokis_own_words(server: FakeLoki, name: str) -> None:
    """Every error of Loki is plain text; it stands in the message, on one line."""
    server.recorded = _recording(name)
    with (
        Loki(
            _here(server),
        ) as client,
        pytest.raises(DatasourceRefused) as error,
    ):
        list(client.lines(QUERY, Span(0, 10, 10)))
    assert " ".join(server.recorded["response"]["body"].split())[:60] in str(error.value)
    assert "\n" not in str(error.value)


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


def test_a_real_loki_loses_no_line(tmp_path: Path) -> None:
    """12,000 lines, many at the same time, pushed into a real Loki and read in pages of 1,000: all are there."""
    binary = os.environ.get("LOKI_BIN")
    if not binary:
        pytest.skip("LOKI_BIN names no Loki binary")
    port = free_port()
    config = tmp_path / "loki.yaml"
    config.write_text(
        f"auth_enabled: false\nserver: {{http_listen_address: 127.0.0.1, http_listen_port: {port}, grpc_listen_port: 0}}\n"
        f"common: {{path_prefix: {tmp_path}, replication_factor: 1, ring: {{kvstore: {{store: inmemory}}}}, storage: {{filesystem: {{chunks_directory: {tmp_path}/c, rules_directory: {tmp_path}/r}}}}}}\n"
        "schema_config: {configs: [{from: 2020-01-01, store: tsdb, object_store: filesystem, schema: v13, index: {prefix: i_, period: 24h}}]}\n"
        "limits_config: {ingestion_rate_mb: 100, ingestion_burst_size_mb: 100}\n"
    )
    process = subprocess.Popen([binary, f"-config.file={config}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with Server(process, port) as running:
        assert wait_ready(running, "/ready")
        begin = (int(time.time()) - 600) * 10**9
        values = [[str(begin + (n // 3) * 1_000_000), f"line {n}"] for n in range(12_000)]
        body = {"streams": [{"stream": {"namespace": "payments"}, "values": values}]}
        httpx.post(f"{running.url}/loki/api/v1/push", json=body).raise_for_status()
        with Loki(_datasource(running.url), page=1000) as client:
            found = list(client.lines(QUERY, Span(begin, begin + 600 * 10**9, 100_000), "forward"))
    assert sorted(line.text for line in found) == sorted(text for _, text in values)
