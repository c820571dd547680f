"""Graphs under any name: what the Graph Store Protocol and SPARQL Update write.

A graph below ``{base}/id/``, or that of a peer's base, is an entity's: it is validated, owned, and deleted into a tombstone
(``kg.graphs.entities``). Every other one is *foreign*: a user's, stored as it comes, blank nodes and all, there even when it is empty,
and gone when it is removed. The default graph is the foreign graph ``{base}/store/default``; it is read as empty when it is absent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from drumlin.kg.errors import (
    GraphOwned,
    InvalidIdentifier,
    PreconditionFailed,
    ResourceNotFound,
    StoreUnavailable,
    TooLarge,
)
from drumlin.kg.graphs.entities import EntityGraphs
from drumlin.kg.graphs.foreign import holds_document
from drumlin.kg.graphs.ingest import Statements
from drumlin.kg.graphs.owners import USER
from drumlin.kg.model.iris import Iris
from drumlin.kg.parsers import HERE, Parsers
from drumlin.kg.rdf import jsonld_loader
from drumlin.kg.rdf.blank_nodes import skolemized, stable, stable_together
from drumlin.kg.rdf.syntax import Lines, Syntax, digest
from drumlin.kg.sparql.update import Changed, Scope
from drumlin.kg.store.protocol import ANY, GraphWrite, Store, Unconditional, Written

_ATTEMPTS = 100
EMPTY = digest(())
"""Digest of a graph without statements."""


class NamedGraphs:
    """All graphs of a store, by name. ``max_bytes`` is the limit of a document, ``parsers`` read it."""

    def __init__(
        self,
        store: Store,
        iris: Iris,
        subgraphs: EntityGraphs,
        *,
        max_bytes: int = jsonld_loader.MAX_BYTES,
        parsers: Parsers = HERE,
    ) -> None:
        self._store = store
        self._subgraphs = subgraphs
        self._max_bytes = max_bytes
        self._context = iris.context
        self._parsers = parsers
        self.root = f"{iris.base}/store/"
        self._documents = f"{iris.base}/x/"
        self._genid = f"{iris.base}/.well-known/genid/"
        self.scope = Scope(default=f"{self.root}default", roots=iris.roots)

    # -- reading ------------------------------------------------------------------------------------------------------
    def is_entity(self, graph: str) -> bool:
        """Return whether a name stands below ``{base}/id/``."""
        return graph.startswith(self.scope.roots)

    def read(self, graph: str) -> Lines:
        """Return what a graph holds; raises ``ResourceNotFound``, ``ResourceGone`` for a tombstone."""
        if self.is_entity(graph):
            return self._subgraphs.read(graph).lines
        stored = self._store.read(graph)
        if stored is not None:
            return stored.lines
        if graph == self.scope.default:
            return frozenset()
        raise ResourceNotFound(f"there is no graph {graph}", detail={"graph": graph})

    def digest(self, graph: str) -> str | None:
        """Return the digest of a graph that can be read, else None."""
        if self.is_entity(graph):
            live = self._subgraphs.live_entry(graph)
            return live.digest if live else None
        entry = self._store.entry(graph)
        if entry is None:
            return EMPTY if graph == self.scope.default else None
        return entry.digest

    # -- a caller's document ------------------------------------------------------------------------------------------
    def parse(self, data: bytes, syntax: Syntax, graph: str) -> Lines:
        """Read a document as the content of ``graph``; raises ``TooLarge`` and ``InvalidDocument``."""
        return self._subgraphs.parse(data, syntax, graph).lines

    def parse_all(self, data: bytes, syntax: Syntax, base: str) -> dict[str, Lines]:
        """Read a document that names graphs, some perhaps with blank nodes; what stands in none is the default graph's."""
        if len(data) > self._max_bytes:
            raise TooLarge(f"the document has {len(data):,} bytes; the limit is {self._max_bytes:,}")
        graphs = self._parsers.rdf(
            data, syntax, base=base, served=self._context, max_bytes=self._max_bytes, default=None
        )
        return {name or self.scope.default: lines for name, lines in graphs.items()}

    # -- writing ------------------------------------------------------------------------------------------------------
    def put(self, graph: str, lines: Lines, *, expected: str | Unconditional | None = ANY) -> Written:
        """Make a graph hold exactly ``lines``; ``expected`` is the digest that can be read, None when there must be none."""
        self._no_document(graph, lines)
        if self.is_entity(graph):
            self._owned(graph)
            return self._subgraphs.put(graph, Statements(lines), expected=expected)
        return self._store.apply([GraphWrite.of(graph, stable(lines, graph), USER, self._really(graph, expected))])[0]

    def merge(self, graph: str, lines: Lines, *, expected: str | Unconditional | None = ANY) -> Written:
        """Add ``lines`` to a graph, which is made when absent; blank nodes are others than those that are there."""
        for _ in range(_ATTEMPTS):
            before = self.digest(graph)
            if expected is not ANY and expected != before:
                raise PreconditionFailed(f"{graph} has changed since it was read", detail={"digest": before})
            held = frozenset() if before is None else self.read(graph)
            if before is not None and digest(held) != before:
                continue
            try:
                return self.put_exactly(graph, held | lines, before)
            except PreconditionFailed:
                continue  # another write came between: merge with that
        raise StoreUnavailable(f"{graph} is written all the time", hint="try again later")

    def put_exactly(self, graph: str, lines: Lines, expected: str | None) -> Written:
        """Write ``lines`` as they are labelled, over what was read under the digest ``expected``."""
        self._no_document(graph, lines)
        if self.is_entity(graph):
            return self.put(graph, lines, expected=expected)
        return self._store.apply([GraphWrite.of(graph, lines, USER, self._really(graph, expected))])[0]

    def remove(self, graph: str, *, expected: str | Unconditional | None = ANY) -> Written:
        """Remove a graph, an entity's into its tombstone; raises ``ResourceNotFound`` and ``ResourceGone``."""
        if self.is_entity(graph):
            return self._subgraphs.delete(graph, expected=expected)
        if self._store.entry(graph) is None and graph != self.scope.default:
            raise ResourceNotFound(f"there is no graph {graph}", detail={"graph": graph})
        return self._store.apply([GraphWrite(graph, None, USER, self._really(graph, expected))])[0]

    def _really(self, graph: str, expected: str | Unconditional | None) -> str | Unconditional | None:
        """Turn what can be read into what is stored: the default graph may be absent and is read as empty."""
        absent = graph == self.scope.default and self._store.entry(graph) is None
        return None if absent and expected == EMPTY else expected

    def _no_document(self, graph: str, lines: Lines) -> None:
        """Raise ``InvalidIdentifier`` for statements that would stand in the graph of a foreign document, and so in the union."""
        if graph.startswith(self._documents) and not holds_document(graph, lines):
            raise InvalidIdentifier(
                f"{graph} is the name of a foreign document, whose statements are no part of the graph",
                hint=f"write it with PUT /subgraph/x/{graph.removeprefix(self._documents)}",
            )

    def _owned(self, graph: str) -> None:
        entry = self._store.entry(graph)
        if entry is not None and entry.owner != USER and not self._subgraphs.may_replace(graph):
            raise GraphOwned(graph, entry.owner, USER)

    # -- several at once ----------------------------------------------------------------------------------------------
    def foreign(self) -> list[str]:
        """Return the names of all foreign graphs that are no documents (``kg.graphs.foreign``)."""
        return [
            each.graph
            for each in self._store.entries(owner=USER)
            if not self.is_entity(each.graph) and not each.graph.startswith(self._documents)
        ]

    def put_all(self, graphs: Mapping[str, Lines]) -> Sequence[Written]:
        """Make the dataset hold these graphs: other foreign ones are removed, entities that are not named stay.

        A blank node that several graphs share stays one node; one that names a graph becomes an IRI (``kg.rdf.blank_nodes.skolemized``).
        """
        graphs = skolemized(stable_together(graphs), self._genid)
        writes = [self._prepared(graph, lines, ANY) for graph, lines in graphs.items()]
        writes += [GraphWrite(graph, None, USER) for graph in self.foreign() if graph not in graphs]
        return self._store.apply(writes)

    def merge_all(self, graphs: Mapping[str, Lines]) -> Sequence[Written]:
        """Add to each graph, all or none; a blank node that names one becomes an IRI."""
        graphs = skolemized(graphs, self._genid)
        for _ in range(_ATTEMPTS):
            writes = []
            for graph, lines in graphs.items():
                stored = self._store.read(graph)
                live = stored if self.digest(graph) is not None else None
                held = live.lines if live else frozenset()
                writes.append(self._prepared(graph, held | lines, stored.entry.digest if stored else None))
            try:
                return self._store.apply(writes)
            except PreconditionFailed:
                continue
        raise StoreUnavailable("the graphs are written all the time", hint="try again later")

    def change(self, changes: Sequence[Changed]) -> Sequence[Written]:
        """Write what an update came to, all or none; raises ``PreconditionFailed`` when a graph was written meanwhile."""
        return self._store.apply([self._prepared(each.graph, each.lines, each.before) for each in changes])

    def _prepared(self, graph: str, lines: Lines | None, expected: str | Unconditional | None) -> GraphWrite:
        if not self.is_entity(graph):
            self._no_document(graph, lines or frozenset())
            return GraphWrite.of(graph, lines, USER, expected)
        self._owned(graph)
        if lines is None:
            return self._subgraphs.prepare_delete(graph, expected=expected)
        return self._subgraphs.prepare(graph, Statements(lines), expected=expected)
