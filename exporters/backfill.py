"""What happened before a cluster was followed, or while nobody followed it: past runs are read from kube-state-metrics' series.

A job beside each exporter. It notes since when all runs are known (``kg.store.run_archive``), and reads the time before that from each
configured Prometheus that is bound to the cluster: newest day first, a day at a time with a pause between, as far back as the server
remembers or the settings allow. What was read is noted, so a restart goes on where the last process stopped. Runs that are younger than the
retention of their tombstones go to the exporter, which writes them as their owner; older ones, and what is too many, go to the archive.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Protocol

import structlog

from drumlin.exporters import past_runs
from drumlin.exporters.jobs import PeriodicJob
from drumlin.exporters.past_runs import Past, PastRun
from drumlin.exporters.pipeline.runs import LOST, Observed, Run, text
from drumlin.exporters.pipeline.sink import Sink
from drumlin.exporters.protocol import Clock
from drumlin.kg.config.settings import Settings
from drumlin.kg.errors import DrumlinError, MetricMissing, SourceUnavailable
from drumlin.kg.model.iris import Iris
from drumlin.kg.store.run_archive import MOST_RUNS, ArchivedRun, RunArchive
from drumlin.kg.telemetry import binding, kube_state
from drumlin.kg.telemetry.asking import complement, union
from drumlin.kg.telemetry.binding import Place
from drumlin.kg.telemetry.datasources import Datasource
from drumlin.kg.telemetry.describe import WORKLOAD_KINDS
from drumlin.kg.telemetry.fetch.prometheus import Prometheus
from drumlin.kg.telemetry.inventory import Inventory
from drumlin.kg.telemetry.kube_state import POD_INFO, KubeState

log = structlog.get_logger()

PERIOD_SECONDS = 10.0
"""How often it is noted that the cluster is followed."""
PAUSE_SECONDS = 1.0
"""Between two days that are read, so that the server has time for others."""
BRIDGE = timedelta(minutes=10)
"""A cluster that was not followed for so long counts as followed: a restart."""
_DAY = timedelta(days=1)
_SETTLED = timedelta(
    minutes=2
)  # after its end a span is read, so that what was there at its end has been scraped since
_AGAIN = timedelta(hours=1)  # until a datasource without the series is looked at again
_RETRIED = timedelta(minutes=5)  # until one that failed is asked again
_TOGETHER = 200  # graphs that the exporter is handed at one time: what changes in the cluster waits for them
_WAIT_SECONDS = 300  # that the exporter may take to write a day


@dataclass(slots=True)
class BackfillState:
    """How far one datasource has been read: the time, how many runs that gave, and whether all that it remembers was read."""

    datasource: str
    reached: datetime | None = None
    runs: int = 0
    complete: bool = False
    failure: str | None = None
    again: datetime | None = field(default=None, repr=False)


class Exports(Protocol):
    """The exporter of the cluster, as far as it is needed here."""

    @property
    def is_following(self) -> bool:
        """Whether all that exists is written, and what changes is seen."""

    @property
    def as_of(self) -> datetime | None:
        """When all that is written was so, of a dump; None for what is followed."""

    def observe(self, found: Sequence[Observed]) -> Future[int]:
        """Have the graphs written that a datasource remembers."""


class Backfill(PeriodicJob):
    """The job of one cluster: ``settings`` are those of the cluster, ``datasources`` the configured ones."""

    def __init__(
        self,
        exports: Exports,
        sink: Sink,
        archive: RunArchive,
        settings: Settings,
        iris: Iris,
        datasources: Iterable[Datasource],
        clock: Clock,
        *,
        pause: float = PAUSE_SECONDS,
    ) -> None:
        super().__init__(f"backfill {settings.cluster}", PERIOD_SECONDS)
        self.cluster = settings.cluster
        self._exports = exports
        self._sink = sink
        self._archive = archive
        self._settings = settings
        self._iris = iris
        self._datasources = [each for each in datasources if each.kind == "prometheus" and each.access is not None]
        self._clock = clock
        self._pause = pause
        self._states = {each.iri: BackfillState(each.name) for each in self._datasources}
        self._written: Counter[str] = Counter()  # runs that went into the graph, by workload

    @property
    def states(self) -> list[BackfillState]:
        """How far each datasource has been read. Callable from any thread."""
        return list(self._states.values())

    def turn(self) -> bool:
        """Note that the cluster is followed, and read what is not known yet."""
        if not self._is_written:
            return False
        if dumped := self._exports.as_of:
            self._archive.note_dump(self.cluster, dumped.timestamp())
        self._note_followed()
        if self._settings.backfill_days:
            for each in self._bound():
                self._read(each)
        return False

    @property
    def _is_written(self) -> bool:
        """Whether all that exists, or existed when it was dumped, is written."""
        return self._exports.is_following or self._exports.as_of is not None

    def _note_followed(self) -> None:
        if self._exports.is_following:
            now = self._clock().timestamp()
            self._archive.note("known", self.cluster, [""], now, now, bridge=BRIDGE.total_seconds())

    def _bound(self) -> list[Datasource]:
        """Return the datasources that hold the cluster's series and distinguish them from other clusters'."""
        known = Inventory(self._sink, self._iris).clusters | {self.cluster}
        return binding.described(self._datasources, self._place, known)

    @property
    def _place(self) -> Place:
        return Place((self.cluster,), self._settings.domain.id)

    def _read(self, datasource: Datasource) -> None:
        state = self._states[datasource.iri]
        if state.again and self._clock() < state.again:
            return
        try:
            with Prometheus(datasource) as client:
                self._read_all(client, state)
        except DrumlinError as error:
            state.failure = str(error)
            state.again = self._clock() + _RETRIED
            log.warning("backfill_failed", cluster=self.cluster, datasource=datasource.name, reason=str(error))
        else:
            state.failure = None

    def _read_all(self, client: Prometheus, state: BackfillState) -> None:
        datasource = client.datasource
        while self._is_written and not self._stop.is_set() and (span := self._unread(datasource)):
            start, end = span
            series = kube_state.find(
                client, POD_INFO, binding.matchers(datasource, self._place), start - 30 * _DAY, end
            )  # an outage may cover all of the span
            if series is None or not past_runs.before(client, series, end):
                self._none_before(datasource, state, end, found=series is not None)
                return
            if lacking := past_runs.lacking(client, series, start - 30 * _DAY, end):
                raise MetricMissing(
                    f"datasource {datasource.name} does not know past runs of pods: {lacking}",
                    hint="let kube-state-metrics export kube_pod_info and kube_pod_start_time, with uid",
                )
            self._read_span(client, series, state, start, end)
            self._note_followed()
            self._stop.wait(self._pause)

    def _unread(self, datasource: Datasource) -> tuple[datetime, datetime] | None:
        """Return the newest span, a day at most, in which the cluster was not followed and that was not read; None: there is none."""
        now = self._clock()
        first = (now - timedelta(days=self._settings.backfill_days)).timestamp()
        known = union(
            (
                *self._archive.spans("known", self.cluster, [""]),
                *([] if (dumped := self._exports.as_of) is None else [(dumped.timestamp(), math.inf)]),
                *self._archive.spans("read", self.cluster, [datasource.iri]),
            )
        )
        settled = [each for each in complement(known) if each[1] <= (now - _SETTLED).timestamp()]
        gaps = [(max(begin, first), end) for begin, end in settled if end - max(begin, first) >= 1]
        if not gaps:
            return None
        begin, end = gaps[-1]
        return _at(max(begin, end - _DAY.total_seconds())), _at(end)

    def _none_before(self, datasource: Datasource, state: BackfillState, end: datetime, *, found: bool) -> None:
        """Take note that a datasource has nothing older; one that has nothing at all is looked at again."""
        if not found and not self._archive.spans("read", self.cluster, [datasource.iri]):
            state.again = self._clock() + _AGAIN
            return
        self._archive.note("read", self.cluster, [datasource.iri], 0, end.timestamp())
        state.complete = True
        log.info("backfill_complete", cluster=self.cluster, datasource=datasource.name, runs=state.runs)

    def _read_span(
        self, client: Prometheus, series: KubeState, state: BackfillState, start: datetime, end: datetime
    ) -> None:
        datasource = client.datasource
        past = past_runs.read(client, series, start, min(end + _SETTLED, self._clock()))
        followed = frozenset(filter(self._is_followed, past.namespaces))
        past = replace(past, namespaces=followed, runs=[run for run in past.runs if run.namespace in followed])
        self._keep(past, datasource)
        span = (start.timestamp(), end.timestamp())
        outside = complement(union(past.outages))
        for begin, until in ((max(span[0], each[0]), min(span[1], each[1])) for each in outside):
            if begin < until:
                self._archive.note("known", self.cluster, past.namespaces, begin, until)
        self._archive.note("read", self.cluster, [datasource.iri], *span)
        state.reached, state.runs = start, state.runs + len(past.runs)
        told = {"cluster": self.cluster, "datasource": datasource.name, "runs": len(past.runs)}
        log.info("runs_backfilled", start=text(start), end=text(end), outages=len(past.outages), **told)

    def _is_followed(self, namespace: str) -> bool:
        """Return whether the exporter follows a namespace: all, one, or those of certain labels, of which there are objects then."""
        context = self._settings.clusters.get(self.cluster)
        if context and context.namespace:
            return namespace == context.namespace
        if context and context.label_selector:
            inside = self._iris.object(self.cluster, namespace, "Pod", "-").removesuffix("pod/-")
            return bool(self._sink.entries(prefix=inside, limit=1))
        return True

    def _keep(self, past: Past, datasource: Datasource) -> None:
        """Hand the runs to whom they belong, and wait until they are written."""
        now, retention = self._clock(), self._settings.retention
        archived: list[ArchivedRun] = []
        found: dict[str, Observed] = {}
        for each in past.runs:
            manager, above = self._object(each, each.manager), self._object(each, each.above)
            top, until = above or manager, _at(each.end)
            young = until > now - timedelta(days=retention.classes.get("Pod", retention.days))
            if young and (top is None or self._written[top] < MOST_RUNS):
                self._written[top or ""] += 1
                pod = self._iris.object(self.cluster, each.namespace, "Pod", each.pod)
                earlier = found[pod].runs if pod in found else ()
                run = self._described(each, datasource)
                found[pod] = Observed(pod, "Pod", (*earlier, run), manager, until)
            elif top:
                archived.append(self._archived(each, top, manager if above else None))
            for kind, graph, parent in (
                (each.above, above, None),
                (each.manager, manager, above),
            ):
                if kind and graph and until > now - timedelta(days=retention.classes.get(kind[0], retention.days)):
                    found.setdefault(graph, Observed(graph, kind[0], (), parent, until))
        self._archive.add(archived)
        told = list(found.values())
        for begin in range(0, len(told), _TOGETHER):
            self._written_by_exporter(told[begin : begin + _TOGETHER])

    def _written_by_exporter(self, found: list[Observed]) -> None:
        """Wait until the exporter has written what was found; raises ``SourceUnavailable`` when it does not, so that it is read again."""
        writing = self._exports.observe(found)
        for _ in range(_WAIT_SECONDS):
            if writing in wait([writing], 1.0).done:
                writing.result()
                return
            if self._stop.is_set():
                break
        writing.cancel()
        raise SourceUnavailable(f"the exporter of {self.cluster} did not write what was found of the past")

    def _object(self, run: PastRun, named: tuple[str, str] | None) -> str | None:
        """Return the IRI of what managed a run's pod; None for a kind that has no pods of its own here."""
        if named is None or named[0] not in WORKLOAD_KINDS:
            return None
        return self._iris.object(self.cluster, run.namespace, *named)

    def _described(self, run: PastRun, datasource: Datasource) -> Run:
        """Describe a run as the graph has it; an end that the pod itself did not report is the time of its last sample."""
        return Run(
            run.uid,
            text(_at(run.start)),
            text(_at(run.end)),
            run.outcome or LOST,
            estimated=run.outcome is None,
            node=self._iris.object(self.cluster, None, "Node", run.node) if run.node else None,
            observed=datasource.iri,
        )

    def _archived(self, run: PastRun, workload: str, job: str | None) -> ArchivedRun:
        node = self._iris.object(self.cluster, None, "Node", run.node) if run.node else None
        return ArchivedRun(workload, run.uid, run.pod, job, int(run.start), int(run.end), node, run.outcome or LOST)


def _at(seconds: float) -> datetime:
    return datetime.fromtimestamp(int(seconds), UTC)
