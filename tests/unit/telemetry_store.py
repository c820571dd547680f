"""A store double for the telemetry tests: node documents in memory, read through the real engine's SPARQL."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pyoxigraph as ox

from drumlin.kg.model.iris import Iris
from drumlin.kg.rdf.jsonld import NodeDocument, lines
from drumlin.kg.store.protocol import GraphEntry, Row

IRIS = Iris("https://kg.example")
CLUSTER = "https://kg.example/id/cluster/prod"


class GraphStore:
    """The reading half of ``Store`` over the documents given; every graph is named by its document's id."""

    def __init__(self, documents: Iterable[NodeDocument]) -> None:
        self._store = ox.Store()
        self._graphs: list[str] = []
        self.add(documents)

    def add(self, documents: Iterable[NodeDocument]) -> None:
        """Put more documents in."""
        for document in documents:
            text = "\n".join(lines(document)).encode()
            self._store.load(text, format=ox.RdfFormat.N_TRIPLES, to_graph=ox.NamedNode(document["id"]))
            self._graphs = sorted({*self._graphs, document["id"]})

    def add_graphs(self, graphs: Mapping[str, Iterable[str]]) -> None:
        """Put graphs in as an exporter wrote them, by their names."""
        for graph, written in graphs.items():
            self._store.load("\n".join(written).encode(), format=ox.RdfFormat.N_TRIPLES, to_graph=ox.NamedNode(graph))
        self._graphs = sorted({*self._graphs, *graphs})

    def look_up(self, query: str, values: Mapping[str, str] | None = None) -> list[Row]:
        """Answer a SELECT over the union of all graphs."""
        bound = {ox.Variable(name): ox.NamedNode(iri) for name, iri in (values or {}).items()}
        found = self._store.query(query, use_default_graph_as_union=True, substitutions=bound)
        names = [variable.value for variable in found.variables]
        return [
            {name: term.value for name, term in zip(names, solution, strict=True) if term is not None}
            for solution in found
        ]

    def entries(self, *, prefix: str = "", after: str = "", limit: int | None = None) -> list[GraphEntry]:
        """List the graphs whose name starts with ``prefix``."""
        now = datetime.now(UTC)
        found = [each for each in self._graphs if each.startswith(prefix) and each > after]
        return [GraphEntry(each, "", "test", 1, now) for each in found][:limit]


def workload(kind: str, namespace: str, name: str, *, began: str, **more: Any) -> NodeDocument:
    """Describe a workload with one run."""
    iri = IRIS.object("prod", namespace, kind, name)
    run = {"id": IRIS.run(iri, "w0"), "type": "Run", "startedAt": began}
    return {"id": iri, "type": kind, "name": name, "namespace": namespace, "cluster": CLUSTER, "runs": [run], **more}


def pod(
    namespace: str, name: str, managed_by: str, runs: Sequence[tuple[str, str | None]], *, gone: bool = False
) -> NodeDocument:
    """Describe a pod and its runs (start, end); ``gone`` makes it the tombstone that a deletion leaves."""
    iri = IRIS.object("prod", namespace, "Pod", name)
    parts = [
        {"id": IRIS.run(iri, f"r{number}"), "type": "Run", "startedAt": start} | ({"endedAt": end} if end else {})
        for number, (start, end) in enumerate(runs)
    ]
    ended = {"type": "Tombstone", "formerType": "Pod", "invalidatedAt": runs[-1][1] or runs[-1][0]}
    what = ended if gone else {"type": "Pod"}
    return {"id": iri, **what, "name": name, "namespace": namespace, "managedBy": managed_by, "runs": parts}
