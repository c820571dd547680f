"""An entity with what it is linked to: the graphs that lie a few links away, nearest first, never more than a bounded number."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from drumlin.kg.errors import InvalidIdentifier
from drumlin.kg.model.iris import Iris
from drumlin.kg.rdf.syntax import digest, terms
from drumlin.kg.rdf.tombstones import is_tombstone
from drumlin.kg.store.protocol import Store, StoredGraph

MAX_DEPTH = 3
MAX_GRAPHS = 100
"""Graphs in one answer, the entity's own among them."""


@dataclass(frozen=True, slots=True)
class Traversal:
    """Which links are followed: out of each graph, all or those of ``predicates``; ``incoming``: those that lead to it as well."""

    depth: int = 0
    predicates: frozenset[str] = frozenset()
    incoming: bool = False
    notes: bool = False


@dataclass(frozen=True, slots=True)
class Neighbourhood:
    """The graphs in the order in which they were reached; ``left_out`` counts those that were one too many."""

    graphs: tuple[StoredGraph, ...]
    left_out: int

    @property
    def digest(self) -> str:
        """A hash of all that is in it."""
        return digest(f"{each.entry.graph} {each.entry.digest}" for each in self.graphs)


def neighbourhood(store: Store, iris: Iris, start: StoredGraph, following: Traversal) -> Neighbourhood:
    """Collect the graphs around ``start``, breadth first. A link to something that is not in the store leads nowhere."""
    found = {start.entry.graph: start}
    left_out: set[str] = set()
    edge = [start]
    notes = store.read(iris.notes(start.entry.graph)) if following.notes else None
    if notes is not None and not is_tombstone(notes, notes.entry.graph):
        found[notes.entry.graph] = notes
    for _ in range(following.depth):
        reached: list[StoredGraph] = []
        for each in edge:
            names = sorted(_linked(store, iris, each, following) - found.keys())
            reached += [graph for name in names if (graph := _visit(store, name, found, left_out))]
        edge = reached
    return Neighbourhood(tuple(found.values()), len(left_out))


def _visit(store: Store, name: str, found: dict[str, StoredGraph], left_out: set[str]) -> StoredGraph | None:
    if len(found) == MAX_GRAPHS:
        if store.entry(name) is not None:
            left_out.add(name)
        return None
    graph = store.read(name)
    if graph is not None:
        found[name] = graph
    return graph


def _linked(store: Store, iris: Iris, graph: StoredGraph, following: Traversal) -> set[str]:
    names = set(_outgoing(iris, graph, following.predicates))
    if following.incoming:
        rows = store.look_up(_INCOMING % MAX_GRAPHS, {"target": graph.entry.graph})
        names.update(name for row in rows if (name := _entity(iris, row["source"])))
    return names - {graph.entry.graph}


def _outgoing(iris: Iris, graph: StoredGraph, predicates: frozenset[str]) -> Iterator[str]:
    for line in graph.lines:
        _, predicate, value = terms(line)
        followed = not predicates or predicate.value in predicates
        if followed and value.kind == "iri" and (name := _entity(iris, value.value)):
            yield name


def _entity(iris: Iris, iri: str) -> str | None:
    try:
        return iris.entity(iri) if iris.knows(iri) else None
    except InvalidIdentifier:  # a value may be any IRI, also one below the base that names nothing
        return None


# One more than an answer may hold: so many links that lead here are looked at.
_INCOMING = "SELECT DISTINCT ?source WHERE { ?source ?link ?target } ORDER BY ?source LIMIT %d"
