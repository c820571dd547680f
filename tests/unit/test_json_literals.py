"""JSON literals in a caller's JSON-LD: what stands in them is left as it is, and nothing else escapes the rules."""

from __future__ import annotations

import itertools
import json
import re
from typing import Any

import pyoxigraph as ox
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drumlin.kg import rdf
from drumlin.kg.errors import InvalidDocument
from drumlin.kg.graphs.patch import merged
from drumlin.kg.rdf import context_reader, jsonld_loader
from drumlin.kg.rdf.jsonld import CONTEXT_IRI, compact, context_value
from drumlin.kg.rdf.syntax import JSONLD
from tests.thoroughness import examples

BASE = "https://kg.example/id/"
VOCAB = {"@vocab": "http://v/"}
# What the rules would change or refuse anywhere else.
OPAQUE: list[Any] = [
    {"@context": CONTEXT_IRI, "x": 1},
    {"@context": [CONTEXT_IRI, None], "x": [{"@context": CONTEXT_IRI}]},
    {"@context": "http://remote.example/", "x": 1},
    {"@context": {"@import": CONTEXT_IRI}},
    [{"@context": {"p": {"@context": CONTEXT_IRI}}}, 1, None],
]


def read_by_engine(document: Any) -> set[str]:
    """Return the statements of a document as the engine reads it without our rules, blank nodes named canonically."""
    return _named(json.dumps(document).encode())


def read_by_us(document: Any) -> set[str]:
    """Return the statements of a document under our rules."""
    return _named(jsonld_loader.inline(json.dumps(document).encode()))


def _named(data: bytes) -> set[str]:
    found = ox.Dataset(ox.parse(data, format=ox.RdfFormat.JSON_LD, base_iri="http://base/"))
    found.canonicalize(ox.CanonicalizationAlgorithm.UNSTABLE)
    return {str(quad) for quad in found}


def placed(value: Any) -> dict[str, Any]:
    """Return documents in which ``value`` is a JSON literal, by how they say so."""
    json_ = {"@type": "@json"}
    scoped = {**VOCAB, "in": {"@id": "http://v/in", "@context": {"p": json_}}}
    typed = {**VOCAB, "T": {"@id": "http://v/T", "@context": {"p": json_}}}
    node = {"@id": "http://a"}
    return {
        "a value object": {"@context": VOCAB, **node, "p": {"@type": "@json", "@value": value}},
        "its value first": {"@context": VOCAB, **node, "p": {"@value": value, "@type": "@json"}},
        "aliases of keywords": {
            "@context": {**VOCAB, "t": "@type", "v": "@value"}, **node, "p": {"t": "@json", "v": value}
        },
        "an alias of the type": {"@context": {**VOCAB, "j": "@json"}, **node, "p": {"@type": "j", "@value": value}},
        "an alias of an alias": {
            "@context": {**VOCAB, "k": "j", "j": {"@id": "@json"}}, **node, "p": {"@type": ["k"], "@value": value}
        },
        "our own aliases": {"@context": context_value(), "id": "http://a", "name": {"type": "@json", "@value": value}},
        "in an array": {"@context": VOCAB, **node, "p": [1, {"@type": "@json", "@value": value}]},
        "in a list": {"@context": VOCAB, **node, "p": {"@list": [{"@type": "@json", "@value": value}]}},
        "in a set": {"@context": VOCAB, **node, "p": {"@set": [{"@type": "@json", "@value": value}]}},
        "in a graph": {"@context": VOCAB, "@graph": [{**node, "p": {"@type": "@json", "@value": value}}]},
        "in a reverse property": {
            "@context": VOCAB, **node, "@reverse": {"q": {"@id": "http://b", "p": {"@type": "@json", "@value": value}}}
        },
        "a term": {"@context": {**VOCAB, "p": json_}, **node, "p": value},
        "a term by an alias": {"@context": {**VOCAB, "j": "@json", "p": {"@type": "j"}}, **node, "p": value},
        "a term with @set": {"@context": {**VOCAB, "p": {**json_, "@container": "@set"}}, **node, "p": value},
        "a term with @list": {"@context": {**VOCAB, "p": {**json_, "@container": ["@list"]}}, **node, "p": value},
        "a term with @index": {"@context": {**VOCAB, "p": {**json_, "@container": "@index"}}, **node, "p": {"i": value}},
        "a term of a list of contexts": {"@context": [VOCAB, {"p": json_}], **node, "p": value},
        "a term that was defined otherwise": {
            "@context": [{**VOCAB, "p": {"@type": "@id"}}, {"p": json_}], **node, "p": value
        },
        "a term of an inner context": {"@context": VOCAB, **node, "q": {"@context": {"p": json_}, "p": value}},
        "a term further in": {"@context": {**VOCAB, "p": json_}, **node, "q": [{"r": {"p": value}}]},
        "a term below a null context": {
            "@context": {**VOCAB, "p": {"@type": "@id"}}, **node, "q": {"@context": [None, VOCAB, {"p": json_}], "p": value}
        },
        "scoped by a property": {"@context": scoped, **node, "in": {"p": value}},
        "scoped by a property, further in": {"@context": scoped, **node, "in": {"q": {"p": value}}},
        "scoped by a type": {"@context": typed, **node, "@type": ["S", "T"], "p": value},
        "scoped by a type that propagates": {
            "@context": {**VOCAB, "T": {"@id": "http://v/T", "@context": {"@propagate": True, "p": json_}}},
            **node, "@type": "T", "q": {"p": value},
        },
        "not propagated, at the same node": {
            "@context": VOCAB, **node, "q": {"@context": {"@propagate": False, "p": json_}, "p": value, "r": {"@id": "x:y"}}
        },
        "in a type map": {
            "@context": {**typed, "m": {"@id": "http://v/m", "@container": "@type"}}, **node, "m": {"T": {"p": value}}
        },
        "in an index map": {
            "@context": {**VOCAB, "p": json_, "m": {"@id": "http://v/m", "@container": "@index"}},
            **node, "m": {"i": {"p": value}},
        },
        "in a map of graphs": {
            "@context": {**VOCAB, "p": json_, "m": {"@id": "http://v/m", "@container": ["@graph", "@id"]}},
            **node, "m": {"http://g": {"p": value}},
        },
        "nested": {"@context": {**VOCAB, "p": json_, "n": "@nest"}, **node, "n": {"p": value}},
        "included": {"@context": {**VOCAB, "p": json_}, **node, "@included": [{"@id": "http://b", "p": value}]},
    }  # fmt: skip


@pytest.mark.parametrize("value", OPAQUE, ids=range(len(OPAQUE)))
@pytest.mark.parametrize("place", placed(None))
def test_a_json_literal_is_left_as_it_is(place: str, value: Any) -> None:
    """Wherever and however a literal is marked, its value is what the engine reads without our rules."""
    document = placed(value)[place]
    expected = read_by_engine(document)

    assert any("@context" in each for each in expected)
    assert read_by_us(document) == expected


@pytest.mark.parametrize(
    "document",
    [
        {"@context": VOCAB, "p": {"@type": "@json", "q": {"@context": "http://remote.example/"}}},
        {"@context": VOCAB, "p": {"@type": "json", "@value": {"@context": "http://remote.example/"}}},
        {"@context": [{"p": {"@type": "@json"}}, {"p": "http://v/p"}], "p": {"@context": "http://remote.example/"}},
        {"@context": [{"p": {"@type": "@json"}}, {"p": None}], "p": {"@context": "http://remote.example/"}},
        {"@context": [{"p": {"@type": "@json"}}, None, VOCAB], "p": {"@context": "http://remote.example/"}},
        {
            "@context": {**VOCAB, "T": {"@id": "http://v/T", "@context": {"p": {"@type": "@json"}}}},
            "@type": "T",
            "q": {"p": {"@context": "http://remote.example/"}},
        },
        {"@context": VOCAB, "q": {"@context": {"p": {"@type": "@json"}}}, "p": {"@context": "http://remote.example/"}},
        {
            "@context": VOCAB,
            "q": {
                "@context": {"@propagate": False, "p": {"@type": "@json"}},
                "r": {"p": {"@context": "http://remote.example/"}},
            },
        },
        {"@context": {"p": {"@type": "@json", "@context": "http://remote.example/"}}, "p": 1},
    ],
)
def test_what_is_no_literal_is_held_to_the_rules(document: Any) -> None:
    """A remote context is refused where the value is not, or no more, a JSON literal."""
    with pytest.raises(InvalidDocument, match="not allowed"):
        jsonld_loader.inline(json.dumps(document).encode())


def test_an_escaped_keyword_marks_a_literal_too() -> None:
    """JSON may write any letter as an escape."""
    text = (
        r'{"@context": {"@vocab": "http://v/"}, "p": {"@type": "@\u006ason", "@value": {"@context": "http://remote/"}}}'
    )

    assert _named(jsonld_loader.inline(text.encode())) == _named(text.encode())


def test_our_context_is_named_beside_a_literal() -> None:
    """Around a literal our context is put in the place of its name; inside the literal the name stays."""
    document = {
        "@context": CONTEXT_IRI,
        "id": f"{BASE}a",
        "name": {"type": "@json", "@value": {"@context": CONTEXT_IRI}},
    }
    (line,) = rdf.parse(jsonld_loader.inline(json.dumps(document).encode()), JSONLD)[None]

    assert CONTEXT_IRI in line
    assert context_reader.lines(json.dumps(document).encode()) is None  # it is not read without a processor
    assert "@json" not in json.dumps(context_value())  # else a document without the word could have literals


def test_a_literal_is_served_and_patched_as_it_was() -> None:
    """What is written of a graph with a literal, patched elsewhere or not, is read as the same literal."""
    root = f"{BASE}a"
    document = {
        "@context": CONTEXT_IRI,
        "id": root,
        "note": {"type": "@json", "@value": {"@context": [CONTEXT_IRI], "b": 1}},
    }
    lines = rdf.parse(jsonld_loader.inline(json.dumps(document).encode()), JSONLD)[None]
    written = json.dumps(compact(lines, root)).encode()
    patched = merged(lines, root, b'{"name": "x"}')

    assert rdf.parse(jsonld_loader.inline(written), JSONLD)[None] == lines
    assert lines < rdf.parse(jsonld_loader.inline(patched), JSONLD)[None]


# -- random documents -----------------------------------------------------------------------------------------------------

_NAMES = ["p", "q", "T", "j", "n"]
_REMOTE = st.just({"@context": "http://remote.example/", "x": 1})


def _definitions(context: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    scoped = st.fixed_dictionaries(
        {"@id": st.sampled_from(["http://v/p", "http://v/T"])},
        optional={
            "@type": st.sampled_from(["@json", "@id", "j"]),
            "@context": context,
            "@container": st.sampled_from(["@set", "@list", "@index", "@type", "@id"]),
        },
    )
    return st.one_of(scoped, st.sampled_from([None, "@json", "@type", "@value", "@nest", "j", "http://v/x"]))


def _contexts(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    terms = st.dictionaries(st.sampled_from(_NAMES), _definitions(inner), max_size=3)
    return st.builds(lambda found, rest: {**found, **rest}, terms, st.sampled_from([VOCAB, {"@propagate": False}, {}]))


_CONTEXT = st.recursive(st.sampled_from([None, VOCAB, {}]), _contexts, max_leaves=4)


def _objects(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    values = inner | st.lists(inner, max_size=2)
    keys = st.sampled_from([*_NAMES, "@list", "@set", "@included"])
    return st.builds(
        lambda found, context, kind, value: {**context, **kind, **found, **value},
        st.dictionaries(keys, values, min_size=1, max_size=3),
        st.just({}) | st.builds(lambda each: {"@context": each}, _CONTEXT),
        st.sampled_from([{}, {"@type": "T"}, {"@type": "j"}, {"@type": "@json"}, {"T": "j"}]),
        st.just({}) | st.builds(lambda each: {"@value": each}, inner),
    )


_VALUE = st.recursive(_REMOTE | st.sampled_from([1, "T", "j", None]), _objects, max_leaves=6)


@settings(max_examples=examples(120), deadline=None)
@given(context=_CONTEXT, document=_objects(_VALUE))
def test_random_documents_are_read_as_the_engine_reads_them(context: Any, document: dict[str, Any]) -> None:
    """What the engine reads without our rules, remote contexts in literals and nowhere else, is read alike under them."""
    document = {"@context": [VOCAB, context], **{key: each for key, each in document.items() if key != "@context"}}
    document = json.loads(_numbered(json.dumps(document)))
    try:
        expected = read_by_engine(document)
    except SyntaxError:
        return
    try:
        found = read_by_us(document)
    except InvalidDocument as error:  # the engine passes over what stands below a key that means nothing
        if '"@propagate": false' in json.dumps(
            document
        ):  # and keeps the terms of such a context below, where they have no meaning
            return
        found = expected
        refused = re.search(r"http://remote.example/\d+", str(error))
        assert refused and not any(f"{refused[0]}\\" in each for each in expected)  # noqa: PT018  both are the condition

    assert found == expected


def _numbered(text: str) -> str:
    """Give each remote context an address of its own."""
    numbers = itertools.count()
    return re.sub(r"http://remote\.example/", lambda match: f"{match[0]}{next(numbers)}", text)
