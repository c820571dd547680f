"""A Prometheus that is down, slow, busy or wrong: each error names the datasource and the query, and says what to do."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
import structlog

from drumlin.api.demo.prometheus import backfill, find_binary, free_port
from drumlin.kg.config.datasources import DatasourceSettings
from drumlin.kg.errors import DatasourceRefused, MetricMissing, SourceUnavailable
from drumlin.kg.telemetry import naming_report
from drumlin.kg.telemetry.datasources import Datasource
from drumlin.kg.telemetry.fetch import connection
from drumlin.kg.telemetry.fetch.prometheus import Prometheus
from drumlin.kg.telemetry.history import History
from drumlin.kg.telemetry.resolve import Resolver
from drumlin.kg.telemetry.series import Grid
from tests.integration.test_prometheus_history import LEDGER, documents
from tests.listening import listening
from tests.unit.telemetry_store import IRIS, GraphStore

QUERY = 'sum(up{job="x"})'
GRID = Grid(1_793_491_200, 1_793_491_200 + 9 * 60, 60)
TOKEN = "s3cret-token-value"

Reply = tuple[int, dict[str, str], bytes]


def _json(status: int, body: object, **headers: str) -> Reply:
    return status, {"Content-Type": "application/json", **headers}, json.dumps(body).encode()


def _error(status: int, kind: str, message: str, **headers: str) -> Reply:
    return _json(status, {"status": "error", "errorType": kind, "error": message}, **headers)


def _matrix(*series: object, **more: object) -> Reply:
    return _json(200, {"status": "success", "data": {"resultType": "matrix", "result": list(series)}, **more})


def _one(form: dict[str, str]) -> Reply:
    """Answer a range query with one series that is 1 everywhere."""
    start, end, step = (int(form[name]) for name in ("start", "end", "step"))
    return _matrix({"metric": {}, "values": [[at, "1"] for at in range(start, end + 1, step)]})


class FaultServer(ThreadingHTTPServer):
    """Answers on loopback with what the test puts into ``replies``, in order, the last one again and again."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.replies: list[Reply | Callable[[dict[str, str]], Reply]] = []
        self.forms: list[dict[str, str]] = []
        self.headers: list[dict[str, str]] = []
        self.pause = 0.0  # seconds between two bytes of an answer

    def handle_error(self, request: object, client_address: object) -> None:
        """Keep quiet about a client that hung up; the test sees what it saw."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FaultServer

    def do_GET(self) -> None:
        self._answer(urlsplit(self.path).query)

    def do_POST(self) -> None:
        self._answer(self.rfile.read(int(self.headers["Content-Length"])).decode())

    def _answer(self, asked: str) -> None:
        form = {name: values[0] for name, values in parse_qs(asked).items()}
        self.server.forms.append(form)
        self.server.headers.append(dict(self.headers))
        reply = self.server.replies.pop(0) if len(self.server.replies) > 1 else self.server.replies[0]
        status, headers, content = reply(form) if callable(reply) else reply
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if not self.server.pause:
            self.wfile.write(content)
            return
        for byte in content:
            self.wfile.write(bytes([byte]))
            time.sleep(self.server.pause)

    def log_message(self, *args: object) -> None:
        """Keep quiet."""


@pytest.fixture
def server() -> Iterator[FaultServer]:
    """A server that misbehaves on demand."""
    with listening(FaultServer()) as running:
        yield running


def _datasource(port: int, **more: object) -> Datasource:
    given = {"name": "prometheus-main", "kind": "prometheus", "url": f"http://127.0.0.1:{port}", "timeout": 0.5, **more}
    return Datasource.from_settings(DatasourceSettings.model_validate(given), IRIS, None)


@pytest.fixture
def waits() -> list[float]:
    """How long the client would have slept."""
    return []


@pytest.fixture
def client(server: FaultServer, waits: list[float]) -> Iterator[Prometheus]:
    """A client of that server which notes its waits instead of sleeping."""
    with Prometheus(_datasource(server.server_port), sleep=waits.append) as opened:
        yield opened


def test_a_server_that_is_down_is_named(waits: list[float]) -> None:
    """No listener: asked three times, then the error names datasource, address and query."""
    port = free_port()
    with Prometheus(_datasource(port), sleep=waits.append) as client, pytest.raises(SourceUnavailable) as error:
        client.series(QUERY, GRID)

    assert str(error.value) == (
        f"datasource prometheus-main (http://127.0.0.1:{port}) cannot be reached: nobody listens there; asked for {QUERY}"
    )
    assert error.value.hint == "check that it runs, and that this is its port; its url is in drumlin.toml"
    assert len(waits) == 2


def test_a_server_that_is_slow_is_given_up(client: Prometheus, server: FaultServer) -> None:
    """Past the datasource's timeout the wait ends, and the message tells how long it was."""
    hold = threading.Event()

    def slow(form: dict[str, str]) -> Reply:
        hold.wait(5)
        return _one(form)

    server.replies = [slow]
    try:
        with pytest.raises(SourceUnavailable, match=r"did not answer within 0\.5 s; asked for sum\(up"):
            client.series(QUERY, GRID)
    finally:
        hold.set()


@pytest.mark.parametrize(
    ("reply", "message", "hint"),
    [
        (
            _error(400, "bad_data", 'invalid parameter "query": 1:15'),
            r"refused the query \(400\): invalid parameter",
            "by hand",
        ),
        (
            _error(422, "execution", "found duplicate series"),
            r"refused the query \(422\): found duplicate",
            "shorter window",
        ),
        ((401, {}, b"no"), r"refused the query \(401\): no", "credential"),
        ((404, {}, b"404 page not found\n"), r"refused the query \(404\): 404 page not found", "/prometheus"),
        (
            (301, {"Location": "http://elsewhere.example/"}, b""),
            r"redirects \(301\), which is not followed",
            "final address",
        ),
        ((431, {}, b""), "answered 431", ""),
        ((200, {}, b"<html>login</html>"), "not the Prometheus API's JSON", "check the url"),
        (_error(200, "execution", "odd"), "answered with an error: odd", ""),
        (
            _json(200, {"status": "success", "data": {"resultType": "matrix"}}),
            "JSON that is not the Prometheus API's",
            "url",
        ),
        (_matrix({"metric": {"a": "1"}}, {"metric": {"a": "2"}}), "2 series where one was expected", "sum()"),
        (_matrix({"metric": {}, "histograms": [[1, {}]]}), "native histograms", "histogram_quantile"),
        (_matrix({"metric": {}, "values": [[1, "x"]]}), "values that are no numbers", ""),
    ],
)
def test_an_error_as_answer_is_passed_on_with_advice(
    client: Prometheus, server: FaultServer, reply: Reply, message: str, hint: str
) -> None:
    """What the server says is in the error, beside the datasource, the query and what to do; it is asked only once."""
    server.replies = [reply]

    with pytest.raises(DatasourceRefused, match=message) as error:
        client.series(QUERY, GRID)
    assert str(error.value).startswith("datasource prometheus-main ")
    assert QUERY in str(error.value)
    assert error.value.detail["query"] == QUERY
    assert hint in (error.value.hint or "")
    assert "elsewhere" not in str(error.value)
    assert len(server.forms) == 1


@pytest.mark.parametrize(("header", "expected"), [("7", [7.0]), ("9999", [30.0])])
def test_a_busy_server_is_asked_again_when_it_says(
    client: Prometheus, server: FaultServer, waits: list[float], header: str, expected: list[float]
) -> None:
    """429 with Retry-After: the client waits so long (at most half a minute) and then gets its answer."""
    server.replies = [_error(429, "", "slow down", **{"Retry-After": header}), _one]

    (part,) = client.series(QUERY, GRID).parts
    assert part.values.to_pylist() == [1.0] * 10
    assert waits == expected


def test_a_server_that_stays_busy_is_given_up(client: Prometheus, server: FaultServer, waits: list[float]) -> None:
    """503 three times is an error that says so; the waits between grow and are bounded."""
    server.replies = [(503, {}, b"starting")]

    with pytest.raises(DatasourceRefused, match=r"refused the query \(503\): starting") as error:
        client.series(QUERY, GRID)
    assert "overloaded" in (error.value.hint or "")
    assert len(server.forms) == 3
    assert len(waits) == 2
    assert all(0 < wait < 1 for wait in waits)


@pytest.mark.parametrize(
    "heavy",
    [
        _error(422, "execution", "query processing would load too many samples into memory in query execution"),
        _error(503, "timeout", "query timed out in expression evaluation"),
    ],
)
def test_a_range_that_is_too_heavy_is_asked_in_halves(client: Prometheus, server: FaultServer, heavy: Reply) -> None:
    """The halves meet without an overlap, so every point comes exactly once."""
    server.replies = [heavy, heavy, _one]

    parts = client.series(QUERY, GRID).parts

    assert [second for part in parts for second in part.seconds.to_pylist()] == list(
        range(GRID.start, GRID.end + 1, 60)
    )
    assert len(server.forms) == 5


def test_halving_ends(client: Prometheus, server: FaultServer) -> None:
    """A query that is too heavy at any length is refused after a few requests."""
    server.replies = [_error(422, "execution", "query processing would load too many samples")]

    with pytest.raises(DatasourceRefused, match="too many samples"):
        client.series(QUERY, GRID)
    assert len(server.forms) <= 5


def test_queries_travel_as_forms_with_whole_seconds(client: Prometheus, server: FaultServer) -> None:
    """A query of any length fits, and no server is confused by fractions."""
    server.replies = [_one]
    query = f'sum(up{{pod=~"{"|".join(f"pod-{n:05}" for n in range(2000))}"}})'

    client.series(query, GRID)

    assert server.forms == [
        {"query": query, "start": str(GRID.start), "end": str(GRID.end), "step": "60", "timeout": "0.5"}
    ]
    assert server.headers[0]["Accept-Encoding"] == "identity"


def test_an_answer_beyond_the_limit_is_not_read(
    client: Prometheus, server: FaultServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that sends more than anything needs is cut off, not held in memory."""
    monkeypatch.setattr(connection, "MAX_BYTES", 1 << 20)
    server.replies = [(200, {}, b" " * (2 << 20))]

    with pytest.raises(DatasourceRefused, match="answered with more than 1 MB"):
        client.series(QUERY, GRID)


def test_an_answer_that_trickles_is_given_up(client: Prometheus, server: FaultServer) -> None:
    """The timeout is for the whole answer, however busily the server sends."""
    server.pause = 0.05
    server.replies = [(200, {}, b" " * 100)]

    with pytest.raises(SourceUnavailable, match="did not answer within"):
        client.series(QUERY, GRID)


@pytest.mark.parametrize("status", [403, 404, 405, 501])
def test_a_proxy_that_refuses_post_is_asked_by_get(client: Prometheus, server: FaultServer, status: int) -> None:
    """The index by GET whenever POST is refused; a query where it surely was the method, and only what fits into an address."""
    refused = _error(status, "", "no such method")
    server.replies = [refused, _json(200, {"status": "success", "data": ["job"]})]
    assert client.label_names("up", *GRID.window) == ["job"]
    assert server.forms[0] == server.forms[1]
    server.replies = [refused, _one]
    if status in (405, 501):
        assert client.series(QUERY, GRID).parts[0].values.to_pylist() == [1.0] * 10
    else:
        with pytest.raises(DatasourceRefused):
            client.series(QUERY, GRID)
    server.replies = [refused]
    with pytest.raises(DatasourceRefused, match="no such method"):
        client.label_names(f'up{{job="{"x" * 7000}"}}', *GRID.window)
    assert len(server.forms) == (5 if status in (405, 501) else 4)  # the long one was not asked twice


def test_an_empty_answer_stays_one_when_nobody_says_why(server: FaultServer) -> None:
    """The series has no point; that the server does not tell the reason is no other error."""
    server.replies = [
        _matrix(),
        _matrix(),
        _error(403, "", "only queries are allowed here"),
    ]  # its runs are not known at first
    resolver = Resolver(GraphStore(documents()), IRIS, [_datasource(server.server_port)])
    with (
        History(resolver) as history,
        pytest.raises(MetricMissing, match="has no point in the window; why could not") as error,
    ):
        history.fetch(LEDGER, "cpu_usage", last="1h", end=GRID.window[1])
    assert "only queries are allowed here" in str(error.value)


def test_warnings_of_the_server_are_kept(client: Prometheus, server: FaultServer) -> None:
    """A partial answer (Thanos) says so in warnings, which reach the caller."""
    server.replies = [_matrix({"metric": {}, "values": [[GRID.start, "1"]]}, warnings=["a store is away"])]

    assert client.series(QUERY, GRID).warnings == ("a store is away",)


def test_credentials_are_read_on_each_use(server: FaultServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bearer from a file that is rotated, Basic from the environment, the tenant's header: all as configured."""
    server.replies = [_one]
    file = tmp_path / "token"
    tenant = {"tenant_header": {"value": "team-a"}}
    bearer = _datasource(server.server_port, credential={"secret": f"file:{file}"}, **tenant)
    with Prometheus(bearer) as client:
        for token in ("first", "second"):
            file.write_text(f"{token}\n")
            client.series(QUERY, GRID)
    monkeypatch.setenv("PASSWORD_OF_PROMETHEUS", "opensesame")
    with Prometheus(
        _datasource(server.server_port, credential={"secret": "env:PASSWORD_OF_PROMETHEUS", "username": "Aladdin"})
    ) as client:
        client.series(QUERY, GRID)

    sent = [headers["Authorization"] for headers in server.headers]
    assert sent == ["Bearer first", "Bearer second", "Basic QWxhZGRpbjpvcGVuc2VzYW1l"]
    assert server.headers[0]["X-Scope-OrgID"] == "team-a"


@pytest.mark.parametrize("content", [None, "", f"{TOKEN}\nsecond line", f"{TOKEN}ü"])
def test_a_credential_that_cannot_be_used_is_never_shown(
    server: FaultServer, tmp_path: Path, content: str | None
) -> None:
    """A missing, empty or unprintable credential is an error without its value or place; the log has the place."""
    file = tmp_path / "token"
    if content is not None:
        file.write_text(content)
    with (
        structlog.testing.capture_logs() as logs,
        Prometheus(_datasource(server.server_port, credential={"secret": f"file:{file}"})) as client,
        pytest.raises(SourceUnavailable, match="was not asked, because its credential") as error,
    ):
        client.series(QUERY, GRID)

    assert not server.forms
    told = f"{error.value} {error.value.hint} {error.value.detail}"
    assert TOKEN not in told
    assert str(file) not in told
    assert TOKEN not in str(logs)


def test_no_more_requests_at_a_time_than_configured(server: FaultServer) -> None:
    """However many threads ask, the datasource sees its configured concurrency at most."""
    running, most, lock = 0, 0, threading.Lock()

    def counted(form: dict[str, str]) -> Reply:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        threading.Event().wait(0.02)
        with lock:
            running -= 1
        return _one(form)

    server.replies = [counted]
    with Prometheus(_datasource(server.server_port, concurrency=2, timeout=20)) as client:
        threads = [threading.Thread(target=client.series, args=(QUERY, GRID)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert most == 2
    assert len(server.forms) == 8


def test_a_backfill_that_promtool_refuses_says_why(tmp_path: Path) -> None:
    """A broken OpenMetrics file is an error with promtool's reason, not a traceback."""
    if find_binary("promtool") is None:
        pytest.skip("promtool is not installed: apt-get install prometheus")
    broken = tmp_path / "broken.om"
    broken.write_text("not { openmetrics\n")

    with pytest.raises(SourceUnavailable, match=r"promtool cannot backfill broken\.om: "):
        backfill(broken, tmp_path)


@pytest.mark.parametrize("value", ["a\r\nX-Other: b", "a\n", "ü"])
def test_a_header_that_cannot_be_sent_is_refused_in_the_configuration(value: str) -> None:
    """A line end would begin another header; what is no ASCII has no agreed form."""
    with pytest.raises(ValueError, match=r"headers\.X-A"):
        _datasource(9, headers={"X-A": value})


def test_a_server_that_does_not_tell_its_index_is_still_looked_at(server: FaultServer) -> None:
    """What a gateway refuses is a note of the profile, and the rest of the look goes on."""
    refusal = b'{"status": "error", "errorType": "bad_data", "error": "match[] is not supported"}'
    server.replies = [(400, {}, refusal)]
    datasource = _datasource(server.server_port)

    told = naming_report.report(datasource, datetime(2026, 11, 27, tzinfo=UTC), ["prod"]).told

    assert (told["profile"]["guess"], told["profile"]["missing"]) == (None, [])
    assert "match[] is not supported" in told["profile"]["notes"][0]
    assert "configuration" not in told
