"""Sub-selects inside GRAPH with a variable, against the definition: evaluated for each named graph, then joined with its name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pyoxigraph as ox
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drumlin.kg.errors import QueryRejected
from drumlin.kg.rdf.syntax import projected
from drumlin.kg.sparql.lexer import tokens
from drumlin.kg.sparql.subselects import restore
from drumlin.kg.sparql.variables import projection
from tests.thoroughness import examples

Quad = tuple[str, str, str, str]
Row = tuple[tuple[str, str], ...]

NAMES = st.sampled_from(["x:a", "x:b", "x:g0", "x:g1"])
GRAPHS = ("x:g0", "x:g1", "x:g2")
QUADS = st.lists(
    st.tuples(NAMES, st.sampled_from(["x:p", "x:q"]), NAMES, st.sampled_from(GRAPHS)), max_size=12, unique=True
)

# -- the definition -------------------------------------------------------------------------------------------------------


def store_of(quads: list[Quad]) -> ox.Store:
    """Return an engine that holds ``quads``."""
    engine = ox.Store()
    engine.extend(ox.Quad(*map(ox.NamedNode, quad)) for quad in quads)
    return engine


def by_definition(engine: ox.Store, inside: str) -> tuple[set[str], list[Row]]:
    """Return the variables and the solutions of ``SELECT * { GRAPH ?g { inside } }``, by SPARQL 1.1, section 18.6."""
    named = list(engine.named_graphs())
    rows: list[Row] = []
    for graph in named:
        assert isinstance(graph, ox.NamedNode)
        found = engine.query(f"SELECT * {{ {inside} }}", default_graph=graph, named_graphs=named)
        assert isinstance(found, ox.QuerySolutions)
        joined = [row for row in solutions(found) if row.setdefault("g", str(graph)) == str(graph)]
        rows += (tuple(sorted(row.items())) for row in joined)
    empty = engine.query(f"SELECT * {{ {inside} }}")
    assert isinstance(empty, ox.QuerySolutions)
    return {each.value for each in empty.variables} | {"g"}, sorted(rows)


def by_the_engine(engine: ox.Store, inside: str) -> tuple[set[str], list[Row]]:
    """Return what the engine answers to the query as it is rewritten."""
    found = engine.query(restore(f"SELECT * {{ GRAPH ?g {{ {inside} }} }}"), use_default_graph_as_union=True)
    assert isinstance(found, ox.QuerySolutions)
    names = {each.value for each in found.variables}
    return names, sorted(tuple(sorted(row.items())) for row in solutions(found))


def solutions(found: ox.QuerySolutions) -> Iterator[dict[str, str]]:
    """Yield the bound variables of each solution."""
    names = [each.value for each in found.variables]
    for row in found:
        yield {name: str(term) for name, term in zip(names, row, strict=True) if term is not None}


# -- cases ----------------------------------------------------------------------------------------------------------------

CASES = [
    "{ SELECT ?s (?o AS ?g) { ?s <x:p> ?o } }",
    "SELECT ?s (?o AS ?g) { ?s <x:p> ?o }",
    "SELECT ?s (COALESCE(?none, ?o) AS ?g) { ?s <x:p> ?o }",
    "SELECT ?s (1/0 AS ?g) { ?s <x:p> ?o }",
    "SELECT ?s (STR(?o) AS ?g) { ?s <x:p> ?o }",
    "SELECT ?s ?g { ?s <x:p> ?o VALUES ?g { <x:g0> <x:a> UNDEF } }",
    "SELECT ?s ?g { ?s <x:p> ?o } VALUES ?g { <x:g0> <x:g2> }",
    "SELECT ?s { ?s <x:p> ?o } VALUES (?g ?s) { (<x:g0> <x:a>) (<x:b> UNDEF) }",
    "SELECT ?s ?g { ?s <x:p> ?o BIND(?o AS ?g) }",
    "SELECT ?s { ?s <x:p> ?o BIND(?o AS ?g) FILTER(?g != <x:a>) }",
    "SELECT * { ?s <x:p> ?o BIND(?o AS ?g) }",
    "SELECT * { ?s <x:p> ?o VALUES ?g { <x:g1> } }",
    "SELECT * { VALUES ?x { 1 2 } }",
    "SELECT ?x { VALUES ?x { 1 2 } }",
    "SELECT ?x { VALUES ?x { <x:a> } OPTIONAL { ?x <x:q> ?y } }",
    "SELECT ?x ?y { BIND(1 AS ?x) OPTIONAL { ?z <x:q> ?y } }",
    "SELECT ?x { { VALUES ?x { 1 } } UNION { ?x <x:p> ?y } }",
    "SELECT ?x ?y { ?x <x:p> ?z { VALUES ?y { 1 } OPTIONAL { ?w <x:q> ?v } } }",
    "SELECT ?s ?g { ?s <x:p> ?o OPTIONAL { ?s <x:q> ?g } }",
    "SELECT DISTINCT ?s ?g { ?s <x:p> ?o OPTIONAL { ?s <x:q> ?g } }",
    "SELECT ?s ?g { { ?s <x:p> ?g } UNION { ?s <x:q> ?o } }",
    "SELECT ?s { ?s <x:p> ?g { SELECT ?s (?o AS ?g) { ?s <x:q> ?o } } }",
    "SELECT ?s ?g { ?s <x:p> ?g { SELECT ?s (?o AS ?g) { ?s <x:q> ?o } } }",
    "SELECT * { { SELECT * { { SELECT ?s (?o AS ?g) { ?s <x:p> ?o } } ?s ?p ?g } } }",
    "SELECT ?g (COUNT(*) AS ?n) { ?s <x:p> ?g } GROUP BY ?g",
    "SELECT (?o AS ?g) (COUNT(*) AS ?n) { ?s <x:p> ?o } GROUP BY ?o HAVING (COUNT(*) > 1)",
    "SELECT ?s (MAX(?g) AS ?m) { ?s <x:p> ?g } GROUP BY ?s HAVING (MAX(?g) != <x:a>)",
    "SELECT ?s ?g { ?s <x:p> ?g } ORDER BY ?g DESC(?s)",
    "SELECT ?s { ?s <x:p> ?o } ORDER BY ?g",
    "SELECT ?s { ?s <x:p> ?o FILTER EXISTS { ?s <x:q> ?z } }",
    "SELECT ?s ?g { ?s <x:p> ?g FILTER NOT EXISTS { ?g <x:q> ?z } }",
    "SELECT ?s (EXISTS { ?s <x:q> ?z } AS ?e) { ?s <x:p> ?o }",
    "SELECT ?s { ?s <x:p> ?o FILTER EXISTS { SELECT ?s { ?s <x:q> ?g } } }",
    "SELECT ?s { FILTER NOT EXISTS { ?z <x:q> ?w } }",
    "SELECT ?s { ?s <x:p> ?o MINUS { ?s <x:q> ?z } }",
    "SELECT ?s { ?s <x:p> ?o MINUS { ?z <x:q> ?w } }",
    "SELECT * { ?s <x:p> ?o MINUS { ?z <x:q> ?w MINUS { ?v <x:p> ?u } } }",
    "SELECT * { ?s <x:p> ?o MINUS { ?s <x:q> ?hidden } }",
    "SELECT ?s ?g { ?s <x:p> ?g MINUS { ?z <x:q> ?g } }",
    "SELECT ?s { ?s <x:p> ?o MINUS { { ?s <x:q> ?z } UNION { SELECT ?s { ?s <x:p> <x:b> } } } }",
    "SELECT ?s { ?s <x:p> ?o OPTIONAL { ?s <x:q> ?z MINUS { ?v <x:p> ?w } } }",
    "SELECT ?s ?h { ?s <x:p> ?o GRAPH ?h { ?s <x:q> ?z } }",
    "SELECT ?h { GRAPH ?h { ?s <x:q> ?z } }",
    "SELECT ?s { GRAPH ?g { ?s <x:q> ?z } }",
    "SELECT ?s ?g { GRAPH ?g { ?s <x:q> ?z } }",
    "?g <x:p> ?y { SELECT ?y (?o AS ?g) { ?y <x:q> ?o } }",
    "?s <x:p> ?y OPTIONAL { SELECT ?y { ?y <x:q> ?g } }",
    "{ SELECT ?g { ?s <x:p> ?g } } UNION { SELECT (?s AS ?g) { ?s <x:p> ?o } }",
    "SELECT ?s ?g_0 { ?s <x:p> ?g_0, ?g }",
]


@pytest.mark.parametrize("inside", CASES)
@settings(max_examples=examples(12), deadline=None)
@given(quads=QUADS)
def test_the_engine_answers_by_the_definition(inside: str, quads: list[Quad]) -> None:
    """Over random small data the rewritten query has the variables and the solutions that the specification defines."""
    engine = store_of(quads)

    assert by_the_engine(engine, inside) == by_definition(engine, inside)


@pytest.mark.parametrize(
    ("inside", "said"),
    [
        ("?s <x:p> ?y OPTIONAL { SELECT ?y ?g { ?y <x:q> ?g } }", "cannot select"),
        ("?s <x:p> ?y MINUS { { SELECT ?y (?o AS ?g) { ?y <x:q> ?o } } }", "cannot select"),
        ("?s <x:p> ?y FILTER EXISTS { SELECT ?g { ?y <x:q> ?g } GROUP BY ?g }", "cannot select"),
        ("SELECT ?s { ?s <x:p> ?o OPTIONAL { ?s <x:q> ?z } MINUS { ?x <x:p> ?z } }", "MINUS"),
    ],
)
def test_what_cannot_be_rewritten_is_refused(inside: str, said: str) -> None:
    """Rather no answer than a wrong one; the hint says how to ask."""
    with pytest.raises(QueryRejected, match=said) as refused:
        restore(f"SELECT * {{ GRAPH ?g {{ {inside} }} }}")

    assert refused.value.hint


def test_no_name_of_the_query_is_taken_for_a_new_variable() -> None:
    """A variable that is renamed gets a name that the query has nowhere, outside of the sub-select too."""
    query = "SELECT * { ?g_0 ?p ?g_1 GRAPH ?g { SELECT ?s (?o AS ?g) { ?s <x:p> ?o } } }"

    assert projection(list(tokens(restore(query)))) == ["g", "g_0", "g_1", "p", "s"]
    assert "?g_2" in restore(query)


def test_a_long_text_with_many_sub_selects_is_refused() -> None:
    """Rewriting is bounded: a text is not read again and again when it is long."""
    inside = "SELECT ?s { ?s ?p ?o VALUES ?o { " + "1 " * 10_000 + "} }"
    for _ in range(12):
        inside = f"SELECT ?s {{ {{ {inside} }} }}"

    with pytest.raises(QueryRejected, match="too long"):
        restore(f"SELECT * {{ GRAPH ?g {{ {inside} }} }}")


# -- random sub-selects ---------------------------------------------------------------------------------------------------

_VARIABLE = st.sampled_from(["?s", "?o", "?g", "?z"])
_TERM = _VARIABLE | st.sampled_from(["<x:a>", "<x:g0>"])
_TRIPLE = st.builds("{} <x:{}> {}".format, _TERM, st.sampled_from("pq"), _TERM)


def _groups(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    group = st.lists(inner, min_size=1, max_size=3).map(" . ".join)
    return st.one_of(
        st.builds("{{ {} }} UNION {{ {} }}".format, group, group),
        st.builds("OPTIONAL {{ {} }}".format, group),
        st.builds("MINUS {{ {} }}".format, group),
        st.builds("FILTER {} {{ {} }}".format, st.sampled_from(["EXISTS", "NOT EXISTS"]), _TRIPLE),
        _selects(group),
    )


def _selects(group: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    names = st.lists(_VARIABLE, min_size=1, max_size=3, unique=True).map(" ".join)
    return st.one_of(
        st.builds("{{ SELECT {} {} {{ {} }} }}".format, st.sampled_from(["", "DISTINCT"]), names | st.just("*"), group),
        st.builds("{{ SELECT ?s (COUNT(*) AS ?n) {{ {} }} GROUP BY ?s }}".format, group),
        st.builds("{{ SELECT ?s {{ {} }} VALUES ?g {{ <x:g0> UNDEF }} }}".format, group),
    )


_ELEMENT = st.recursive(
    _TRIPLE | st.sampled_from(["VALUES ?g { <x:g0> <x:a> }", "VALUES ?z { 1 2 }"]), _groups, max_leaves=5
)
RANDOM = _selects(st.lists(_ELEMENT, min_size=1, max_size=3).map(" . ".join))


@settings(max_examples=examples(80), deadline=None)
@given(inside=RANDOM, quads=QUADS)
def test_random_sub_selects_are_answered_by_the_definition_or_refused(inside: str, quads: list[Quad]) -> None:
    """What is not refused is answered as defined, whatever stands in the sub-select."""
    engine = store_of(quads)
    with suppress(QueryRejected):
        assert by_the_engine(engine, inside) == by_definition(engine, inside)


@settings(max_examples=examples(80), deadline=None)
@given(inside=RANDOM)
def test_the_variables_in_scope_are_those_of_the_engine(inside: str) -> None:
    """``SELECT *`` stands for the variables that the engine finds in scope."""
    query = f"SELECT * {{ {inside} }}"

    assert projection(list(tokens(query))) == sorted(projected(query))
