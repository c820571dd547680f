"""Documents read without a processor: the same lines as the processor gives, or none."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drumlin.kg import rdf
from drumlin.kg.errors import InvalidDocument
from drumlin.kg.rdf import context_reader, jsonld, jsonld_loader
from drumlin.kg.rdf.canonical import canonical
from drumlin.kg.rdf.jsonld_context import compiled
from drumlin.kg.rdf.syntax import Facts, Lines
from drumlin.kg.store.blank_nodes import holds_blank
from tests.thoroughness import examples

FIXTURES = Path(__file__).parents[1] / "golden" / "shapes"
DOCUMENTS = [json.loads(path.read_bytes()) for path in sorted(FIXTURES.glob("*.jsonld"))]
IRI = "https://kg.example/id/prod/a/pod/b"
XSD = "http://www.w3.org/2001/XMLSchema#"
SERVED = "https://kg.example/context/v1.jsonld"
STRANGE = [
    None, True, False, 0, -1, 1.0, 1e300, 10**14, 10**16, 10**30, "", " ", "a\tb\n\u007f\u0080é\U0001f600", 'say "no":', "\\", "0.250", "+5", "-0",
    "id", "type", "name", "cpu", "dcat:Dataset", "drumlin:Pod", "xsd:integer", "urn:x:y", "mailto:a@b", "_:b", "#a", "a/b", "//x/y",
    "http://x", "http://x/./y", "http://x/../y", "http://x/.y", "http://x/%zz", "http://x/%41", "HTTP://X/", "http://x:99999/", "http://[::1]/",
    "http://x/a b", "http://x/é", "http://x/?q=1#f", "http://x/a//b", "https://kg.example", "2026-11-27T00:00:00Z", "2026-11-27T00:00:00+00:00",
    "PT5M", "PT60S", [], [[]], {}, {"id": IRI}, {"@id": IRI}, {"@value": "a"}, {"id": "a"}, {"id": IRI, "name": "c"}, ["a", "a"], ["a", None],
]  # fmt: skip
KEYS = ["name", "runs", "type", "id", "@id", "@type", "@context", "title", "description", "cpuRequest", "replicas", "ready", "telemetry", "cluster",
    "nonsense", "dcterms:title", "dcat", "unit", "phase", "partOf", "startedAt", "a b", "", "http://x/p", "scrapeInterval"]  # fmt: skip


def slowly(data: bytes) -> Lines | None:
    """Read a document with the processor; None when it is refused, or says something in another graph."""
    try:
        graphs = rdf.parse(jsonld_loader.inline(data), rdf.JSONLD, base=IRI)
    except InvalidDocument:
        return None
    return graphs.get(None, frozenset()) if set(graphs) <= {None} else None


def stated(facts: Facts) -> set[str]:
    """Return the statements that were sorted by subject while they were read."""
    return {
        f"{subject} {predicate} {value} ."
        for subject, said in facts.items()
        for predicate, values in said.items()
        for value in values
    }


def places(value: Any) -> list[dict[str, Any]]:
    """Return every object of a document."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    found = [each for part in inner for each in places(part)]
    return [value, *found] if isinstance(value, dict) else found


@st.composite
def texts(draw: st.DrawFn) -> bytes:
    """Take a document and say a few things in another way; sometimes write it in another way, or a key twice."""
    document = json.loads(json.dumps(draw(st.sampled_from(DOCUMENTS))))
    for _ in range(draw(st.integers(0, 3))):
        place = draw(st.sampled_from(places(document)))
        key = draw(st.sampled_from([*place, *KEYS]))
        place[key] = deepcopy(draw(st.sampled_from(STRANGE) | st.text(max_size=5) | st.integers()))
    text = json.dumps(
        document, ensure_ascii=draw(st.booleans()), separators=draw(st.sampled_from([(",", ":"), (", ", " : ")]))
    )
    if draw(st.integers(0, 4)) == 0:
        text = text.replace('"name":', '"name":"twice","name":', 1)
    return text.encode("utf-8", "surrogatepass")


@settings(max_examples=examples(150))
@given(texts())
def test_what_is_read_is_what_the_processor_reads(data: bytes) -> None:
    """Whatever a document says, the lines are those of the processor, or there are none."""
    if (said := context_reader.lines(data)) is None:
        return
    lines, facts = said
    assert lines == slowly(data) == canonical(lines, IRI)
    assert not any(holds_blank(line) for line in lines if '"' not in line)
    assert stated(facts) == lines


@pytest.mark.parametrize(
    "name", ["one-value.pass", "telemetry-content.pass", "run-order.pass", "metric-query.pass", "forecast-file.pass"]
)
def test_the_usual_document_needs_no_processor(name: str) -> None:
    """Documents in the form in which they are served are read here, whether they are written tightly or for people."""
    document = json.loads((FIXTURES / f"{name}.jsonld").read_bytes())

    for indent in (None, 2):
        data = json.dumps(document, indent=indent).encode()
        said = context_reader.lines(data)
        assert said is not None
        assert said[0] == slowly(data) != frozenset()


VALUES = {
    "@id": ["https://kg.example/id/domain/a", "https://x.example/?a=b#c"],
    "@vocab": ["Running", "https://x.example/a"],
    f"{XSD}dateTime": ["2026-11-27T00:00:00Z", "2026-11-27T00:00:00.50+00:00"],
    f"{XSD}duration": ["PT5M", "PT60S"],
    f"{XSD}decimal": ["0.250", 2],
    f"{XSD}integer": [3, "+3"],
    f"{XSD}boolean": [True, "1"],
    None: ["a", 3, False],
}


@pytest.mark.parametrize("term", [*compiled().terms, "type", "name"])
def test_every_term_of_the_context_is_read_here(term: str) -> None:
    """No term leads to the processor, and each is read as the processor reads it, with one value and with several."""
    values = ["Pod", "Node"] if term == "type" else VALUES[compiled().definition(term).coercion]

    for value in (*values, values, []):
        data = msgspec.json.encode({"id": IRI, term: value})
        said = context_reader.lines(data)
        assert said is not None
        assert said[0] == slowly(data) == canonical(said[0], IRI)
        assert stated(said[1]) == said[0]


def test_our_own_renderers_are_read_by_the_same_reader() -> None:
    """What is certain in the document of a client gives the same lines and facts as in one of ours."""
    for document in DOCUMENTS:
        said = context_reader.lines(msgspec.json.encode(document))
        if said is not None:
            assert jsonld.read(document) == said


def test_a_document_that_names_the_served_context_needs_no_processor() -> None:
    """The address of our own service, and the context itself, are as good as the well-known name; another's address is not."""
    document = json.loads((FIXTURES / "one-value.pass.jsonld").read_bytes())
    expected = context_reader.lines(json.dumps(document).encode())
    assert expected is not None

    for context in (SERVED, jsonld.CONTEXT_IRI, dict(jsonld.context_value())):
        data = msgspec.json.encode({**document, "@context": context})
        assert context_reader.lines(data, SERVED) == expected
    foreign = msgspec.json.encode({**document, "@context": "https://other.example/context/v1.jsonld"})
    assert context_reader.lines(foreign, SERVED) is None
    twice = msgspec.json.encode({**document, "@context": dict(jsonld.context_value())}).replace(
        b'"name":', b'"name":"x","name":'
    )
    assert context_reader.lines(twice, SERVED) is None


@pytest.mark.parametrize(
    "data",
    [
        b'{"id":"%s","name":"a","name":"b"}' % IRI.encode(),
        b'{"id":"%s","name" :"a","name":"b"}' % IRI.encode(),
        b'{"id":"%s","name" :"a","name":"\\":"}' % IRI.encode(),
        b'{"id":"%s","x":{"id":"%s","id":"%s"}}' % ((IRI.encode(),) * 3),
        b'{"@context":"https://x","id":"%s","name":"a"}' % IRI.encode(),
        b"[]",
        b"{",
        b"\xff",
        b'{"id":"a/b","name":"a"}',
    ],
)
def test_what_is_not_certain_is_left_to_the_processor(data: bytes) -> None:
    """A key that comes twice, another context, another form of document: the processor tells what is wrong."""
    assert context_reader.lines(data) is None


LINE = f'<{IRI}> <https://w3id.org/drumlin/ns#name> "b" .\n'
PIECES = [
    LINE, f"<{IRI}> <http://x/p> <http://x/%41?a=1#f> .\n", f'<{IRI}> <http://x/p> "1"^^<http://www.w3.org/2001/XMLSchema#integer> .\n',
    f'<{IRI}> <http://x/p> "+1"^^<http://www.w3.org/2001/XMLSchema#integer> .\n', f'<{IRI}> <http://x/p> "a\\nb\\u0041é" .\n',
    f'<{IRI}> <http://x/p> "a"@EN .\n', f"<{IRI}> <http://x/p> _:b .\n", f"<{IRI}> <http://x/%zz> <http://x/a#b#c> .\n", "# remark\n", "\n",
    f'<{IRI}>  <http://x/p> "b" .\n', f'<{IRI}> <http://x/p> "a\\"b\\\\" .\n', f'<{IRI}> <http://x/p> "a\x7fb\u0085\u2028" .\n', LINE[:-3], "<http://x:99999/> ",
    f"<{IRI}> <http://x/p> <http://x/./y> .\n", f"<{IRI}> <http://x/p> <HTTP://X/y> .\n", f"<{IRI}> <http://x/p> <http://x/[> .\n",
]  # fmt: skip


@settings(max_examples=examples(100))
@given(st.lists(st.sampled_from(PIECES) | st.text(max_size=3), max_size=4))
def test_triples_that_are_read_are_those_that_the_parser_reads(pieces: list[str]) -> None:
    """Whatever N-Triples say, the lines are those of the parser, or there are none."""
    data = "".join(pieces).encode("utf-8", "surrogatepass")
    if (said := context_reader.triples(data)) is None:
        return
    lines, facts = said
    assert lines == rdf.parse(data, rdf.NTRIPLES)[None] == canonical(lines, IRI)
    assert stated(facts) == lines


@pytest.mark.parametrize("piece", [PIECES[0], PIECES[1], PIECES[2], PIECES[11]])
def test_canonical_triples_need_no_parser(piece: str) -> None:
    """What this service serves as N-Triples is read back as it is."""
    said = context_reader.triples((LINE + piece).encode())
    assert said is not None
    assert said[0] == {LINE[:-1], piece[:-1]}


@pytest.mark.parametrize("piece", [PIECES[3], PIECES[4], PIECES[5], PIECES[6], PIECES[7], PIECES[8], PIECES[12], ""])
def test_triples_that_are_not_certain_are_left_to_the_parser(piece: str) -> None:
    """Another form of a number, a blank node, an odd address, nothing at all: the parser decides."""
    assert context_reader.triples(piece.encode()) is None
