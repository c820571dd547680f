"""What ``/metrics`` tells: requests, the store, the exporter. Owner of prometheus_client."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from api.assembly import Parts


class Metrics:
    """The registry of one service."""

    def __init__(self, parts: Parts) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "drumlin_http_requests",
            "Requests by route and status.",
            ["method", "route", "status"],
            registry=self.registry,
        )
        self._seconds = Histogram(
            "drumlin_http_request_seconds", "Time to answer, in seconds.", ["route"], registry=self.registry
        )
        self.registry.register(_State(parts))

    def observe(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count one answered request."""
        self._requests.labels(method, route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)


class _State(Collector):
    """Reads the state of store and exporter when asked, so nothing has to be kept up to date."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the gauges."""
        yield GaugeMetricFamily("drumlin_generation", "Effective writes of the store.", self._parts.store.generation)
        exporting = self._parts.exporting
        if exporting is None:
            return
        ready = GaugeMetricFamily("drumlin_export_ready", "1 once the source has been read in full.", labels=["source"])
        ready.add_metric([exporting.source.name], float(exporting.ready))
        yield ready
