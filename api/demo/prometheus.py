"""A real Prometheus on loopback for the demo and the tests: found, filled with history, started, stopped.

Filling uses promtool's backfill (https://prometheus.io/docs/prometheus/latest/storage/#backfilling-from-openmetrics-format) with
long blocks; with the default of two hours a fortnight would take minutes.
"""

from __future__ import annotations

import http.client
import json
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple, Self

import structlog

from drumlin.kg.errors import SourceUnavailable

_log = structlog.get_logger()

PACKAGES = {
    "prometheus": "prometheus",
    "promtool": "prometheus",
    "prometheus-alertmanager": "prometheus-alertmanager",
    "prometheus-node-exporter": "prometheus-node-exporter",
    "influxd": "influxdb",
    "victoria-metrics": "victoria-metrics",
}
"""Binary → the Debian package that has it."""

_READY_SECONDS = 60.0
_STOP_SECONDS = 15.0
_STARTS = 3  # another process may take the free port before the server does


def find_binary(name: str) -> Path | None:
    """Return where a binary is, or None; node_exporter's upstream name is known too."""
    found = shutil.which(name) or (shutil.which("node_exporter") if name == "prometheus-node-exporter" else None)
    return Path(found) if found else None


def need_binary(name: str) -> Path:
    """Return where a binary is; raises ``SourceUnavailable`` with the command that installs it."""
    if found := find_binary(name):
        return found
    raise SourceUnavailable(f"{name} is not installed", hint=f"apt-get install {PACKAGES[name]}")


def free_port() -> int:
    """Return a port of loopback that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def backfill(openmetrics: Path, directory: Path) -> None:
    """Write the samples of an OpenMetrics file into the storage of ``directory``; the server must not run.

    Raises ``SourceUnavailable`` when promtool is missing or refuses the file.
    """
    storage = directory / "data"
    storage.mkdir(parents=True, exist_ok=True)
    # The flag is hidden and has to stand before the subcommand.
    blocks = "--max-block-duration=744h"
    command = [
        str(need_binary("promtool")),
        "tsdb",
        "create-blocks-from",
        blocks,
        "openmetrics",
        str(openmetrics),
        str(storage),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  our own arguments, no shell
    if done.returncode:
        reason = " ".join(done.stderr.split())[-300:]
        raise SourceUnavailable(
            f"promtool cannot backfill {openmetrics.name}: {reason}", hint="check the OpenMetrics file"
        )


@contextmanager
def serving_past(directory: Path, write: Callable[[Path], None]) -> Iterator[str | None]:
    """Start a Prometheus that holds what ``write`` writes as OpenMetrics, and yield its address; None where it is not installed."""
    if not find_binary("prometheus") or not find_binary("promtool"):
        yield None
        return
    home = directory / "prometheus"
    home.mkdir()
    text = directory / "past.om"
    write(text)
    backfill(text, home)
    with start_prometheus(home) as server:
        yield server.url


class ScrapeTarget(NamedTuple):
    """What is scraped: host:port, labels that its series get (``instance``), how often; ``as_is``: series get no labels at all."""

    address: str
    labels: Mapping[str, str] = MappingProxyType({})
    interval: str | None = None
    as_is: bool = False


class Server:
    """A process of ours that serves HTTP on loopback until ``stop``; its output goes to a log file."""

    def __init__(self, process: subprocess.Popen[bytes], port: int) -> None:
        self.process = process
        self.port = port

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End the process and wait for it."""
        if self.process.poll() is not None:
            return
        self.process.terminate()
        try:
            self.process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def start_prometheus(
    directory: Path,
    *,
    targets: Mapping[str, ScrapeTarget] | None = None,
    scrape_interval: str = "15s",
    arguments: Sequence[str] = (),
) -> Server:
    """Start Prometheus on the storage of ``directory`` and wait until it is ready; nothing in it expires.

    ``targets`` maps a job to what it scrapes. Raises ``SourceUnavailable`` with the end of its log.
    """
    directory.mkdir(parents=True, exist_ok=True)
    jobs = [
        {
            "job_name": job,
            "static_configs": [{"targets": [target.address], "labels": dict(target.labels)}],
            "scrape_interval": target.interval or scrape_interval,
            "honor_labels": target.as_is,
            "metric_relabel_configs": [
                {"source_labels": [label], "regex": re.escape(value), "target_label": label, "replacement": ""}
                for label, value in (("job", job), ("instance", target.address))
                if target.as_is
            ],
        }
        for job, target in (targets or {}).items()
    ]
    config = directory / "prometheus.yml"
    config.write_text(
        json.dumps({"global": {"scrape_interval": scrape_interval}, "scrape_configs": jobs}), encoding="utf-8"
    )
    command = [
        str(need_binary("prometheus")),
        f"--config.file={config}",
        f"--storage.tsdb.path={directory / 'data'}",
        "--storage.tsdb.retention.time=3650d",
        *arguments,
    ]
    return start(command, "--web.listen-address=127.0.0.1:{port}", "/-/ready", directory / "prometheus.log")


def start_node_exporter(directory: Path) -> Server:
    """Start node-exporter, which measures this very machine; raises ``SourceUnavailable``."""
    directory.mkdir(parents=True, exist_ok=True)
    command = [str(need_binary("prometheus-node-exporter"))]
    return start(command, "--web.listen-address=127.0.0.1:{port}", "/", directory / "node-exporter.log")


def start(command: list[str], listen: str, ready: str, log: Path) -> Server:
    """Start a server on a free port (``listen`` is its option, with a hole for it) and wait until ``ready`` answers.

    Raises ``SourceUnavailable`` with the end of its log.
    """
    for _ in range(_STARTS):
        port = free_port()
        with log.open("wb") as output:
            process = subprocess.Popen([*command, listen.format(port=port)], stdout=output, stderr=output)  # noqa: S603  our own arguments, no shell
        server = Server(process, port)
        if wait_ready(server, ready):
            _log.info("server_started", command=Path(command[0]).name, port=port, pid=process.pid)
            return server
        server.stop()
        if b"address already in use" not in log.read_bytes():
            break
    tail = " ".join(log.read_text(errors="replace").split())[-300:]
    raise SourceUnavailable(f"{Path(command[0]).name} did not start: {tail}", hint=f"see {log}")


def wait_ready(server: Server, path: str, status: int = 200) -> bool:
    """Wait until a server answers a path with a status; False when it ends or takes too long."""
    deadline = time.monotonic() + _READY_SECONDS
    while time.monotonic() < deadline and server.process.poll() is None:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=2)
        try:
            connection.request("GET", path)
            if connection.getresponse().status == status:
                return True
        except (OSError, http.client.HTTPException):
            pass  # not listening yet; the deadline decides
        finally:
            connection.close()
        time.sleep(0.05)
    return False
