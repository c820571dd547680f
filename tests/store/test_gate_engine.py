"""Nothing that passes the gate kills the engine, which runs in a process that may die."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from drumlin.kg.errors import QueryRejected
from drumlin.kg.sparql import gate
from drumlin.kg.sparql.gate import check
from tests.thoroughness import examples

LIMIT = 1024 * 1024
ROOT = Path(__file__).parents[2]

CHILD = """
import json, sys
import pyoxigraph as ox
store = ox.Store()
store.update('INSERT DATA { <http://a/s> <http://a/p> 1 . GRAPH <http://a/g> { <http://a/s> <http://a/p> "x" } }')
for line in sys.stdin:
    try:
        found = store.query(json.loads(line), use_default_graph_as_union=True)
        if not isinstance(found, ox.QueryBoolean):
            for _, _ in zip(found, range(100)):
                pass
        answer = "ok"
    except Exception as error:
        answer = type(error).__name__
    print(answer, flush=True)
"""
WORDS = st.sampled_from(
    [
        "SELECT",
        "ASK",
        "CONSTRUCT",
        "WHERE",
        "FROM",
        "NAMED",
        "UNION",
        "OPTIONAL",
        "MINUS",
        "GRAPH",
        "FILTER",
        "BIND",
        "EXISTS",
        "NOT",
        "IN",
        "VALUES",
        "SERVICE",
        "SILENT",
        "true",
        "a",
        "AS",
        "?a",
        "?b",
        "?c",
        "<http://a/p>",
        "<http://127.0.0.1:9/>",
        "<p>",
        "ex:a",
        "ex:aSERVICE",
        ":x",
        "service:x",
        "from:g",
        "1",
        "1.5",
        ".5e3",
        "-2",
        "'x'",
        '"y"',
        "'''z'''",
        "'q'@en",
        "'1'^^ex:int",
        "_:b",
        "{",
        "}",
        "{",
        "}",
        "(",
        ")",
        "(",
        ")",
        "[",
        "]",
        ".",
        ";",
        ",",
        "+",
        "-",
        "*",
        "/",
        "|",
        "^",
        "!",
        "=",
        "<",
        ">",
        "<=",
        "&&",
        "||",
        "<<",
        ">>",
        "<<(",
        ")>>",
        "{|",
        "|}",
        "~",
        "DISTINCT",
        "LATERAL",
        "ORDER",
        "BY",
        "GROUP",
        "HAVING",
        "COUNT",
        "CONCAT",
        "IF",
        "COALESCE",
        "#x",
        "LIMIT",
        "UNDEF",
    ]
)
GLUE = st.sampled_from([" ", " ", " ", "", "\n"])
HEAD = "PREFIX ex: <http://a/> PREFIX : <http://127.0.0.1:9/> PREFIX service: <http://a/> PREFIX from: <http://a/> "
SOUP = st.lists(st.tuples(WORDS, GLUE), max_size=40).map(lambda parts: "".join(a + b for a, b in parts))
TERM = st.sampled_from(["?a", "?b", "ex:p", "1", "'x'", "[]", "(1 ?a)", "[ ex:p ?c ]", "<< ?a ?b ?c >>"])
EXPRESSION = st.recursive(
    st.sampled_from(["?a", "1", "'x'", "true", "ex:p", "-2.5"]),
    lambda inner: (
        st.tuples(inner, st.sampled_from(["+", "-", "*", "/", "=", "<", "&&", "||", "<1>"]), inner).map("".join)
        | inner.map("!{}".format)
        | inner.map("-({})".format)
        | inner.map("({})".format)
        | st.tuples(inner, inner).map(lambda two: f"IF(true,{two[0]},{two[1]})")
        | st.tuples(inner, inner).map(lambda two: f"{two[0]} IN ({two[1]})")
    ),
    max_leaves=30,
)
PATTERN = st.recursive(
    st.tuples(TERM, st.sampled_from(["?b", "ex:p", "ex:p/ex:q", "(ex:p|^ex:q)*", "!(ex:p)"]), TERM).map(" ".join)
    | EXPRESSION.map("FILTER({})".format)
    | EXPRESSION.map("BIND({} AS ?z)".format)
    | st.just("VALUES ?a { 1 2 UNDEF }"),
    lambda inner: (
        st.tuples(inner, st.sampled_from([" . ", " ", "} UNION {"]), inner).map("".join).map("{{{}}}".format)
        | st.tuples(
            st.sampled_from(["OPTIONAL", "MINUS", "GRAPH ?g", "FILTER EXISTS", "FILTER NOT EXISTS", "", "LATERAL"]),
            inner,
        ).map(lambda two: f"{two[0]} {{ {two[1]} }}")
        | inner.map("{{ SELECT * {{ {} }} }}".format)
    ),
    max_leaves=25,
)
REPEATED = st.tuples(
    st.sampled_from(
        [
            "{ ",
            "( ",
            "[ ?p ",
            "! ",
            "-( ",
            "1 + ",
            "{ } UNION ",
            "<< ",
            "?s ?p ?o . ",
            "OPTIONAL { ",
            "^ ",
            "<p>/",
            "?a<1-1",
            "(1 ",
        ]
    ),
    st.integers(1, 120),
    SOUP,
).map(lambda three: f"SELECT * {{ ?s ?p {three[0] * three[1]} {three[2]} }}")
TEXT = st.one_of(
    SOUP,
    SOUP.map("SELECT * {{ {} }}".format),
    SOUP.map("SELECT * {{ ?s ?p ?o FILTER({}) }}".format),
    PATTERN.map("SELECT * {{ {} }}".format),
    PATTERN.map("CONSTRUCT {{ ?a ?b ?c }} WHERE {{ {} }}".format),
    REPEATED,
).map(lambda text: HEAD + text)


@pytest.fixture(scope="module")
def engine() -> Iterator[subprocess.Popen[str]]:
    """Run an engine in a process that may die."""
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    )
    yield child
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.close()
    child.wait(10)
    child.stdout.close()


def ask(engine: subprocess.Popen[str], text: str) -> str:
    """Let the engine run a query; an empty answer means that it died."""
    assert engine.stdin is not None
    assert engine.stdout is not None
    engine.stdin.write(json.dumps(text) + "\n")
    engine.stdin.flush()
    return engine.stdout.readline().strip()


@given(text=TEXT)
@settings(max_examples=examples(700), deadline=None, suppress_health_check=list(HealthCheck))
def test_nothing_that_passes_kills_the_engine_or_makes_it_fetch(engine: subprocess.Popen[str], text: str) -> None:
    """Whatever passes the gate leaves the engine alive, and never ends in a network error."""
    try:
        check(text, max_bytes=LIMIT)
    except QueryRejected:
        return

    assert ask(engine, text) in ("ok", "SyntaxError", "RuntimeError", "ValueError")


AT_THE_LIMIT = {
    "braces": "SELECT * " + "{" * 99 + "}" * 99,
    "parentheses": "SELECT * { FILTER(" + "(" * 97 + "1" + ")" * 97 + ") }",
    "minus": "SELECT * { FILTER(" + "-(" * 97 + "1" + ")" * 97 + ") }",
    "not": "SELECT * { FILTER(" + "!" * 990 + "true) }",
    "plus": "SELECT * { FILTER(" + "1+" * 990 + "1) }",
    "or": "SELECT * { FILTER(" + "true||" * 990 + "true) }",
    "filters": "SELECT * { ?s ?p ?o " + "FILTER(?a) " * 990 + "}",
    "star": "SELECT * { " + "".join(f"?s <http://x/p{n}> ?v{n} . " for n in range(gate.MAX_PATTERNS - 1)) + "}",
    "path": "SELECT * { ?s <http://x/p>" + "/<http://x/p>" * (gate.MAX_PATTERNS - 1) + " ?o }",
    "collections": "SELECT * { ?s ?p " + "(1 " * 16 + "1 " * 20 + ")" * 16 + " }",
    "blank nodes": "SELECT * { ?s ?p " + "[?q " * 98 + "1" + "]" * 98 + " }",
    "construct": "CONSTRUCT { ?s ?p " + "[?q " * 98 + "1" + "]" * 98 + " } WHERE { ?s ?p ?o }",
    "values": "SELECT * { VALUES ?a { " + "1 " * 20000 + "} }",
    "exists": "SELECT * { ?s ?p ?o " + "FILTER EXISTS { ?s ?p ?o " * 49 + "}" * 49 + " }",
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", AT_THE_LIMIT)
def test_the_engine_survives_what_is_just_allowed(engine: subprocess.Popen[str], name: str) -> None:
    """At each limit the engine's planner comes to an end, and the engine answers."""
    check(AT_THE_LIMIT[name], max_bytes=LIMIT)

    assert ask(engine, AT_THE_LIMIT[name]) == "ok"
