"""A store in memory for tests of the exporters: the guarantees of ``kg.store.protocol`` that they rely on, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import pyoxigraph as ox

from drumlin.kg.rdf.syntax import Lines, digest
from drumlin.kg.store.content import GraphContent
from drumlin.kg.store.preconditions import check
from drumlin.kg.store.protocol import GraphEntry, GraphWrite, Row, StoredGraph, Written

_NEVER = datetime(2026, 1, 1, tzinfo=UTC)


class MemorySink:
    """Graphs in a dict, with an engine built from them whenever a look-up asks for it."""

    def __init__(self) -> None:
        self.graphs: dict[str, Lines] = {}
        self.owners: dict[str, str] = {}
        self.generation = 0
        self.applies = 0
        self._engine: ox.Store | None = None

    def apply(self, writes: Sequence[GraphWrite]) -> list[Written]:
        """Write all or none."""
        assert len({each.graph for each in writes}) == len(writes)
        check(writes, {each.graph: each for each in self.entries()})
        self.applies += 1
        outcomes = [self._write(each) for each in writes]
        if any(each != "unchanged" for each in outcomes):
            self.generation += 1
            self._engine = None
        return [
            Written(each.graph, outcome, digest(each.lines) if each.lines else None, self.generation)
            for each, outcome in zip(writes, outcomes, strict=True)
        ]

    def _write(self, write: GraphWrite) -> str:
        old = self.graphs.get(write.graph)
        if old == write.lines:
            return "unchanged"
        if write.lines is None:
            del self.graphs[write.graph], self.owners[write.graph]
            return "removed"
        self.graphs[write.graph] = write.lines
        self.owners[write.graph] = write.owner
        return "created" if old is None else "replaced"

    def read(self, graph: str) -> StoredGraph | None:
        """Return one graph."""
        if graph not in self.graphs:
            return None
        content = GraphContent.of_canonical(self.graphs[graph])
        return StoredGraph(GraphEntry(graph, content.digest, self.owners[graph], self.generation, _NEVER), content)

    def entries(
        self, *, owner: str | None = None, prefix: str = "", after: str = "", limit: int | None = None
    ) -> list[GraphEntry]:
        """List graphs without their content."""
        found = [
            GraphEntry(graph, digest(lines), self.owners[graph], self.generation, _NEVER)
            for graph, lines in sorted(self.graphs.items())
            if graph.startswith(prefix) and graph > after and owner in (None, self.owners[graph])
        ]
        return found[:limit]

    def look_up(self, query: str, values: Mapping[str, str] | None = None) -> list[Row]:
        """Run a SELECT over the union of all graphs."""
        if self._engine is None:
            self._engine = ox.Store()
            text = "\n".join(line for lines in self.graphs.values() for line in lines)
            self._engine.load(text.encode(), format=ox.RdfFormat.N_TRIPLES)
        bound = {ox.Variable(name): ox.NamedNode(iri) for name, iri in (values or {}).items()}
        solutions = self._engine.query(query, substitutions=bound)
        assert isinstance(solutions, ox.QuerySolutions)
        names = [variable.value for variable in solutions.variables]
        return [{name: term.value for name in names if (term := each[name]) is not None} for each in solutions]

    def text(self) -> str:
        """Everything that is stored, as text."""
        return "\n".join(line for lines in self.graphs.values() for line in sorted(lines))
