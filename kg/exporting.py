"""Exports: all graphs of one generation, or some of them, as one document, a graph at a time, so memory stays flat.

Graphs come in the order of their IRIs and statements in the order of their lines: equal stores give equal bytes. Turtle has no
graphs, so it is for reading; the others are read back by ``graphs_of`` as they were.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import msgspec

from kg import jsonld, rdf
from kg.errors import InvalidDocument, UnsupportedSyntax
from kg.iris import Iris
from kg.rdf import JSONLD, NQUADS, TRIG, TURTLE, Lines, Syntax
from kg.store.protocol import Store
from ontology.vocabulary import WORKLOAD_KINDS

SYNTAXES = (NQUADS, JSONLD, TRIG, TURTLE)
"""What an export can be written as; the first is the default."""

_TYPE = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"
_NAMESPACE, _DOMAIN, _FORMER = (jsonld.NAMESPACE + name for name in ("namespace", "domain", "formerType"))


@dataclass(frozen=True, slots=True)
class Selection:
    """Which graphs: those that satisfy everything that is given.

    ``type`` is a class (``Workload`` stands for all workload kinds; a tombstone is what it was), ``domain`` an id or IRI, ``prefix``
    the beginning of a short id.
    """

    type: str | None = None
    domain: str | None = None
    namespace: str | None = None
    owner: str | None = None
    prefix: str = ""

    def holds(self, graph: str, lines: Lines, iris: Iris) -> bool:
        """Tell whether a graph is one of them, but for its owner."""
        if self.prefix and not graph.startswith(iris.root + self.prefix):
            return False
        wanted = []
        if self.type:
            names = WORKLOAD_KINDS if self.type == "Workload" else {self.type}
            kinds = [f"<{jsonld.NAMESPACE}{name}>" for name in names]
            wanted.append({f"<{graph}> <{fact}> {kind} ." for fact in (_TYPE, _FORMER) for kind in kinds})
        if self.namespace:
            wanted.append({f'<{graph}> <{_NAMESPACE}> "{self.namespace}" .'})
        if self.domain:
            domain = self.domain if ":" in self.domain else iris.domain(self.domain)
            wanted.append({f"<{graph}> <{_DOMAIN}> <{domain}> ."})
        return not any(lines.isdisjoint(each) for each in wanted)


ALL = Selection()


def select(store: Store, selection: Selection, iris: Iris) -> Iterator[tuple[str, Lines]]:
    """Yield the graphs of one generation that ``selection`` holds for."""
    if selection == ALL:
        yield from store.export()
        return
    owned = {each.graph for each in store.entries(owner=selection.owner)} if selection.owner else None
    for graph, lines in store.export():
        if (owned is None or graph in owned) and selection.holds(graph, lines, iris):
            yield graph, lines


def written(graphs: Iterable[tuple[str, Lines]], syntax: Syntax) -> Iterator[bytes]:
    """Write graphs as one document; raises ``UnsupportedSyntax`` before the first byte."""
    if syntax not in SYNTAXES:
        raise UnsupportedSyntax(
            f"an export in {syntax.name} is not offered", detail={"offered": [each.media_type for each in SYNTAXES]}
        )
    if syntax is JSONLD:
        return _jsonld(graphs)
    if syntax is NQUADS:
        return (b"".join(rdf.to_nquads(sorted(lines), graph)) for graph, lines in graphs)
    return _with_prefixes(graphs, syntax)


def _jsonld(graphs: Iterable[tuple[str, Lines]]) -> Iterator[bytes]:
    """Write ``{"@context": …, "@graph": [{"id": graph, "@graph": [document]}, …]}``."""
    yield b'{"@context":' + msgspec.json.encode(jsonld.CONTEXT_IRI) + b',"@graph":['
    separator = b"\n"
    for graph, lines in graphs:
        document = jsonld.compact(lines, graph)
        del document["@context"]
        included = document.pop("@included", [])
        yield separator + msgspec.json.encode({"id": graph, "@graph": [document, *included]})
        separator = b",\n"
    yield b"\n]}\n"


def _with_prefixes(graphs: Iterable[tuple[str, Lines]], syntax: Syntax) -> Iterator[bytes]:
    """Write TriG or Turtle with the prefixes once; no other line of these syntaxes begins like one."""
    head = rdf.serialize((), syntax)
    yield head
    for graph, lines in graphs:
        if lines:
            yield rdf.serialize(lines, syntax, graph=graph if syntax.quads else None).removeprefix(head)


def gzipped(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Compress a stream; equal streams give equal bytes (no time and no name is in the header)."""
    packer = zlib.compressobj(6, wbits=31)
    for chunk in chunks:
        if packed := packer.compress(chunk):
            yield packed
    yield packer.flush()


def graphs_of(data: bytes, syntax: Syntax) -> dict[str, Lines]:
    """Read an export back; raises ``InvalidDocument`` for one whose statements stand in no graph."""
    if not syntax.quads:
        raise InvalidDocument(
            f"{syntax.name} has no graphs, so an export in it cannot be read back",
            hint="export as nquads, trig or jsonld",
        )
    found = rdf.parse(jsonld.inline(data, max_bytes=len(data) + 1) if syntax is JSONLD else data, syntax)
    graphs: dict[str, Lines] = {}
    for graph, lines in found.items():
        if graph is None or graph.startswith("_:"):
            raise InvalidDocument(
                "some statements stand in no named graph", hint="import what drumlin dump has written"
            )
        graphs[graph] = lines
    return graphs
