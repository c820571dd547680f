"""Exporters and what can be said about them: one in a thread of the service, or one that ``drumlin follow`` runs."""

from __future__ import annotations

import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import structlog

from drumlin.exporters.jobs import PeriodicJob
from drumlin.exporters.kubectl.dump import DumpSource
from drumlin.exporters.kubernetes.election import Election, LeaseName
from drumlin.exporters.kubernetes.informer import KindStatus, KubernetesSource
from drumlin.exporters.pipeline.fencing import FencedSink, NotLeading
from drumlin.exporters.pipeline.pipeline import Ending, Pipeline, RunSummary
from drumlin.exporters.pipeline.reconciler import ChangeCounts
from drumlin.exporters.pipeline.runs import Observed
from drumlin.exporters.pipeline.sink import Sink
from drumlin.exporters.protocol import Kind, Source
from drumlin.kg.config.settings import Settings
from drumlin.kg.errors import SourceRefused
from drumlin.kg.model.iris import Iris
from drumlin.kg.telemetry.freshness import Staleness

log = structlog.get_logger()

RESTART_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Candidate:
    """What an exporter needs that writes only while it is elected: its election, and the sink that its ``pipeline`` writes to."""

    election: Election
    sink: FencedSink

    @classmethod
    def of(cls, settings: Settings, source: Source, sink: Sink, iris: Iris, owners: Sequence[str]) -> Candidate | None:
        """Return it where the settings name a Lease and ``source`` is a live cluster; else None: the exporter writes unasked."""
        wanted = settings.election
        if wanted.lease is None or not isinstance(source, KubernetesSource):
            return None
        holder = f"{wanted.identity or socket.gethostname()}_{uuid.uuid4().hex[:8]}"
        election = Election(source.access, LeaseName(wanted.namespace, wanted.lease, wanted.seconds, holder))
        return cls(election, FencedSink(sink, election, iris, owners))


@dataclass(frozen=True, slots=True)
class _TermOver:
    """Ends a run when the exporter is stopped, and when another process may lead."""

    stop: threading.Event
    election: Election

    def is_set(self) -> bool:
        """Return whether the run is to end."""
        return self.stop.is_set() or not self.election.leads


class Exporter:
    """A ``pipeline`` over ``source``. ``failure`` is why a run failed, until a later one has written all that exists.

    A ``candidate`` writes only while it is elected; otherwise it stands by.
    """

    def __init__(self, pipeline: Pipeline, source: Source, candidate: Candidate | None = None) -> None:
        self.source = source
        self.election = candidate.election if candidate else None
        self._candidate = candidate
        self.finished = False
        self._began = time.monotonic()
        self._failure: str | None = None
        self._failed_at = 0.0
        self._complete = False
        self._pipeline = pipeline

    @property
    def cluster(self) -> str:
        """The name of the cluster that is exported."""
        return self._pipeline.cluster

    @property
    def failure(self) -> str | None:
        """Why a run failed, until a later one has written all that exists."""
        return self._failure

    @failure.setter
    def failure(self, reason: str | None) -> None:
        if reason and not self._failure:
            self._failed_at = time.monotonic()
        self._failure = reason

    def run(self, stop: threading.Event) -> RunSummary:
        """Export until the source is done or ``stop`` is set; blocks, and raises what ``Pipeline.run`` raises.

        A candidate exports as often, and as long, as it is elected.
        """
        if self._candidate is None:
            return self._export(stop)
        summary, election = RunSummary(), self._candidate.election
        election.start()
        while election.wait(stop):
            try:
                self._candidate.sink.take_over()
                summary = self._export(_TermOver(stop, election))
            except NotLeading as error:
                log.warning("export_interrupted", source=self.source.name, reason=str(error))
        return summary

    def _export(self, stop: Ending) -> RunSummary:
        summary = self._pipeline.run(self.source, stop, self._recover)
        self.failure = None
        self.finished = not isinstance(self.source, KubernetesSource)
        return summary

    def retire(self) -> None:
        """Give the Lease back, if this process holds it; called when nothing more is written."""
        if self.election:
            self.election.stop()

    @property
    def stands_by(self) -> bool:
        """Whether another process is to write, or nobody knows who."""
        return self.election is not None and not self.election.leads

    def _recover(self, _: RunSummary) -> None:
        if self._pipeline.synced:
            self.failure = None
            self._complete |= self._has_core

    @property
    def _has_core(self) -> bool:
        """Whether the kinds have been read without which there is no map of a cluster; a dump has what it has."""
        core = self.source.core if isinstance(self.source, KubernetesSource) else frozenset()
        return core <= {each.kind.name for each in self.kinds if each.synced}

    @property
    def ready(self) -> bool:
        """True once every kind has been yielded in full and written, the core kinds among them, until that fails; or a dump has ended.

        While another process is known to lead, this one is ready to take over.
        """
        if self.stands_by:
            return self._is_led
        return self.finished or (self._complete and self.failure is None)

    @property
    def _is_led(self) -> bool:
        return self.election is not None and self.election.leader is not None

    @property
    def missing(self) -> dict[str, Any] | None:
        """What readiness waits for: the source, its kinds that are not synced, why nothing comes; None when it is ready."""
        if self.ready:
            return None
        found: dict[str, Any] = {"source": self.source.name}
        found["waiting"] = [each.kind.name for each in self.kinds if not each.synced]
        if self.stands_by:
            found["waiting"] = ["an elected leader"]
        if trouble := self.trouble:
            found["failure"] = trouble
        return found

    @property
    def staleness(self) -> Staleness | None:
        """Since when changes of some kinds may have gone unseen, and why; None while all that is in the graph is followed."""
        if self.finished:
            return None
        if self.election and self.stands_by:
            return self._leaderless(self.election)
        ages = self.stale_kinds
        reasons = [each.trouble for each in self.kinds if each.trouble and ages.get(each.kind)]
        oldest = max(ages.values(), default=0.0)
        if self._failure:
            oldest = max(oldest, time.monotonic() - self._failed_at)
        if not oldest:
            return None
        since = datetime.now(UTC) - timedelta(seconds=oldest)
        reason = self._failure or next(iter(reasons), "it has not been read since the start")
        return Staleness(self.cluster, since, reason, tuple(each.name for each, age in ages.items() if age))

    def _leaderless(self, election: Election) -> Staleness | None:
        if self._is_led:
            return None
        since = datetime.now(UTC) - timedelta(seconds=election.leaderless)
        return Staleness(self.cluster, since, election.trouble or "no process is elected to follow the cluster", ())

    @property
    def stale_kinds(self) -> dict[Kind, float]:
        """For how many seconds changes of each kind may have gone unseen; 0 of what is followed, and of what the graph does not have."""
        return {each.kind: self._stale_for(each) for each in self.kinds}

    def _stale_for(self, status: KindStatus) -> float:
        if status.synced:
            return status.trouble_age or 0.0
        unreachable = not (status.forbidden or status.absent)
        known = unreachable or status.kind.home in self._pipeline.remembered
        return time.monotonic() - self._began if known else 0.0

    @property
    def kinds(self) -> tuple[KindStatus, ...]:
        """How each kind of a live cluster is doing; empty for other sources, and while another process follows it."""
        return self.source.status() if isinstance(self.source, KubernetesSource) and not self.stands_by else ()

    @property
    def counts(self) -> ChangeCounts | None:
        """What became of the changes, by home of their kind; None before the first run."""
        return self._pipeline.counts

    @property
    def ages(self) -> dict[Kind, float]:
        """For how many seconds the oldest change of each kind has waited."""
        return self._pipeline.ages

    @property
    def trouble(self) -> str | None:
        """Why nothing comes: the last run failed, or what its server last answered; None while all is well."""
        elected = self.election.trouble if self.election else None
        return self.failure or elected or next((each.trouble for each in self.kinds if each.trouble), None)


class Exporting(Exporter, PeriodicJob):
    """An exporter as a job of the service; begins anew, after a pause, when the source fails, and when a dump or a template has changed.

    ``refused`` is why the source cannot ever be read: it refused our credentials at the first contact.
    """

    def __init__(self, pipeline: Pipeline, source: Source, candidate: Candidate | None = None) -> None:
        Exporter.__init__(self, pipeline, source, candidate)
        PeriodicJob.__init__(self, f"export {source.name}", RESTART_SECONDS)
        self.refused: SourceRefused | None = None
        self._on_refusal: Callable[[], None] = lambda: None
        self._refusing = threading.Lock()

    @property
    def ready(self) -> bool:
        """True from the first complete reading on, or since the graph of an earlier life is there; it stays so through every outage.

        So it is once another process was seen to lead.
        """
        self._complete |= self.stands_by and self._is_led
        return self.finished or self._complete or bool(self._pipeline.remembered)

    @property
    def is_written(self) -> bool:
        """Whether what exists is in the graph: of this run, or as an earlier life left it."""
        return self.finished or self._pipeline.synced or bool(self._pipeline.remembered)

    def stop(self, timeout: float | None = 10.0) -> None:
        """End soon and wait for it, then give back the Lease."""
        PeriodicJob.stop(self, timeout)
        self.retire()

    def when_refused(self, callback: Callable[[], None]) -> None:
        """Have ``callback`` called, in any thread, when ``refused`` says why the source cannot ever be read."""
        with self._refusing:
            self._on_refusal = callback
            if self.refused:
                callback()

    @property
    def is_following(self) -> bool:
        """Whether all that exists is written, and what changes is seen; a dump is not followed, not even while it is being read."""
        ends = self.finished or isinstance(self.source, DumpSource)
        return self._complete and self._pipeline.synced and not ends and self.staleness is None

    @property
    def as_of(self) -> datetime | None:
        """When all that is written was so, of a dump that has ended; None for what is followed."""
        return self.source.as_of if isinstance(self.source, DumpSource) and self.finished else None

    def observe(self, found: Sequence[Observed]) -> Future[int]:
        """Have the graphs written that a datasource remembers, in the thread of the exporter."""
        writing = self._pipeline.observe(found)
        if self.finished:
            self.hurry()
        return writing

    def turn(self) -> bool:
        """Export to the end of the source, until that fails or the job is stopped; anew when a dump's files have changed."""
        dump = self.source if isinstance(self.source, DumpSource) else None
        again = dump and (dump.has_changed or (dump.is_readable_again and self._pipeline.renew_templates()))
        if not dump or again or not self.finished or self.failure:
            try:
                summary = self.run(self._stop)
            except SourceRefused as error:
                with self._refusing:
                    self.refused = error
                    self._on_refusal()
                raise
            log.info("export_finished", source=self.source.name, summary=str(summary))
        self._pipeline.write_observed()
        return dump is None


def leaders_of(exporters: Iterable[Exporter]) -> list[dict[str, Any]]:
    """Return who was elected, as ``/readyz`` reports it: of each source the leader, if one is known, and whether it is this process."""
    return [
        {"source": each.source.name, "leader": each.election.leader, "leading": each.election.leads}
        for each in exporters
        if each.election
    ]


def stale_of(exporters: Iterable[Exporter]) -> list[dict[str, Any]]:
    """Return what is stale, as ``/readyz`` reports it: the source, its cluster, since when, why, and which kinds."""
    found = ((each.source.name, each.staleness) for each in exporters)
    return [
        {
            "source": source,
            "cluster": stale.cluster,
            "since": stale.since.isoformat(timespec="seconds").replace("+00:00", "Z"),
            "reason": stale.reason,
            "kinds": list(stale.kinds),
        }
        for source, stale in found
        if stale
    ]
