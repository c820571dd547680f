"""SPARQL Update evaluated on lines: held against the engine's own evaluation, and against the specification where we differ."""

from __future__ import annotations

import re
from collections.abc import Iterable

import pyoxigraph as ox
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drumlin.kg.errors import AlreadyExists, Conflict, QueryRejected, TooLarge
from drumlin.kg.rdf.syntax import by_graph
from drumlin.kg.sparql import forms, gate, update
from drumlin.kg.sparql.dataset import Dataset
from drumlin.kg.sparql.update import Changed, Scope, evaluate
from drumlin.kg.store.protocol import Lines
from drumlin.kg.store.sandbox import Scratch, parse
from tests.thoroughness import examples

BASE = "http://base.example/"
SCOPE = Scope(default="http://kg.example/store/default", roots=("http://kg.example/id/",))
UNION = Dataset()
TOMBSTONE = "<http://www.w3.org/1999/02/22-rdf-syntax-ns#type> <https://w3id.org/drumlin/ns#Tombstone>"


def world(content: str = "") -> ox.Store:
    """Return a store with N-Quads or TriG content."""
    engine = ox.Store()
    engine.load(content.encode(), format=ox.RdfFormat.TRIG)
    return engine


def run(text: str, engine: ox.Store, dataset: Dataset = UNION) -> list[Changed]:
    """Evaluate an update the way the service does, without its process."""
    gated = gate.check(text, max_bytes=1 << 20, expect="update")
    return evaluate(parse(gated.text, BASE), Scratch(engine, BASE), SCOPE, dataset)


def after(text: str, content: str = "", dataset: Dataset = UNION) -> dict[str, Lines | None]:
    """Return the graphs that an update changes, without the blank nodes' labels."""
    changes = run(text, world(content), dataset)
    return {each.graph: None if each.lines is None else _unlabelled(each.lines) for each in changes}


def _unlabelled(lines: Iterable[str]) -> Lines:
    return frozenset(re.sub(r"_:\w+", "_:", line) for line in lines)


# -- the engine as the oracle ---------------------------------------------------------------------------------------------

IRIS = st.sampled_from([f"<http://e/{name}>" for name in "abc"])
GRAPHS = st.sampled_from(["<http://g/1>", "<http://g/2>", "<http://g/3>"])
OBJECTS = IRIS | st.sampled_from(["1", "2.50", '"x"', '"y"@en', "true", '"""l"ng"""', "-1.5e3"])
TRIPLES = st.builds("{} {} {} .".format, IRIS, IRIS, OBJECTS)
DATA = st.lists(st.builds("GRAPH {} {{ {} }}".format, GRAPHS, TRIPLES) | TRIPLES, min_size=1, max_size=6).map(" ".join)
VARIABLES = st.sampled_from(["?s", "?p", "?o", "?n"])
PATTERNS = st.builds("{} {} {} .".format, VARIABLES | IRIS, VARIABLES | IRIS, VARIABLES | OBJECTS)
TEMPLATES = st.lists(
    st.builds("GRAPH {} {{ {} }}".format, GRAPHS | st.just("?g"), PATTERNS) | PATTERNS, min_size=0, max_size=3
).map(" ".join)
# The default graph has a name here, which the engine's has not.
WHERES = st.builds(
    "GRAPH {} {{ ?s ?p ?o {} }} {}".format,
    GRAPHS | st.just("?g"),
    st.sampled_from(["", "FILTER(isNumeric(?o))"]),
    st.sampled_from(["", "BIND(STRLEN(STR(?o)) AS ?n)", "OPTIONAL { GRAPH <http://g/1> { ?o ?q ?n } }"]),
).map(lambda where: f"{where} FILTER(!BOUND(?g) || ?g != <{SCOPE.default}>)" if "?g" in where else where)
TARGETS = GRAPHS.map("GRAPH {}".format) | st.just("DEFAULT")
OPERATIONS = (
    st.builds("INSERT DATA {{ {} }}".format, DATA)
    | st.builds("DELETE DATA {{ {} }}".format, DATA)
    | st.builds("DELETE {{ {} }} INSERT {{ {} }} WHERE {{ {} }}".format, TEMPLATES, TEMPLATES, WHERES)
    | st.builds("WITH {} DELETE {{ {} }} WHERE {{ ?s ?p ?o }}".format, GRAPHS, TEMPLATES)
    | st.builds("WITH {} INSERT {{ {} }} WHERE {{ ?s ?p ?o . {} }}".format, GRAPHS, TEMPLATES, WHERES)
    | st.builds(
        "INSERT {{ {} }} USING {} USING NAMED {} WHERE {{ ?s ?p ?o . {} }}".format, TEMPLATES, GRAPHS, GRAPHS, WHERES
    )
    | st.builds("DELETE WHERE {{ GRAPH {} {{ {} }} }}".format, GRAPHS, PATTERNS)
    | st.builds("{} SILENT {}".format, st.sampled_from(["CLEAR", "DROP"]), TARGETS | st.sampled_from(["ALL", "NAMED"]))
    | st.builds("CREATE SILENT GRAPH {}".format, GRAPHS)
    | st.builds("{} SILENT {} TO {}".format, st.sampled_from(["ADD", "MOVE", "COPY"]), TARGETS, TARGETS)
)


@settings(deadline=None, max_examples=examples(60))
@given(content=DATA, operations=st.lists(OPERATIONS, min_size=1, max_size=4))
def test_an_update_leaves_what_the_engine_would_leave(content: str, operations: list[str]) -> None:
    """Every form, and several in a row, end in the same quads as the engine's own update."""
    text = " ;\n".join(operations)
    theirs = ox.Store()
    theirs.update(f"INSERT DATA {{ {content} }}")
    ours = ox.Store()
    ours.load(_named(theirs.dump(format=ox.RdfFormat.N_QUADS) or b""), format=ox.RdfFormat.N_QUADS)

    changes = run(text, ours)
    theirs.update(text, base_iri=BASE)

    expected = by_graph(theirs.dump(format=ox.RdfFormat.N_QUADS) or b"")
    found = {name or SCOPE.default: lines for name, lines in by_graph(theirs_before(content)).items()}
    found |= {each.graph: each.lines or frozenset() for each in changes}
    assert {name: lines for name, lines in found.items() if lines} == {
        name or SCOPE.default: lines for name, lines in expected.items()
    }


def theirs_before(content: str) -> bytes:
    """Return the quads of a state."""
    engine = ox.Store()
    engine.update(f"INSERT DATA {{ {content} }}")
    return engine.dump(format=ox.RdfFormat.N_QUADS) or b""


def _named(quads: bytes) -> bytes:
    """Give the default graph the name that it has here."""
    graphs = by_graph(quads)
    return b"".join(
        f"{line[:-1]}<{name or SCOPE.default}> .\n".encode() for name, lines in graphs.items() for line in lines
    )


# -- what the engine cannot show --------------------------------------------------------------------------------------------


def test_nothing_to_do_changes_nothing() -> None:
    """An empty update, a prologue alone, and statements that are there already come to no change."""
    assert after("") == after("PREFIX a: <http://a/>") == {}
    assert (
        after(
            "INSERT DATA { GRAPH <http://g> { <http://a> <http://b> 1 } }",
            "GRAPH <http://g> { <http://a> <http://b> 1 }",
        )
        == {}
    )


def test_templates_make_blank_nodes_per_solution_and_share_them_between_graphs() -> None:
    """Collections, property lists and labels become nodes of their own in each solution, the same in every graph of it."""
    content = "GRAPH <http://g> { <http://a> <http://p> 1 , 2 }"
    text = """INSERT { GRAPH <http://h> { ?s <http://q> [ a <http://C> ; <http://r> ( ?o true ) , _:x ; ] } GRAPH <http://i> { _:x <http://t> () } }
              WHERE { ?s <http://p> ?o }"""

    changes = {each.graph: each.lines or frozenset() for each in run(text, world(content))}

    assert len(changes["http://h"]) == 2 * 8
    shared = {line.split()[2] for line in changes["http://h"] if "<http://r>" in line}
    assert {line.split()[0] for line in changes["http://i"]} < shared
    assert len(changes["http://i"]) == 2


def test_one_evaluation_serves_all_templates() -> None:
    """A random value is the same wherever the templates use it, and NOW is one moment."""
    text = """INSERT { GRAPH <http://g> { ?id <http://p> ?now } GRAPH <http://h> { ?id <http://p> ?now } }
              WHERE { BIND(UUID() AS ?id) BIND(CONCAT(STR(NOW()), STR(RAND())) AS ?now) }"""

    first, second = run(text, world())

    assert first.lines == second.lines


def test_what_is_no_statement_is_left_out() -> None:
    """Unbound variables, literals as subjects and blank nodes as graphs make no statement, and are no error."""
    content = "GRAPH <http://g> { <http://a> <http://p> 'x' . [] <http://p> <http://b> }"
    text = """INSERT { ?o <http://q> 1 . ?s ?nothing 1 . GRAPH ?s { ?s <http://q> 2 } . GRAPH ?o { ?s <http://q> 3 } } WHERE { ?s <http://p> ?o }"""

    assert after(text, content) == {
        SCOPE.default: {'<http://b> <http://q> "1"^^<http://www.w3.org/2001/XMLSchema#integer> .'},
        "http://a": {'<http://a> <http://q> "2"^^<http://www.w3.org/2001/XMLSchema#integer> .'},
        "http://b": {'_: <http://q> "3"^^<http://www.w3.org/2001/XMLSchema#integer> .'},
    }


def test_blank_nodes_that_a_query_finds_are_deleted() -> None:
    """A blank node bound in WHERE is the node itself in DELETE, and stays itself when it is copied."""
    content = "GRAPH <http://g> { <http://a> <http://p> [ <http://q> 1 ] }"

    assert after("DELETE { GRAPH <http://g> { ?s <http://q> ?o } } WHERE { ?s <http://q> ?o }", content) == {
        "http://g": {"<http://a> <http://p> _: ."}
    }
    engine = world(content)
    (copied,) = run("COPY <http://g> TO <http://h>", engine)
    assert copied.lines == Scratch(engine, BASE).read("http://g")


def test_a_where_part_reads_the_union_unless_it_is_told_otherwise() -> None:
    """Without USING all graphs are read; with WITH that graph; the request's own graphs replace both."""
    content = "GRAPH <http://g> { <http://a> <http://p> 1 } GRAPH <http://h> { <http://b> <http://p> 1 }"
    text = "INSERT { <http://s> <http://found> ?s } WHERE { ?s <http://p> 1 }"
    both = {f"<http://s> <http://found> <http://{name}> ." for name in "ab"}

    assert after(text, content) == {SCOPE.default: both}
    assert after(f"WITH <http://g> {text}", content)["http://g"] is not None
    only = Dataset(("http://h",), ())
    assert after(text, content, only) == {SCOPE.default: {"<http://s> <http://found> <http://b> ."}}


def test_a_sub_select_inside_a_graph_knows_its_graph() -> None:
    """``GRAPH ?g { SELECT … }`` binds ?g, which the engine alone would leave unbound."""
    content = "GRAPH <http://g> { <http://a> <http://p> 1 } GRAPH <http://h> { <http://b> <http://p> 2 }"
    text = "INSERT { ?s <http://in> ?g } WHERE { GRAPH ?g { SELECT ?s { ?s <http://p> 1 } } }"

    assert after(text, content) == {SCOPE.default: {"<http://a> <http://in> <http://g> ."}}


def test_terms_are_read_under_the_prologue_before_them() -> None:
    """Prefixes and bases may change between operations; relative IRIs follow the base in force."""
    text = """PREFIX a: <http://one/> INSERT DATA { a:x <rel> a:y } ;
              BASE <http://other/> PREFIX a: <http://two/> INSERT { a:x <rel> 'x\\u0041'^^a:t } WHERE {}"""

    assert after(text) == {
        SCOPE.default: {
            f"<http://one/x> <{BASE}rel> <http://one/y> .",
            '<http://two/x> <http://other/rel> "xA"^^<http://two/t> .',
        }
    }


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("CREATE GRAPH <http://g>", AlreadyExists),
        ("DROP GRAPH <http://h>", Conflict),
        ("CLEAR GRAPH <http://h>", Conflict),
        ("COPY <http://h> TO <http://g>", Conflict),
        ("DROP GRAPH <http://g> ; CLEAR GRAPH <http://g>", Conflict),
    ],
)
def test_graphs_that_must_or_must_not_exist(text: str, error: type[Exception]) -> None:
    """Without SILENT a missing graph is an error, with it there is nothing to do; what came before counts."""
    content = "GRAPH <http://g> { <http://a> <http://p> 1 }"
    with pytest.raises(error):
        run(text, world(content))
    run(re.sub(r"^(CREATE|COPY)|(DROP|CLEAR)", r"\1\2 SILENT", text), world(content))


def test_all_means_the_foreign_graphs() -> None:
    """CLEAR ALL empties foreign graphs and leaves entities alone; one that is named is dropped."""
    entity = f"{SCOPE.roots[0]}x"
    content = f"<{entity}> {{ <{entity}> <http://p> 1 }} <http://g> {{ <http://a> <http://p> 1 }}"

    assert after("CLEAR ALL", content) == {"http://g": frozenset()}
    assert after("DROP NAMED", content) == {"http://g": None}
    assert after(f"DROP GRAPH <{entity}>", content) == {entity: None}


def test_a_tombstone_counts_as_absent() -> None:
    """It can be written over but not dropped, and what it says is not merged with what is written."""
    entity = f"{SCOPE.roots[0]}x"
    content = f"<{entity}> {{ <{entity}> {TOMBSTONE} }}"

    with pytest.raises(Conflict):
        run(f"DROP GRAPH <{entity}>", world(content))
    assert (
        after(
            f"DROP SILENT GRAPH <{entity}> ; DELETE DATA {{ GRAPH <{entity}> {{ <{entity}> {TOMBSTONE} }} }}", content
        )
        == {}
    )
    assert after(f"INSERT DATA {{ GRAPH <{entity}> {{ <{entity}> <http://p> <http://o> }} }}", content) == {
        entity: {f"<{entity}> <http://p> <http://o> ."}
    }


def test_an_update_of_too_many_statements_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one request may make is limited."""
    monkeypatch.setattr(update, "MAX_STATEMENTS", 3)
    with pytest.raises(TooLarge):
        run("INSERT { ?s <http://p> ?s } WHERE { VALUES ?s { <http://a> <http://b> <http://c> <http://d> } }", world())


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        ("INSERT DATA { <http://a> <http://b> ?x }", 1, 41),
        ("CLEAR ALL ;\nINSERT { ?s ?p } WHERE {}", 2, 16),
        ("DELETE { _:a <http://p> 1 } WHERE {}", 1, None),
        ("CLEAR", 1, None),
    ],
)
def test_a_syntax_error_says_where(text: str, line: int, column: int | None) -> None:
    """The place is the one in the text that was sent."""
    with pytest.raises(QueryRejected) as caught:
        run(text, world())

    assert caught.value.reason == "syntax"
    if column is not None:
        assert (caught.value.detail["line"], caught.value.detail["column"]) == (line, column)
        assert caught.value.detail["token"] in text


def test_too_many_operations_are_refused() -> None:
    """A request has at most so many operations."""
    with pytest.raises(QueryRejected):
        forms.operations("CLEAR ALL;" * (forms.MAX_OPERATIONS + 1))


# -- triple terms and labels ----------------------------------------------------------------------------------------------

_REIFIES = "<http://www.w3.org/1999/02/22-rdf-syntax-ns#reifies>"
_SAID = "<http://e/a> <http://e/p> <http://e/b>"


@pytest.mark.parametrize(
    ("template", "lines"),
    [
        ("?s :q <<( ?s ?p ?o )>>", {f"<http://e/a> <http://e/q> <<( {_SAID} )>> ."}),
        ("<< ?s ?p ?o ~ :r >>", {f"<http://e/r> {_REIFIES} <<( {_SAID} )>> ."}),
        ("<< ?s ?p ?o >> :q 1", {f"_: {_REIFIES} <<( {_SAID} )>> .", '_: <http://e/q> "1"^^<http://www.w3.org/2001/XMLSchema#integer> .'}),
        ("?s ?p ?o ~ :r {| a :T |}", {f"{_SAID} .", f"<http://e/r> {_REIFIES} <<( {_SAID} )>> .", "<http://e/r> <http://www.w3.org/1999/02/22-rdf-syntax-ns#type> <http://e/T> ."}),
        (":s :q <<( :s :p <<( ?s ?p ?o )>> )>>", {f"<http://e/s> <http://e/q> <<( <http://e/s> <http://e/p> <<( {_SAID} )>> )>> ."}),
        (":s :q <<( ?none ?p ?o )>>", set()),
    ],
)  # fmt: skip
def test_templates_make_the_triple_terms_of_sparql_1_2(template: str, lines: set[str]) -> None:
    """Terms, reifiers and annotations mean what SPARQL 1.2 says; what is no triple is left out. The writer refuses what has them."""
    text = f"PREFIX : <http://e/> INSERT {{ {template} }} WHERE {{ ?s ?p ?o }}"

    assert after(text, f"{_SAID} .").get(SCOPE.default, frozenset()) == lines


def test_an_update_without_solutions_may_have_triple_terms() -> None:
    """Nothing is made of a template, so nothing is refused."""
    text = "PREFIX : <http://e/> DELETE { ?s :p ?o } INSERT { << ?s :p ?o >> :q 1 } WHERE { ?s :none ?o }"

    assert after(text, f"{_SAID} .") == {}


@pytest.mark.parametrize(
    ("text", "shared"),
    [
        ("INSERT DATA { _:a :p 1 } ; INSERT DATA { _:a :p 2 }", True),
        ("INSERT DATA { _:a :p 1 } ; INSERT DATA { _:b :p 2 . _:b :q 3 }", False),
        ("DELETE { ?s :p 1 } WHERE { ?s :p _:a } ; DELETE { ?s :q 1 } WHERE { ?s :q _:a }", True),
        ("INSERT DATA { _:a :p 1 } ; DELETE { ?s :q 1 } WHERE { ?s :q _:a }", False),
        ("INSERT { _:a :p ?s } WHERE { ?s :p 1 } ; INSERT { _:a :p ?s } WHERE { ?s :p 2 }", False),
    ],
)
def test_a_label_belongs_to_one_operation(text: str, shared: bool) -> None:
    """Two INSERT DATA, or two WHERE, cannot share one; the message says where (SPARQL 1.1 Query §19.6)."""
    text = f"PREFIX : <http://e/>\n{text}"
    if not shared:
        assert len(parse(text, BASE)) == 2
        return
    with pytest.raises(QueryRejected, match="the label _:a belongs to an earlier operation") as refused:
        parse(text, BASE)
    assert refused.value.detail["line"] == 2
