"""Observed calls, read every ten minutes: an Invocation for each caller and callee, gone a week after it was seen last.

Of when a call was seen the graph keeps the day, so that an invocation is written once a day at most.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

import structlog

from drumlin.exporters.jobs import PeriodicJob
from drumlin.exporters.pipeline.hosting_domain import write_of
from drumlin.exporters.pipeline.sink import Sink, write
from drumlin.exporters.protocol import Clock, without_nulls
from drumlin.kg.model.iris import Iris
from drumlin.kg.rdf.jsonld import CONTEXT_IRI, NAMESPACE, NodeDocument
from drumlin.kg.store.protocol import GraphWrite
from drumlin.kg.telemetry.binding import Place
from drumlin.kg.telemetry.calls import CallReader, ObservedCall, read_matchers, written
from drumlin.kg.telemetry.describe import Subject, describe
from drumlin.kg.telemetry.templates import TemplateCatalogue

log = structlog.get_logger()

OWNER = "observed-calls"
PERIOD_SECONDS = 600.0
KEPT = timedelta(days=7)
"""How long an invocation is kept that is no longer seen."""
_FIRST_WAIT = 600
"""Seconds that the first reading waits for the workloads to be known, without which every callee would be external."""
_SEEN = f"""SELECT ?invocation ?first ?last ?caller ?callee WHERE {{
  ?invocation a <{NAMESPACE}Invocation> ; <{NAMESPACE}firstSeen> ?first ; <{NAMESPACE}lastSeen> ?last ;
    <{NAMESPACE}caller> ?caller ; <{NAMESPACE}callee> ?callee }}"""
_MATCHERS = (
    f"SELECT ?invocation ?matcher WHERE {{ ?invocation a <{NAMESPACE}Invocation> ; <{NAMESPACE}matcher> ?matcher }}"
)


class _Seen(NamedTuple):
    """When an invocation was seen first and last (days, RFC 3339), the IRIs of its ends, and what selects its series."""

    first: str
    last: str
    ends: tuple[str, str]
    matchers: frozenset[str]


class ObservedCalls(PeriodicJob):
    """Writes what ``reader`` sees, and removes what has not been seen for a week while all servers answered.

    What was seen under another name, since a workload came to be known or went, is removed at once. ``ready`` says whether the workloads
    are known.
    """

    def __init__(
        self,
        sink: Sink,
        iris: Iris,
        reader: CallReader,
        catalogue: TemplateCatalogue,
        clock: Clock,
        ready: Callable[[], bool] = lambda: True,
    ) -> None:
        super().__init__("observed-calls", PERIOD_SECONDS)
        self._sink = sink
        self._iris = iris
        self._reader = reader
        self._catalogue = catalogue
        self._clock = clock
        self._ready = ready

    def turn(self) -> bool:
        """Read the calls once; there is always more to come."""
        for _ in range(_FIRST_WAIT):
            if self._ready() or self._stop.wait(1):
                break
        now = self._clock()
        found, whole = self._reader.read(now)
        today = now.replace(hour=0, minute=0, second=0, microsecond=0)
        seen = self._seen()
        living = {graph: each.ends for graph, each in seen.items()}
        writes: list[GraphWrite] = []
        for call in found:
            graph = self._iris.invocation(call.caller, call.callee)
            first = seen[graph].first if graph in seen else _day(today)
            writes.append(self._write(self._invocation(graph, call, first, _day(today))))
            living[graph] = (call.caller, call.callee)
        gone = self._gone(seen, found, _day(today - KEPT)) if whole else []
        for graph in gone:
            del living[graph]
        writes += [GraphWrite(graph, None, OWNER) for graph in gone]
        done, refused = write(self._sink, [*writes, *self._externals(living.values())])
        if refused:
            log.info("calls_described_by_others", graphs=len(refused))
        log.info("calls_observed", calls=len(found), written=len(done), gone=len(gone))
        return False

    def _gone(self, seen: Mapping[str, _Seen], found: Sequence[ObservedCall], late: str) -> list[str]:
        """Return the invocations that are no longer seen: for too long, or because their series are those of another pair now."""
        present = {self._iris.invocation(each.caller, each.callee) for each in found}
        renamed = {frozenset(written(each.labels)) for each in found if each.labels}
        return [
            graph
            for graph, each in seen.items()
            if graph not in present and (each.last < late or each.matchers in renamed)
        ]

    def _seen(self) -> Mapping[str, _Seen]:
        """Return what is known from earlier readings, by graph."""
        own = {each.graph for each in self._sink.entries(owner=OWNER, prefix=f"{self._iris.root}invocation/")}
        rows = self._sink.look_up(_SEEN) if own else []
        matchers: defaultdict[str, set[str]] = defaultdict(set)
        for row in self._sink.look_up(_MATCHERS) if own else []:
            matchers[row["invocation"]].add(row["matcher"])
        return {
            row["invocation"]: _Seen(
                row["first"], row["last"], (row["caller"], row["callee"]), frozenset(matchers[row["invocation"]])
            )
            for row in rows
            if row["invocation"] in own
        }

    def _externals(self, ends: Iterable[tuple[str, str]]) -> Iterator[GraphWrite]:
        """Yield the writes that make the externals those that call or are called."""
        prefix = self._iris.external("-").removesuffix("-")
        wanted = {iri for pair in ends for iri in pair if iri.startswith(prefix)}
        for iri in sorted(wanted):
            name = self._iris.parse(iri).name.name
            yield self._write({"@context": CONTEXT_IRI, "id": iri, "type": "External", "name": name})
        for entry in self._sink.entries(owner=OWNER, prefix=prefix):
            if entry.graph not in wanted:
                yield GraphWrite(entry.graph, None, OWNER)

    def _write(self, document: NodeDocument) -> GraphWrite:
        return write_of(document, OWNER, self._iris)

    def _invocation(self, graph: str, call: ObservedCall, first: str, last: str) -> NodeDocument:
        ends: Sequence[str] = [self._iris.parse(each).name.name for each in (call.caller, call.callee)]
        return without_nulls(
            {
                "@context": CONTEXT_IRI,
                "id": graph,
                "type": "Invocation",
                "name": " -> ".join(ends),
                "caller": call.caller,
                "callee": call.callee,
                "cluster": self._iris.cluster(call.cluster) if call.cluster else None,
                "domain": call.domain,
                "route": call.route,
                "exporter": call.exporter,
                "matcher": written(call.labels),
                "firstSeen": first,
                "lastSeen": last,
                "telemetry": self._telemetry(graph, call) if call.route is None else None,
            }
        )

    def _telemetry(self, graph: str, call: ObservedCall) -> list[NodeDocument]:
        """Describe the metrics of an invocation, in the server that it was seen in."""
        domain = self._iris.parse(call.domain).name.name if call.domain else None
        place = Place((call.cluster,) if call.cluster else (), domain)
        matchers = read_matchers(written(call.labels))
        subject = Subject(
            graph, "Invocation", call.cluster or "", None, "Invocation", "", place=place, matchers=matchers
        )
        return describe(subject, self._catalogue, [call.server], self._iris)


def _day(at: datetime) -> str:
    return f"{at:%Y-%m-%dT00:00:00Z}"
