"""What is talked to: a real Prometheus on loopback, filled with samples whose series can be computed by hand; an InfluxDB; an API server."""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest

from drumlin.api.demo import prometheus as servers
from drumlin.kg.config.datasources import DatasourceSettings
from drumlin.kg.telemetry.datasources import Datasource
from tests.fake_apiserver import FakeApiServer
from tests.fake_apiserver.clusters import Cluster, fake_cluster
from tests.unit.telemetry_store import IRIS

T0 = datetime(2026, 11, 1, tzinfo=UTC)
"""When the samples begin; one a minute follows."""
DAYS = 10
CADVISOR = {"job": "kubelet", "metrics_path": "/metrics/cadvisor"}
NODE = {"job": "node-exporter", "instance": "edge-a-1"}


def minutes(first: int, end: int) -> range:
    """Return the minutes since ``T0`` at which there is a sample."""
    return range(first, end)


def available(minute: int) -> int:
    """Return the free memory of the node at a minute: rugged, so that a shifted point shows."""
    return 1_000_000 + minute * 7919 % 10_007


def odd_values() -> list[str]:
    """Return about a hundred label values that have broken clients elsewhere, with as many random ones."""
    known = [
        "a.b",
        "a|b",
        'q"uote',
        "back\\slash",
        "new\nline",
        "{x}",
        "a+b",
        "(",
        "[",
        "^$",
        "'",
        "`",
        "%41",
        "\u00a0",
        "ü😀",
    ]
    known += [
        "x'} or vector(42) or up{job='x",
        '"} or vector(42) or up{a="',
        "\\",
        "\\n",
        "tab\tbed",
        "#c",
        "a&b~c-d",
        ".*",
        "南京",
    ]
    draw = random.Random(7)
    alphabet = "ab01-._\"'`\\|()[]{}^$+*?#&%~\n\t é😀\u2028\u00a0"
    return known + sorted({"".join(draw.choices(alphabet, k=draw.randint(1, 12))) for _ in range(90)} - set(known))


class OpenMetrics:
    """Collects series and writes them as promtool reads them."""

    def __init__(self) -> None:
        self._families: dict[tuple[str, str], list[str]] = {}

    def add(self, metric: str, labels: dict[str, str], values: dict[int, object]) -> None:
        """Add a series: its value at each of some minutes since ``T0``."""
        self.add_at(metric, labels, {60 * minute: value for minute, value in values.items()})

    def add_at(self, metric: str, labels: dict[str, str], values: dict[int, object]) -> None:
        """Add a series: its value at each of some seconds since ``T0``."""
        escaped = {name: v.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"') for name, v in labels.items()}
        written = ",".join(f'{name}="{value}"' for name, value in escaped.items())
        kind = "counter" if metric.endswith("_total") else "gauge"
        start = int(T0.timestamp())
        lines = [f"{metric}{{{written}}} {value} {start + second}" for second, value in values.items()]
        self._families.setdefault((metric.removesuffix("_total"), kind), []).extend(lines)

    def write(self, path: Path) -> None:
        """Write all series to a file."""
        with path.open("w", encoding="utf-8", newline="\n") as out:
            for (family, kind), lines in self._families.items():
                out.write(f"# TYPE {family} {kind}\n" + "\n".join(lines) + "\n")
            out.write("# EOF\n")


def _fill(samples: OpenMetrics) -> None:
    app = {**CADVISOR, "namespace": "payments", "container": "checkout"}
    cpu = "container_cpu_usage_seconds_total"
    # Half a core for two hours, restarted after one (the counter has 30 s again at 1:00); then its successor, a quarter core.
    samples.add(
        cpu, {**app, "pod": "checkout-86b96c86dc-aaaaa"}, {m: 30 * (m if m < 60 else m - 59) for m in minutes(0, 120)}
    )
    samples.add(cpu, {**app, "pod": "checkout-86b96c86dc-bbbbb"}, {m: 15 * (m - 120) for m in minutes(120, 240)})
    # Somebody else's pod whose name looks like one of checkout's.
    samples.add(cpu, {**app, "pod": "checkout-77777777-zzzzz"}, {m: 600 * m for m in minutes(0, 240)})
    memory = "container_memory_working_set_bytes"
    ledger = {**CADVISOR, "namespace": "payments", "container": "ledger", "pod": "ledger-797bcddfd6-n9hxf"}
    samples.add(memory, ledger, {m: 1000 + m for m in [*minutes(0, 60), *minutes(120, 240)]})  # an hour without scrapes
    for number, value in enumerate(odd_values()):
        samples.add(
            memory, {**CADVISOR, "namespace": "odd", "container": "c", "pod": value}, dict.fromkeys(range(6), number)
        )
        samples.add(
            memory, {**CADVISOR, "namespace": value, "container": "c", "pod": "odd"}, dict.fromkeys(range(6), number)
        )
    renamed = {**CADVISOR, "namespace": "payments", "container": "ledger", "pod_name": "ledger-797bcddfd6-n9hxf"}
    samples.add("container_fs_usage_bytes", renamed, dict.fromkeys(minutes(0, 240), 4096))
    network = {**CADVISOR, "job": "cadvisor", "namespace": "payments", "pod": "ledger-797bcddfd6-n9hxf"}
    samples.add("container_network_receive_bytes_total", network, {m: 6000 * m for m in minutes(0, 240)})
    samples.add(
        "kepler_container_joules_total", {"pod_name": "ledger-797bcddfd6-n9hxf"}, {m: m for m in minutes(0, 240)}
    )
    samples.add("node_memory_MemTotal_bytes", NODE, dict.fromkeys(minutes(0, DAYS * 1440), 4_000_000))
    samples.add("node_memory_MemAvailable_bytes", NODE, {m: available(m) for m in minutes(0, DAYS * 1440)})
    _fill_matrix(samples)
    broken = {**NODE, "instance": "edge-b-1"}
    samples.add("node_memory_MemTotal_bytes", broken, dict.fromkeys(minutes(0, 60), 4))
    samples.add(
        "node_memory_MemAvailable_bytes", broken, {m: {10: "NaN", 20: "-Inf"}.get(m, 1) for m in minutes(0, 60)}
    )


WIDE = [f"wide-86b96c86dc-{number:05}" for number in range(100)]
DST = range(-11_520, -7200)
"""Minutes since ``T0`` of three days around the end of summer time in Europe, 2026-10-25."""


def _fill_matrix(samples: OpenMetrics) -> None:
    """Add what the matrix of odd cases needs."""
    shop = {**CADVISOR, "namespace": "shop"}
    cpu, memory = "container_cpu_usage_seconds_total", "container_memory_working_set_bytes"
    # Two replicas of kube-state-metrics tell the same limit of two cores.
    limited = {"job": "kube-state-metrics", "namespace": "payments", "container": "checkout", "resource": "cpu"}
    for replica in ("ksm-1", "ksm-2"):
        for pod in ("checkout-86b96c86dc-aaaaa", "checkout-86b96c86dc-bbbbb"):
            labels = {**limited, "instance": replica, "pod": pod}
            life = minutes(0, 120) if pod.endswith("aaaaa") else minutes(120, 240)
            samples.add("kube_pod_container_resource_limits", labels, dict.fromkeys(life, 2))
    # Scraped every five minutes: three quarters of a core, memory that grows by the scrape.
    slow = {**shop, "container": "c", "pod": "slow-0"}
    samples.add(cpu, slow, {m: 45 * m for m in range(0, 240, 5)})
    samples.add(memory, slow, {m: 100 + m for m in range(0, 240, 5)})
    # A hundred pods of three containers each, a byte more each minute.
    for pod in WIDE:
        for container in ("a", "b", "c"):
            samples.add(memory, {**shop, "container": container, "pod": pod}, {m: 1 + m for m in minutes(0, 240)})
    dst = {**NODE, "instance": "edge-dst"}
    samples.add("node_memory_MemTotal_bytes", dst, dict.fromkeys(DST, 4_000_000))
    samples.add("node_memory_MemAvailable_bytes", dst, {m: available(m) for m in DST})


@dataclass(frozen=True)
class RealPrometheus:
    """The running server and how to get at it."""

    url: str

    def datasource(self, **more: object) -> Datasource:
        """Return it as a configured datasource, scraped once a minute."""
        given = {"name": "prometheus-main", "kind": "prometheus", "url": self.url, "scrape_interval": "60s", **more}
        return Datasource.from_settings(DatasourceSettings.model_validate(given), IRIS, None)


def at(minute: float) -> datetime:
    """Return the time of a minute since ``T0``."""
    return T0 + timedelta(minutes=minute)


@pytest.fixture(scope="session")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealPrometheus]:
    """Start a real Prometheus with known samples; skip, except in CI, where it is not installed."""
    samples = OpenMetrics()
    _fill(samples)
    features = ["--web.enable-remote-write-receiver", "--enable-feature=native-histograms"]
    arguments = ["--query.max-samples=50000", *features]
    with serving(samples, tmp_path_factory.mktemp("prometheus"), *arguments) as server:
        yield server


@contextmanager
def serving(samples: OpenMetrics, directory: Path, *arguments: str) -> Iterator[RealPrometheus]:
    """Start a real Prometheus with these samples; skip, except in CI, where it is not installed."""
    need("prometheus", "prometheus")
    need("promtool", "prometheus")
    samples.write(directory / "samples.om")
    servers.backfill(directory / "samples.om", directory)
    with servers.start_prometheus(directory, arguments=list(arguments)) as server:
        yield RealPrometheus(server.url)


def need(name: str, package: str) -> Path:
    """Return where a server's binary is; skip, except in CI, where it is not installed."""
    found = servers.find_binary(name)
    if found is None:
        reason = f"{name} is not installed: apt-get install {package}"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return found


def start_influxdb(directory: Path, *more: str) -> servers.Server:
    """Start a real InfluxDB 1.x in a directory; ``more`` are lines for its HTTP side."""
    binary = need("influxd", "influxdb")
    config = directory / "influxdb.conf"
    for _ in range(3):  # another process may take a free port first
        http, rpc = servers.free_port(), servers.free_port()
        config.write_text(
            f'reporting-disabled = true\nbind-address = "127.0.0.1:{rpc}"\n[meta]\n dir = "{directory}/meta"\n'
            f'[data]\n dir = "{directory}/data"\n wal-dir = "{directory}/wal"\n[http]\n bind-address = "127.0.0.1:{http}"\n'
            + "\n".join(more)
        )
        with (directory / "log").open("wb") as log:
            process = subprocess.Popen([binary, "-config", config], stdout=log, stderr=log)
        server = servers.Server(process, http)
        if servers.wait_ready(server, "/ping", 204):
            return server
        server.stop()
    raise AssertionError((directory / "log").read_text()[-1000:])


@pytest.fixture(scope="session")
def influx_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real InfluxDB 1.x with the databases forecasts and telemetry; its address."""
    with start_influxdb(tmp_path_factory.mktemp("influxdb")) as server:
        for database in ("forecasts", "telemetry"):
            httpx.post(f"{server.url}/query", params={"q": f"CREATE DATABASE {database}"}).raise_for_status()
        yield server.url


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """A fake API server."""
    with fake_cluster() as fake:
        yield fake


@pytest.fixture
def fake(cluster: Cluster) -> FakeApiServer:
    """The same, by its switches."""
    assert cluster.fake is not None
    return cluster.fake
