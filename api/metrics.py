"""What ``/metrics`` reports: requests, the store, exporters, peers.

Owner of prometheus_client, with ``store_metrics``, ``export_metrics`` and ``peer_metrics``.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from drumlin.api.bootstrap import Services
from drumlin.api.export_metrics import BackfillMetrics, ExportMetrics
from drumlin.api.http.bulkheads import Bulkheads
from drumlin.api.peer_metrics import PeerMetrics
from drumlin.api.store_metrics import StoreMetrics
from drumlin.kg.store.embedded.store import EmbeddedStore
from drumlin.kg.store.query_workers.request import QueryOutcome
from drumlin.kg.store.query_workers.supervisor import Readers
from drumlin.kg.workers.pool import WorkerPool


class Metrics:
    """The registry of one service."""

    def __init__(self, parts: Services) -> None:
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
        self._queries = Counter(
            "drumlin_queries", "SPARQL queries that readers ran, by outcome.", ["outcome"], registry=self.registry
        )
        self._waited = Histogram(
            "drumlin_query_wait_seconds", "Time until a reader was free, in seconds.", registry=self.registry
        )
        self._ran = Histogram(
            "drumlin_query_run_seconds", "Time from there to the end of the result, in seconds.", registry=self.registry
        )
        self._cached = Counter(
            "drumlin_query_cache",
            "SPARQL queries by what the result cache did: hit, shared (with one that ran), miss, uncacheable.",
            ["result"],
            registry=self.registry,
        )
        self._let_go = Counter(
            "drumlin_clients_let_go", "Clients cut off because they took nothing of an answer.", registry=self.registry
        )
        # Finding a sample by its labels takes longer than counting.
        self._of = lru_cache(1024)(self._find)
        self._by_cache = lru_cache(16)(self._cached.labels)
        self._by_outcome = lru_cache(16)(self._queries.labels)
        if parts.asking:
            parts.asking.observe(self._query_ended)
        if isinstance(parts.store, EmbeddedStore):
            StoreMetrics(parts.store, self.registry)
            self.registry.register(BackfillMetrics(parts.backfills, parts.store.archive))
        self.registry.register(_State(parts))
        if parts.peers:
            self.registry.register(PeerMetrics(parts.peers))
        if parts.exporting:
            self.registry.register(ExportMetrics(parts.exporting))

    def observe(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count one answered request."""
        counter, histogram = self._of(method, route, status)
        counter.inc()
        histogram.observe(seconds)

    def _find(self, method: str, route: str, status: int) -> tuple[Counter, Histogram]:
        return self._requests.labels(method, route, str(status)), self._seconds.labels(route)

    def cached(self, result: str) -> None:
        """Count what the result cache did for one query."""
        self._by_cache(result).inc()

    def let_go(self) -> None:
        """Count one client that took nothing of an answer."""
        self._let_go.inc()

    def _query_ended(self, ended: QueryOutcome) -> None:
        self._by_outcome(ended.outcome).inc()
        self._waited.observe(ended.waited)
        self._ran.observe(ended.ran)


class _State(Collector):
    """Reads the state of the store when asked, so nothing has to be kept up to date."""

    def __init__(self, parts: Services) -> None:
        self._parts = parts

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        """Yield the gauges."""
        yield GaugeMetricFamily("drumlin_generation", "Effective writes of the store.", self._parts.store.generation)
        yield from _of_pools(self._parts.bulkheads)
        if self._parts.asking:
            yield from _of_readers(self._parts.asking.readers)
        yield from _of_workers(self._parts.workers)


def _of_workers(workers: WorkerPool) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
    yield GaugeMetricFamily("drumlin_workers", "Worker processes, idle and busy.", workers.size)
    jobs = CounterMetricFamily(
        "drumlin_worker_jobs",
        "Jobs of workers by outcome: done, refused, a limit (time, memory, output), died, unavailable.",
        labels=["job", "outcome"],
    )
    for (job, outcome), count in tuple(workers.outcomes.items()):
        jobs.add_metric([job, outcome], count)
    yield jobs


def _of_pools(pools: Bulkheads) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
    running = GaugeMetricFamily(
        "drumlin_pool_running", "Requests that have a thread, by sort of work.", labels=["pool"]
    )
    queued = GaugeMetricFamily("drumlin_pool_queued", "Requests that wait for a thread.", labels=["pool"])
    refused = CounterMetricFamily("drumlin_pool_refused", "Requests that found no room (503).", labels=["pool"])
    for each in pools:
        running.add_metric([each.name], each.running)
        queued.add_metric([each.name], each.queued)
        refused.add_metric([each.name], each.refused)
    yield from (running, queued, refused)


def _of_readers(readers: Readers) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
    yield GaugeMetricFamily("drumlin_replica_lag", "Generations that the farthest idle replica is behind.", readers.lag)
    yield GaugeMetricFamily("drumlin_readers", "Reader processes.", len(readers.pids))
    ended = CounterMetricFamily("drumlin_reader_restarts", "Readers that were replaced, by reason.", labels=["reason"])
    for reason, count in readers.ended.items():
        ended.add_metric([reason], count)
    yield ended
