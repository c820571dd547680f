"""The small server of ``drumlin follow`` before anything is followed, and where it cannot listen."""

from __future__ import annotations

import errno
import socket
import threading
from collections.abc import Iterator
from contextlib import closing

import httpx
import pytest

from drumlin.api.bootstrap import now
from drumlin.api.cli.serving import listening_address
from drumlin.api.exporting import Exporter
from drumlin.api.http.tcp_info import cannot_listen
from drumlin.api.probes import Probes, telling
from drumlin.exporters.kubectl.dump import DumpSource
from drumlin.exporters.pipeline.pipeline import Pipeline
from drumlin.exporters.protocol import Change
from drumlin.kg.config.settings import Settings
from drumlin.kg.errors import InvalidSettings, StoreUnavailable
from drumlin.kg.model.iris import Iris
from drumlin.kg.store.embedded.store import EmbeddedStore
from drumlin.kg.telemetry.templates import TemplateCatalogue

SETTINGS = Settings.load(metrics={"port": 0})
PROBLEM = "application/problem+json"


class Broken(DumpSource):
    """A source that ends with an error."""

    def __init__(self) -> None:
        super().__init__([], (), clock=now)
        self.name = "b"

    def changes(self, stop: threading.Event) -> Iterator[Change]:
        """Yield what there is, then fail."""
        yield from super().changes(stop)
        raise StoreUnavailable("nobody is there")


@pytest.fixture
def exporters() -> list[Exporter]:
    """What is followed: at first nothing."""
    return []


@pytest.fixture
def probes(exporters: list[Exporter]) -> Iterator[Probes]:
    """A server on a free port."""
    with Probes(SETTINGS, exporters) as running:
        yield running


def exporter(store: EmbeddedStore, source: DumpSource) -> Exporter:
    """Return an exporter of ``source`` into ``store``."""
    return Exporter(
        Pipeline(store, (), SETTINGS, Iris(SETTINGS.base), TemplateCatalogue.shipped(), (), clock=now), source
    )


def test_nothing_is_ready_before_the_service_was_reached(probes: Probes) -> None:
    """Readiness is a 503 problem that says so, while the process is alive and has metrics."""
    ready = httpx.get(f"{probes.url}/readyz")

    assert (ready.status_code, ready.headers["Content-Type"]) == (503, PROBLEM)
    assert ready.json()["detail"] == "the service has not been reached"
    assert httpx.get(f"{probes.url}/livez").json()["cluster"] == SETTINGS.cluster
    assert "# TYPE drumlin_kind_synced gauge" in httpx.get(f"{probes.url}/metrics").text


def test_head_has_no_content_and_other_addresses_are_not_there(probes: Probes) -> None:
    """HEAD tells the status alone; what is not told is 404, on the same connection."""
    with httpx.Client(base_url=probes.url) as client:
        head, other = client.head("/livez"), client.get("/subgraphs")

    assert (head.status_code, head.content, int(head.headers["Content-Length"]) > 0) == (200, b"", True)
    assert (other.status_code, other.headers["Content-Type"]) == (404, PROBLEM)


def test_readiness_names_what_failed_until_it_is_made_good(probes: Probes, exporters: list[Exporter]) -> None:
    """All exporters have to be ready: the one that failed is named with its reason, and no longer after a good run."""
    with closing(EmbeddedStore(None)) as store:
        exporters += [
            exporter(store, DumpSource([], (), clock=now)),
            exporter(store, Broken()),
        ]
        exporters[0].run(threading.Event())
        with pytest.raises(StoreUnavailable) as failed:
            exporters[1].run(threading.Event())
        exporters[1].failure = str(failed.value)
        told = httpx.get(f"{probes.url}/readyz").json()
        exporters[1].source = exporters[0].source
        exporters[1].run(threading.Event())

    assert (told["detail"], told["sources"]) == (
        "b: nobody is there",
        [{"source": "b", "waiting": [], "failure": "nobody is there"}],
    )
    assert httpx.get(f"{probes.url}/readyz").json() == {"status": "ready"}


def test_a_port_in_use_is_told_in_one_line(probes: Probes) -> None:
    """The address and the reason are named, and what to do."""
    taken = Settings.load(metrics={"port": probes.server_address[1]})
    with pytest.raises(InvalidSettings, match=r"cannot listen on 127\.0\.0\.1:\d+: Address already in use") as told:
        Probes(taken, ())

    assert "--metrics-port 0" in (told.value.hint or "")


@pytest.mark.parametrize("host", ["nobody.invalid", "192.0.2.1"])
def test_an_address_of_another_machine_is_told_from_a_port_in_use(host: str) -> None:
    """No other port helps then, so the hint is another host; by the follower and by the service."""
    with pytest.raises(InvalidSettings, match=f"cannot listen on {host}:0") as told:
        Probes(Settings.load(metrics={"port": 0, "host": host}), ())
    with pytest.raises(InvalidSettings, match=f"cannot listen on {host}:0") as of_service:
        listening_address(host, 0).__enter__()

    assert "--metrics-host 127.0.0.1" in (told.value.hint or "")
    assert "--host 127.0.0.1" in (of_service.value.hint or "")
    assert "another port" not in f"{told.value.hint} {of_service.value.hint}"


def test_two_services_that_begin_at_once_do_not_share_a_port() -> None:
    """The second is refused while nobody listens yet; a free port is another one; at the end the first can be had again."""
    with listening_address("127.0.0.1", 0) as port:
        with pytest.raises(InvalidSettings, match=f"cannot listen on 127.0.0.1:{port}: Address already in use"):
            listening_address("127.0.0.1", port).__enter__()
        with listening_address("127.0.0.1", 0) as other:
            assert other != port
    with listening_address("127.0.0.1", port) as again:
        assert again == port


def test_a_port_that_is_reserved_is_told_so() -> None:
    """What only root may have is left for a higher port."""
    denied = PermissionError(errno.EACCES, "Permission denied")
    assert "--port 8080" in (cannot_listen("127.0.0.1", 80, denied, "--").hint or "")


def test_without_a_port_there_is_no_server(capsys: pytest.CaptureFixture[str]) -> None:
    """Off is the default; with a port the address is told, and let go of at the end."""
    with telling(Settings.load(), ()):
        assert capsys.readouterr().err == ""
    with telling(SETTINGS, ()):
        url = capsys.readouterr().err.removeprefix("Metrics at ").strip()
        assert httpx.get(url).status_code == 200
    with pytest.raises(httpx.ConnectError):
        httpx.get(url)


def test_what_kubernetes_sets_for_a_service_is_no_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Service ``drumlin-metrics`` puts its address into the environment of every pod beside it."""
    monkeypatch.setenv("DRUMLIN_METRICS_PORT", "tcp://10.0.0.7:9090")
    monkeypatch.setenv("DRUMLIN_METRICS__HOST", "::1")

    assert (Settings.load().metrics.port, Settings.load().metrics.host) == (None, "::1")


@pytest.mark.parametrize(
    ("head", "status"),
    [
        ("Host: evil.example\r\n", 421),
        ("Host: localhost\r\nHost: evil.example\r\n", 400),
        ("", 400),
        ("Host: localhost:1\r\n", 200),
        ("Host: [::1]\r\n", 200),
    ],
)
def test_other_hosts_are_refused_as_by_a_service(probes: Probes, head: str, status: int) -> None:
    """A name that leads here by somebody else's doing learns nothing: 421, and 400 for two names or none; its own hosts are answered."""
    with socket.create_connection(("127.0.0.1", probes.server_address[1]), timeout=20) as connection:
        connection.sendall(f"GET /metrics HTTP/1.1\r\n{head}Connection: close\r\n\r\n".encode())
        answer = b"".join(iter(lambda: connection.recv(1 << 16), b""))

    assert answer.startswith(b"HTTP/1.1 %d" % status)
    assert status == 200 or PROBLEM.encode() in answer
