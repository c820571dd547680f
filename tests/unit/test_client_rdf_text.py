"""RDF answers of the client as rdflib's graphs."""

from __future__ import annotations

import pickle

import pytest
import rdflib
from rdflib import BNode, Literal, URIRef
from rdflib.compare import isomorphic
from rdflib.graph import DATASET_DEFAULT_GRAPH_ID

from drumlin.kg import rdf
from drumlin.kg.client.rdf_text import RdfText
from drumlin.kg.errors import InvalidDocument, UnsupportedSyntax

A, B = URIRef("http://example.org/a"), URIRef("http://example.org/b")
LINES = (
    f'<{A}> <{B}> "tab\\tquote\\"" .',
    f'<{A}> <{B}> "two"@en .',
    f'<{A}> <{B}> "007"^^<http://www.w3.org/2001/XMLSchema#integer> .',
    f"<{A}> <{B}> _:x .",
    f'_:x <{B}> "é😀" .',
)
TEXT = "\n".join([*LINES, ""])


def dataset(text: str, syntax: rdf.Syntax) -> rdflib.Dataset:
    """Read a text that must become a dataset."""
    read = RdfText(text, syntax).to_rdflib()
    assert isinstance(read, rdflib.Dataset)
    return read


def test_a_text_of_triples_becomes_a_graph() -> None:
    """Terms are rdflib's; blank nodes keep their labels."""
    graph = RdfText(TEXT, rdf.NTRIPLES).to_rdflib()

    assert type(graph) is rdflib.Graph
    assert set(graph) == {
        (A, B, Literal('tab\tquote"')),
        (A, B, Literal("two", lang="en")),
        (A, B, Literal(7)),
        (A, B, BNode("x")),
        (BNode("x"), B, Literal("é😀")),
    }
    assert dict(graph.namespaces())["drumlin"] == URIRef("https://w3id.org/drumlin/ns#")


@pytest.mark.parametrize("syntax", [rdf.TURTLE, rdf.RDFXML, rdf.NTRIPLES, rdf.N3], ids=lambda syntax: syntax.name)
def test_every_syntax_gives_the_same_graph(syntax: rdf.Syntax) -> None:
    """The graph is the one that rdflib's own parser reads."""
    text = rdf.serialize(LINES, syntax).decode()

    read = rdflib.Graph().parse(data=TEXT, format="nt")
    assert isomorphic(RdfText(text, syntax).to_rdflib(), read)


@pytest.mark.parametrize("syntax", [rdf.NQUADS, rdf.TRIG], ids=lambda syntax: syntax.name)
def test_a_text_of_quads_becomes_a_dataset(syntax: rdf.Syntax) -> None:
    """Each statement is in its named graph; those of the default graph are in the dataset's default graph."""
    name = URIRef("http://example.org/g")
    text = rdf.serialize([LINES[1]], syntax, graph=str(name)) + rdf.serialize([LINES[0]], rdf.NTRIPLES)

    quads = dataset(text.decode(), syntax)

    assert set(quads.get_context(name)) == {(A, B, Literal("two", lang="en"))}
    assert set(quads.get_context(DATASET_DEFAULT_GRAPH_ID)) == {(A, B, Literal('tab\tquote"'))}


def test_json_ld_is_read_without_a_fetch() -> None:
    """The context that the service names is known to the client; another one is refused."""
    document = '{"@context": %s, "id": "https://kg.example/id/prod/-/node/a", "type": "Node", "name": "a"}'
    served = dataset(document % '"https://kg.example/context/v1.jsonld"', rdf.JSONLD)

    node = URIRef("https://kg.example/id/prod/-/node/a")
    assert (node, URIRef("https://w3id.org/drumlin/ns#name"), Literal("a")) in served.get_context(
        DATASET_DEFAULT_GRAPH_ID
    )
    with pytest.raises(InvalidDocument, match="remote context"):
        RdfText(document % '["http://example.org/other"]', rdf.JSONLD).to_rdflib()


@pytest.mark.parametrize(
    ("text", "syntax", "error"),
    [
        (TEXT[:-4], rdf.NTRIPLES, InvalidDocument),
        ("<a> <b>", rdf.TURTLE, InvalidDocument),
        ('{"id": ', rdf.JSONLD, InvalidDocument),
        (f"<{A}> <{B}> <<( <{A}> <{B}> <{A}> )>> .", rdf.NTRIPLES, UnsupportedSyntax),
        (f'<{A}> <{B}> "a"@ar--rtl .', rdf.NTRIPLES, UnsupportedSyntax),
    ],
)
def test_a_text_that_rdflib_cannot_hold_is_an_error(text: str, syntax: rdf.Syntax, error: type[Exception]) -> None:
    """A cut or ill-formed text is an invalid document, RDF 1.2 that rdflib lacks an unsupported syntax."""
    with pytest.raises(error):
        RdfText(text, syntax).to_rdflib()


def test_the_text_stays_a_string() -> None:
    """An answer can still be used wherever a string can."""
    text = RdfText(TEXT, rdf.NTRIPLES)

    assert text == TEXT
    assert text.endswith(" .\n")
    assert text.encode() == TEXT.encode()
    copied = pickle.loads(pickle.dumps(text))
    assert (copied, copied.syntax) == (text, rdf.NTRIPLES)
