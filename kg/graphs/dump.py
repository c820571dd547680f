"""Exports: all graphs of one generation, or some of them, as one document, a graph at a time, so memory stays flat.

Graphs come in the order of their IRIs and statements in the order of their lines: equal stores give equal bytes. Turtle has no
graphs, so it is for reading; the others are read back by ``graphs_of`` as they were.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import msgspec

from drumlin.kg import rdf
from drumlin.kg.errors import TooLarge, UnsupportedSyntax
from drumlin.kg.model.iris import Iris
from drumlin.kg.rdf import framing, jsonld
from drumlin.kg.rdf.syntax import JSONLD, NQUADS, TRIG, TURTLE, Lines, Syntax
from drumlin.kg.store.protocol import Narrowed, Store
from drumlin.ontology.vocabulary import CLASSES, WORKLOAD_KINDS

SYNTAXES = (NQUADS, JSONLD, TRIG, TURTLE)
"""What an export can be written as; the first is the default."""
EACH = "each"
"""The frame of an export that shapes each entity by the frame of its class."""

_TYPE = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"
_NAMESPACE, _DOMAIN, _FORMER = (jsonld.NAMESPACE + name for name in ("namespace", "domain", "formerType"))


@dataclass(frozen=True, slots=True)
class GraphSelection:
    """Which graphs: those that satisfy everything that is given.

    ``type`` is a class (``Workload`` stands for all workload kinds; a tombstone is what it was), ``domain`` an id or IRI, ``prefix``
    the beginning of a short id.
    """

    type: str | None = None
    domain: str | None = None
    namespace: str | None = None
    owner: str | None = None
    prefix: str = ""

    def narrowed(self, iris: Iris) -> Narrowed:
        """Return what that means to a store."""
        facts = []
        if self.type:
            names = WORKLOAD_KINDS if self.type == "Workload" else {self.type}
            kinds = [f"<{jsonld.NAMESPACE}{name}>" for name in names]
            facts.append(frozenset((fact, kind) for fact in (_TYPE, _FORMER) for kind in kinds))
        if self.namespace:
            facts.append(frozenset({(_NAMESPACE, f'"{self.namespace}"')}))
        if self.domain:
            domain = self.domain if ":" in self.domain else iris.domain(self.domain)
            facts.append(frozenset({(_DOMAIN, f"<{domain}>")}))
        return Narrowed(self.owner, iris.root + self.prefix if self.prefix else "", tuple(facts))


ALL = GraphSelection()


def select(store: Store, selection: GraphSelection, iris: Iris) -> Iterator[tuple[str, Lines]]:
    """Yield the graphs of one generation that ``selection`` names."""
    return store.export(selection.narrowed(iris))


def written(
    graphs: Iterable[tuple[str, Lines]],
    syntax: Syntax,
    frame: str | None = None,
    *,
    served: str = jsonld.CONTEXT_IRI,
) -> Iterator[bytes]:
    """Write graphs as one document, with ``frame`` (see ``shaped``) as JSON-LD of that shape; raises before the first byte.

    JSON-LD carries its context, so that it is read without any service; ``served`` is the context's address that a frame may name.
    Raises ``UnsupportedSyntax``, and for the frame what ``shaped`` does.
    """
    if syntax not in SYNTAXES or (frame and syntax is not JSONLD):
        offered = (JSONLD,) if frame else SYNTAXES
        raise UnsupportedSyntax(
            f"{'a framed export' if frame else 'an export'} in {syntax.name} is not offered",
            detail={"offered": [each.media_type for each in offered]},
        )
    if syntax is JSONLD:
        return _jsonld(graphs, *(shaped(frame, served) if frame else (_flat, jsonld.inline())))
    if syntax is NQUADS:
        return (b"".join(rdf.to_nquads(sorted(lines), graph)) for graph, lines in graphs)
    return _with_prefixes(graphs, syntax)


Documents = Sequence[Mapping[str, Any] | msgspec.Raw]
Shape = Callable[[str, Lines], Documents]
"""What makes the documents of one graph."""


def shaped(frame: str, served: str = jsonld.CONTEXT_IRI) -> tuple[Shape, str]:
    """Return what shapes each graph, and the context (JSON text) that its documents are written in.

    ``frame`` is ``each`` (each graph by the frame of its own class), a class's name (by that one), or a frame as JSON text.

    Graphs of other classes than the one named, and those that an own frame does not match, are left out; one that is too large to be framed
    comes flat. Raises ``ResourceNotFound`` for an unknown class, ``InvalidDocument`` and ``TooLarge`` for a bad frame.
    """
    if frame.lstrip().startswith("{"):
        return _shaped_as(framing.read_frame(frame.encode(), served))
    if frame != EACH:
        framing.frame_of(frame)
    kinds = {EACH: None, "Workload": WORKLOAD_KINDS}.get(frame, {frame})

    def shape(graph: str, lines: Lines) -> Documents:
        kind = _kind(graph, lines)
        if kinds is not None and kind not in kinds:
            return []
        if kind not in CLASSES:
            return _flat(graph, lines)
        try:
            return _members(framing.frame(lines, {**_frame_of(kind), "id": graph}))
        except TooLarge:
            return _flat(graph, lines)

    return shape, jsonld.inline()


def _shaped_as(frame: jsonld.NodeDocument) -> tuple[Shape, str]:
    """Return what shapes each graph by a caller's frame, and the context of that frame."""
    context = framing.frame((), frame)["@context"]  # raises now when it is not a frame
    ours = context == jsonld.CONTEXT_IRI

    def shape(graph: str, lines: Lines) -> Documents:
        try:
            return _members(framing.frame(lines, frame))
        except TooLarge:  # in another context only what is expanded keeps its meaning
            expanded: Documents = msgspec.json.decode(rdf.serialize(lines, JSONLD))
            return _flat(graph, lines) if ours else expanded

    return shape, jsonld.inline() if ours else msgspec.json.encode(context).decode()


@lru_cache(maxsize=64)
def _frame_of(kind: str) -> Mapping[str, Any]:
    return framing.frame_of(kind)


def _kind(graph: str, lines: Lines) -> str:
    """Return the local name of an entity's class (the first of several); empty when it has none of ours."""
    start = f"<{graph}> <{_TYPE}> <{jsonld.NAMESPACE}"
    return min((each[len(start) : -3] for each in lines if each.startswith(start)), default="")


def _members(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the things that a framed document holds, one or several."""
    rest = {key: value for key, value in document.items() if key != "@context"}
    members: list[dict[str, Any]] = rest["@graph"] if rest.keys() == {"@graph"} else [rest] if rest else []
    return members


def _flat(graph: str, lines: Lines) -> list[msgspec.Raw]:
    return [msgspec.Raw(each.encode()) for each in jsonld.nodes(lines, graph)]


def _jsonld(graphs: Iterable[tuple[str, Lines]], shape: Shape, context: str) -> Iterator[bytes]:
    """Write ``{"@context": …, "@graph": [{"id": graph, "@graph": [document]}, …]}``."""
    yield b'{"@context":' + context.encode() + b',"@graph":['
    name = "id" if context == jsonld.inline() else "@id"
    separator = b"\n"
    for graph, lines in graphs:
        if members := shape(graph, lines):
            yield separator + msgspec.json.encode({name: graph, "@graph": members})
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
