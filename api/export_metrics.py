"""What ``/metrics`` reports of exporters, in the service and in ``drumlin follow``: readiness, and how each kind is doing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from drumlin.api.exporting import Exporter
from drumlin.exporters.backfill import Backfill
from drumlin.exporters.kubernetes.informer import KindStatus
from drumlin.kg.store.run_archive import RunArchive


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
        leader = GaugeMetricFamily(
            "drumlin_export_leader", "1 while this process is elected to follow the source.", labels=["source"]
        )
        for each in self._exporters:
            if each.election:
                leader.add_metric([each.source.name], float(each.election.leads))
        yield leader
        yield from _by_kind({each.source.name: each.kinds for each in self._exporters})
        yield from _by_work(self._exporters)


class BackfillMetrics(Collector):
    """Reads how far past runs have been read from each datasource, when asked."""

    def __init__(self, backfills: Sequence[Backfill], archive: RunArchive) -> None:
        self._backfills = backfills
        self._archive = archive

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield how far each datasource has been read, then the size of the run archive."""
        labels = ["cluster", "datasource"]
        runs = GaugeMetricFamily("drumlin_backfill_runs", "Past runs that were found since the start.", labels=labels)
        reached = GaugeMetricFamily(
            "drumlin_backfill_reached_timestamp_seconds", "Until when past runs have been read.", labels=labels
        )
        complete = GaugeMetricFamily("drumlin_backfill_complete", "1 when nothing older is left.", labels=labels)
        failing = GaugeMetricFamily("drumlin_backfill_failing", "1 while reading past runs fails.", labels=labels)
        for backfill in self._backfills:
            for each in backfill.states:
                of = [backfill.cluster, each.datasource]
                runs.add_metric(of, each.runs)
                complete.add_metric(of, float(each.complete))
                failing.add_metric(of, float(each.failure is not None))
                if each.reached:
                    reached.add_metric(of, each.reached.timestamp())
        yield from (runs, reached, complete, failing)
        kept, folded = self._archive.counts()
        yield GaugeMetricFamily("drumlin_run_archive_runs", "Runs in the run archive.", kept)
        yield GaugeMetricFamily("drumlin_run_archive_folded", "Older runs of which only the span is kept.", folded)


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
    stale = GaugeMetricFamily(
        "drumlin_kind_stale_seconds",
        "For how long changes of the kind may have gone unseen; 0 while it is followed.",
        labels=["source", "kind"],
    )
    for each in exporters:
        for kind, seconds in each.stale_kinds.items():
            stale.add_metric([each.source.name, kind.name], seconds)
        waiting, counts = each.ages, each.counts
        for kind in (status.kind for status in each.kinds):
            labels, home = [each.source.name, kind.name], kind.home
            age.add_metric(labels, waiting.get(kind, 0.0))
            if counts:
                families["writes"].add_metric(labels, counts.written.get(home, 0))
                families["skipped_writes"].add_metric(labels, counts.skipped.get(home, 0))
                families["render_errors"].add_metric(labels, counts.failed.get(home, 0))
    yield age
    yield stale
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
