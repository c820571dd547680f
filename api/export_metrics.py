"""What ``/metrics`` tells of exporters, in the service and in ``drumlin follow``: readiness, and how each kind is doing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from api.exporting import Exporter
from exporters.entities import home_of
from exporters.kubernetes.informer import KindStatus


class ExportMetrics(Collector):
    """Reads the state of ``exporters`` when asked, so nothing has to be kept up to date."""

    def __init__(self, exporters: Sequence[Exporter]) -> None:
        self._exporters = exporters

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        """Yield readiness by source, then what is known of each kind."""
        ready = GaugeMetricFamily("drumlin_export_ready", "1 once the source has been read in full.", labels=["source"])
        for each in self._exporters:
            ready.add_metric([each.source.name], float(each.ready))
        yield ready
        yield from _by_kind({each.source.name: each.kinds for each in self._exporters})
        yield from _by_work(self._exporters)


def _by_kind(sources: Mapping[str, tuple[KindStatus, ...]]) -> Iterator[GaugeMetricFamily]:
    """Yield one family for each thing that is known of a kind; an age is absent before the first event."""
    for name, text, read in _KIND_GAUGES:
        family = GaugeMetricFamily(f"drumlin_kind_{name}", text, labels=["source", "kind"])
        for source, each in ((name, kind) for name, kinds in sources.items() for kind in kinds):
            if (value := read(each)) is not None:
                family.add_metric([source, each.kind.name], float(value))
        yield family


def _by_work(exporters: Sequence[Exporter]) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
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
    for each in exporters:
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
