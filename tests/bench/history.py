"""History of many workloads, against prometheus-api-client on the same real Prometheus in the same run."""

from __future__ import annotations

import tempfile
import time
from datetime import timedelta
from pathlib import Path

import httpx
from prometheus_api_client import MetricRangeDataFrame, PrometheusConnect

import drumlin
from drumlin.api.bootstrap import now
from drumlin.api.demo import history as generated
from drumlin.api.demo import prometheus
from drumlin.api.demo.sample import write_sample
from drumlin.kg.errors import DrumlinError
from tests.bench.running import phase, sized, wait_for
from tests.service.conftest import serving

DAYS = sized(14, 1)
METRICS = ("cpu_usage", "mem_usage", "network_receive", "network_transmit", "disk_usage", "energy_joules")


def run() -> list[tuple[str, str, str, str, str]]:
    """Fetch six metrics of every workload of the sample, 14 days at 5 minutes."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        phase("filling a Prometheus")
        end = int((now() - timedelta(hours=3)).timestamp()) // 300 * 300
        generated.write_history(directory / "h.om", start=end - DAYS * 86_400, end=end)
        prometheus.backfill(directory / "h.om", directory / "prometheus")
        write_sample(directory / "cluster", days=DAYS, now=now())
        config = directory / "drumlin.toml"
        with prometheus.start_prometheus(directory / "prometheus") as server:
            config.write_text(
                f'[[datasource]]\nname = "p"\nkind = "prometheus"\nurl = "{server.url}"\nscrape_interval = "5m"\nservice = "monitoring/prometheus"\n'
            )
            with serving(
                "--store", str(directory / "s"), "--config", str(config), "--source", f"dump:{directory / 'cluster'}"
            ) as service:
                return _measure(service.url, server.url, end)


def _ready(client: drumlin.Client) -> bool:
    try:
        client.ready()
    except DrumlinError:
        return False
    return True


def _measure(service: str, server: str, end: int) -> list[tuple[str, str, str, str, str]]:
    start = end - DAYS * 86_400
    with drumlin.connect(service) as client:
        wait_for(lambda: _ready(client), "the service to be ready")
        workloads = [each.id for each in client.workloads() if each.kind in ("Deployment", "StatefulSet", "DaemonSet")]
        phase("ours")
        began = time.perf_counter()
        series = client.history(workloads, METRICS, start=str(start), end=str(end), step="5m")
        ours = time.perf_counter() - began
    queries = series.queries
    phase("bare transfer")
    began = time.perf_counter()
    with httpx.Client(timeout=60) as http:
        for query in queries:
            form = {"query": query, "start": start, "end": end, "step": 300}
            http.post(f"{server}/api/v1/query_range", data=form).raise_for_status()
    bare = time.perf_counter() - began
    phase("prometheus-api-client")
    connect = PrometheusConnect(url=server)
    began = time.perf_counter()
    from datetime import UTC, datetime

    for query in queries:
        got = connect.custom_query_range(
            query, datetime.fromtimestamp(start, UTC), datetime.fromtimestamp(end, UTC), "300"
        )
        MetricRangeDataFrame([{**each, "metric": {"__name__": "x", **each["metric"]}} for each in got])
    peer = time.perf_counter() - began
    what = f"history of {len(queries)} series × {DAYS} d × 5 min ({len(series):,} rows)"
    return [
        (what, f"{ours:.1f} s", f"{peer:.1f} s prometheus-api-client", f"{peer / ours:.1f} × faster", "≥ 8 ×"),
        (
            "  against the bare transfer, one by one",
            f"{ours:.1f} s",
            f"{bare:.1f} s bare",
            f"{ours / bare:.2f}",
            "≤ 1.3",
        ),
    ]
