"""Exporters and what can be said about them: one in a thread of the service, or one that ``drumlin follow`` runs."""

from __future__ import annotations

import threading
from typing import Any

import structlog

from exporters.following import Counts
from exporters.jobs import Job
from exporters.kubernetes.informer import KindStatus, KubernetesSource
from exporters.pipeline import Pipeline, Summary
from exporters.protocol import Kind, Source

log = structlog.get_logger()

RESTART_SECONDS = 5.0


class Exporter:
    """A ``pipeline`` over ``source``. ``failure`` is why a run failed, until a later one has written all that exists."""

    def __init__(self, pipeline: Pipeline, source: Source) -> None:
        self.source = source
        self.failure: str | None = None
        self.finished = False
        self._pipeline = pipeline

    def run(self, stop: threading.Event) -> Summary:
        """Export until the source is done or ``stop`` is set; blocks, and raises what ``Pipeline.run`` raises."""
        summary = self._pipeline.run(self.source, stop, self._recover)
        self.failure = None
        self.finished = True
        return summary

    def _recover(self, _: Summary) -> None:
        if self._pipeline.synced:
            self.failure = None

    @property
    def ready(self) -> bool:
        """True once every kind has been yielded in full and written, until that fails; or a finite source has ended."""
        return self.finished or (self._pipeline.synced and self.failure is None)

    @property
    def missing(self) -> dict[str, Any] | None:
        """What readiness waits for: the source, its kinds that are not synced, why nothing comes; None when it is ready."""
        if self.ready:
            return None
        found: dict[str, Any] = {"source": self.source.name}
        found["waiting"] = [each.kind.name for each in self.kinds if not each.synced]
        if trouble := self.trouble:
            found["failure"] = trouble
        return found

    @property
    def kinds(self) -> tuple[KindStatus, ...]:
        """How each kind of a live cluster is doing; empty for other sources."""
        return self.source.status() if isinstance(self.source, KubernetesSource) else ()

    @property
    def counts(self) -> Counts | None:
        """What became of the changes, by home of their kind; None before the first run."""
        return self._pipeline.counts

    @property
    def ages(self) -> dict[Kind, float]:
        """For how many seconds the oldest change of each kind has waited."""
        return self._pipeline.ages

    @property
    def trouble(self) -> str | None:
        """Why nothing comes: the last run failed, or what its server last answered; None while all is well."""
        return self.failure or next((each.trouble for each in self.kinds if each.trouble), None)


class Exporting(Exporter, Job):
    """An exporter as a job of the service; begins anew, after a pause, when the source fails."""

    def __init__(self, pipeline: Pipeline, source: Source) -> None:
        Exporter.__init__(self, pipeline, source)
        Job.__init__(self, f"export {source.name}", RESTART_SECONDS)

    def turn(self) -> bool:
        """Export to the end of the source, until that fails or the job is stopped."""
        summary = self.run(self._stop)
        log.info("export_finished", source=self.source.name, summary=str(summary))
        return True
