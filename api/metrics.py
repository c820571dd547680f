"""What ``/metrics`` tells: requests, the store, the exporter. Owner of prometheus_client."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from api.assembly import Parts
from api.exporting import Exporting
from api.store_metrics import StoreMetrics
from exporters.entities import home_of
from exporters.kubernetes.informer import KindStatus
from kg.store.embedded import EmbeddedStore
from kg.store.questions import Ended
from kg.store.readers import Readers


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
        # Finding a sample by its labels takes longer than counting.
        self._of = lru_cache(1024)(self._find)
        self._by_cache = lru_cache(16)(self._cached.labels)
        self._by_outcome = lru_cache(16)(self._queries.labels)
        if parts.asking:
            parts.asking.observe(self._query_ended)
        if isinstance(parts.store, EmbeddedStore):
            StoreMetrics(parts.store, self.registry)
        self.registry.register(_State(parts))

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

    def _query_ended(self, ended: Ended) -> None:
        self._by_outcome(ended.outcome).inc()
        self._waited.observe(ended.waited)
        self._ran.observe(ended.ran)


class _State(Collector):
    """Reads the state of store and exporter when asked, so nothing has to be kept up to date."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        """Yield the gauges."""
        yield GaugeMetricFamily("drumlin_generation", "Effective writes of the store.", self._parts.store.generation)
        if self._parts.asking:
            yield from _of_readers(self._parts.asking.readers)
        if not self._parts.exporting:
            return
        ready = GaugeMetricFamily("drumlin_export_ready", "1 once the source has been read in full.", labels=["source"])
        for each in self._parts.exporting:
            ready.add_metric([each.source.name], float(each.ready))
        yield ready
        yield from _by_kind({each.source.name: each.kinds for each in self._parts.exporting})
        yield from _by_work(self._parts.exporting)


def _of_readers(readers: Readers) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
    yield GaugeMetricFamily("drumlin_replica_lag", "Generations that the farthest idle replica is behind.", readers.lag)
    yield GaugeMetricFamily("drumlin_readers", "Reader processes.", len(readers.pids))
    ended = CounterMetricFamily("drumlin_reader_restarts", "Readers that were replaced, by reason.", labels=["reason"])
    for reason, count in readers.ended.items():
        ended.add_metric([reason], count)
    yield ended


def _by_kind(sources: Mapping[str, tuple[KindStatus, ...]]) -> Iterator[GaugeMetricFamily]:
    """Yield one family for each thing that is known of a kind; an age is absent before the first event."""
    for name, text, read in _KIND_GAUGES:
        family = GaugeMetricFamily(f"drumlin_kind_{name}", text, labels=["source", "kind"])
        for source, each in ((name, kind) for name, kinds in sources.items() for kind in kinds):
            if (value := read(each)) is not None:
                family.add_metric([source, each.kind.name], float(value))
        yield family


def _by_work(exporting: Iterable[Exporting]) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
    """Yield what became of the changes of each kind, and how long the oldest of them has waited."""
    age = GaugeMetricFamily(
        "drumlin_kind_queue_age_seconds",
        "How long the oldest change has waited, 0 without any.",
        labels=["source", "kind"],
    )
    families = {
        name: CounterMetricFamily(f"drumlin_kind_{name}", text, labels=["source", "kind"])
        for name, text in _KIND_COUNTERS.items()
    }
    for each in exporting:
        waiting, counts = each.ages, each.counts
        for kind in (status.kind for status in each.kinds):
            labels, home = [each.source.name, kind.name], home_of(kind)
            age.add_metric(labels, waiting.get(kind, 0.0))
            if counts:
                families["writes"].add_metric(labels, counts.written.get(home, 0))
                families["skipped_writes"].add_metric(labels, counts.skipped.get(home, 0))
                families["render_errors"].add_metric(labels, counts.failed.get(home, 0))
    yield age
    yield from families.values()


_KIND_COUNTERS = {
    "writes": "Graphs written.",
    "skipped_writes": "Changes that gave no write, since the graph stays the same.",
    "render_errors": "Times an object could not be rendered; each object is logged once.",
}
_KIND_GAUGES: tuple[tuple[str, str, Callable[[KindStatus], float | None]], ...] = (
    ("synced", "1 once all objects that existed have been read.", lambda kind: kind.synced),
    ("forbidden", "1 while the API server forbids to list the kind.", lambda kind: kind.forbidden),
    ("absent", "1 while the API server does not know the kind.", lambda kind: kind.absent),
    ("objects", "Objects that exist.", lambda kind: kind.objects),
    ("event_age_seconds", "Time since the last event.", lambda kind: kind.event_age),
    ("bookmark_age_seconds", "Time since the last bookmark.", lambda kind: kind.bookmark_age),
    ("relists", "Lists begun after the first was complete.", lambda kind: kind.relists),
    ("gone_410", "Times the API server had forgotten the version.", lambda kind: kind.gone410),
    ("rejected", "Objects that could not be read.", lambda kind: kind.rejected),
)
