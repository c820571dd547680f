"""Requests of the SPARQL 1.1 Protocol, read without any server."""

from __future__ import annotations

from urllib.parse import quote, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumlin.kg.errors import QueryRejected, UnsupportedSyntax
from drumlin.kg.sparql.dataset import Dataset
from drumlin.kg.sparql.protocol import DIRECT, DIRECT_UPDATE, FORM, GRAPHS, RESULTS, offered, read_query, read_update

QUERY = "SELECT ?é { ?é ?p 'a+b & c' }"


@pytest.mark.parametrize(
    "sent",
    [
        ("GET", urlencode({"query": QUERY}).encode(), None, b""),
        ("GET", b"query=" + quote(QUERY).encode(), None, b""),
        ("POST", b"", FORM, urlencode({"query": QUERY}).encode()),
        ("POST", b"", f"{FORM}; charset=UTF-8", urlencode({"query": QUERY}).encode()),
        ("POST", b"", DIRECT, QUERY.encode()),
        ("POST", b"", 'Application/SPARQL-Query; charset="utf-8"', QUERY.encode()),
    ],
)
def test_a_query_comes_by_three_ways(sent: tuple[str, bytes, str | None, bytes]) -> None:
    """GET, form and direct POST give the same text and the whole dataset."""
    request = read_query(*sent)

    assert (request.query, request.dataset, request.format) == (QUERY, Dataset(), None)


@pytest.mark.parametrize(
    ("parameters", "dataset"),
    [
        ([], Dataset()),
        ([("default-graph-uri", "http://a"), ("default-graph-uri", "http://b")], Dataset(("http://a", "http://b"), ())),
        ([("named-graph-uri", "http://a")], Dataset((), ("http://a",))),
        ([("default-graph-uri", "http://a"), ("named-graph-uri", "http://b")], Dataset(("http://a",), ("http://b",))),
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_graphs_named_in_the_request_are_the_dataset(
    method: str, parameters: list[tuple[str, str]], dataset: Dataset
) -> None:
    """Naming one kind of graph leaves the other kind empty; a direct POST names them in the URL."""
    encoded = urlencode(parameters).encode()
    if method == "GET":
        request = read_query("GET", urlencode({"query": QUERY}).encode() + b"&" + encoded, None, b"")
    else:
        request = read_query("POST", encoded, DIRECT, QUERY.encode())

    assert request.dataset == dataset


@pytest.mark.parametrize(
    ("method", "query_string", "content_type", "body"),
    [
        ("PUT", b"query=ASK+%7B%7D", None, b""),
        ("GET", b"", None, b""),
        ("GET", b"query=ASK+%7B%7D&query=SELECT+*+%7B%7D", None, b""),
        ("POST", b"query=ASK+%7B%7D", DIRECT, b"ASK {}"),
        ("POST", b"", FORM, b"query=ASK+%7B%7D&query=ASK+%7B%7D"),
        ("POST", b"", f"{FORM}; charset=UTF-16", b"query=ASK+%7B%7D"),
        ("POST", b"", f"{DIRECT}; charset=UTF-16", "ASK {}".encode("utf-16")),
        ("POST", b"", DIRECT, "ASK {}".encode("utf-16")),
        ("GET", b"query=%FF%FE", None, b""),
        ("GET", b"query=\xff", None, b""),
        ("GET", b"update=CLEAR+ALL", None, b""),
        ("POST", b"", FORM, b"update=CLEAR+ALL"),
        ("GET", b"&".join([b"a=1"] * 1001), None, b""),
    ],
)
def test_a_request_that_breaks_the_protocol_is_refused(
    method: str, query_string: bytes, content_type: str | None, body: bytes
) -> None:
    """No query, two of them, another method, another encoding, an update: refused, never guessed at."""
    with pytest.raises(QueryRejected):
        read_query(method, query_string, content_type, body)


@pytest.mark.parametrize("content_type", [None, "", "text/plain", "application/sparql-update", "application/json"])
def test_a_post_needs_one_of_two_content_types(content_type: str | None) -> None:
    """Anything else is 415, with the two that are taken."""
    with pytest.raises(UnsupportedSyntax) as caught:
        read_query("POST", b"", content_type, b"ASK {}")

    assert caught.value.detail["offered"] == [DIRECT, FORM]


def test_what_is_offered_follows_the_form() -> None:
    """Solutions come as results formats, graphs as RDF."""
    assert offered("select") == offered("ask") == RESULTS
    assert offered("construct") == offered("describe") == GRAPHS


@given(query=st.text(alphabet=st.characters(codec="utf-8"), min_size=1), format=st.none() | st.just("csv"))
def test_any_text_arrives_as_it_was_sent(query: str, format: str | None) -> None:
    """Encoding and decoding a query are inverse, by GET and by form."""
    encoded = urlencode({"query": query, **({"format": format} if format else {})}).encode()

    for request in (read_query("GET", encoded, None, b""), read_query("POST", b"", FORM, encoded)):
        assert (request.query, request.format) == (query, format)


@given(
    st.lists(st.sampled_from([*"aA0+%=_? ", "%", "%20", "%3D", "%c3", "%C3%A9", "%zz", "%0D%0A", "%00", "="])).map(
        "".join
    )
)
def test_the_short_way_to_decode_a_query_is_the_long_one(value: str) -> None:
    """A query string that is the query alone is decoded as any other: every escape, and what only looks like one."""

    def read(query_string: bytes) -> str | None:
        try:
            return read_query("GET", query_string, None, b"").query
        except QueryRejected:
            return None

    assert read(f"query={value}".encode()) == read(f"query={value}&format=".encode())


UPDATE = "INSERT DATA { <http://é> <http://p> 'a+b & c' }"


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        (DIRECT_UPDATE, UPDATE.encode()),
        ('Application/SPARQL-Update; charset="utf-8"', UPDATE.encode()),
        (FORM, urlencode({"update": UPDATE}).encode()),
    ],
)
def test_an_update_comes_by_two_ways(content_type: str, body: bytes) -> None:
    """Directly or as a form, with the graphs that WHERE reads and the time it is given in the URL."""
    request = read_update(b"using-graph-uri=http://a&using-named-graph-uri=http://b&timeout=1.5", content_type, body)

    assert (request.update, request.dataset) == (UPDATE, Dataset(("http://a",), ("http://b",)))
    assert request.seconds == 1.5


@pytest.mark.parametrize(
    ("query_string", "content_type", "body"),
    [
        (b"", FORM, b""),
        (b"", FORM, b"update=CLEAR+ALL&update=CLEAR+ALL"),
        (b"", FORM, b"query=ASK+%7B%7D"),
        (b"update=CLEAR+ALL", DIRECT_UPDATE, b"CLEAR ALL"),
        (b"update=CLEAR+ALL", FORM, b""),
        (b"", DIRECT_UPDATE, "CLEAR ALL".encode("utf-16")),
        (b"", f"{DIRECT_UPDATE}; charset=utf-16", b"CLEAR ALL"),
        (b"timeout=soon", DIRECT_UPDATE, b"CLEAR ALL"),
        (b"timeout=-1", DIRECT_UPDATE, b"CLEAR ALL"),
        (b"timeout=nan", DIRECT_UPDATE, b"CLEAR ALL"),
    ],
)
def test_an_update_that_breaks_the_protocol_is_refused(query_string: bytes, content_type: str, body: bytes) -> None:
    """No update, two, one in the URL, another encoding, no time: refused, never guessed at."""
    with pytest.raises(QueryRejected):
        read_update(query_string, content_type, body)


@pytest.mark.parametrize("content_type", [None, "text/plain", "application/sparql-query"])
def test_an_update_needs_one_of_two_content_types(content_type: str | None) -> None:
    """Anything else is 415, with the two that are taken."""
    with pytest.raises(UnsupportedSyntax) as caught:
        read_update(b"", content_type, b"CLEAR ALL")

    assert caught.value.detail["offered"] == [DIRECT_UPDATE, FORM]
