"""``make demo SYSTEM=functions``: a shop of workloads and one function, with the calls between them as a service graph counts them.

The calls are generated with rates, errors and latencies that are known, so what is resolved and fetched can be compared with them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from drumlin.api.bootstrap import now
from drumlin.api.demo import prometheus
from drumlin.exporters.kubectl.dump import DumpSource
from drumlin.exporters.kubernetes.custom_kinds import kinds_of
from drumlin.kg.client import Client
from drumlin.kg.config.settings import Settings

FRONTEND = "prod/shop/deployment/frontend"
DATABASE = "prod/shop/statefulset/orders-db"
FUNCTION = "function/prod/shop/resize"
PER_MINUTE = 120.0
"""Invocations of the function per minute that are generated."""
STEP = 15
"""Seconds between samples."""
HOURS = 2
BOUNDS = ("0.1", "0.25", "0.5", "1", "+Inf")
"""Upper bounds of the buckets of latencies, in seconds."""


class GeneratedCall(NamedTuple):
    """A pair of the generated service graph: requests per second, the share that fails, and the share in each bucket, cumulated."""

    client: str
    server: str
    rate: float
    failing: float
    buckets: tuple[float, ...]


CALLS = (
    GeneratedCall("user", "frontend", 8.0, 0.01, (0.5, 0.9, 0.95, 1.0, 1.0)),
    GeneratedCall("frontend", "checkout", 4.0, 0.05, (0.2, 0.8, 0.9, 1.0, 1.0)),
    GeneratedCall("frontend", "resize-00001-deployment", 2.0, 0.0, (0.0, 0.5, 0.95, 1.0, 1.0)),
    GeneratedCall("checkout", "orders-db", 3.0, 0.0, (0.95, 1.0, 1.0, 1.0, 1.0)),
    GeneratedCall("checkout", "api.payments.example", 1.0, 0.2, (0.0, 0.0, 0.95, 1.0, 1.0)),
    GeneratedCall("orders-db", "checkout", 0.5, 0.0, (0.95, 1.0, 1.0, 1.0, 1.0)),
)
"""Who calls whom; orders-db calls back, so the graph has a cycle."""
_SERVICE_GRAPH = "traces_service_graph_request"
Counters = Iterable[tuple[Mapping[str, str], float]]
"""Labels and increase per second of the series of one metric."""


def write_counters(path: Path, metrics: Mapping[str, Counters], start: int, end: int) -> int:
    """Write counters that grow evenly as an OpenMetrics file; return how many samples it has."""
    count = 0
    with path.open("w", encoding="utf-8") as out:
        for name, series in metrics.items():
            for labels, rate in series:
                told = ",".join(f"{label}={json.dumps(value)}" for label, value in labels.items())
                for at in range(start, end + 1, STEP):
                    out.write(f"{name}{{{told}}} {rate * (at - start):g} {at}\n")
                    count += 1
        out.write("# EOF\n")
    return count


def service_graph(calls: Iterable[GeneratedCall]) -> dict[str, Counters]:
    """Return the series that Tempo's or OpenTelemetry's service graph has of some calls."""
    listed = [(each, {"client": each.client, "server": each.server}) for each in calls]
    return {
        f"{_SERVICE_GRAPH}_total": [(labels, each.rate) for each, labels in listed],
        f"{_SERVICE_GRAPH}_failed_total": [(labels, each.rate * each.failing) for each, labels in listed],
        f"{_SERVICE_GRAPH}_server_seconds_bucket": [
            ({**labels, "le": bound}, each.rate * share)
            for each, labels in listed
            for bound, share in zip(BOUNDS, each.buckets, strict=True)
        ],
        "revision_request_count": [
            ({"namespace_name": "shop", "service_name": "resize", "response_code_class": "2xx"}, PER_MINUTE / 60)
        ],
    }


def settings(url: str | None, port: int) -> Settings:
    """Return the settings of a service for the shop."""
    server = {"name": "prometheus-main", "kind": "prometheus", "url": url, "scrape_interval": f"{STEP}s"}
    return Settings.model_validate(
        {
            "base": f"http://localhost:{port}",
            "cluster": "prod",
            "domain": {"id": "shop", "type": "Domain"},
            "mappings": ["knative"],
            "exporters": ["service-graph", "knative"],
            "own_metrics": 0,
            "datasource": [server] if url else [],
        }
    )


def source(directory: Path, of: Settings) -> DumpSource:
    """Write the objects into a directory, and return them as a source."""
    directory.mkdir(parents=True, exist_ok=True)
    for each in files("drumlin.api.demo").joinpath("shop").iterdir():
        (directory / each.name).write_bytes(each.read_bytes())
    return DumpSource([directory], kinds_of(of), clock=now)


def telemetry(directory: Path) -> AbstractContextManager[str | None]:
    """Start a real Prometheus with the generated calls, for as long as the context; see ``prometheus.serving_past``."""
    end = int(now().timestamp()) // STEP * STEP + 3600  # so that calls are seen for as long as the demo is looked at

    def write(text: Path) -> None:
        write_counters(text, service_graph(CALLS), end - HOURS * 3600 - 3600, end)

    return prometheus.serving_past(directory, write)


def seen(client: Client) -> int:
    """Return how many invocations the graph has."""
    return len(client.query("calls"))


COLUMNS = ("caller", "callee", "requests/s", "errors", "p95 s")
_METRICS = ("request_rate", "error_rate", "latency_p95")
Figures = tuple[float, ...]


def calls(client: Client, at: str) -> dict[tuple[str, str], Figures]:
    """Return requests per second, share of errors and p95 of each call, by caller and callee."""
    rows = list(client.query("calls"))
    answer = client.values(list(_METRICS), sorted({row["invocation"] for row in rows}), at=at, window="5m")
    values = {(_short(row["entity"]), row["metric"]): round(row["value"], 3) for row in answer}
    return {
        (_short(row["caller"]), _short(row["callee"])): tuple(
            values.get((_short(row["invocation"]), each), math.nan) for each in _METRICS
        )
        for row in rows
    }


def differing(found: Mapping[tuple[str, str], Figures]) -> list[str]:
    """Return the pairs whose figures are not those that were generated; 95 of 100 calls end at the bound of a bucket."""
    wrong = []
    for each in CALLS:
        bound = float(BOUNDS[each.buckets.index(0.95)]) if 0.95 in each.buckets else None
        rate, errors, p95 = found.get((each.client, each.server), (math.nan,) * 3)
        close = abs(rate - each.rate) < 0.01 and abs(errors - each.failing) < 0.001
        if not close or (bound is not None and p95 != bound):
            wrong.append(f"{each.client} to {each.server}")
    return wrong


def functions(client: Client) -> tuple[tuple[str, ...], list[tuple[object, ...]]]:
    """Return functions with what implements them and their pods, as a table."""
    columns = ("function", "phase", "trigger", "implementedBy", "pod")
    rows = client.query("functions")
    return columns, [tuple(_short(row.get(each) or "") for each in columns) for row in rows]


def scaling(client: Client) -> tuple[tuple[str, ...], list[tuple[object, ...]]]:
    """Return autoscalers with their bounds and limits, as a table."""
    rows = client.query("scaling")
    return ("workload", "least", "most", "limit"), [
        (_short(row["workload"]), row.get("least"), row.get("most"), row.get("limit")) for row in rows
    ]


def _short(iri: str) -> str:
    return iri.rpartition("/")[2].rpartition("#")[2]
