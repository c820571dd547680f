"""Partial changes: the examples of RFC 7396 and laws of merging; what a ground update may say."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from drumlin.kg.errors import QueryRejected
from drumlin.kg.graphs.patch import merge, updated
from drumlin.kg.rdf import jsonld

GRAPH = "https://kg.example/id/domain/x"
LINES = jsonld.lines({"id": GRAPH, "type": "Domain", "name": "x", "label": ["a=b"]})
BUSY = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""A loaded machine draws slowly."""
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abcd"), inner, max_size=3),
    max_leaves=10,
)


@pytest.mark.parametrize(
    ("document", "patch", "result"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        ({"a": "b"}, ["c"], ["c"]),
        ({"a": "foo"}, None, None),
        ({"a": "foo"}, "bar", "bar"),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_the_examples_of_the_specification(document: Any, patch: Any, result: Any) -> None:
    """Appendix A of RFC 7396 (https://www.rfc-editor.org/rfc/rfc7396#appendix-A)."""
    assert merge(document, patch) == result


@BUSY
@given(JSON, JSON)
def test_a_merge_done_twice_is_done_once(document: Any, patch: Any) -> None:
    """Applying the same patch again changes nothing, and the document given is left as it was."""
    before = repr(document)
    once = merge(document, patch)
    assert merge(once, patch) == once
    assert repr(document) == before


@BUSY
@given(st.dictionaries(st.sampled_from("abcd"), JSON))
def test_an_empty_patch_changes_nothing(document: Any) -> None:
    """{} leaves every document as it is."""
    assert merge(document, {}) == document


def test_operations_apply_in_order_with_the_prefixes_declared_before_them() -> None:
    """A prefix of the first operation holds for the second; what is deleted and inserted again is there."""
    text = """PREFIX d: <https://w3id.org/drumlin/ns#;> # a comment; with a semicolon
    PREFIX d: <https://w3id.org/drumlin/ns#>
    DELETE DATA { <> d:name "x" } ;
    PREFIX e: <https://w3id.org/drumlin/ns#>
    INSERT DATA { <> d:name "y{" . GRAPH <https://kg.example/id/domain/x> { <> e:label "c=d" } } ; INSERT DATA { <> d:name "x" };"""
    assert {line.split(" ", 2)[2] for line in updated(LINES, GRAPH, text) - LINES} == {'"y{" .', '"c=d" .'}
    assert updated(LINES, GRAPH, text) >= LINES
    assert updated(LINES, GRAPH, "") == LINES


@pytest.mark.parametrize(
    "text",
    ["LOAD <http://x>", "CLEAR ALL", "DELETE WHERE { ?s ?p ?o }", "INSERT { <a> <b> <c> } WHERE {}", "DROP GRAPH <x>",
     "WITH <x> DELETE { ?s ?p ?o } WHERE { ?s ?p ?o }", "DELETE DATA { <a> <b> <c> } WHERE {}"],
)  # fmt: skip
def test_only_ground_data_is_taken(text: str) -> None:
    """Every other operation of SPARQL Update is refused by name."""
    with pytest.raises(QueryRejected):
        updated(LINES, GRAPH, text)
