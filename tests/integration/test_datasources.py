"""A look at each datasource, against real servers: what is there, since when, and what a template does not find."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import httpx
import pyarrow as pa
import pyarrow.parquet
import pytest

from api.demo import prometheus as servers
from kg.errors import DatasourceRefused
from kg.settings import DatasourceSettings
from kg.telemetry.datasources import Datasource
from kg.telemetry.fetch.influxdb import InfluxDB
from kg.telemetry.fetch.prometheus import Prometheus
from kg.telemetry.probing import probe
from kg.telemetry.series import Grid
from kg.telemetry.templates import Catalogue
from tests.integration.conftest import T0, RealPrometheus, at, need
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
        lines = "\n".join(f'used_bytes{{pod="a"}} {n} {int(at(n).timestamp() * 1000)}' for n in range(60))
        httpx.post(f"{server.url}/api/v1/import/prometheus", content=lines).raise_for_status()
        httpx.get(f"{server.url}/internal/force_flush").raise_for_status()
        yield server.url


def test_a_prometheus_tells_what_each_template_lacks(prometheus: RealPrometheus) -> None:
    """Version, the time of the oldest sample to the hour, and per template the metric, label or value that is not there."""
    found = probe(prometheus.datasource(), Catalogue.shipped(), NOW)

    assert found["reachable"]
    assert found["version"][0].isdigit()
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
    templates = {each["template"]: each for each in probe(renamed, Catalogue.shipped(), NOW)["templates"]}
    assert templates["workload.network_receive"]["missing"] == "pod_name"


def test_a_server_that_is_down_is_told(prometheus: RealPrometheus) -> None:
    """No answer is an answer of the probe, with what to do."""
    found = probe(_configured("prometheus", "http://127.0.0.1:9", timeout=2), Catalogue.shipped(), NOW)
    assert found["reachable"] is False
    assert "cannot be reached" in found["error"]
    assert found["hint"]


def test_victoria_metrics_speaks_the_same(victoria: str) -> None:
    """What speaks Prometheus' API is asked in the same way, with its own extra parameter."""
    datasource = _configured("prometheus", victoria, scrape_interval="60s", parameters={"nocache": "1"})
    start = int(at(10).timestamp())
    with Prometheus(datasource) as client:
        fetched = client.series('sum(used_bytes{pod=~"a|b"})', Grid(start, start + 600, 60))
    assert [value for part in fetched.parts for value in part.values.to_pylist()] == [float(n) for n in range(10, 21)]
    found = probe(datasource, Catalogue.shipped(), at(60))
    assert found["reachable"]
    assert [each["template"] for each in found["templates"] if each["found"]] == []


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
    assert probe(influxdb, Catalogue.shipped(), NOW)["measurements"] >= 1


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
    assert probe(other, Catalogue.shipped(), NOW)["reachable"] is False


def test_a_directory_of_parquet_is_looked_at(tmp_path: Path) -> None:
    """A parquet datasource tells how many files it has; one without a directory says so."""
    pyarrow.parquet.write_table(pa.table({"ds": [NOW], "y": [1.0]}), tmp_path / "a.parquet")
    assert probe(_configured("parquet", tmp_path.as_uri()), Catalogue.shipped(), NOW)["files"] == 1
    assert probe(_configured("parquet", (tmp_path / "no").as_uri()), Catalogue.shipped(), NOW)["reachable"] is False
