"""RDF that a service answers with: text, which reads itself into rdflib's objects when asked to."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Self

import httpx
import msgspec

from drumlin.kg import rdf
from drumlin.kg.errors import UnsupportedSyntax
from drumlin.kg.rdf.jsonld import CONTEXT_IRI
from drumlin.kg.rdf.jsonld_loader import inline
from drumlin.kg.rdf.syntax import JSONLD, Syntax, Term, syntax_named

if TYPE_CHECKING:
    import rdflib

_XSD_STRING = rdf.PREFIXES["xsd"] + "string"  # rdflib, as RDF 1.0, has literals without a datatype


class RdfText(str):
    """The text of a graph or of several; ``syntax`` is the one it is written in."""

    __slots__ = ("syntax",)
    syntax: Syntax

    def __new__(cls, text: str, syntax: Syntax) -> Self:
        """Take a text and its syntax."""
        made = super().__new__(cls, text)
        made.syntax = syntax
        return made

    def __getnewargs__(self) -> tuple[str, Syntax]:  # type: ignore[override]  # copies and pickles need the syntax as well
        return str(self), self.syntax

    @classmethod
    def from_response(cls, response: httpx.Response) -> Self:
        """Take an answer; raises ``LookupError`` when its media type is not that of an RDF syntax."""
        media_type = response.headers["Content-Type"].partition(";")[0].strip()
        try:
            return cls(response.text, syntax_named(media_type))
        except UnsupportedSyntax as error:
            raise LookupError(media_type) from error

    def to_rdflib(self) -> rdflib.Graph:
        """Return an ``rdflib.Graph``, or an ``rdflib.Dataset`` when the syntax can name graphs (N-Quads, TriG, JSON-LD).

        Terms are as rdflib's own parsers make them, which normalise literals, but blank nodes keep their labels. The prefixes of the
        service's Turtle are bound. Nothing is fetched: the JSON-LD context of the service is known here.

        Raises ``InvalidDocument`` for a text that is cut or ill-formed, and ``UnsupportedSyntax`` for triple terms and base directions
        (RDF 1.2), which rdflib cannot hold.
        """
        import rdflib

        whole = rdflib.Dataset() if self.syntax.quads else rdflib.Graph()
        for prefix, namespace in rdf.PREFIXES.items():
            whole.bind(prefix, namespace, replace=True)
        for graph, statement in rdf.statements(io.BytesIO(self._bytes()), self.syntax):
            target = whole.get_context(_graph_name(graph)) if isinstance(whole, rdflib.Dataset) else whole
            target.add(_triple(statement))
        return whole

    def _bytes(self) -> bytes:
        data = self.encode()
        if self.syntax is not JSONLD:
            return data
        try:
            document = msgspec.json.decode(data)
        except msgspec.DecodeError:
            document = None  # ``inline`` words the error
        named = document.get("@context") if isinstance(document, dict) else None
        return inline(data, served=named if isinstance(named, str) else CONTEXT_IRI, max_bytes=len(data))


def _graph_name(name: str | None) -> rdflib.term.IdentifiedNode:
    import rdflib
    from rdflib.graph import DATASET_DEFAULT_GRAPH_ID

    if name is None:
        return DATASET_DEFAULT_GRAPH_ID
    return rdflib.BNode(name[2:]) if name.startswith("_:") else rdflib.URIRef(name)


def _triple(statement: str) -> tuple[rdflib.term.Node, rdflib.term.Node, rdflib.term.Node]:
    if rdf.parts(statement)[2].startswith("<<("):
        raise UnsupportedSyntax("rdflib has no triple terms (RDF 1.2)", hint="read the text with a parser of RDF 1.2")
    subject, predicate, value = map(_node, rdf.terms(statement))
    return subject, predicate, value


def _node(term: Term) -> rdflib.term.Node:
    import rdflib

    if term.kind == "iri":
        return rdflib.URIRef(term.value)
    if term.kind == "blank":
        return rdflib.BNode(term.value)
    if term.language is None:
        datatype = None if term.datatype == _XSD_STRING else rdflib.URIRef(term.datatype or "")
        return rdflib.Literal(term.value, datatype=datatype)
    if "--" in term.language:
        raise UnsupportedSyntax("rdflib has no base direction (RDF 1.2)", hint="read the text with a parser of RDF 1.2")
    return rdflib.Literal(term.value, lang=term.language)
