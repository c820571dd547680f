"""Skeletons of SPARQL texts: whatever the gate remembers under one is what it would find itself."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from drumlin.kg.errors import QueryRejected
from drumlin.kg.sparql import gate
from drumlin.kg.sparql.lexer import tokens
from drumlin.kg.sparql.skeleton import LONGEST, skeleton
from tests.thoroughness import examples

LIMIT = 100_000
# What may stand in a string, an IRI, a comment or as a number, and what tries to be more than that.
INSIDE = st.sampled_from(
    ["a", "http://x/a-b/c#d", "1", "12", "", " ", "'", '"', "#", "<", ">", "\n", "{", "}", "service", "LOAD <x>", "NOW()", "é", "--//", "\\", "\x02", "?a", "|"]
)  # fmt: skip
PIECES = st.one_of(
    st.sampled_from(
        ["SELECT * {", "}", "{", "?s ?p ?o .", "?s ?p", "FILTER(?a = ", "FILTER(?a<", "FILTER(", "BIND(", ")", "(", "GRAPH ", "AS ?x)",
         " . ", ";", ",", "=", "<=", "<<", "<", ">", "-", "1", " 1 ", "12 ", "LIMIT ", "x:a", "x:b1 ", "NOW()", "'", '"', "#", "\n", " ", "a ", "^^", "@en", "_:b", "\\'"]
    ),
    INSIDE.map("<{}>".format),
    INSIDE.map("'{}'".format),
    INSIDE.map('"{}"'.format),
    INSIDE.map("#{}\n".format),
    INSIDE.map(" {} ".format),
)  # fmt: skip
SOUP = st.lists(PIECES, max_size=12).map("".join)
TEXT = st.one_of(
    SOUP.map("PREFIX x: <x> SELECT * {{ ?s ?p ?o {} }}".format), SOUP.map("SELECT * {{ {} }}".format), SOUP
)
Verdict = tuple[str, bool] | None


def verdict(text: str) -> Verdict:
    """What the gate says: form and volatility, None for a refusal."""
    try:
        found = gate.check(text, max_bytes=LIMIT)
    except QueryRejected:
        return None
    return found.form, found.volatile


def alone(text: str) -> Verdict:
    """What it says of a text when it has seen no other."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gate, "_known", {})
        return verdict(text)


@given(first=TEXT, second=TEXT)
@settings(max_examples=examples(100), deadline=None, suppress_health_check=list(HealthCheck))
def test_what_is_remembered_is_what_would_be_found(first: str, second: str) -> None:
    """After any other texts the verdict on a text is the one that it gets alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gate, "_known", {})
        verdict(first)
        assert verdict(second) == alone(second)


SLOT = st.tuples(INSIDE, INSIDE)


@given(slots=st.lists(st.tuples(st.sampled_from(["<{}>", "'{}'", '"{}"', "#{}\n", " {} ", "({})"]), SLOT, PIECES), max_size=6), frame=st.sampled_from(
    ["SELECT * {{ ?s ?p ?o . {} }}", "SELECT * {{ ?s ?p ?o FILTER(?a = {}) }}", "SELECT * {{ ?s ?p ({}) }}", "{}", "ASK {{ {} }}"]
))  # fmt: skip
@settings(max_examples=examples(120), deadline=None, suppress_health_check=list(HealthCheck))
def test_texts_with_one_skeleton_are_cut_alike(slots: list[tuple[str, tuple[str, str], str]], frame: str) -> None:
    """Equal skeletons mean equal tokens but for strings, IRIs and numbers, and equal verdicts, whatever stands in these."""
    left, right = (
        frame.format("".join(shape.format(pair[side]) + between for shape, pair, between in slots)) for side in (0, 1)
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gate, "_known", {})
        before = verdict(left)
        assert verdict(right) == alone(right)
    if before is not None and (bare := skeleton(left)) is not None and skeleton(right) == bare:
        assert _shape(left) == _shape(right)


def _shape(text: str) -> list[tuple[str, str]]:
    masked = ("string", "iri", "number")
    return [(token.kind, "" if token.kind in masked else token.text) for token in tokens(text)]


def test_queries_of_one_shape_have_one_skeleton() -> None:
    """Another entity, name, limit or comment is the same to the gate; another prefix, variable or keyword is not."""
    same = [
        f"SELECT ?p # {n}\n WHERE {{ <http://x/{n}> ?p 'app-{n}' ; ?q \"{n}'#<>\" }} LIMIT {n} OFFSET {n} "
        for n in range(20)
    ]
    assert len({skeleton(each) for each in same}) == 1
    other = ["SELECT ?p { ?a ?b ?c }", "SELECT ?q { ?a ?b ?c }", "SELECT ?p { ?a x:b ?c }", "SELECT ?p { ?a y:b ?c }"]
    assert len({skeleton(each) for each in other}) == len(other)


@pytest.mark.parametrize(
    "text", ["'a\\'b'", "'''a'''", '"""a"""', "<< <a> <b> <c> >>", "\x01", "x:a\\#b", " " * (LONGEST + 1)]
)
def test_where_tokens_are_not_certain_there_is_no_skeleton(text: str) -> None:
    """Escapes, long strings, quoted triples, marks and very long texts are scanned each time."""
    assert skeleton(text) is None


def test_what_an_iri_hides_is_looked_at_each_time() -> None:
    """Where ``<`` could compare, the IRI's content decides, however often the shape was passed before."""
    query = "SELECT * {{ ?s ?p ?o FILTER(?a<{}>1) }}"
    for content in ("b", "c", "b"):
        assert verdict(query.format(content)) == ("select", False)
    for content in ("b(c)", "b&&service"):
        assert verdict(query.format(content)) is None


def test_skeletons_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many shapes come, the memory of them is bounded."""
    monkeypatch.setattr(gate, "_known", known := {})
    monkeypatch.setattr(gate, "_KNOWN", 10)
    for number in range(100):
        verdict(f"SELECT ?v{number} {{ ?s ?p ?v{number} }}")
    assert 0 < len(known) <= 10


@pytest.mark.timeout(20)  # what grows with the square of the length takes minutes
@pytest.mark.parametrize(("head", "piece"), [("'", "<a"), ("", '"a '), ("", "#<'"), ("<", "a"), ("", " 1")])
def test_masking_is_linear(monkeypatch: pytest.MonkeyPatch, head: str, piece: str) -> None:
    """A text made to be scanned again and again is masked in time that grows with its length, were it far longer than allowed."""
    monkeypatch.setattr("drumlin.kg.sparql.skeleton.LONGEST", 1_000_000)
    assert skeleton(head + piece * 200_000) is not None


@pytest.mark.parametrize(
    ("call", "changes"), [("NOW()", True), ("uuid()", True), ("STR(?now)", False), ("STR('NOW()')", False)]
)
def test_a_result_that_changes_by_itself_is_told(call: str, changes: bool) -> None:
    """A call counts, a string or a variable of that name does not."""
    assert verdict(f"SELECT ({call} AS ?x) {{ ?s ?p ?o }}") == ("select", changes)
