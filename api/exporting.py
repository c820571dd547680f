"""An exporter inside the service: the pipeline in a thread, and what can be said about it."""

from __future__ import annotations

import threading
from datetime import UTC, datetime

import structlog

from exporters.following import Counts
from exporters.kubernetes.informer import KindStatus, KubernetesSource
from exporters.pipeline import Pipeline, Summary
from exporters.protocol import Kind, Source
from kg.errors import DrumlinError

log = structlog.get_logger()

RESTART_SECONDS = 5.0


class Exporting:
    """Runs ``pipeline`` over ``source`` until stopped; begins anew, after a pause, when the source fails."""

    def __init__(self, pipeline: Pipeline, source: Source) -> None:
        self.source = source
        self.summary: Summary | None = None
        self.failure: str | None = None
        self.finished = False
        self.started = datetime.now(UTC)
        self._pipeline = pipeline
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"export {source.name}", daemon=True)

    def start(self) -> None:
        """Begin to export."""
        self._thread.start()

    def stop(self, timeout: float = 10.0) -> None:
        """End soon and wait for it, at most ``timeout`` seconds."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout)

    @property
    def ready(self) -> bool:
        """True once every kind has been yielded in full, or a finite source has ended."""
        return self.finished or self._pipeline.synced

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
        """Why nothing comes: the source failed, or what its server last answered; None while all is well."""
        return self.failure or next((each.trouble for each in self.kinds if each.trouble), None)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self.summary = self._pipeline.run(self.source, self._stop)
                self.failure = None
                self.finished = True
                log.info("export_finished", source=self.source.name, summary=str(self.summary))
                return
            except DrumlinError as error:
                self.failure = str(error)
                log.error("export_failed", source=self.source.name, detail=str(error), hint=error.hint)
            except Exception:
                # The edge of the exporter: a fault in it must not end the service, and is never silent.
                self.failure = "an unexpected error; see the log"
                log.exception("export_crashed", source=self.source.name)
            self._stop.wait(RESTART_SECONDS)
