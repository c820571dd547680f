"""What the demo starts: a Prometheus that scrapes this machine's node-exporter, stopped without a trace."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from drumlin.api.demo import prometheus as servers
from drumlin.kg.config.datasources import DatasourceSettings
from drumlin.kg.errors import SourceUnavailable
from drumlin.kg.telemetry.datasources import Datasource
from drumlin.kg.telemetry.fetch.prometheus import Prometheus
from tests.unit.telemetry_store import IRIS


def _need(*names: str) -> None:
    for name in names:
        if servers.find_binary(name) is None:
            reason = f"{name} is not installed: apt-get install {servers.PACKAGES[name]}"
            if os.environ.get("CI") == "true":
                pytest.fail(reason)
            pytest.skip(reason)


def test_node_exporter_is_really_scraped(tmp_path: Path) -> None:
    """Within seconds the server has metrics of this machine and tells how often; both processes end when told."""
    _need("prometheus", "prometheus-node-exporter")
    with servers.start_node_exporter(tmp_path) as exporter:
        target = {"node-exporter": servers.ScrapeTarget(f"127.0.0.1:{exporter.port}")}
        with servers.start_prometheus(tmp_path, targets=target, scrape_interval="1s") as server:
            settings = DatasourceSettings.model_validate({"name": "demo", "kind": "prometheus", "url": server.url})
            with Prometheus(Datasource.from_settings(settings, IRIS, None)) as client:
                assert "node_load1" in _metrics(client)
                assert client.scrape_intervals() == {"node-exporter": timedelta(seconds=1)}

    assert exporter.process.returncode is not None
    assert server.process.returncode is not None


def _metrics(client: Prometheus) -> list[str]:
    """Wait, half a minute at most, until something has been scraped."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        now = datetime.now(UTC)
        found = client.label_values("__name__", now - timedelta(minutes=5), now, match='{job="node-exporter"}')
        if "node_load1" in found:
            return found
        time.sleep(0.2)
    return []


def test_a_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    """A flag that the server does not know ends in an error with the end of its log."""
    _need("prometheus")

    with pytest.raises(SourceUnavailable, match=r"prometheus did not start: .*no-such-flag") as error:
        servers.start_prometheus(tmp_path, arguments=["--no-such-flag"])
    assert "prometheus.log" in (error.value.hint or "")


def test_a_missing_binary_comes_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the binary the error tells the package."""
    monkeypatch.setenv("PATH", "")

    with pytest.raises(SourceUnavailable, match="promtool is not installed") as error:
        servers.need_binary("promtool")
    assert error.value.hint == "apt-get install prometheus"
