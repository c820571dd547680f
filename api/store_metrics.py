"""What ``/metrics`` reports of an embedded store: its writes as they happen, its sizes when asked."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from drumlin.kg.store.embedded.store import EmbeddedStore
from drumlin.kg.store.embedded.writer import BATCH, Batch

_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
_SIZES = tuple(2**power for power in range(BATCH.bit_length()))


class StoreMetrics(Collector):
    """Counts what becomes of the writes of ``store``, from now on."""

    def __init__(self, store: EmbeddedStore, registry: CollectorRegistry) -> None:
        self._store = store
        self._writes = Counter(
            "drumlin_store_writes",
            "Graphs created, replaced, removed or unchanged; writes refused (owner, precondition, illegal) or failed (disk).",
            ["outcome"],
            registry=registry,
        )
        self._seconds = Histogram(
            "drumlin_store_write_seconds",
            "Time from asking for a write until it is durable.",
            buckets=_SECONDS,
            registry=registry,
        )
        self._size = Histogram(
            "drumlin_store_batch_size", "Writes that were made durable together.", buckets=_SIZES, registry=registry
        )
        registry.register(self)
        store.observe(self._batch_done)

    def _batch_done(self, batch: Batch) -> None:
        for outcome, count in batch.outcomes.items():
            self._writes.labels(outcome).inc(count)
        for seconds in batch.seconds:
            self._seconds.observe(seconds)
        self._size.observe(len(batch.seconds))

    def collect(self) -> Iterator[Metric]:
        """Yield the sizes, and how often the engine was built anew."""
        yield GaugeMetricFamily(
            "drumlin_store_wal_bytes", "Size of the engine's write-ahead log.", self._store.wal_bytes
        )
        yield GaugeMetricFamily(
            "drumlin_store_pending_statements",
            "Statements that the engine has still to take over from the log.",
            self._store.pending,
        )
        yield GaugeMetricFamily("drumlin_store_engine_bytes", "Size of the engine's files.", self._store.engine_bytes)
        renewals = CounterMetricFamily(
            "drumlin_store_engine_renewals",
            "Builds of the engine beside the old one, which had outgrown its graphs: done, or failed.",
            labels=["outcome"],
        )
        renewals.add_metric(["done"], self._store.renewal.renewed)
        renewals.add_metric(["failed"], self._store.renewal.failed)
        yield renewals
        yield GaugeMetricFamily("drumlin_store_bytes", "Size of the store's files.", self._store.stored_bytes())
