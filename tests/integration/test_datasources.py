"""A look at each datasource, against real servers: what is there, since when, and what a template does not find."""

from __future__ import annotations

import base64
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pyarrow as pa
import pyarrow.parquet
import pytest

from drumlin.api.demo import prometheus as servers
from drumlin.kg.config.datasources import DatasourceSettings
from drumlin.kg.errors import DatasourceRefused, SourceUnavailable
from drumlin.kg.telemetry.datasources import Datasource
from drumlin.kg.telemetry.fetch.influxdb import InfluxDB
from drumlin.kg.telemetry.fetch.prometheus import Prometheus
from drumlin.kg.telemetry.probing import probe
from drumlin.kg.telemetry.series import Grid
from drumlin.kg.telemetry.templates import TemplateCatalogue
from tests.integration.conftest import T0, RealPrometheus, at, need
from tests.integration.test_prometheus_tls import certificate
from tests.listening import listening
from tests.unit.telemetry_store import IRIS

NOW = at(239)


def _configured(kind: str, url: str, **more: object) -> Datasource:
    given = {"name": "there", "kind": kind, "url": url, **more}
    return Datasource.from_settings(DatasourceSettings.model_validate(given), IRIS, None)


@pytest.fixture
def influxdb(influx_url: str) -> Datasource:
    """The real InfluxDB's database for forecasts."""
    return _configured("influxdb", influx_url, database="forecasts")


@pytest.fixture(scope="module")
def victoria(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real VictoriaMetrics with an hour of one series."""
    binary = need("victoria-metrics", "victoria-metrics")
    directory = tmp_path_factory.mktemp("victoria")
    command = [str(binary), f"-storageDataPath={directory}", "-retentionPeriod=100y", "-search.latencyOffset=0"]
    with servers.start(command, "-httpListenAddr=127.0.0.1:{port}", "/health", directory / "log") as server:
        lines = "\n".join(
            f'used_bytes{{pod="a",team="{team}"}} {n * times} {int(at(n).timestamp() * 1000)}'
            for team, times in (("x", 1), ("y", 1000))
            for n in range(60)
        )
        httpx.post(f"{server.url}/api/v1/import/prometheus", content=lines).raise_for_status()
        httpx.get(f"{server.url}/internal/force_flush").raise_for_status()
        yield server.url


def test_a_prometheus_tells_what_each_template_lacks(prometheus: RealPrometheus) -> None:
    """Version, the time of the oldest sample to the hour, and per template the metric, label or value that is not there."""
    found = probe(prometheus.datasource(), TemplateCatalogue.shipped(), NOW)

    assert found["reachable"]
    assert found["version"][0].isdigit()
    assert found["language"] == "promql"
    assert found["oldest"] is not None
    assert abs((NOW - timedelta(minutes=239)) - T0) < timedelta(hours=1)
    templates = {each["template"]: each for each in found["templates"]}
    assert templates["workload.mem_usage"]["found"]
    assert templates["node.mem_usage"]["found"]
    energy = templates["workload.energy_joules"]
    assert energy["missing"] == "kepler_pod_cpu_joules_total"
    assert "kepler_container_joules_total" in energy["similar"]
    disk = templates["workload.disk_usage"]
    assert (disk["missing"], disk["similar"][0]) == ("pod", "pod_name")
    assert 'labels = {pod = "pod_name"}' in disk["hint"]
    network = templates["workload.network_receive"]
    assert (network["missing"], network["similar"]) == ("job", ["cadvisor"])


def test_a_label_that_is_renamed_is_found(prometheus: RealPrometheus) -> None:
    """With the configuration that the hint suggests, the template finds its series."""
    renamed = prometheus.datasource(labels={"pod": "pod_name"}, jobs={"kubelet": "cadvisor"})
    templates = {each["template"]: each for each in probe(renamed, TemplateCatalogue.shipped(), NOW)["templates"]}
    assert templates["workload.network_receive"]["missing"] == "pod_name"


def test_a_server_that_is_down_is_told(prometheus: RealPrometheus) -> None:
    """No answer is an answer of the probe, with what to do."""
    found = probe(_configured("prometheus", "http://127.0.0.1:9", timeout=2), TemplateCatalogue.shipped(), NOW)
    assert found["reachable"] is False
    assert "cannot be reached" in found["error"]
    assert found["hint"]


def test_victoria_metrics_speaks_the_same(victoria: str) -> None:
    """What speaks Prometheus' API is asked in the same way, with its own extra parameter."""
    datasource = _configured("prometheus", victoria, scrape_interval="60s", parameters={"nocache": "1"})
    assert _used(datasource) == [1001.0 * n for n in range(10, 21)]
    found = probe(datasource, TemplateCatalogue.shipped(), at(60))
    assert found["reachable"]
    assert [each["template"] for each in found["templates"] if each["found"]] == []
    assert (found["language"], found["oldest"]) == ("metricsql", "2026-11-01T00:00:00Z")
    assert (
        probe(datasource, TemplateCatalogue.shipped(), at(60) + timedelta(days=100))["oldest"] == "2026-11-01T00:00:00Z"
    )
    assert probe(datasource, TemplateCatalogue.shipped(), at(0) - timedelta(days=2))["oldest"] is None


def test_influxdb_keeps_points_of_the_future(influxdb: Datasource) -> None:
    """Points days ahead come back as they were written, whatever characters the names have."""
    tags = {"forecast": "a b,c=d'\"e"}
    points = [
        (int((NOW + timedelta(days=3, minutes=n)).timestamp() * 1000), {"y": n / 7, "q0.9": n / 3}) for n in range(6000)
    ]
    with InfluxDB(influxdb) as client:
        client.write("cpu usage", tags, points)
        rows = client.read("cpu usage", tags)
    assert rows["ds"] == [stamp for stamp, _ in points]
    assert list(zip(rows["y"], rows["q0.9"], strict=True)) == [(each["y"], each["q0.9"]) for _, each in points]
    assert probe(influxdb, TemplateCatalogue.shipped(), NOW)["measurements"] >= 1


def test_an_error_of_influxdb_inside_a_success_is_an_error(influxdb: Datasource) -> None:
    """200 with an error in the result is not taken for an empty answer."""
    other = _configured("influxdb", influxdb.url, database="nope")
    with InfluxDB(other) as client, pytest.raises(DatasourceRefused, match="database not found: nope"):
        client.read("x", {"forecast": "y"})
    with (
        InfluxDB(other) as client,
        pytest.raises(DatasourceRefused, match=r"refused the query \(404\): database not found"),
    ):
        client.write("x", {}, [(0, {"y": 1.0})])
    assert probe(other, TemplateCatalogue.shipped(), NOW)["reachable"] is False


def test_a_directory_of_parquet_is_looked_at(tmp_path: Path) -> None:
    """A parquet datasource tells how many files it has; one without a directory says so."""
    pyarrow.parquet.write_table(pa.table({"ds": [NOW], "y": [1.0]}), tmp_path / "a.parquet")
    assert probe(_configured("parquet", tmp_path.as_uri()), TemplateCatalogue.shipped(), NOW)["files"] == 1
    assert (
        probe(_configured("parquet", (tmp_path / "no").as_uri()), TemplateCatalogue.shipped(), NOW)["reachable"]
        is False
    )


def _used(datasource: Datasource) -> list[float]:
    start = int(at(10).timestamp())
    with Prometheus(datasource, sleep=lambda _: None) as client:
        fetched = client.series('sum(used_bytes{pod=~"a|b"})', Grid(start, start + 600, 60))
    return [value for part in fetched.parts for value in part.values.to_pylist()]


def test_an_extra_parameter_narrows_what_the_server_shows(victoria: str) -> None:
    """VictoriaMetrics' extra_filters[] reach it with each query, so a datasource may be one team's part of a server."""
    mine = _configured("prometheus", victoria, parameters={"extra_filters[]": '{team="x"}', "nocache": "1"})
    assert _used(mine) == [float(n) for n in range(10, 21)]
    nobody = _configured("prometheus", victoria, parameters={"extra_filters[]": '{team="z"}'})
    assert _used(nobody) == []


class Door(ThreadingHTTPServer):
    """What stands before a server: TLS with client certificates when it has a context, an authorisation, a tenant; the rest passes."""

    daemon_threads = True

    def __init__(self, behind: str, authorization: str, context: ssl.SSLContext | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Doorkeeper)
        self.behind, self.authorization = behind, authorization
        self.url = f"{'https' if context else 'http'}://127.0.0.1:{self.server_port}"
        if context:
            self.socket = context.wrap_socket(self.socket, server_side=True)

    def handle_error(self, request: object, client_address: object) -> None:
        """A handshake that fails is the caller's to tell."""


class _Doorkeeper(BaseHTTPRequestHandler):
    server: Door

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.headers.get("Authorization") != self.server.authorization:
            self._send(401, b"who are you?")
        elif self.headers.get("X-Scope-OrgID") != "team-x":
            self._send(403, b"<html>not this tenant</html>")
        else:
            kind = {"Content-Type": self.headers["Content-Type"]}
            answer = httpx.post(self.server.behind + self.path, content=body, headers=kind)
            self._send(answer.status_code, answer.content)

    def _send(self, status: int, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *args: object) -> None:
        """Keep quiet."""


@contextmanager
def _before(victoria: str, authorization: str, context: ssl.SSLContext | None = None) -> Iterator[Door]:
    with listening(Door(victoria, authorization, context)) as door:
        yield door


@pytest.mark.parametrize("username", ["reader", None])
def test_a_real_server_behind_a_door_is_asked_with_what_opens_it(
    victoria: str, tmp_path: Path, username: str | None
) -> None:
    """Basic or Bearer from a file, and the tenant; a wrong secret or tenant is told without repeating it, a new one is read at once."""
    secret = tmp_path / "secret"
    basic = base64.b64encode(b"reader:s3cret").decode()
    credential = {"secret": f"file:{secret}", **({"username": username} if username else {})}
    with _before(victoria, f"Basic {basic}" if username else "Bearer s3cret") as door:
        given = {"credential": credential, "parameters": {"nocache": "1"}}
        there = _configured("prometheus", door.url, tenant_header={"value": "team-x"}, **given)
        secret.write_text("wr0ng")
        with pytest.raises(DatasourceRefused, match=r"\(401\): who are you") as error:
            _used(there)
        assert "credential" in str(error.value.hint)
        assert "wr0ng" not in str(error.value) + str(error.value.detail)
        secret.write_text("s3cret\n")
        assert len(_used(there)) == 11
        other = _configured("prometheus", door.url, tenant_header={"value": "team-y"}, **given)
        with pytest.raises(DatasourceRefused, match=r"\(403\)") as error:
            _used(other)
        assert "tenant" in str(error.value.hint)
        secret.unlink()
        with pytest.raises(SourceUnavailable, match="its credential cannot be read"):
            _used(there)


def test_a_real_server_behind_tls_wants_both_certificates(victoria: str, tmp_path: Path) -> None:
    """With its CA and a client certificate data comes; without either, one line says which setting it is."""
    paths = {name: certificate(tmp_path, name) for name in ("server", "client", "other")}
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(paths["server"], f"{paths['server']}.key")
    context.load_verify_locations(paths["client"])
    context.verify_mode = ssl.CERT_REQUIRED
    (tmp_path / "secret").write_text("t")
    given: dict[str, object] = {
        "credential": {"secret": f"file:{tmp_path / 'secret'}"},
        "tenant_header": {"value": "team-x"},
        "parameters": {"nocache": "1"},
    }
    mine = {"certificate": str(paths["client"]), "key": f"{paths['client']}.key"}
    with _before(victoria, "Bearer t", context) as door:
        assert len(_used(_configured("prometheus", door.url, tls={"ca": str(paths["server"]), **mine}, **given))) == 11
        with pytest.raises(SourceUnavailable, match="certificate that is not trusted") as error:
            _used(_configured("prometheus", door.url, tls={"ca": str(paths["other"]), **mine}, **given))
        assert "tls.ca" in str(error.value.hint)
        with pytest.raises(SourceUnavailable, match="cannot be reached"):
            _used(_configured("prometheus", door.url, tls={"ca": str(paths["server"])}, timeout=5, **given))
