"""What every store promises (``kg.store.protocol``), as functions that take one: run on each implementation by its own tests."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

import pytest

from drumlin.kg import rdf
from drumlin.kg.errors import (
    GraphOwned,
    InvalidDocument,
    InvalidIdentifier,
    PreconditionFailed,
    QueryRejected,
    UnsupportedSyntax,
)
from drumlin.kg.rdf.syntax import digest
from drumlin.kg.sparql.dataset import Dataset
from drumlin.kg.store.protocol import GraphWrite, Lines, Narrowed, Store, StoredGraph

ROOT = "https://kg.example/id/"
A, B = ROOT + "prod/a/pod/x", ROOT + "prod/b/pod/y"
JSON = "application/sparql-results+json"
NOON = datetime(2026, 11, 27, 12, tzinfo=UTC)
XSD = "http://www.w3.org/2001/XMLSchema#"


def line(subject: str, value: object) -> str:
    """Write one statement about ``subject``."""
    return f'<{subject}> <http://p/value> "{value}" .'


def write(graph: str, *values: object, owner: str = "user", **more: object) -> GraphWrite:
    """Make a write of one statement per value."""
    return GraphWrite.of(graph, frozenset(line(graph, value) for value in values), owner, **more)


def remove(graph: str, owner: str = "user") -> GraphWrite:
    """Make a write that removes a graph."""
    return GraphWrite.of(graph, None, owner)


def read(store: Store, graph: str) -> StoredGraph:
    """Read a graph that must exist."""
    found = store.read(graph)
    assert found is not None
    return found


def answered(store: Store, query: str, media_type: str = JSON, **more: object) -> str:
    """Run a query and read its answer whole."""
    return b"".join(store.answer(query, media_type=media_type, **more).chunks).decode()


def values(store: Store, query: str, **more: object) -> list[str]:
    """Return the values of ``?v`` in a query's solutions."""
    rows = json.loads(answered(store, query, **more))["results"]["bindings"]
    return sorted(row["v"]["value"] for row in rows)


# -- writing --------------------------------------------------------------------------------------------------------------


def a_write_is_read_back_with_its_entry(store: Store) -> None:
    """What was written is there, with digest, owner, generation and time."""
    (written,) = store.apply([write(A, 1)])
    stored = read(store, A)

    assert (written.outcome, written.generation, store.generation) == ("created", 1, 1)
    assert stored.lines == {line(A, 1)}
    assert stored.entry.digest == written.digest == digest(stored.lines)
    assert (stored.entry.owner, stored.entry.generation, stored.entry.changed) == ("user", 1, NOON)
    assert store.entry(A) == stored.entry
    assert store.read(B) is store.entry(B) is None


def graphs_are_read_together_as_one_by_one(store: Store) -> None:
    """Several graphs in one read are what each read of one gives; those that do not exist are left out."""
    store.apply([write(A, 1, 2), write(B, owner="scraper"), write(f"{B}/gone", 1)])
    store.apply([remove(f"{B}/gone"), write(A, 3)])
    asked = [f"{B}/gone", B, A, f"{A}/never"]
    assert store.read_each(asked) == {A: read(store, A), B: read(store, B)}
    assert store.read_each([]) == {}


def a_write_of_the_same_lines_is_no_write(store: Store) -> None:
    """Equal lines leave no generation and no log entry, even in another lexical form."""
    text = f'<{A}> <http://p/value> "%s"^^<{XSD}decimal> .'
    store.apply([GraphWrite.of(A, frozenset({text % "0.25"}), "user")])
    (written,) = store.apply([GraphWrite.of(A, frozenset({text % "0.250"}), "user")])

    assert written.outcome == "unchanged"
    assert store.generation == 1
    assert len(store.log(0)) == 1


def only_what_differs_changes(store: Store) -> None:
    """Replacing a graph leaves exactly the new lines, also when old and new overlap."""
    store.apply([write(A, 1, 2), write(B, 9)])
    (written,) = store.apply([write(A, 2, 3)])

    assert written.outcome == "replaced"
    assert values(store, "SELECT ?v { GRAPH ?g { ?s ?p ?v } }") == ["2", "3", "9"]
    assert values(store, "SELECT ?v { ?s ?p ?v }") == ["2", "3", "9"]


def a_removed_graph_is_nowhere(store: Store) -> None:
    """Removal takes the graph, its statements and its entry; removing it again is no write."""
    store.apply([write(A, 1), write(B, 1)])
    assert store.apply([remove(A)])[0].outcome == "removed"
    assert store.apply([remove(A)])[0].outcome == "unchanged"

    assert store.read(A) is None
    assert store.entry(A) is None
    assert [each.graph for each in store.entries()] == [B]
    assert values(store, "SELECT (?s AS ?v) { ?s ?p ?o }") == [B]


def a_statement_in_two_graphs_outlives_one(store: Store) -> None:
    """A foreign graph may say what another says too; removing one leaves the other's statement to every query."""
    same = frozenset({line("http://elsewhere/s", 1)})
    store.apply([GraphWrite.of("http://elsewhere/a", same, "user"), GraphWrite.of("http://elsewhere/b", same, "user")])
    store.apply([remove("http://elsewhere/a")])

    assert values(store, "SELECT DISTINCT ?v { ?s ?p ?v }") == ["1"]
    store.apply([remove("http://elsewhere/b")])
    assert values(store, "SELECT ?v { ?s ?p ?v }") == []


def an_empty_graph_exists(store: Store) -> None:
    """A graph of no lines is there until it is removed, whether it was made so or emptied."""
    store.apply([write(A), write(B, 1)])
    store.apply([write(B)])

    assert [read(store, graph).lines for graph in (A, B)] == [frozenset(), frozenset()]


def another_owner_is_refused(store: Store) -> None:
    """A graph is written by its owner only, and the refusal names the owner; nothing of the write happens."""
    store.apply([write(A, 1, owner="kubernetes:prod")])

    with pytest.raises(GraphOwned) as refused:
        store.apply([write(B, 1), write(A, 2)])

    assert refused.value.detail["owner"] == "kubernetes:prod"
    assert store.generation == 1
    assert store.read(B) is None


def what_a_peer_gave_yields_to_a_source(store: Store) -> None:
    """A source takes over a graph that came from a peer, also one that says the same; users, other peers and removals do not."""
    store.apply([write(A, 1, owner="peer:bob"), write(B, 1, owner="peer:bob")])
    for other in (write(A, 2), write(A, 2, owner="peer:carol"), remove(A, owner="kubernetes:prod")):
        with pytest.raises(GraphOwned):
            store.apply([other])
    same, changed = store.apply([write(A, 1, owner="kubernetes:prod"), write(B, 2, owner="kubernetes:prod")])
    assert (same.outcome, changed.outcome) == ("replaced", "replaced")
    assert {each.graph: each.owner for each in store.entries()} == dict.fromkeys((A, B), "kubernetes:prod")
    assert values(store, "SELECT ?v { ?s ?p ?v }") == ["1", "2"]
    assert [each.owner for each in store.log(1)] == ["kubernetes:prod"] * 2
    (again,) = store.apply([write(A, 1, owner="kubernetes:prod")])
    assert again.outcome == "unchanged"
    with pytest.raises(GraphOwned):
        store.apply([write(A, 1, owner="peer:bob")])


def a_precondition_that_does_not_hold_refuses_all(store: Store) -> None:
    """One failed expectation undoes the whole write and tells the digest there is."""
    (first,) = store.apply([write(A, 1)])

    for expected in (None, "0" * 32):
        with pytest.raises(PreconditionFailed) as refused:
            store.apply([write(B, 1), write(A, 2, expected=expected)])
        assert refused.value.detail == {"digest": first.digest}

    assert store.read(B) is None
    assert store.apply([write(A, 2, expected=first.digest), write(B, 1, expected=None)])[0].outcome == "replaced"


def each_refused_write_of_a_batch_is_reported(store: Store) -> None:
    """The error of a batch holds the refusal of each of its writes, in order, whatever refuses it; nothing of the batch was written."""
    (held,) = store.apply([write(A, 1, owner="kubernetes:prod")])
    store.apply([write(B, 1)])
    c, d = f"{B}-c", f"{B}-d"

    with pytest.raises(GraphOwned) as refused:
        store.apply([write(c, 1), write(A, 2), write(B, 2, expected=None), write(d, 1, expected="0" * 32)])

    found = refused.value.refusals
    assert [(graph, type(each)) for graph, each in found.items()] == [
        (A, GraphOwned),
        (B, PreconditionFailed),
        (d, PreconditionFailed),
    ]
    assert (str(refused.value), refused.value.detail) == (str(found[A]), found[A].detail)
    with pytest.raises(InvalidDocument) as illegal:
        store.apply(
            [write(c, 1), *(GraphWrite.of(each, frozenset({line(A, 1)}), "user") for each in ("no name", "<none>"))]
        )
    assert list(illegal.value.refusals) == ["no name", "<none>"]
    assert (store.read(c), store.read(A).entry.digest) == (None, held.digest)


def the_same_graph_twice_is_a_mistake(store: Store) -> None:
    """One write says one thing about a graph."""
    with pytest.raises(ValueError, match="twice"):
        store.apply([write(A, 1), write(A, 2)])


def a_line_that_is_not_canonical_is_refused(store: Store) -> None:
    """Nothing but statements reaches the engine, so a line cannot smuggle an update in; nothing is half written."""
    for bad in (
        '<http://s> <http://p> "x" } } ; DROP ALL ; INSERT DATA { <http://s> <http://p> "y" .',
        "<http://s> <http://p> <http://o> . <http://s> <http://p> <http://o> .",
        '<http://s> <http://p> "a\nb" .',
        "<http://s> <http://p> <http://o>",
        "<http://s> <http://p> <o> .",
        '<http://s> <http://p> "a"@toolonglanguage .',
        '<http://s> <http://p> <<( <http://s> <http://p> "o" )>> .',
        "",
    ):
        with pytest.raises(InvalidDocument):
            store.apply([write(B, 1), GraphWrite.of(A, frozenset({bad}), "user")])
    with pytest.raises(InvalidDocument):
        store.apply([write("http://a> { } } ; DROP ALL #", 1)])

    assert store.generation == 0
    assert store.entries() == []
    assert store.apply([write(A, 1)])[0].generation == 1


def read_increment_write_loses_nothing(store: Store, other: Store) -> None:
    """Writers, also of two processes, that each read, add one and write with ``expected`` never lose an increment."""
    rounds = 15
    store.apply([write(A, 0)])
    failures: list[Exception] = []

    def increment(mine: Store) -> None:
        for _ in range(rounds):
            while True:
                stored = read(mine, A)
                (only,) = stored.lines
                try:
                    mine.apply([write(A, int(only.split('"')[1]) + 1, expected=stored.entry.digest)])
                    break
                except PreconditionFailed:
                    continue
                except Exception as error:  # noqa: BLE001 - told below
                    failures.append(error)
                    return

    threads = [threading.Thread(target=increment, args=(each,)) for each in (store, store, other, other)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()

    assert failures == []
    assert read(store, A).lines == {line(A, 4 * rounds)}
    assert store.generation == 4 * rounds + 1
    assert [each.generation for each in store.log(0)] == list(range(1, 4 * rounds + 2))


def readers_never_see_a_mixture(store: Store) -> None:
    """While a graph is rewritten, every read gives lines that have the digest of their entry."""
    done = threading.Event()
    torn: list[str] = []

    def look() -> None:
        while not done.is_set():
            stored = store.read(A)
            if stored and digest(stored.lines) != stored.entry.digest:
                torn.append(stored.entry.digest)

    reader = threading.Thread(target=look)
    reader.start()
    try:
        for number in range(25):
            store.apply([write(A, *range(number, number + 20))])
    finally:
        done.set()
        reader.join()

    assert torn == []


def many_graphs_are_one_generation(store: Store) -> None:
    """A large write, of more statements than an engine takes at once, is one write like any other."""
    store.apply([write(A, 1), write(B, 1)])
    many = [write(f"{ROOT}prod/bulk/pod/p{number:03}", *range(number, number + 20)) for number in range(150)]
    results = store.apply([*many, write(A, 2), remove(B)])

    assert [each.outcome for each in results] == ["created"] * 150 + ["replaced", "removed"]
    assert store.generation == 2
    assert dict(store.export()) == {A: {line(A, 2)}, **{each.graph: each.lines for each in many}}
    assert len(store.log(1, limit=10)) == 152


def every_literal_comes_back_as_it_was(store: Store) -> None:
    """Values, types and languages are read back exactly, also those that an engine would normalise, cut or merge."""
    typed = {
        "decimal": ["0.25", "-0.5", "1", "123456789012.345678"],
        "integer": ["7", "-3", "9223372036854775807"],
        "boolean": ["true", "false"],
        "dateTime": [
            "2026-11-27T12:00:00Z",
            "2026-11-27T12:00:00.25Z",
            "2026-11-27T12:00:00+02:00",
            "2026-11-27T12:00:00",
        ],
        "duration": ["PT5M", "P1DT2H"],
        "double": ["1.0E0", "0.1", "INF"],
        "date": ["2026-11-27"],
        "anyURI": ["http://x/y"],
        "nonNegativeInteger": ["5"],
    }
    literals = [f'"{value}"^^<{XSD}{name}>' for name, found in typed.items() for value in found]
    literals += [
        '"1"',
        '""',
        '"ü😀 南京"',
        r'"a\nb\tc\\d\"e"',
        '"x"@de',
        '"x"@en-gb',
        '"x"@en',
        '"1"^^<http://own/type>',
    ]
    literals += [r'"\u0001"', "\"$x ?y ''' %s urn:drumlin:xsd:\"", '"' + "ü" * 30_000 + '"']
    lines = rdf.parse("\n".join(f"<{A}> <http://p/value> {each} ." for each in literals).encode(), rdf.NTRIPLES)[None]
    store.apply([GraphWrite.of(A, lines, "user")])

    assert read(store, A).lines == lines
    told = answered(store, f"CONSTRUCT {{ <{A}> ?p ?v }} {{ <{A}> ?p ?v }}", "application/n-triples")
    assert rdf.parse(told.encode(), rdf.NTRIPLES)[None] == lines
    bound = json.loads(answered(store, f"SELECT ?v {{ <{A}> ?p ?v }}"))["results"]["bindings"]
    assert {each["v"].get("datatype") for each in bound} >= {XSD + "duration", XSD + "boolean", XSD + "decimal"}


# -- the log and the list ---------------------------------------------------------------------------------------------------


def the_log_tells_every_change_in_order(store: Store) -> None:
    """One entry per effective change: created, replaced, removed, with the digests before and after."""
    one, two = digest({line(A, 1)}), digest({line(A, 2)})
    store.apply([write(A, 1)])
    store.apply([write(A, 2)])
    store.apply([remove(A)])

    told = [(each.generation, each.before, each.after, each.at) for each in store.log(0)]
    assert told == [(1, None, one, NOON), (2, one, two, NOON), (3, two, None, NOON)]
    assert [each.generation for each in store.log(1)] == [2, 3]


def the_log_gives_whole_generations(store: Store) -> None:
    """A limit never cuts a generation in two: fewer come, or at least one whole."""
    store.apply([write(A, 1)])
    store.apply([write(f"{B}{number}", 1) for number in range(5)])

    assert [each.generation for each in store.log(0, limit=3)] == [1]
    assert [each.generation for each in store.log(1, limit=3)] == [2] * 5


def the_log_is_read_backwards(store: Store) -> None:
    """The newest changes come first, each with its place in its generation; any place leads on, and one graph's come alone."""
    store.apply([write(A, 1)])
    store.apply([write(f"{B}{number}", 1) for number in range(5)])
    store.apply([write(A, 2), remove(f"{B}3")])
    known: list[tuple[int, int, str]] = []
    for generation in (1, 2, 3):
        own = sorted(each.graph for each in store.log(0) if each.generation == generation)
        known += [(generation, place, graph) for place, graph in enumerate(own)]

    def told(generation: int, place: int, limit: int) -> list[tuple[int, int, str]]:
        found = store.newest_changes(generation, place, limit)
        return [(each.generation, number, each.graph) for number, each in found]

    assert told(4, 0, 100) == told(99, 7, 100) == told(3, 1 << 62, 100) == known[::-1]
    for count in range(len(known)):
        generation, place, _ = known[count]
        for limit in (1, 3, 100):
            assert told(generation, place, limit) == known[:count][::-1][:limit]
    assert [each.generation for each in store.changes_of(A, 99)] == [3, 1]
    assert [each.after for each in store.changes_of(f"{B}3", 99)] == [None, digest({line(f"{B}3", 1)})]
    assert [each.generation for each in store.changes_of(A, 3)] == [1]


def listing_is_in_order_and_can_be_paged(store: Store) -> None:
    """Prefix, owner, cursor and limit narrow the list, which is sorted by IRI."""
    names = [f"{ROOT}{letter}/-/node/n" for letter in "Zabc"]
    store.apply([write(name, 1, owner=f"of {name[-10]}") for name in names] + [write("https://kg.example/zz", 1)])

    assert [each.graph for each in store.entries(prefix=ROOT)] == names
    assert [each.graph for each in store.entries(prefix=ROOT, after=names[0], limit=2)] == names[1:3]
    assert [each.graph for each in store.entries(owner="user")] == ["https://kg.example/zz"]
    assert [each.owner for each in store.entries(limit=1)] == ["of Z"]


def an_export_is_one_generation(store: Store) -> None:
    """What is written while an export is read is not in it; graphs come in the order of their IRIs."""
    store.apply([write(B, 1), write(A, 1)])
    export = store.export()
    first: tuple[str, Lines] = next(export)
    store.apply([write(B, 2), write(f"{B}z", 1)])

    assert [first, *export] == [(A, {line(A, 1)}), (B, {line(B, 1)})]


def an_export_is_of_what_is_asked(store: Store) -> None:
    """By owner, by the beginning of the name, and by what a graph states about itself: each narrows the others."""
    store.apply([write(A, 1), write(B, 1), write(f"{B}z", 2)])
    fact = (frozenset({("http://p/value", '"1"')}),)

    assert [graph for graph, _ in store.export(Narrowed(prefix=B))] == [B, f"{B}z"]
    assert [graph for graph, _ in store.export(Narrowed(facts=fact))] == [A, B]
    assert [graph for graph, _ in store.export(Narrowed(prefix=B, facts=fact))] == [B]
    assert list(store.export(Narrowed(owner="nobody", facts=fact))) == []


# -- querying -----------------------------------------------------------------------------------------------------------------


def the_default_graph_is_the_union(store: Store) -> None:
    """A query that names no graph reads all of them, and nothing that the store keeps for itself."""
    store.apply([write(A, 1), write(B, 2)])

    assert values(store, "SELECT ?v { ?s ?p ?v }") == ["1", "2"]
    assert values(store, "SELECT DISTINCT (?g AS ?v) { GRAPH ?g { ?s ?p ?o } }") == [A, B]
    assert values(store, "SELECT (COUNT(*) AS ?v) { ?s ?p ?o OPTIONAL { GRAPH ?g { ?s ?p ?o } } }") == ["2"]
    assert values(store, "SELECT ?v { ?s ?p ?v FILTER EXISTS { GRAPH ?g { ?s ?p 2 , ?v } } }") == []


def from_narrows(store: Store) -> None:
    """FROM and FROM NAMED choose the dataset; a FROM in a comment or string does not."""
    store.apply([write(A, 1), write(B, 2)])
    cases = {
        f"SELECT ?v FROM <{A}> {{ ?s ?p ?v }}": ["1"],
        f"PREFIX id: <{ROOT}prod/a/> SELECT ?v FROM id:pod\\/x {{ ?s ?p ?v }}": ["1"],
        f"SELECT ?v FROM NAMED <{A}> {{ ?s ?p ?v }}": [],
        f"SELECT ?v FROM NAMED <{A}> {{ GRAPH ?g {{ ?s ?p ?v }} }}": ["1"],
        f"SELECT ?v FROM <{A}> {{ GRAPH ?g {{ ?s ?p ?v }} }}": [],
        "SELECT ?v { ?s ?p ?v } # FROM <http://a>": ["1", "2"],
        "SELECT ?v { ?s ?p ?v FILTER(?v != 'FROM <http://a>') }": ["1", "2"],
    }
    assert {query: values(store, query) for query in cases} == cases


def the_protocols_graphs_win_and_never_widen(store: Store) -> None:
    """Graphs given beside the query override FROM; naming one kind leaves the other empty."""
    store.apply([write(A, 1), write(B, 2)])
    any_graph = "SELECT ?v { { ?s ?p ?v } UNION { GRAPH ?g { ?s ?p ?v } } }"

    assert values(store, f"SELECT ?v FROM <{B}> {{ ?s ?p ?v }}", dataset=Dataset((A,), ())) == ["1"]
    assert values(store, any_graph, dataset=Dataset((A,))) == ["1"]
    assert values(store, any_graph, dataset=Dataset(None, (B,))) == ["2"]
    assert values(store, any_graph, dataset=Dataset((A,), (B,))) == ["1", "2"]
    assert values(store, any_graph, dataset=Dataset((), ())) == []
    with pytest.raises(QueryRejected):
        answered(store, any_graph, dataset=Dataset(("not an iri",)))


def solutions_are_written_in_four_formats(store: Store) -> None:
    """SELECT and ASK come as JSON, XML, CSV and TSV."""
    store.apply([write(A, 1)])
    begins: Mapping[str, str] = {
        JSON: '{"head"',
        "application/sparql-results+xml": "<?xml",
        "text/csv": "v\r\n1",
        "text/tab-separated-values": '?v\n"1"',
    }
    for media_type, beginning in begins.items():
        assert answered(store, "SELECT ?v { ?s ?p ?v }", media_type).startswith(beginning)
        assert "true" in answered(store, "ASK { ?s ?p ?v }", media_type)


def graphs_are_written_in_every_syntax(store: Store) -> None:
    """CONSTRUCT and DESCRIBE come in all RDF syntaxes, and say the same in each."""
    store.apply([write(A, 1)])
    for query in ("CONSTRUCT { ?s ?p ?v } WHERE { ?s ?p ?v }", f"DESCRIBE <{A}>"):
        for syntax in rdf.SYNTAXES:
            text = answered(store, query, syntax.media_type).encode()
            assert rdf.parse(text, syntax) == {None: {line(A, 1)}}


def a_format_that_does_not_fit_is_refused(store: Store) -> None:
    """The refusal lists what is offered for that form."""
    for query, media_type in (("ASK {}", "text/turtle"), ("CONSTRUCT {} {}", "text/csv"), ("ASK {}", "image/png")):
        with pytest.raises(UnsupportedSyntax) as refused:
            answered(store, query, media_type)
        assert refused.value.detail["offered"]


def a_syntax_error_has_a_place(store: Store) -> None:
    """Line and column come with the rejection."""
    with pytest.raises(QueryRejected, match="line 2") as refused:
        answered(store, "SELECT * {\n ?s ?p }")

    assert refused.value.detail["line"] == 2


def a_base_resolves_relative_iris(store: Store) -> None:
    """``base`` is what relative IRIs of the query are resolved against."""
    store.apply([write(A, 1)])

    assert values(store, "SELECT ?v { <id/prod/a/pod/x> ?p ?v }", base="https://kg.example/") == ["1"]


def an_answer_says_what_it_saw(store: Store) -> None:
    """The generation of an answer is the last one acknowledged before it."""
    store.apply([write(A, 1)])

    assert store.answer("ASK {}", media_type=JSON).generation == 1


def our_own_queries_take_iris_as_terms(store: Store) -> None:
    """A look-up binds a variable, selected or not, to an IRI; what is no IRI never becomes text."""
    store.apply([write(A, 1), write(B, 2)])

    assert [row["v"] for row in store.look_up("SELECT ?v { ?entity ?p ?v }", {"entity": A})] == ["1"]
    assert store.look_up("SELECT * { ?entity ?p ?v }", {"entity": B})[0]["v"] == "2"
    rows = store.look_up("SELECT DISTINCT ?entity ?w { ?entity ?p ?v OPTIONAL { ?v ?v ?w } }", {"entity": A})
    assert [dict(row) for row in rows] == [{"entity": A}]
    with pytest.raises(InvalidIdentifier):
        store.look_up("SELECT ?v { ?entity ?p ?v }", {"entity": "x> ?p ?v } #"})
    with pytest.raises(TypeError):
        store.look_up("ASK {}")


BEHAVIOURS: tuple[Callable[[Store], None], ...] = (
    a_write_is_read_back_with_its_entry,
    graphs_are_read_together_as_one_by_one,
    a_write_of_the_same_lines_is_no_write,
    only_what_differs_changes,
    a_removed_graph_is_nowhere,
    a_statement_in_two_graphs_outlives_one,
    an_empty_graph_exists,
    another_owner_is_refused,
    what_a_peer_gave_yields_to_a_source,
    a_precondition_that_does_not_hold_refuses_all,
    each_refused_write_of_a_batch_is_reported,
    the_same_graph_twice_is_a_mistake,
    a_line_that_is_not_canonical_is_refused,
    readers_never_see_a_mixture,
    many_graphs_are_one_generation,
    every_literal_comes_back_as_it_was,
    the_log_tells_every_change_in_order,
    the_log_gives_whole_generations,
    the_log_is_read_backwards,
    listing_is_in_order_and_can_be_paged,
    an_export_is_one_generation,
    an_export_is_of_what_is_asked,
    the_default_graph_is_the_union,
    from_narrows,
    the_protocols_graphs_win_and_never_widen,
    solutions_are_written_in_four_formats,
    graphs_are_written_in_every_syntax,
    a_format_that_does_not_fit_is_refused,
    a_syntax_error_has_a_place,
    a_base_resolves_relative_iris,
    an_answer_says_what_it_saw,
    our_own_queries_take_iris_as_terms,
)
"""Each is one guarantee; ``read_increment_write_loses_nothing`` needs a second store on the same data."""
