"""Canonical lines: what the engine writes, taken apart and put together again, whatever stands in them."""

from __future__ import annotations

import pyoxigraph as ox
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumlin.kg import rdf
from drumlin.kg.errors import InvalidDocument, UnsupportedSyntax
from drumlin.kg.rdf.syntax import JSONLD, NQUADS, NTRIPLES, SYNTAXES, TRIG, TURTLE, Term

GRAPH = "https://kg.example/id/prod/-/node/n1"
XSD = "http://www.w3.org/2001/XMLSchema#"


def _legal(iri: str) -> bool:
    try:
        ox.NamedNode(iri)
    except ValueError:
        return False
    return True


TEXTS = st.text(st.characters(codec="utf-8"))
IRI_CHARS = st.characters(codec="ascii", categories=["L", "N"], include_characters="/#?=&;:@!$()*+,.~_-'")
IRIS = st.text(IRI_CHARS, max_size=20).map(lambda path: f"http://x.example/{path}").filter(_legal)
NODES = IRIS.map(ox.NamedNode)
BLANKS = st.from_regex(r"[a-z][a-z0-9]{0,5}", fullmatch=True).map(ox.BlankNode)
LANGUAGES = st.sampled_from(["en", "de-at", "zh-hans-cn"])
DATATYPES = st.sampled_from(["http://x.example/type", "http://x.example/a#b", XSD + "anyURI", XSD + "hexBinary"])
LITERALS = (
    TEXTS.map(ox.Literal)
    | st.tuples(TEXTS, LANGUAGES).map(lambda two: ox.Literal(two[0], language=two[1]))
    | st.tuples(TEXTS, DATATYPES).map(lambda two: ox.Literal(two[0], datatype=ox.NamedNode(two[1])))
    # Texts that look like the end of a statement, or like a graph's name.
    | st.sampled_from(['a" <http://g> .', " <http://g>", "\\", '\\" <http://g>', '" .', "<http://g>", '"@en <g>']).map(
        ox.Literal
    )
)
GRAPHS = st.none() | NODES | BLANKS
QUADS = st.tuples(NODES | BLANKS, NODES, NODES | BLANKS | LITERALS, GRAPHS)


def _name(graph: ox.NamedNode | ox.BlankNode | None) -> str | None:
    if graph is None:
        return None
    return graph.value if isinstance(graph, ox.NamedNode) else str(graph)


def _term(term: ox.NamedNode | ox.BlankNode | ox.Literal) -> Term:
    if isinstance(term, ox.NamedNode):
        return Term("iri", term.value)
    if isinstance(term, ox.BlankNode):
        return Term("blank", term.value)
    return Term("literal", term.value, term.datatype.value, term.language)


@given(st.lists(QUADS, max_size=8))
def test_quads_are_sorted_by_graph_as_the_engine_has_them(quads: list[tuple[object, ...]]) -> None:
    """Splitting the engine's N-Quads gives each statement to its graph, whatever characters stand in it."""
    store = ox.Store()
    expected: dict[str | None, set[str]] = {}
    for subject, predicate, value, graph in quads:
        store.add(ox.Quad(subject, predicate, value, graph or ox.DefaultGraph()))
    for quad in store:
        name = None if isinstance(quad.graph_name, ox.DefaultGraph) else quad.graph_name
        statement = ox.serialize([quad.triple], format=ox.RdfFormat.N_TRIPLES) or b""
        expected.setdefault(_name(name), set()).add(statement.decode().removesuffix("\n"))

    assert rdf.by_graph(store.dump(format=ox.RdfFormat.N_QUADS) or b"") == expected


@given(NODES | BLANKS, NODES, NODES | BLANKS | LITERALS)
def test_a_line_is_taken_apart_into_the_engines_terms(
    subject: ox.NamedNode | ox.BlankNode, predicate: ox.NamedNode, value: ox.NamedNode | ox.BlankNode | ox.Literal
) -> None:
    """Kind, value, datatype and language of each term are the engine's, escapes undone."""
    line = (ox.serialize([ox.Triple(subject, predicate, value)], format=ox.RdfFormat.N_TRIPLES) or b"").decode()

    assert rdf.terms(line.removesuffix("\n")) == (_term(subject), _term(predicate), _term(value))


@given(st.lists(st.tuples(NODES | BLANKS, NODES, NODES | BLANKS | LITERALS), max_size=8))
def test_lines_are_sorted_into_facts_and_written_again(triples: list[tuple[object, ...]]) -> None:
    """Facts hold each statement of the engine under its subject and predicate, and nothing else; as lines they are what they were."""
    store = ox.Store()
    store.extend([ox.Quad(*triple) for triple in triples])
    lines = rdf.by_graph(store.dump(format=ox.RdfFormat.N_QUADS) or b"").get(None, frozenset())
    facts = rdf.facts_of(lines)

    assert rdf.lines_of(facts) == lines
    found = {
        (subject, predicate, rdf.term(value))
        for subject, said in facts.items()
        for predicate, values in said.items()
        for value in values
    }
    assert found == {(str(each.subject), str(each.predicate), _term(each.object)) for each in store}


@given(st.lists(st.tuples(NODES, NODES, NODES | LITERALS), min_size=1, max_size=6))
def test_every_syntax_says_the_same(triples: list[tuple[object, ...]]) -> None:
    """Lines written as any syntax and read again are the same lines."""
    store = ox.Store()
    store.extend([ox.Quad(*triple) for triple in triples])
    lines = rdf.by_graph(store.dump(format=ox.RdfFormat.N_QUADS) or b"")[None]

    for syntax in (JSONLD, TURTLE, NTRIPLES, NQUADS, TRIG):  # RDF/XML cannot write every predicate and character
        read = rdf.parse(rdf.serialize(lines, syntax, graph=GRAPH), syntax)
        assert read == {GRAPH if syntax.quads else None: lines}


def test_rdfxml_is_read_and_written() -> None:
    """An ordinary graph survives RDF/XML."""
    lines = frozenset(
        {f'<{GRAPH}> <http://x.example/p> "a & b <c>"@en .', f"<{GRAPH}> <http://x.example/p> <{GRAPH}> ."}
    )

    assert rdf.parse(rdf.serialize(lines, rdf.RDFXML), rdf.RDFXML) == {None: lines}


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        (f'"0.250"^^<{XSD}decimal>', f'"0.25"^^<{XSD}decimal>'),
        (f'"01"^^<{XSD}integer>', f'"1"^^<{XSD}integer>'),
        (f'"2026-11-27T21:50:28.000000Z"^^<{XSD}dateTime>', f'"2026-11-27T21:50:28Z"^^<{XSD}dateTime>'),
        ('"x"@EN-us', '"x"@en-us'),
        ('"\\u00E9"', '"é"'),
        (f'"x"^^<{XSD}string>', '"x"'),
    ],
)
def test_lines_are_in_the_engines_form(written: str, kept: str) -> None:
    """Two ways to write a value are one line, so equal graphs have equal digests."""
    statement = "<http://x.example/s> <http://x.example/p> {} ."

    assert rdf.parse(statement.format(written).encode(), NTRIPLES) == {None: {statement.format(kept)}}


@given(st.lists(TEXTS.map(lambda text: f"<x:s> <x:p> {text!r} ."), unique=True), st.randoms())
def test_the_digest_is_of_the_set(lines: list[str], random: object) -> None:
    """The order of lines does not matter; one line more or less does."""
    shuffled = list(lines)
    random.shuffle(shuffled)

    assert rdf.digest(lines) == rdf.digest(shuffled) == rdf.digest(frozenset(lines))
    assert len(rdf.digest(lines)) == 32
    if lines:
        assert rdf.digest(lines[1:]) != rdf.digest(lines)


@pytest.mark.parametrize(
    ("data", "syntax", "says"),
    [
        (b"<http://s> <http://p> .", TURTLE, "line 1"),
        (b"<http://s> <http://p> 1 .\n<s> <p>", TURTLE, "line 2"),
        (b"\xff\xfe", NTRIPLES, "ntriples"),
        (b"{", JSONLD, "jsonld"),
        (b'{"@context": "http://x.example/c", "@id": "http://s"}', JSONLD, "jsonld"),
        (b"<rdf", rdf.RDFXML, "rdfxml"),
    ],
)
def test_what_does_not_parse_says_where(data: bytes, syntax: rdf.Syntax, says: str) -> None:
    """A document that cannot be read is an error with syntax and place; nothing is fetched."""
    with pytest.raises(InvalidDocument, match=says):
        rdf.parse(data, syntax)


@pytest.mark.parametrize("syntax", SYNTAXES, ids=lambda syntax: syntax.name)
def test_a_syntax_goes_by_three_names(syntax: rdf.Syntax) -> None:
    """Short name, media type and suffix find the syntax, in any case."""
    for name in (syntax.name, syntax.media_type, syntax.suffix, syntax.media_type.upper()):
        assert rdf.syntax_named(name) is syntax


def test_an_unknown_syntax_lists_the_known_ones() -> None:
    """The refusal says what is offered."""
    with pytest.raises(UnsupportedSyntax) as caught:
        rdf.syntax_named("image/png")

    assert caught.value.detail["offered"] == [syntax.media_type for syntax in SYNTAXES]


def test_nothing_is_an_empty_document() -> None:
    """An empty document has no graphs, and no lines make an empty document."""
    assert rdf.parse(b"", TURTLE) == {}
    assert rdf.serialize([], NQUADS, graph=GRAPH) == b""
