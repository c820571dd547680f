"""The daily look for the metrics that workloads' pods expose themselves, and for those of new workloads soon after they come."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import structlog

from drumlin.exporters.jobs import PeriodicJob
from drumlin.exporters.pipeline.hosting_domain import write_of
from drumlin.exporters.pipeline.sink import Sink, write
from drumlin.exporters.protocol import Clock
from drumlin.kg.model.iris import Iris
from drumlin.kg.store.protocol import GraphEntry, GraphWrite
from drumlin.kg.telemetry.scraped import Discovery

log = structlog.get_logger()

OWNER = "own-metrics"
PERIOD_SECONDS = 60.0
"""How often workloads are looked for that were not asked about."""
DAILY = timedelta(days=1)


class OwnMetrics(PeriodicJob):
    """Writes the graph of each workload's own metrics, and removes it when there are none or the workload is gone."""

    def __init__(self, sink: Sink, iris: Iris, discovery: Discovery, clock: Clock) -> None:
        super().__init__("own-metrics", PERIOD_SECONDS)
        self._sink = sink
        self._iris = iris
        self._discovery = discovery
        self._clock = clock
        self._asked: dict[str, datetime] = {}  # when each workload was asked about

    def turn(self) -> bool:
        """Ask about the workloads that are due; there is always more to come."""
        now = self._clock()
        workloads = self._discovery.workloads()
        due = [each for each in workloads if self._asked.get(each, now - DAILY) <= now - DAILY]
        self._remove(workloads)
        if due:
            self._write(due, now)
            self._asked = {each: self._asked.get(each, now) for each in workloads} | dict.fromkeys(due, now)
        return False

    def _write(self, due: Sequence[str], now: datetime) -> None:
        found = self._discovery.find(due, now)
        kept = {graph: document for graph, document in found.items() if document}
        there = {each.graph for each in self._entries()}
        removed = [GraphWrite(graph, None, OWNER) for graph in found.keys() - kept.keys() if graph in there]
        write(self._sink, [*(write_of(each, OWNER, self._iris) for each in kept.values()), *removed])
        log.info("own_metrics_looked_for", workloads=len(due), with_metrics=len(kept), removed=len(removed))

    def _remove(self, workloads: Sequence[str]) -> None:
        """Remove the graphs of workloads that are there no more."""
        living = {self._iris.scraped(each) for each in workloads}
        gone = [GraphWrite(each.graph, None, OWNER) for each in self._entries() if each.graph not in living]
        if gone:
            write(self._sink, gone)

    def _entries(self) -> Sequence[GraphEntry]:
        return self._sink.entries(owner=OWNER, prefix=f"{self._iris.root}scraped/")
