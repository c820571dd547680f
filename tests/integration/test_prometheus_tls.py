"""A Prometheus behind TLS: its CA is the configured one or nothing is fetched; a broken compression is told."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from drumlin.kg.config.datasources import DatasourceSettings
from drumlin.kg.errors import DatasourceRefused, SourceUnavailable
from drumlin.kg.telemetry.datasources import Datasource
from drumlin.kg.telemetry.fetch.prometheus import Prometheus
from tests.integration.test_prometheus_faults import GRID, QUERY, FaultServer, _one
from tests.listening import listening
from tests.unit.telemetry_store import IRIS


def certificate(directory: Path, name: str) -> Path:
    """Make a self-signed certificate for 127.0.0.1, with its key in the same file."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is not installed: apt-get install openssl")
    path = directory / f"{name}.pem"
    command = [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(path) + ".key", "-out", str(path)]
    subprocess.run(command, check=True, capture_output=True)
    return path


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The server's certificate, another one, and a client's."""
    directory = tmp_path_factory.mktemp("certificates")
    return {name: certificate(directory, name) for name in ("server", "other", "client")}


@pytest.fixture
def server(certificates: dict[str, Path]) -> Iterator[FaultServer]:
    """A server that speaks TLS and asks for the client's certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates["server"], f"{certificates['server']}.key")
    context.load_verify_locations(certificates["client"])
    context.verify_mode = ssl.CERT_REQUIRED
    running = FaultServer()
    running.socket = context.wrap_socket(running.socket, server_side=True)
    running.replies = [_one]
    with listening(running):
        yield running


def _datasource(server: FaultServer, **tls: object) -> Datasource:
    given = {
        "name": "p",
        "kind": "prometheus",
        "url": f"https://127.0.0.1:{server.server_port}",
        "timeout": 20,
        "tls": tls,
    }
    return Datasource.from_settings(DatasourceSettings.model_validate(given), IRIS, None)


def test_the_configured_ca_and_client_certificate_open_the_door(
    server: FaultServer, certificates: dict[str, Path]
) -> None:
    """With the server's CA and the client's certificate and key, data comes."""
    mine = {"certificate": certificates["client"], "key": f"{certificates['client']}.key"}
    with Prometheus(_datasource(server, ca=certificates["server"], **mine)) as client:
        assert client.series(QUERY, GRID).parts[0].values.to_pylist() == [1.0] * 10


@pytest.mark.parametrize("ca", ["other", None])
def test_a_wrong_ca_is_told_and_asked_once(server: FaultServer, certificates: dict[str, Path], ca: str | None) -> None:
    """Whom nobody vouches for is not asked, and the hint says which setting is missing."""
    waits: list[float] = []
    tls = {"ca": certificates[ca]} if ca else {}
    with (
        Prometheus(_datasource(server, **tls), sleep=waits.append) as client,
        pytest.raises(SourceUnavailable, match="certificate that is not trusted") as error,
    ):
        client.series(QUERY, GRID)
    assert "tls.ca" in (error.value.hint or "")
    assert (waits, server.forms) == ([], [])


def test_an_unreadable_certificate_is_told(server: FaultServer, tmp_path: Path) -> None:
    """A file that is no certificate is an error before anything is asked."""
    (tmp_path / "x.pem").write_text("no certificate")
    with pytest.raises(SourceUnavailable, match="ca, certificate or key cannot be read"):
        Prometheus(_datasource(server, ca=tmp_path / "x.pem"))


def test_a_broken_compression_is_an_error() -> None:
    """A proxy that says gzip and sends something else is told, not taken for data."""
    with listening(FaultServer()) as plain:
        plain.replies = [(200, {"Content-Encoding": "gzip"}, b"no gzip at all")]
        given = {"name": "p", "kind": "prometheus", "url": f"http://127.0.0.1:{plain.server_port}"}
        datasource = Datasource.from_settings(DatasourceSettings.model_validate(given), IRIS, None)
        with Prometheus(datasource) as client, pytest.raises(DatasourceRefused, match="broken compression"):
            client.series(QUERY, GRID)
