"""What the gate lets through, what it refuses and what it says about it."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from drumlin.kg.errors import QueryRejected
from drumlin.kg.sparql import gate
from drumlin.kg.sparql.gate import check
from drumlin.kg.sparql.lexer import tokens

LIMIT = 1024 * 1024
ROOT = Path(__file__).parents[2]


def refused(text: str, **more: object) -> QueryRejected:
    """Return why a text is refused; fails when it is not."""
    with pytest.raises(QueryRejected) as caught:
        check(text, max_bytes=LIMIT, **more)
    return caught.value


# -- what passes ----------------------------------------------------------------------------------------------------------------

ACCEPTED = {
    "SELECT * { ?s ?p ?o }": "select",
    "select distinct ?s where { ?s a <http://x/C> } order by desc(?s) limit 10 offset 5": "select",
    '# SERVICE\nPREFIX a: <http://x/> BASE <http://y/> ASK { a:b a:c \'SERVICE <x>\' , """LOAD "" \' {{{{ """ }': "ask",
    "CONSTRUCT { ?s ?p ?o } WHERE { ?s ?p ?o }": "construct",
    "CONSTRUCT WHERE { ?s ?p ?o }": "construct",
    "PREFIX service: <http://x/> DESCRIBE ?x { ?x service:load 1.5e3, 5., -2, .5, true, 'x'@en-GB, '1'^^service:int }": "describe",
    "PREFIX : <http://x/> SELECT ?x (COUNT(*) AS ?n) { ?x :p\\,q/^:r|:s* ?y ; :t (1 2 3), [ :u _:b.c ] } GROUP BY ?x": "select",
    "SELECT * { ?s ?p ?o FILTER(?o < 5 && ?o>-1 || !(?o IN (1, 2)) && ?s = <http://x/y#z>) }": "select",
    "SELECT ?g { GRAPH ?g { ?s ?p ?o } FILTER NOT EXISTS { ?s ?q 'it''s' } }".replace("''s", "\\'s"): "select",
    "SELECT (GROUP_CONCAT(DISTINCT ?x; SEPARATOR=', ') AS ?y) FROM <http://g> FROM NAMED <http://h> { ?s ?p ?x }": "select",
    "SELECT * { VALUES (?a ?b) { (<http://x/y#z> UNDEF) ('a' 1) } }": "select",
    "SELECT * { << ?s ?p ?o >> ?a ?b . ?c ?d <<( ?s ?p ?o )>> ~ ?r {| ?e ?f |} }": "select",
    "SELECT ?\u00e9 { ?\u00e9 ?p '\\u0053ERVICE' }": "select",
    "PREFIX workload: <http://x/> SELECT * { workload:a workload:payload ?o }": "select",
}


@pytest.mark.parametrize(("text", "form"), ACCEPTED.items())
def test_good_queries_pass_as_they_are(text: str, form: str) -> None:
    """Every form and every kind of token is known, and the engine gets the text that was sent."""
    gated = check(text, max_bytes=LIMIT)

    assert (gated.form, gated.text) == (form, text)


def test_constants_in_values_are_not_counted() -> None:
    """Thousands of rows in VALUES, and triples in INSERT DATA, cost the planner nothing."""
    check("SELECT * { VALUES (?a ?b) { " + "(<http://x/a-b> -5) " * 3000 + "} ?a ?b ?c }", max_bytes=LIMIT)
    check("INSERT DATA { GRAPH <http://g> { " + "<a> <b> -5 . " * 5000 + "} }", max_bytes=LIMIT, expect="update")


@pytest.mark.parametrize(
    "text",
    [
        "INSERT DATA { <a> <b> <c> }",
        "PREFIX x: <http://x/> DELETE { ?s x:a ?o } INSERT { ?s x:b ?o } WHERE { ?s x:a ?o } ; CLEAR ALL",
        "WITH <http://g> DELETE WHERE { ?s ?p ?o }",
        "",
    ],
)
def test_updates_are_told_from_queries(text: str) -> None:
    """An update passes where one is expected, and is named as such where a query is."""
    assert check(text, max_bytes=LIMIT, expect="update").form == "update"
    assert refused(text).reason == "syntax"
    assert refused("ASK {}", expect="update").hint == "send queries to /sparql"


# -- what is refused ------------------------------------------------------------------------------------------------------------

FETCHING = [
    "SELECT * { SERVICE <http://x> { ?s ?p ?o } }",
    "SELECT * { service silent ?x { ?s ?p ?o } }",
    "SELECT * { ?s ?p 1SERVICE<http://x>{} }",
    "SELECT * { ?s ?p trueSERVICE <http://x> {} }",
    "SELECT * { FILTER EXISTS { SERVICE <http://x> {} } }",
    "SELECT * { ?s ?p 'x'SERVICE?x{} }",
    "SELECT * { SERVICESILENT<http://x>{} }",
    "SELECT * {} # \u0085\nSERVICE",
]


@pytest.mark.parametrize("text", FETCHING)
def test_service_is_forbidden_anywhere(text: str) -> None:
    """However it is written, a query that would make the engine fetch is refused with 403, and the place is told."""
    error = refused(text)

    assert error.reason == "forbidden"
    assert {"line", "column", "token"} <= error.detail.keys()


@pytest.mark.parametrize("text", ["LOAD <http://x>", "CLEAR ALL;load silent <http://x>", "BASE<http://x>LOAD<y>"])
def test_load_is_forbidden(text: str) -> None:
    """The same for LOAD in an update."""
    assert refused(text, expect="update").reason == "forbidden"


@pytest.mark.parametrize(
    "text",
    [
        "PREFIX : <http://x/> SELECT * { ?s ?p trueSERVICE:x{ ?s ?p ?o } }",
        "PREFIX service: <http://x/> PREFIX : <http://x/> SELECT * { service:x{ ?s ?p ?o } }",
        "PREFIX serviceSILENT: <http://x/> PREFIX : <http://x/> SELECT * { serviceSILENT:x { ?s ?p ?o } }",
        "PREFIX from: <http://x/> SELECT * from:g { ?s ?p ?o }",
        "SELECT * FROMNAMED<http://x>{ ?s ?p ?o }",
        "ASKFROM<http://x>{}",
        "SELECT * { BIND(1 AS ?a) FILTER(?a<#>'\n2) SERVICE <http://x> {} #')\n }",
        "SELECT * { FILTER(?a<'>'&&?b>1) }",
        "SELECT * { FILTER(?a<((((2))))&&?c>0) }",
        "PREFIX:<http://x/>SELECT*{?s ?p ?o}",
    ],
)
def test_what_the_engine_might_read_otherwise_is_refused(text: str) -> None:
    """Glued keywords and IRIs that could be comparisons hide nothing; the hint says how to write it."""
    assert refused(text).hint


NESTED = {
    "braces": "SELECT * " + "{" * 3000 + "}" * 3000,
    "groups": "SELECT * {" + "{" * 101 + "}" * 101 + "}",
    "parentheses": "SELECT * { FILTER(" + "(" * 10000 + "1" + ")" * 10000 + ") }",
    "not": "SELECT * { FILTER(" + "!" * 10000 + "true) }",
    "minus": "SELECT * { FILTER(" + "-(" * 10000 + "1" + ")" * 10000 + ") }",
    "plus": "SELECT * { FILTER(" + "1+" * 10000 + "1) }",
    "or": "SELECT * { FILTER(" + "true||" * 10000 + "true) }",
    "union": "SELECT * { {}" + " UNION {}" * 10000 + " }",
    "path": "SELECT * { ?s " + "(" * 30000 + "<p>" + ")" * 30000 + " ?o }",
    "sequence": "SELECT * { ?s <p>" + "/<p>" * 500 + " ?o }",
    "inverse": "SELECT * { ?s " + "^" * 10000 + "<p> ?o }",
    "alternatives": "SELECT * { ?s <p>" + "|<p>" * 10000 + " ?o }",
    "collections": "SELECT * { ?s ?p " + "(" * 50 + "1" + ")" * 50 + " }",
    "long collection": "SELECT * { ?s ?p (" + "1 " * 100 + ") }",
    "blank nodes": "SELECT * { ?s ?p " + "[?q " * 200 + "1" + "]" * 200 + " }",
    "quoted": "SELECT * { " + "<< " * 200 + "?s ?p ?o" + " >> ?p ?o" * 200 + " }",
    "patterns": "SELECT * { " + "".join(f"?s <p{n}> ?v{n} . " for n in range(300)) + "}",
    "predicates": "SELECT * { ?s <p> 1 " + "".join(f"; <p{n}> ?v{n} " for n in range(300)) + "}",
    "optional": "SELECT * { " + "OPTIONAL { ?s ?p ?o } " * 500 + "}",
    "filters": "SELECT * { " + "FILTER(?a) " * 5000 + "}",
    "binds": "SELECT * { " + "".join(f"BIND(1 AS ?b{n}) " for n in range(2000)) + "}",
    "signs in an iri": "SELECT * { FILTER(?a<1" + "-1" * 5000 + "&&?b>2) }",
    "minus in an iri": "SELECT * { FILTER(?a<1" + "-1" * 5000 + ">2) }",
}


@pytest.mark.parametrize("name", NESTED)
def test_what_would_crash_or_stall_the_engine_is_refused(name: str) -> None:
    """The measured crashing and stalling shapes never reach the engine."""
    error = refused(NESTED[name])

    assert error.hint


def test_unclosed_and_unopened_brackets_have_a_place() -> None:
    """The message names the bracket and where it stands."""
    assert refused("SELECT * {\n  ?s ?p (1 2 }").detail == {"line": 2, "column": 14, "token": "}"}
    assert refused("SELECT * {\n { ?s ?p ?o }").detail == {"line": 1, "column": 10, "token": "{"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "empty"),
        ("  # only a comment", "empty"),
        ("FROM <http://x> { ?s ?p ?o }", "cannot begin"),
        ("SELEKT * { ?s ?p ?o }", "not a word"),
        ("SELECT * { ?s drumlin:name ?o }", "drumlin: is not declared"),
        ("SELECT * { ?s ?p 'open }", "cannot be read"),
        ("SELECT * { ?s ?p '''open' }", "cannot be read"),
        ("SELECT * { ?s ?p 'a\\q' }", "cannot be read"),
        ("\\u0053ELECT * { ?s ?p ?o }", "cannot be read"),
        ("SELECT * { ?s ?p '\ud800' }", "not valid Unicode"),
    ],
)
def test_mistakes_are_named(text: str, says: str) -> None:
    """Common mistakes are told in words a person can act on."""
    assert says in str(refused(text))


def test_a_long_text_is_refused_with_its_size() -> None:
    """The cap counts bytes, and the message has both numbers."""
    with pytest.raises(QueryRejected, match=r"1,0\d\d bytes; the limit is 1,024") as caught:
        check("SELECT * {} #" + "\u00e9" * 512, max_bytes=1024)

    assert caught.value.reason == "too_large"


def test_the_prefix_is_offered_where_it_is_known() -> None:
    """An undeclared prefix of ours is answered with its declaration."""
    assert refused("ASK { ?s drumlin:name 1 }").hint == "begin with PREFIX drumlin: <https://w3id.org/drumlin/ns#>"


@pytest.mark.parametrize(
    "text",
    [
        '"' * 100_001,
        "'" + "a" * 100_000,
        "<" * 100_000,
        "a." * 50_000,
        "ex:" + "a." * 50_000,
        '"""' + '""a' * 50_000,
        "_:a" + "." * 100_000,
        "@a" + "-a" * 50_000,
        "?a" * 50_000,
        "1e" * 50_000,
        "ex:" + "%41." * 50_000,
    ],
    ids=lambda text: text[:6].encode("ascii").hex(),
)
@pytest.mark.timeout(10)  # what grows with the square of the length takes minutes
def test_cutting_a_text_is_linear(text: str) -> None:
    """No text takes the lexer longer than its length warrants."""
    with suppress(QueryRejected):
        for _ in tokens(text):
            pass


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("SELECT * FROM <http://g> { ?s ?p ?o }", True),
        ("ASK from named <http://g> { ?s ?p ?o }", True),
        ("SELECT * { ?s ?p 'FROM' } # FROM", False),
        ("SELECT ?from { ?from ?p ?o }", False),
    ],
)
def test_a_dataset_clause_is_found(text: str, named: bool) -> None:
    """Only the keyword counts, not a string, comment or variable."""
    assert gate.names_dataset(text) is named


LIST = "(" * (gate.MAX_COLLECTIONS + 1) + "1" + ")" * (gate.MAX_COLLECTIONS + 1)
PATH = "(" * 50 + "<urn:p>" + ")" * 50


@pytest.mark.parametrize(
    "pattern",
    [
        "?s <urn:p> {}", "?s <urn:p> 1 , {}", "?s a {}", "?s <urn:p>/<urn:q> {}", "?s ^<urn:p> {}", "?s (<urn:p>)* {}", "{} <urn:p> 1",
        "?s <urn:p> 1 ; . {} <urn:p> 1", "?s <urn:p> 1 ; FILTER(1) {} <urn:p> 1", "?s <urn:p> 1 ; FILTER <urn:f>(1) {} <urn:p> 1",
        "FILTER BOUND(?s) {} <urn:p> 1", "?s <urn:p> 1 ; BIND(1 AS ?x) {} <urn:p> 1", "?s <urn:p> 1 ; OPTIONAL {{ }} {} <urn:p> 1",
        "GRAPH ?g {{ {} <urn:p> 1 }}", "[ <urn:p> {} ] .", "[] <urn:p> {}", "[ <urn:p> 1 ] <urn:p> {}", '?s <urn:p> "x"^^<urn:t> , {}',
        "VALUES ?x {{ 1 }} {} <urn:p> 1", "<< ?s <urn:p> ?o >> <urn:p> {}", "?s <urn:p> ?o {{| <urn:q> {} |}}", "(1) <urn:p> {}",
    ],
)  # fmt: skip
def test_a_collection_is_counted_wherever_it_stands(pattern: str) -> None:
    """Nothing in front of it makes it pass for a path, whose parentheses cost the planner nothing."""
    with pytest.raises(QueryRejected, match="collections are nested"):
        gate.check(f"ASK {{ {pattern.format(LIST)} }}", max_bytes=10_000)


@pytest.mark.parametrize(
    "pattern",
    ["?s {} ?o", "?s <urn:p> 1 ; {} ?o", "[ {} ?o ] .", "[ <urn:p> 1 ] {} ?o", "?s <urn:p>/{} ?o", "?s <urn:p>|^{} ?o",
     "?s <urn:p> ?o . ?o {} 1 ; {} 2", "(1 2) {} ?o", "FILTER(1) ?s {} ?o", "?s <urn:p> ?o {{| {} 1 |}}", "<< ?s <urn:p> ?o >> {} 1"],
)  # fmt: skip
def test_parentheses_of_a_path_may_be_nested_like_brackets(pattern: str) -> None:
    """They stand where a verb does."""
    assert gate.check(f"ASK {{ {pattern.format(PATH, PATH)} }}", max_bytes=10_000).form == "ask"


@pytest.mark.parametrize("inside", ["1 " * 60, "(1)" * 60, "(1) 2 " * 60])
def test_what_stands_where_a_verb_does_and_is_no_path_is_counted(inside: str) -> None:
    """Were a collection taken for a path, its terms would still count."""
    with pytest.raises(QueryRejected, match="parts to join"):
        gate.check(f"ASK {{ ?s ({inside}) ?o }}", max_bytes=10_000)


def test_triple_terms_may_be_nested_like_brackets() -> None:
    """Their parentheses are no collections either."""
    term = "<< ( ?s <urn:p> " * 20 + "1" + " ) >>" * 20
    assert gate.check(f"ASK {{ ?s <urn:p> {term.replace('<< (', '<<(').replace(') >>', ')>>')} }}", max_bytes=10_000)
