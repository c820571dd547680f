"""What a query sees on what domains see: in no form of query anything outside, held against an engine that has only the visible graphs."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pyoxigraph as ox
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from drumlin.kg.model.iris import Iris
from drumlin.kg.rdf.jsonld import NAMESPACE
from drumlin.kg.sparql.dataset import Dataset
from drumlin.kg.sparql.from_clauses import from_clauses
from drumlin.kg.sparql.subselects import restore
from drumlin.kg.store.embedded.store import EmbeddedStore
from drumlin.kg.store.protocol import GraphWrite
from drumlin.kg.store.query_workers.client import QueryExecutor
from drumlin.kg.store.query_workers.supervisor import Readers
from drumlin.kg.visibility.visible_store import Visibility, VisibleStore
from tests.thoroughness import examples

IRIS = Iris("https://kg.example")
GRAPHS = [f"{IRIS.root}{cluster}/-/node/{name}" for cluster in ("a", "b") for name in ("x", "y", "z")]
P, Q = "https://kg.example/p", "https://kg.example/q"
ALICE, NOBODY = frozenset({"a"}), frozenset({"c"})
SETS = [ALICE, NOBODY]


class Restricted:
    """A store of the graphs of two domains, what some see of it, each with a reader, and how to ask it and an oracle the same."""

    def __init__(self, store: EmbeddedStore) -> None:
        self.store = store
        store.apply([GraphWrite.of(graph, lines(graph, 1), "user") for graph in GRAPHS])
        visibility = Visibility(store, store.directory / "views", IRIS, lambda: datetime.now(UTC))
        self.views = {each: self._opened(visibility.open(each)) for each in SETS}

    def _opened(self, view: VisibleStore) -> VisibleStore:
        view.answer_through(QueryExecutor(Readers(view, view.directory / "readers", count=1)))
        return view

    def close(self) -> None:
        """Close all stores."""
        for each in self.views.values():
            each.close()
        self.store.close()

    def ask(self, query: str, visible: frozenset[str], dataset: Dataset) -> list[bytes]:
        """Ask the readers."""
        kind = "application/n-triples" if query.startswith(("DESCRIBE", "CONSTRUCT")) else "text/csv"
        if query.startswith("ASK"):
            kind = "application/sparql-results+json"
        self.views[visible].bring_up()
        answer = self.views[visible].answer(query, media_type=kind, dataset=dataset)
        return sorted(b"".join(answer.chunks).splitlines())

    def oracle(self, query: str, visible: frozenset[str], dataset: Dataset) -> list[bytes]:
        """Ask an engine that has only the visible graphs."""
        engine = ox.Store()
        for graph in (each for each in GRAPHS if domain_of(each) in visible):
            found = self.store.read(graph)
            assert found is not None
            engine.load("\n".join(found.lines).encode(), format=ox.RdfFormat.N_TRIPLES, to_graph=ox.NamedNode(graph))
        chosen = dataset.default_graphs is not None or dataset.named_graphs is not None
        results = engine.query(
            restore(query),  # the engine's fault in GRAPH ?g { SELECT … } has a test of its own
            use_default_graph_as_union=not chosen and "FROM" not in query,
            default_graph=[ox.NamedNode(each) for each in dataset.default_graphs or ()] if chosen else None,
            named_graphs=[ox.NamedNode(each) for each in dataset.named_graphs or ()] if chosen else None,
        )
        if isinstance(results, ox.QueryTriples):
            return sorted((results.serialize(format=ox.RdfFormat.N_TRIPLES) or b"").splitlines())
        if isinstance(results, ox.QueryBoolean):
            return sorted((results.serialize(format=ox.QueryResultsFormat.JSON) or b"").splitlines())
        return sorted((results.serialize(format=ox.QueryResultsFormat.CSV) or b"").splitlines())


def domain_of(graph: str) -> str:
    """Return the domain that a graph belongs to: that of its cluster's name."""
    return IRIS.short(graph).partition("/")[0]


def lines(graph: str, size: int) -> frozenset[str]:
    """Give each graph statements about itself and links to the others."""
    links = {f"<{graph}> <{P}> <{other}> ." for other in GRAPHS[: size + 3]}
    home = f"<{graph}> <{NAMESPACE}domain> <{IRIS.domain(domain_of(graph))}> ."
    return frozenset(links | {f'<{graph}> <{Q}> "{size}" .', home})


@pytest.fixture(scope="module")
def restricted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Restricted]:
    """Six graphs in two clusters, all linked with one another."""
    made = Restricted(EmbeddedStore(tmp_path_factory.mktemp("restricted")))
    yield made
    made.close()


NODE = st.sampled_from([f"<{graph}>" for graph in GRAPHS])
TERM = st.one_of(NODE, st.sampled_from(["?s", "?o", "?x"]))
PATH = st.sampled_from([f"<{P}>", f"<{P}>+", f"<{P}>*", f"^<{P}>/<{Q}>", f"!<{P}>", f"(<{P}>|<{Q}>)", "?p"])
TRIPLE = st.builds("{} {} {} .".format, TERM, PATH, TERM)


def wrap(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Put a pattern into another one."""
    graph = st.one_of(NODE, st.just("?g"))
    return st.one_of(
        st.builds("GRAPH {} {{ {} }}".format, graph, inner),
        st.builds("{} OPTIONAL {{ {} }}".format, inner, inner),
        st.builds("{{ {} }} UNION {{ {} }}".format, inner, inner),
        st.builds("{} FILTER EXISTS {{ {} }}".format, inner, inner),
        st.builds("{} FILTER NOT EXISTS {{ {} }}".format, inner, inner),
        st.builds("{} MINUS {{ {} }}".format, inner, inner),
        st.builds("{{ SELECT ?s ?o {{ {} }} }}".format, inner),
        st.builds("{} BIND(EXISTS {{ {} }} AS ?e)".format, inner, inner).map(
            lambda text: f"{{ {text} }}".replace("?e", "?e1", 1)
        ),
    )


PATTERN = st.recursive(TRIPLE, wrap, max_leaves=3)
FROM = st.lists(st.builds("FROM {}{}".format, st.sampled_from(["", "NAMED "]), NODE), max_size=3).map(" ".join)
HEAD = st.sampled_from(
    ["SELECT *", "SELECT (COUNT(*) AS ?count)", "ASK", "CONSTRUCT { ?s <x:p> ?o . ?g <x:g> ?x }", "DESCRIBE ?s ?o"]
)
QUERY = st.one_of(
    st.builds("{} {} WHERE {{ {} }}".format, HEAD, FROM, PATTERN),
    st.builds("DESCRIBE {}".format, NODE),
)
GRAPH_LIST = st.none() | st.lists(st.sampled_from(GRAPHS), max_size=2).map(tuple)
DATASET = st.builds(
    lambda default, named: Dataset() if default is None and named is None else Dataset(default or (), named or ()),
    GRAPH_LIST,
    GRAPH_LIST,
)


@settings(
    max_examples=examples(50),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    query=QUERY,
    visible=st.sampled_from(SETS),
    dataset=st.just(Dataset()) | DATASET,
    size=st.integers(0, 4),
    touched=st.sampled_from(GRAPHS),
)
def test_no_query_sees_outside_the_visible_set(
    restricted: Restricted, query: str, visible: frozenset[str], dataset: Dataset, size: int, touched: str
) -> None:
    """Whatever is asked, and whatever was just written, the answer is that of an engine without the hidden graphs."""
    restricted.store.apply([GraphWrite.of(touched, lines(touched, size), "user")])
    try:
        expected = restricted.oracle(query, visible, dataset)
    except SyntaxError:
        return
    assert restricted.ask(query, visible, dataset) == expected


HIDDEN, SEEN = GRAPHS[5], GRAPHS[0]
FORMS = {
    "GRAPH ?g": "SELECT ?g { GRAPH ?g { ?s ?p ?o } }",
    "GRAPH by name": f"SELECT ?o {{ GRAPH <{HIDDEN}> {{ ?s ?p ?o }} }}",
    "default graph": f"SELECT ?s {{ ?s <{Q}> ?o }}",
    "DESCRIBE by name": f"DESCRIBE <{HIDDEN}>",
    "DESCRIBE found": f"DESCRIBE ?o {{ <{SEEN}> <{P}> ?o }}",
    "CONSTRUCT": "CONSTRUCT { ?s ?p ?o } WHERE { ?s ?p ?o }",
    "CONSTRUCT of graphs": "CONSTRUCT { ?g ?g ?s } WHERE { GRAPH ?g { ?s ?p ?o } }",
    "ASK": f"ASK {{ <{HIDDEN}> ?p ?o }}",
    "EXISTS": f"SELECT ?o {{ <{SEEN}> <{P}> ?o FILTER EXISTS {{ ?o <{Q}> ?v }} }}",
    "EXISTS in a graph": f"SELECT ?o {{ <{SEEN}> <{P}> ?o FILTER EXISTS {{ GRAPH ?o {{ ?s ?p ?v }} }} }}",
    "NOT EXISTS": f"SELECT ?o {{ <{SEEN}> <{P}> ?o FILTER NOT EXISTS {{ ?o <{Q}> ?v }} }}",
    "MINUS": f"SELECT ?o {{ <{SEEN}> <{P}> ?o MINUS {{ GRAPH ?g {{ ?o ?p ?v }} }} }}",
    "OPTIONAL": f"SELECT ?v {{ <{SEEN}> <{P}> ?o OPTIONAL {{ ?o <{Q}> ?v }} }}",
    "path +": f"SELECT ?v {{ <{SEEN}> <{P}>+/<{Q}> ?v }}",
    "path *": f"SELECT ?s {{ ?s <{P}>*/^<{P}> <{SEEN}> }}",
    "path ^": f"SELECT ?s {{ <{SEEN}> ^<{P}> ?s }}",
    "path !": f"SELECT ?s {{ ?s !<{P}> ?o }}",
    "path ?": f"SELECT ?v {{ <{HIDDEN}> <{P}>?/<{Q}> ?v }}",
    "sub-select": f"SELECT * {{ {{ SELECT ?s {{ ?s <{Q}> ?o }} }} }}",
    "sub-select in a graph": f"SELECT * {{ GRAPH ?g {{ {{ SELECT ?s {{ ?s <{Q}> ?o }} }} }} }}",
    "aggregate": "SELECT (COUNT(*) AS ?n) (COUNT(DISTINCT ?s) AS ?all) { ?s ?p ?o }",
    "VALUES": f"SELECT ?s {{ VALUES ?g {{ <{HIDDEN}> <{SEEN}> }} GRAPH ?g {{ ?s <{Q}> ?o }} }}",
    "FROM": f"SELECT ?s FROM <{HIDDEN}> FROM <{SEEN}> {{ ?s <{Q}> ?o }}",
    "FROM NAMED": f"SELECT ?g FROM NAMED <{HIDDEN}> FROM NAMED <{SEEN}> {{ GRAPH ?g {{ ?s <{Q}> ?o }} }}",
    "CONSTRUCT FROM": f"CONSTRUCT {{ ?s ?p ?o }} FROM <{HIDDEN}> FROM <{SEEN}> WHERE {{ ?s ?p ?o }}",
    "CONSTRUCT FROM, short": f"CONSTRUCT FROM <{HIDDEN}> FROM <{SEEN}> WHERE {{ ?s ?p ?o }}",
    "EXISTS selected, FROM": f"SELECT ?s (EXISTS {{ ?s <{Q}> 1 }} AS ?e) FROM <{HIDDEN}> FROM <{SEEN}> {{ ?s <{Q}> ?o }}",
    "DESCRIBE FROM": f"DESCRIBE <{HIDDEN}> FROM <{HIDDEN}> FROM <{SEEN}>",
}
PARAMETERS = {
    "default-graph-uri": ("SELECT ?s { ?s ?p ?o }", Dataset((HIDDEN, SEEN), ())),
    "named-graph-uri": ("SELECT ?g { GRAPH ?g { ?s ?p ?o } }", Dataset((), (HIDDEN, SEEN))),
    "both, over FROM": (
        f"SELECT ?s FROM <{SEEN}> {{ ?s ?p ?o GRAPH ?g {{ ?x ?y ?z }} }}",
        Dataset((HIDDEN,), (HIDDEN,)),
    ),
}
CASES = {**{name: (query, Dataset()) for name, query in FORMS.items()}, **PARAMETERS}


@pytest.mark.parametrize("form", CASES)
def test_each_form_of_query_would_see_more_and_does_not(restricted: Restricted, form: str) -> None:
    """Where an unrestricted caller gets another answer, a restricted one gets that of an engine without the hidden graphs."""
    query, dataset = CASES[form]
    restricted.store.apply([GraphWrite.of(graph, lines(graph, 1), "user") for graph in GRAPHS])
    seen = restricted.ask(query, ALICE, dataset)

    assert seen == restricted.oracle(query, ALICE, dataset)
    assert seen != restricted.oracle(query, frozenset({"a", "b"}), dataset)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT * FROM <http://x/a> FROM NAMED <http://x/b> { ?s ?p ?o }", (("http://x/a",), ("http://x/b",))),
        ("BASE <http://x/> PREFIX p: <c/> SELECT * FROM <a> FROM NAMED p:d { }", (("http://x/a",), ("http://x/c/d",))),
        ("PREFIX : <http://x/> ASK FROM :a\\,b FROM :c { }", (("http://x/a,b", "http://x/c"), ())),
        ("DESCRIBE <http://x/a> FROM <http://x/\\u0041>", (("http://x/A",), ())),
        ("SELECT * { ?s ?p 'FROM <http://x/a>' }", ((), ())),
        ("CONSTRUCT WHERE { ?s ?p ?o }", ((), ())),
        ("CONSTRUCT { ?s ?p [] } FROM <http://x/a> WHERE { ?s ?p ?o }", (("http://x/a",), ())),
        ("SELECT (EXISTS { ?s ?p <http://x/b> } AS ?e) FROM NAMED <http://x/a> { }", ((), ("http://x/a",))),
    ],
)
def test_from_clauses_are_read_as_the_engine_does(
    query: str, expected: tuple[tuple[str, ...], tuple[str, ...]]
) -> None:
    """IRIs relative to BASE, prefixed names with escapes, and nothing from strings or patterns."""
    assert from_clauses(query, "http://base/") == expected
