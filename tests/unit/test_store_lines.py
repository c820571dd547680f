"""What may be stored at all: statements that the engine takes, since a write is acknowledged before the engine sees it."""

from __future__ import annotations

import pyoxigraph as ox
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumlin.kg.errors import InvalidDocument
from drumlin.kg.rdf import canonical as module
from drumlin.kg.rdf.canonical import canonical
from drumlin.kg.store.content import GraphContent
from drumlin.kg.store.delta import Change, New, update_text
from drumlin.kg.store.embedded.engine import lines_of
from drumlin.kg.store.protocol import Lines

A, B = "https://kg.example/id/prod/shop/pod/a", "https://kg.example/id/prod/shop/pod/b"
MALFORMED = [
    "http://[",
    "http://h:port/",
    "http://a/%zz",
    "http://a/%4",
    "http://[::1",
    "urn:x#a#b",
    "http://a b",
    "x",
    "1:a",
]
IRIS = [
    *MALFORMED,
    A,
    "urn:x",
    "urn:x:y%20z?q#f",
    "http://[::1]/",
    "http://a",
    "mailto:a@b",
    "http://a/é",
    "HTTP://a:99999/?#",
    "urn:x:[",
    "http://a/[",
    "a:",
]


@pytest.mark.parametrize("iri", MALFORMED)
def test_what_the_engine_would_refuse_is_refused_before(iri: str) -> None:
    """A write is acknowledged before the engine sees it, so no malformed IRI may pass, in whatever place."""
    for statement in (
        f"<{iri}> <http://p> <{B}> .",
        f"<{A}> <{iri}> <{B}> .",
        f"<{A}> <http://p> <{iri}> .",
        f'<{A}> <http://p> "1"^^<{iri}> .',
    ):
        with pytest.raises(InvalidDocument):
            canonical(frozenset([statement]), A)


@given(
    st.frozensets(
        st.builds(
            "<{}> <{}> {} .".format,
            st.sampled_from(IRIS),
            st.sampled_from(IRIS),
            st.sampled_from(
                [
                    *(f"<{each}>" for each in IRIS),
                    '"a"@en',
                    '"a"@en-US-x-1',
                    '"a"@a1-',
                    '"1"^^<http://t?x>',
                    '"\\u0001"',
                    '"\\uFFFE"',
                    '"\uffff"',
                ]
            ),
        ),
        min_size=1,
        max_size=4,
    )
)
def test_what_passes_the_border_is_taken_by_the_engine_in_both_ways(lines: Lines) -> None:
    """As an update and as a bulk load, with equal outcome: the statements that were accepted."""
    try:
        kept = canonical(lines, A)
    except InvalidDocument:
        return
    for loaded in (False, True):
        engine = ox.Store()
        change = Change(A, "user", None, "digest", frozenset(), GraphContent.of_canonical(kept))
        if loaded:
            engine.bulk_load(New(A, GraphContent.of_canonical(kept)).nquads(), format=ox.RdfFormat.N_QUADS)
        else:
            engine.update(update_text([change]))
        assert lines_of(engine, A) == kept


def test_long_terms_are_not_remembered() -> None:
    """What a client sends once may not stay in memory: only short terms, which graphs repeat, are kept beside their forms."""
    caches = (module._known_form, module._known_to_be_sure)
    canonical(frozenset({'<x:s> <x:p> "x"^^<http://www.w3.org/2001/XMLSchema#integer> .'}), "x:g")
    before = [each.cache_info().currsize for each in caches]
    long = "0" * 10_000

    assert canonical(
        frozenset({f'<x:s{long}> <x:p> "{long}1"^^<http://www.w3.org/2001/XMLSchema#integer> .'}), "x:g"
    ) == {f'<x:s{long}> <x:p> "1"^^<http://www.w3.org/2001/XMLSchema#integer> .'}
    assert [each.cache_info().currsize for each in caches] == before
