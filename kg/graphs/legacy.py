"""The graphs of the public peer's clients: snapshots that are appended, named by their time, and gone after some hours.

They stand in a store of their own, so that nothing that they say is a part of the graph. A snapshot is ``timestamp:{ms}``, or
``{id}/timestamp:{ms}`` for a document with an ``@id``; the latter are kept. IRIs stay as the clients write them: their context has a prefix
``glc`` that JSON-LD 1.1 does not expand, so they ask for ``<glc:hasStatus>``.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import msgspec

from drumlin.kg.errors import InvalidDocument, QueryRejected, TooLarge
from drumlin.kg.graphs.named import NamedGraphs
from drumlin.kg.graphs.updates import Updates
from drumlin.kg.parsers import Parsers
from drumlin.kg.rdf.syntax import JSONLD, Lines, is_iri
from drumlin.kg.sparql import gate
from drumlin.kg.sparql.dataset import Dataset
from drumlin.kg.store.protocol import GraphWrite, Store

KEPT = timedelta(hours=6)
"""How long a snapshot is kept."""
OWNER = "current-graph"
"""Owner of the snapshot that is made of the current graph."""
_FRESH = timedelta(minutes=1)
_PRESENT = timedelta(minutes=10)
MAX_RESULT = 128 << 20
"""Bytes of a result, which a client gets in one piece."""
_JSON = "application/sparql-results+json"
_STRING = "http://www.w3.org/2001/XMLSchema#string"
_SNAPSHOT = re.compile(r"timestamp:([0-9]+)")


NOT_SELECT = "form"
"""Reason of the refusal of a query that is no SELECT."""


class Inserted(NamedTuple):
    """How many triples a document had, and the graph that they stand in."""

    triples: int
    graph: str


class LegacyGraphs:
    """The snapshots of one service, in ``store``; ``clock`` gives their times (UTC).

    While nobody has appended one for ten minutes, the newest is ``current``: the graph as it is, at most a minute ago.
    """

    def __init__(
        self,
        store: Store,
        graphs: NamedGraphs,
        updates: Updates,
        parsers: Parsers,
        clock: Callable[[], datetime],
        current: Callable[[datetime], Lines],
        *,
        base: str,
        max_bytes: int,
        query_bytes: int,
    ) -> None:
        self._store = store
        self._graphs = graphs
        self._updates = updates
        self._parsers = parsers
        self._clock = clock
        self._current = current
        self._refreshing = threading.Lock()
        self._base = base
        self._max_bytes = max_bytes
        self._query_bytes = query_bytes

    # -- writing ------------------------------------------------------------------------------------------------------
    def insert(self, document: dict[str, Any]) -> Inserted:
        """Append a JSON-LD document as a snapshot of now; raises ``InvalidDocument``, ``TooLarge``. Without triples nothing is written."""
        graph = f"timestamp:{int(self._clock().timestamp() * 1000)}"
        if (named := document.get("@id")) is not None:
            if not isinstance(named, str) or not named:
                raise InvalidDocument("@id is not an IRI")
            graph = f"{named.removesuffix('/')}/{graph}"
        if not is_iri(graph):
            raise InvalidDocument(f"{graph[:200]!r} is not an absolute IRI")
        lines = self._lines({**document, "@id": graph})
        if lines:
            self._graphs.merge(graph, lines)
        return Inserted(len(lines), graph)

    def _lines(self, document: Mapping[str, Any]) -> Lines:
        """Read a document: what it says of its graph, and what it says in none, as a document without ``@graph`` does."""
        data = json.dumps(document).encode()
        if len(data) > self._max_bytes:
            raise TooLarge(f"the document has {len(data):,} bytes; the limit is {self._max_bytes:,}")
        found = self._parsers.rdf(data, JSONLD, base=None, max_bytes=self._max_bytes, default=None)
        return frozenset().union(*found.values())

    def update(self, text: str) -> None:
        """Run a SPARQL Update, all of it in its order; raises ``QueryRejected`` and what the update raises."""
        self._updates.run(gate.check(text, max_bytes=self._query_bytes, expect="update"))

    def expire(self) -> int:
        """Remove the snapshots that are too old, and return how many they were."""
        own = {each.graph for each in self._store.entries(owner=OWNER)}
        old = [graph for graph in self._snapshots() if not self._lives(graph) and graph not in own]
        for graph in old:
            self._graphs.remove(graph)
        return len(old)

    # -- reading ------------------------------------------------------------------------------------------------------
    def select(self, text: str) -> dict[str, Any]:
        """Return the solutions of a SELECT as these clients read them: every literal has a language or a datatype.

        ``GRAPH`` reads the graphs that are there, without snapshots that are too old; what stands in no ``GRAPH`` reads the default graph
        alone. Raises ``QueryRejected``, ``TooLarge``.
        """
        checked = gate.check(text, max_bytes=self._query_bytes)
        if checked.form != "select":
            kind = "QueryBoolean" if checked.form == "ask" else "QueryTriples"
            raise QueryRejected(f"Expected a SELECT query, got {kind}", reason=NOT_SELECT)
        self._refresh()
        dataset = Dataset((self._graphs.scope.default,), tuple(self._living()))
        answer = self._store.answer(checked.text, media_type=_JSON, dataset=dataset, base=self._base)
        content = bytearray()
        for chunk in answer.chunks:
            content += chunk
            if len(content) > MAX_RESULT:
                raise TooLarge(f"the result has more than {MAX_RESULT >> 20} MB", hint="narrow the query")
        found = msgspec.json.decode(bytes(content))
        for row in found["results"]["bindings"]:
            for value in row.values():
                if value["type"] == "literal" and "xml:lang" not in value:
                    value.setdefault("datatype", _STRING)
        return {"head": {"vars": found["head"]["vars"]}, "results": {"bindings": found["results"]["bindings"]}}

    def _refresh(self) -> None:
        """Make the snapshot of the current graph anew when it is too old; remove it while others append theirs."""
        with self._refreshing:
            now = self._clock()
            times = {
                graph: int(graph.removeprefix("timestamp:"))
                for graph in self._snapshots()
                if _SNAPSHOT.fullmatch(graph)
            }
            own = [each.graph for each in self._store.entries(owner=OWNER)]
            others = [at for graph, at in times.items() if graph not in own]
            if any(at >= (now - _PRESENT).timestamp() * 1000 for at in others):
                writes = [GraphWrite(graph, None, OWNER) for graph in own]
            elif any(times.get(graph, 0) >= (now - _FRESH).timestamp() * 1000 for graph in own):
                return
            else:
                graph = f"timestamp:{int(now.timestamp() * 1000)}"
                lines = self._current(now)
                writes = [GraphWrite(each, None, OWNER) for each in own if each != graph]
                writes += [GraphWrite.of(graph, lines, OWNER)] if lines else []
            if writes:
                self._store.apply(writes)

    def _living(self) -> list[str]:
        default = self._graphs.scope.default
        return [each.graph for each in self._store.entries() if each.graph != default and self._lives(each.graph)]

    def _snapshots(self) -> list[str]:
        return [each.graph for each in self._store.entries(prefix="timestamp:")]

    def _lives(self, graph: str) -> bool:
        match = _SNAPSHOT.fullmatch(graph)
        return match is None or int(match[1]) >= (self._clock() - KEPT).timestamp() * 1000
