"""Sub-selects inside GRAPH with a variable: the engine's answer, once rewritten, is rdflib's."""

from __future__ import annotations

import pyoxigraph as ox
import pytest
import rdflib
from hypothesis import given, settings
from hypothesis import strategies as st

from drumlin.kg.errors import QueryRejected
from drumlin.kg.sparql.subselects import MAX_SELECTS, restore
from tests.thoroughness import examples

pytestmark = pytest.mark.filterwarnings("ignore:Dataset:DeprecationWarning")  # rdflib's own use of its old names

QUERIES = [
    "SELECT ?g ?x { GRAPH ?g { SELECT ?x { ?x <x:p> ?y } } }",
    "SELECT * { GRAPH ?g { SELECT DISTINCT ?x WHERE { ?x <x:p> ?y } } }",
    "SELECT * { GRAPH ?g { SELECT * { ?x <x:p> ?y } } }",
    "SELECT * { GRAPH $g { SELECT ?x { ?x <x:p> ?g } } }",
    "SELECT * { GRAPH ?g { SELECT ?x (COUNT(?y) AS ?n) { ?x <x:p> ?y } GROUP BY ?x } }",
    "SELECT * { GRAPH ?g { SELECT ?x { { SELECT ?x { ?x ?p ?y } } } } }",
    "SELECT * { GRAPH ?g { SELECT ?x { { SELECT ?x ?g { ?x <x:p> ?g } } } } }",
    "SELECT * { GRAPH ?g { ?x <x:p> ?z { SELECT ?x { ?x <x:q> ?y } } } }",
    "SELECT * { GRAPH ?g { SELECT ?x ?g { ?x <x:p> ?g } } }",
    "SELECT * { GRAPH <x:g0> { SELECT ?x { ?x <x:p> ?y } } }",
    "SELECT * { GRAPH ?g { { SELECT ?x { ?x <x:p> ?y } } UNION { SELECT ?x { ?x <x:q> ?y } } } }",
    "SELECT * { GRAPH ?g { ?x <x:p> ?y OPTIONAL { SELECT ?x ?z { ?x <x:q> ?z } } } }",
    "SELECT * { ?g ?a ?b GRAPH ?g { SELECT ?x { ?x <x:p> ?y } } }",
    "SELECT * { GRAPH ?g { SELECT ?x { ?x <x:p> ?y FILTER(?y != <x:a>) } ORDER BY ?y } }",
    "SELECT ?g (COUNT(*) AS ?n) { GRAPH ?g { SELECT ?x { ?x <x:p> ?y } } } GROUP BY ?g",
]
NAMES = st.sampled_from(["x:a", "x:b", "x:g0", "x:g1"])
QUADS = st.lists(
    st.tuples(NAMES, st.sampled_from(["x:p", "x:q"]), NAMES, st.sampled_from(["x:g0", "x:g1", "x:g2"])),
    max_size=12,
    unique=True,
)


def rows_of(engine: ox.Store, query: str) -> list[list[tuple[str, str]]]:
    """Return the engine's rows. Its iterator ends here: rdflib's parser keeps its errors, and with them the frames that called it."""
    solutions = engine.query(query, use_default_graph_as_union=True)
    assert isinstance(solutions, ox.QuerySolutions)
    names = [each.value for each in solutions.variables]
    return sorted(
        sorted((name, term.value) for name, term in zip(names, row, strict=True) if term is not None)
        for row in solutions
    )


@pytest.mark.parametrize("query", QUERIES)
@settings(max_examples=examples(6), deadline=None)
@given(quads=QUADS)
def test_the_engine_answers_as_rdflib(query: str, quads: list[tuple[str, str, str, str]]) -> None:
    """Over random small data both give the same rows, each as often."""
    engine, dataset = ox.Store(), rdflib.Dataset(default_union=True)
    for quad in quads:
        engine.add(ox.Quad(*[ox.NamedNode(each) for each in quad]))
        dataset.add(tuple(rdflib.URIRef(each) for each in quad))
    ours = rows_of(engine, restore(query))
    theirs = sorted(
        sorted((str(name), str(term)) for name, term in row.asdict().items()) for row in dataset.query(query)
    )
    if "?g ?a ?b" in query:  # the union of rdflib merges what two graphs say
        ours, theirs = ([row for at, row in enumerate(rows) if row not in rows[:at]] for rows in (ours, theirs))
    if "GROUP BY ?x" in query:  # rdflib makes a row of no solutions; SPARQL 1.1 §18.5.1 makes no group of them
        theirs = [row for row in theirs if "x" in dict(row)]
    assert ours == theirs


@pytest.mark.parametrize(
    "inner",
    [
        "SELECT ?x { ?x ?p ?y } LIMIT 1",
        "SELECT ?x { ?x ?p ?y } OFFSET 1",
        "SELECT (COUNT(*) AS ?n) { ?x ?p ?y }",
        "SELECT (1 AS ?n) { ?x ?p ?y } HAVING (COUNT(*) > 1)",
    ],
)
def test_what_needs_one_evaluation_per_graph_is_refused(inner: str) -> None:
    """Rather no answer than a wrong one; the hint says how to ask."""
    with pytest.raises(QueryRejected, match="in each graph") as caught:
        restore(f"SELECT * {{ GRAPH ?g {{ {inner} }} }}")
    assert "GROUP BY ?g" in (caught.value.hint or "")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * { GRAPH ?g { ?s ?p ?o } }",
        "SELECT * { { SELECT ?x { ?x ?p ?o } LIMIT 1 } GRAPH ?g { ?x ?p ?o } }",
        "SELECT * { GRAPH <x:g> { SELECT ?x { ?x ?p ?o } LIMIT 1 } }",
        "SELECT ?x { ?x ?p 'GRAPH ?g { SELECT ?x { ?x ?p ?y } }' }",
        "SELECT * { GRAPH ?g { GRAPH <x:h> { SELECT ?x { ?x ?p ?o } LIMIT 1 } } }",
    ],
)
def test_other_queries_stay_as_they_are(query: str) -> None:
    """Only sub-selects directly under GRAPH with a variable are touched, and no text inside strings."""
    assert restore(query) == query


def test_very_many_are_refused() -> None:
    """Rewriting is bounded."""
    inner = "{ SELECT ?x { ?x ?p ?o } } " * (MAX_SELECTS + 1)
    with pytest.raises(QueryRejected, match="limit"):
        restore(f"SELECT * {{ GRAPH ?g {{ {inner} }} }}")


@pytest.mark.parametrize(
    "query",
    [
        "ASK { GRAPH ?g { SELECT ?p 'a' , 1.5e3 , true } FILTER(?g != ?s) }",
        "ASK { GRAPH ?g { SELECT ?p { ?p ?q ?r } GROUP } }",
        "SELECT * { GRAPH ?g { SELECT } }",
    ],
)
def test_what_is_no_sub_select_is_the_engines_to_refuse(query: str) -> None:
    """A sub-select that is cut short (the fuzz bench found one) is a syntax error, not a failure of ours."""
    with pytest.raises(SyntaxError):
        ox.Store().query(restore(query))
