"""Results of queries read row by row, and what is made of them: counted while they stream, never joined whole."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pyoxigraph as ox
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumlin.api.http.entity_selection import MAX_ENTITIES, EntitySelection, selected
from drumlin.api.routes import queries
from drumlin.kg.client.rows import Rows
from drumlin.kg.config.settings import Settings
from drumlin.kg.errors import InvalidInput, TooLarge
from drumlin.kg.model.iris import Iris
from drumlin.kg.sparql.results import read_solutions
from drumlin.kg.store.protocol import Answer
from drumlin.queries.catalogue import QueryCatalogue

HEAD = b'{"head":{"vars":["entity","n"]},"results":{"bindings":['
ROW = '{{"entity":{{"type":"uri","value":"https://kg.example/id/domain/{}"}},"n":{{"type":"literal","value":"{}","datatype":"http://www.w3.org/2001/XMLSchema#integer"}}}}'
ENDLESS = 1 << 40


def test_a_client_gets_a_triple_term_as_a_tuple() -> None:
    """Its values are Python's, terms within it too."""
    uri = {"type": "uri", "value": "urn:a"}
    one = {"type": "literal", "value": "1", "datatype": "http://www.w3.org/2001/XMLSchema#integer"}
    inner = {"type": "triple", "value": {"subject": uri, "predicate": uri, "object": one}}
    outer = {"type": "triple", "value": {"subject": uri, "predicate": uri, "object": inner}}
    body = {"head": {"vars": ["t"]}, "results": {"bindings": [{"t": outer}]}}

    assert Rows.from_json(body) == [{"t": ("urn:a", "urn:a", ("urn:a", "urn:a", 1))}]


class _Chunks(Iterator[bytes]):
    """A result of so many rows, made as it is read, a row a chunk; counts them."""

    def __init__(self, rows: int, text: str = ROW, first: int = 0) -> None:
        self.rows, self.made, self.closed = rows, 0, False
        self._text, self._first = text, first

    def __next__(self) -> bytes:
        assert not self.closed
        self.made += 1
        if self.made == 1:
            return HEAD
        if self.made == self.rows + 2:
            return b"]}}"
        if self.made > self.rows + 2:
            raise StopIteration
        number = self._first + self.made
        return (b"," if self.made > 2 else b"") + self._text.format(number, number).encode()

    def close(self) -> None:
        self.closed = True


def service(chunks: _Chunks) -> Any:
    """Stand for a service whose store answers every query with ``chunks``."""
    answer = Answer("application/sparql-results+json", chunks, 7)
    store = SimpleNamespace(answer=lambda *_, **__: answer)
    documents = SimpleNamespace(answer=lambda *_: None)  # no query names a foreign document
    return SimpleNamespace(settings=Settings(), store=store, documents=documents, iris=None)


def cut(data: bytes, sizes: list[int]) -> Iterator[bytes]:
    """Cut a result into chunks of these sizes, the rest as one."""
    at = 0
    for size in sizes:
        yield data[at : at + size]
        at += size
    yield data[at:]


@given(
    st.lists(
        st.tuples(st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\0")), st.integers()),
        max_size=8,
    ),
    st.lists(st.integers(0, 90), max_size=12),
)
def test_rows_are_the_results_however_it_is_cut(values: list[tuple[str, int]], sizes: list[int]) -> None:
    """What the engine writes is read as a whole JSON parser reads it, wherever a chunk ends."""
    store = ox.Store()
    for place, (text, number) in enumerate(values):
        node = ox.NamedNode(f"http://e/{place}")
        store.add(ox.Quad(node, ox.NamedNode("http://e/bindings"), ox.Literal(f'"bindings":[{text}')))
        store.add(ox.Quad(node, ox.NamedNode("http://e/n"), ox.Literal(number)))
    written = io.BytesIO()
    results: Any = store.query("SELECT ?s ?bindings ?o ?unbound { ?s ?bindings ?o }")
    results.serialize(written, format=ox.QueryResultsFormat.JSON)
    whole = json.loads(written.getvalue())

    found = read_solutions(cut(written.getvalue(), sizes))
    assert found.variables == whole["head"]["vars"]
    assert list(found.rows) == whole["results"]["bindings"]


@pytest.mark.parametrize("data", [b"", b'{"head":{},"boolean":true}', HEAD, HEAD + ROW.format(1, 1).encode()[:-5]])
def test_what_is_no_whole_result_is_an_error(data: bytes) -> None:
    """The result of an ASK, and one that ends in the middle of its rows, are never taken for a short one."""
    with pytest.raises(ValueError, match="result"):
        list(read_solutions(iter([data])).rows)


def test_a_selection_stops_at_its_limit() -> None:
    """A query that finds more entities than may be selected is ended at the first one too many, not read to its end."""
    chunks = _Chunks(ENDLESS)
    with pytest.raises(TooLarge, match="10,000"):
        selected(service(chunks), EntitySelection(sparql="SELECT ?entity ?n { ?entity ?p ?n }"))
    assert chunks.made <= MAX_ENTITIES + 2
    assert chunks.closed


def test_a_selection_counts_each_entity_once() -> None:
    """Many rows about few entities select these; what is no IRI is passed over; the first variable serves where none is ?entity."""
    same = _Chunks(5 * MAX_ENTITIES, ROW.replace("domain/{}", "domain/a"))
    assert selected(service(same), EntitySelection(sparql="SELECT ?entity ?n { ?entity ?p ?n }")) == [
        "https://kg.example/id/domain/a"
    ]
    text = _Chunks(3, '{{"n":{{"type":"literal","value":"{} {}"}}}}')
    with pytest.raises(InvalidInput, match="no entity"):
        selected(service(text), EntitySelection(sparql="SELECT ?entity ?n { ?entity ?p ?n }"))
    assert text.closed


def test_a_saved_query_stops_at_the_rows_that_json_may_have(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the limit it is filled; one row more is 413 at once, and so are rows that take too many bytes."""
    monkeypatch.setattr(queries, "MAX_JSON_ROWS", 10)
    query = next(iter(QueryCatalogue.load(Iris(Settings().base), None).queries.values()))
    answer = queries._plain(service(_Chunks(10)), query, "SELECT")
    assert [each["n"] for each in json.loads(answer.body)["rows"]] == list(range(2, 12))
    assert answer.headers["X-Drumlin-Generation"] == "7"
    chunks = _Chunks(ENDLESS)
    with pytest.raises(TooLarge, match="JSON"):
        queries._plain(service(chunks), query, "SELECT")
    assert chunks.made <= 13
    assert chunks.closed
    monkeypatch.setattr(queries, "MAX_JSON_ROWS", ENDLESS)
    monkeypatch.setattr(queries, "MAX_JSON_BYTES", 1000)
    with pytest.raises(TooLarge, match="bytes"):
        queries._plain(service(_Chunks(ENDLESS)), query, "SELECT")


def test_rows_that_are_read_to_their_end_leave_nothing_of_the_result() -> None:
    """Whoever has read the last row has read the whole result, also where its end comes later: the reader is free at once."""
    result = HEAD + ROW.format("a", 1).encode()
    pieces = iter([result, b"]", b"}}", b""])
    assert len(list(read_solutions(pieces).rows)) == 1
    assert next(pieces, None) is None
