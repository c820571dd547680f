"""Is a store whole? Every graph is read and compared with what is recorded about it, and its statements are compared with the others.

A *fault* means that the store contradicts itself or holds what no write may bring: it should be restored, or loaded anew. A link to
an entity that has no graph is no fault: objects refer to what is not exported, or is gone.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from drumlin.kg.errors import InvalidIdentifier
from drumlin.kg.model.iris import Iris
from drumlin.kg.rdf.syntax import Lines, digest, terms
from drumlin.kg.store.embedded.snapshots import Snapshot
from drumlin.kg.store.protocol import GraphEntry
from drumlin.kg.validation.validate import is_well_formed

SHOWN = 20
"""Examples of each kind, at most; the counts are exact."""


@dataclass
class Findings:
    """How often something was found, and some of where: graphs, or ``graph predicate …`` of a statement. Never a value."""

    count: int = 0
    examples: list[str] = field(default_factory=list)

    def add(self, where: str) -> None:
        """Count one."""
        self.count += 1
        if len(self.examples) < SHOWN:
            self.examples.append(where)


@dataclass
class ConsistencyReport:
    """What a check found. ``digest`` is that of the whole content: equal stores have equal ones."""

    generation: int
    oldest: int  # the first generation that the change log holds
    graphs: int = 0
    quads: int = 0
    digest: str = ""
    owners: dict[str, int] = field(default_factory=dict)
    faults: dict[str, Findings] = field(default_factory=dict)
    dangling: Findings = field(default_factory=Findings)

    @property
    def whole(self) -> bool:
        """True when there is no fault."""
        return not any(each.count for each in self.faults.values())


_FAULTS = ("differs", "not_recorded", "ill_typed", "log_disagrees", "generations_missing", "quads_uncounted")


def check(snapshot: Snapshot, iris: Iris) -> ConsistencyReport:
    """Read all of a snapshot, graph by graph, and return what was found."""
    report = ConsistencyReport(snapshot.generation, snapshot.oldest, faults={name: Findings() for name in _FAULTS})
    entries = {each.graph: each for each in snapshot.entries()}
    owners: Counter[str] = Counter()
    for entry in entries.values():
        lines = snapshot.lines(entry.graph)
        owners[entry.owner] += 1
        report.quads += len(lines)
        if digest(lines) != entry.digest or snapshot.text(entry.graph) not in (None, lines):
            report.faults["differs"].add(entry.graph)
        if entry.graph.startswith(iris.root):
            _check_graph(entry.graph, lines, entries, iris, report)
    report.graphs, report.owners = len(entries), dict(sorted(owners.items()))
    report.digest = digest(f"{each.graph} {each.digest}" for each in entries.values())
    names = set(snapshot.names())
    for graph in sorted(names ^ entries.keys()):
        report.faults["not_recorded" if graph in names else "differs"].add(graph)
    for graph in snapshot.disagreeing():
        report.faults["log_disagrees"].add(graph)
    report.faults["generations_missing"].count = snapshot.missing_generations()
    report.faults["quads_uncounted"].count = abs(snapshot.quads() - report.quads)
    return report


def _check_graph(
    graph: str, lines: Lines, entries: dict[str, GraphEntry], iris: Iris, report: ConsistencyReport
) -> None:
    for line in sorted(lines):
        _, predicate, value = terms(line)
        if value.kind == "literal":
            if not is_well_formed(value.value, value.datatype or ""):
                report.faults["ill_typed"].add(f"{graph} {predicate.value}")
        elif value.value.startswith(iris.root) and _entity(value.value, iris) not in entries:
            report.dangling.add(f"{graph} {predicate.value} {value.value}")


def _entity(iri: str, iris: Iris) -> str:
    try:
        return iris.entity(iri)
    except InvalidIdentifier:  # it names nothing that could have a graph
        return ""
