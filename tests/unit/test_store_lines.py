"""What may be stored at all: statements that the engine takes, since a write is acknowledged before the engine sees it."""

from __future__ import annotations

import pyoxigraph as ox
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kg.errors import InvalidDocument
from kg.rdf import text_of
from kg.store.delta import Change, New, update_text
from kg.store.engine import lines_of
from kg.store.lines import canonical
from kg.store.protocol import Lines
from kg.store.texts import PlainText

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
        change = Change(A, "user", None, "digest", frozenset(), PlainText(text_of(kept)))
        if loaded:
            engine.bulk_load(New(A, PlainText(text_of(kept))).nquads(), format=ox.RdfFormat.N_QUADS)
        else:
            engine.update(update_text([change]))
        assert lines_of(engine, A) == kept
