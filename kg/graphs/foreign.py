"""Foreign documents: RDF of any vocabulary below ``{base}/x/``, owned and bounded but not validated.

A foreign document may say anything, also of entities. So its statements never stand in the graph: the graph of its name holds its text, as
one literal (https://www.w3.org/TR/Content-in-RDF10/), which matches no pattern but one that asks for it. It has the log, the backups and
the owner that every graph has. A query reads a document where it names it, in ``FROM`` or in ``GRAPH`` with its IRI.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import msgspec

from drumlin.kg.errors import InvalidIdentifier, QueryRejected, ResourceNotFound, StoreUnavailable, TooLarge
from drumlin.kg.graphs.ingest import read
from drumlin.kg.model.iris import Iris
from drumlin.kg.parsers import Parsers
from drumlin.kg.rdf.blank_nodes import stable
from drumlin.kg.rdf.syntax import Lines, Syntax, is_iri, lines_in, term, terms, text_of
from drumlin.kg.sparql import gate
from drumlin.kg.sparql.dataset import Dataset
from drumlin.kg.sparql.foreign_patterns import GraphPattern, named_patterns, replaced
from drumlin.kg.sparql.from_clauses import from_clauses
from drumlin.kg.store.documents import DocumentQuery
from drumlin.kg.store.protocol import ANY, GraphWrite, Store, Unconditional, Written
from drumlin.kg.workers.frames import JobFailed, LimitExceeded
from drumlin.kg.workers.pool import WorkerPool

CHARS = "http://www.w3.org/2011/content#chars"
"""The property whose value is the text of a document, as N-Triples."""
MAX_READ = 64 << 20
"""Bytes of text that the graphs of one query's dataset may have, when one of them is a foreign document."""
MAX_GRAPHS = 1000


class ForeignDocument(msgspec.Struct, frozen=True):
    """A document: the IRI of its graph, its statements, and the digest by which a write is guarded."""

    graph: str
    lines: Lines
    digest: str
    owner: str


class RewrittenQuery(msgspec.Struct, frozen=True):
    """A query in which what it asks of foreign documents has been answered: it reads the graph alone."""

    text: str


class ForeignDocuments:
    """The foreign documents of a store; ``parsers`` read them, ``pool`` runs what queries ask of them."""

    def __init__(self, store: Store, iris: Iris, parsers: Parsers, pool: WorkerPool, *, max_bytes: int) -> None:
        self._store = store
        self._iris = iris
        self._parsers = parsers
        self._pool = pool
        self._max_bytes = max_bytes
        self.root = f"{iris.base}/x/"

    # -- documents ----------------------------------------------------------------------------------------------------
    def named(self, id: str) -> str | None:
        """Return the IRI of a document for its id (``x/…``) or IRI; None for what is no document's."""
        iri = id if "://" in id else f"{self._iris.base}/{id}"
        if not iri.startswith(self.root):
            return None
        if iri == self.root or not is_iri(iri):
            raise InvalidIdentifier(f"{id[:200]!r} names no document", hint="write x/ and a path, percent-encoded once")
        return iri

    def read(self, graph: str) -> ForeignDocument:
        """Return a document; raises ``ResourceNotFound``."""
        stored = self._store.read(graph)
        if stored is None:
            raise ResourceNotFound(f"there is no document {graph}", detail={"graph": graph})
        return ForeignDocument(graph, _unpacked(stored.lines), stored.entry.digest, stored.entry.owner)

    def digest(self, graph: str) -> str | None:
        """Return the digest of a document, None when there is none."""
        entry = self._store.entry(graph)
        return entry.digest if entry else None

    def put(
        self, graph: str, data: bytes, syntax: Syntax, owner: str, expected: str | Unconditional | None = ANY
    ) -> Written:
        """Make a document say exactly what ``data`` says; raises what reading it raises, ``GraphOwned`` and ``PreconditionFailed``."""
        said = read(data, syntax, graph, self._iris, max_bytes=self._max_bytes, parsers=self._parsers)
        text = text_of(stable(said.lines, graph))
        if len(text.encode()) > self._max_bytes:
            raise TooLarge(
                f"the document has {len(text):,} characters as N-Triples; the limit is {self._max_bytes:,} bytes"
            )
        line = f"<{graph}> <{CHARS}> {json.dumps(text, ensure_ascii=False)} ."
        return self._store.apply([GraphWrite.of(graph, frozenset({line}), owner, expected)])[0]

    def remove(self, graph: str, owner: str, expected: str | Unconditional | None = ANY) -> Written:
        """Remove a document, without a tombstone; raises ``ResourceNotFound``."""
        if self._store.entry(graph) is None:
            raise ResourceNotFound(f"there is no document {graph}", detail={"graph": graph})
        return self._store.apply([GraphWrite(graph, None, owner, expected)])[0]

    # -- queries ------------------------------------------------------------------------------------------------------
    def answer(
        self, query: str, dataset: Dataset, media_type: str, seconds: float
    ) -> Sequence[bytes] | RewrittenQuery | None:
        """Return the result of a query whose dataset has foreign documents; None for one that names none.

        One that names some in ``GRAPH`` is returned with what it asks of them answered. Raises ``QueryRejected``, ``TooLarge``.
        """
        if not may_name(query, dataset) or not self._store.entries(prefix=self.root, limit=1):
            return None
        default, named = dataset.default_graphs, dataset.named_graphs
        if default is None and named is None and gate.names_dataset(query):
            default, named = from_clauses(query, self._iris.base)
        if default is not None or named is not None:
            listed = list(dict.fromkeys((*(default or ()), *(named or ()))))
            if not any(each.startswith(self.root) for each in listed):
                return None
            graphs = self._texts(listed)
            return self._run(
                DocumentQuery(query, self._iris.base, graphs, default or (), named or (), media_type), seconds
            )
        patterns = [each for each in named_patterns(query, self._iris.base) if each.graph.startswith(self.root)]
        return RewrittenQuery(self._inlined(query, patterns, seconds)) if patterns else None

    def _inlined(self, query: str, patterns: Sequence[GraphPattern], seconds: float) -> str:
        rows: list[str] = []
        for each in patterns:
            graphs = self._texts([each.graph])
            asked = DocumentQuery(each.query, self._iris.base, graphs, (each.graph,), (), "values")
            rows.append(b"".join(self._run(asked, seconds)).decode())
        return replaced(query, patterns, rows)

    def _texts(self, graphs: Sequence[str]) -> Mapping[str, str]:
        """Return the statements of graphs, of documents what they say; one that is not there has none."""
        if len(graphs) > MAX_GRAPHS:
            raise QueryRejected(
                f"a dataset with foreign documents has {MAX_GRAPHS:,} graphs at most", reason="complexity"
            )
        found, size = dict[str, str](), 0
        for graph in graphs:
            stored = self._store.read(graph)
            lines = stored.lines if stored else frozenset[str]()
            found[graph] = text_of(_unpacked(lines) if graph.startswith(self.root) else lines)
            size += len(found[graph])
            if size > MAX_READ:
                raise TooLarge(f"the graphs of the query's dataset have more than {MAX_READ >> 20} MB")
        return found

    def _run(self, query: DocumentQuery, seconds: float) -> Sequence[bytes]:
        try:
            return self._pool.run("documents", msgspec.msgpack.encode(query), wait=seconds)
        except LimitExceeded as error:
            reason = "timeout" if error.kind == "time" else "complexity"
            raise QueryRejected(
                f"the query of foreign documents exceeds its limit on {error.kind}", reason=reason
            ) from error
        except JobFailed as error:
            raise StoreUnavailable(f"the query of foreign documents ended without a result: {error}") from error


def may_name(query: str, dataset: Dataset) -> bool:
    """Return whether a query may name a document at all; most do not, and cost nothing."""
    listed = (*(dataset.default_graphs or ()), *(dataset.named_graphs or ()))
    return "x/" in query or "x\\/" in query or "\\u" in query.lower() or any("/x/" in each for each in listed)


def _unpacked(lines: Lines) -> Lines:
    """Return the statements in the text of a document's graph."""
    for line in lines:
        _, predicate, _ = terms(line)
        if predicate.value == CHARS:
            return lines_in(term(line.split(" ", 2)[2][:-2]).value)
    return lines


def holds_document(graph: str, lines: Lines) -> bool:
    """Return whether a graph holds the text of a document and nothing else, as an export of it does; or nothing."""
    return len(lines) <= 1 and all(line.startswith(f"<{graph}> <{CHARS}> ") for line in lines)
