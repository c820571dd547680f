"""/sparql over a listening server: the protocol's bindings, formats, and what is refused before the engine sees it."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from drumlin.kg import rdf

PREFIX = "PREFIX : <https://w3id.org/drumlin/ns#> "
SELECT = PREFIX + "SELECT ?name WHERE { ?w a :Deployment ; :namespace 'payments' ; :name ?name } ORDER BY ?name"
CONSTRUCT = PREFIX + "CONSTRUCT { ?w :name ?name } WHERE { ?w a :Deployment ; :namespace 'payments' ; :name ?name }"


def _names(answer: httpx.Response) -> list[str]:
    assert answer.status_code == 200, answer.text
    return [row["name"]["value"] for row in answer.json()["results"]["bindings"]]


def test_the_three_ways_to_send_a_query_agree(http: httpx.Client) -> None:
    """GET, form POST and direct POST give the same solutions and say which generation they saw."""
    direct = {"Content-Type": "application/sparql-query"}
    answers = [
        http.get("/sparql", params={"query": SELECT}),
        http.post("/sparql", data={"query": SELECT}),
        http.post("/sparql", content=SELECT.encode(), headers=direct),
    ]
    for answer in answers:
        assert _names(answer) == ["checkout", "ledger"]
        assert int(answer.headers["X-Drumlin-Generation"]) > 0
    assert http.head("/sparql", params={"query": SELECT}).status_code == 200


@pytest.mark.parametrize(
    ("accept", "media_type", "begins"),
    [
        ("application/sparql-results+json", "application/sparql-results+json", "{"),
        ("application/sparql-results+xml", "application/sparql-results+xml", "<?xml"),
        ("text/csv", "text/csv", "name\r\ncheckout"),
        ("text/tab-separated-values", "text/tab-separated-values", '?name\n"checkout"'),
        ("*/*", "application/sparql-results+json", "{"),
        ("text/csv;q=0.5, application/sparql-results+xml;q=0.9", "application/sparql-results+xml", "<?xml"),
    ],
)
def test_solutions_come_in_the_format_asked_for(http: httpx.Client, accept: str, media_type: str, begins: str) -> None:
    """Accept with q-values and wildcards picks the format of a SELECT."""
    answer = http.get("/sparql", params={"query": SELECT}, headers={"Accept": accept})
    assert answer.headers["Content-Type"].startswith(media_type)
    assert answer.text.startswith(begins)


def test_headers_of_several_lines(http: httpx.Client) -> None:
    """What is accepted or known counts over all lines; of a header that is no list the first line counts."""
    lines = [("Accept", "image/png"), ("Accept", "text/csv;q=0.5"), ("Accept", "application/sparql-results+xml;q=0.9")]
    for order in (lines, lines[::-1]):
        answer = http.get("/sparql", params={"query": SELECT}, headers=order)
        assert answer.headers["Content-Type"].startswith("application/sparql-results+xml")
    known = [("If-None-Match", '"other"'), ("If-None-Match", answer.headers["ETag"]), ("If-None-Match", '"another"')]
    assert http.get("/sparql", params={"query": SELECT}, headers=[*lines, *known]).status_code == 304
    types = [("Content-Type", "application/sparql-query"), ("Content-Type", "application/x-www-form-urlencoded")]
    assert _names(http.post("/sparql", content=SELECT, headers=types)) == [
        "checkout",
        "ledger",
    ]


@pytest.mark.parametrize(
    ("query", "accept", "given"),
    [
        (SELECT, "application/json", "application/sparql-results+json"),
        (SELECT, "application/xml;q=0.5, image/png", "application/sparql-results+xml"),
        (SELECT, "application/json;q=0.5, text/csv", "text/csv"),
        (CONSTRUCT, "application/json", "application/ld+json"),
        (CONSTRUCT, "application/xml", "application/rdf+xml"),
    ],
)
def test_json_and_xml_of_any_kind_are_what_there_is_of_them(
    http: httpx.Client, query: str, accept: str, given: str
) -> None:
    """Many clients ask for ``application/json``, and mean whatever is written in it."""
    answer = http.get("/sparql", params={"query": query}, headers={"Accept": accept})
    assert answer.status_code == 200, answer.text
    assert answer.headers["Content-Type"].partition(";")[0] == given


@pytest.mark.parametrize("syntax", rdf.SYNTAXES, ids=lambda syntax: syntax.name)
def test_graphs_come_in_every_syntax(http: httpx.Client, syntax: rdf.Syntax) -> None:
    """CONSTRUCT gives the same triples in each RDF syntax."""
    answer = http.get("/sparql", params={"query": CONSTRUCT}, headers={"Accept": syntax.media_type})
    assert answer.status_code == 200
    (lines,) = rdf.parse(answer.content, syntax).values()
    assert len(lines) == 2


def test_format_wins_over_accept(http: httpx.Client) -> None:
    """The parameter format= picks the result's format for those who cannot send headers."""
    answer = http.get(
        "/sparql", params={"query": SELECT, "format": "csv"}, headers={"Accept": "application/sparql-results+json"}
    )
    assert answer.headers["Content-Type"].startswith("text/csv")


@pytest.mark.parametrize("format", ["json", "srj", "xml", "srx", "csv", "tsv", "application/sparql-results+json"])
def test_every_name_of_a_results_format_is_known(http: httpx.Client, format: str) -> None:
    """Suffixes, media types, and these with the + that nobody percent-encodes name a format of solutions; graphs have others."""
    for named in (format, format.upper(), format.replace("+", " ")):
        answer = http.get("/sparql", params={"query": SELECT, "format": named})
        assert answer.status_code == 200, answer.text
    refused = http.get("/sparql", params={"query": SELECT, "format": "turtle"})
    assert (refused.status_code, "srx" in refused.json()["hint"]) == (406, True)


@pytest.mark.parametrize("syntax", rdf.SYNTAXES, ids=lambda syntax: syntax.name)
def test_every_name_of_a_syntax_is_known(http: httpx.Client, syntax: rdf.Syntax) -> None:
    """``format=`` takes a syntax's name, suffix and media type, of a query's result, a graph and the service description alike."""
    graph = "https://kg.example/id/prod/payments/deployment/checkout"
    for named in (syntax.name, syntax.suffix[1:], syntax.media_type, syntax.media_type.replace("+", " ")):
        for path, parameters in (("/sparql", {"query": CONSTRUCT}), ("/store", {"graph": graph}), ("/sparql", {})):
            accept = {"Accept": "application/rdf+xml"}  # only there for the description, which is asked for by it
            answer = http.get(path, params={**parameters, "format": named}, headers=accept)
            assert answer.status_code == 200, answer.text
            assert answer.headers["Content-Type"].partition(";")[0] == syntax.media_type
    refused = http.get("/sparql", params={"query": CONSTRUCT, "format": "csv"})
    assert (refused.status_code, "text/turtle" in refused.json()["offered"]) == (406, True)


def test_ask_and_describe_are_answered(http: httpx.Client) -> None:
    """ASK gives a boolean, DESCRIBE gives a graph."""
    assert http.get("/sparql", params={"query": PREFIX + "ASK { ?s a :Node }"}).json()["boolean"] is True
    described = http.get(
        "/sparql",
        params={"query": "DESCRIBE <https://kg.example/id/prod/-/node/edge-a-1>"},
        headers={"Accept": "text/turtle"},
    )
    assert "edge-a-1" in described.text


def test_protocol_parameters_narrow_the_dataset(http: httpx.Client) -> None:
    """default-graph-uri and named-graph-uri choose the graphs; without them the union of all is read."""
    graph = "https://kg.example/id/prod/payments/deployment/checkout"
    one = PREFIX + "SELECT ?name WHERE { ?w a :Deployment ; :name ?name }"
    assert _names(http.get("/sparql", params={"query": one, "default-graph-uri": graph})) == ["checkout"]
    named = PREFIX + "SELECT ?name WHERE { GRAPH ?g { ?w a :Deployment ; :name ?name } }"
    assert _names(http.get("/sparql", params={"query": named, "named-graph-uri": graph})) == ["checkout"]
    assert len(_names(http.get("/sparql", params={"query": one}))) == 10


def test_a_syntax_error_says_where(http: httpx.Client) -> None:
    """A malformed query gives 400 with line, column and token."""
    answer = http.get("/sparql", params={"query": "SELECT * WHERE {\n ?s ?p }"})
    assert answer.status_code == 400
    body = answer.json()
    assert (body["title"], body["line"], body["token"]) == ("Query rejected", 2, "}")
    assert body["column"] >= 1


REFUSED: dict[str, tuple[str, int]] = {
    "SERVICE": ("SELECT * WHERE { SERVICE <http://127.0.0.1:9/> { ?s ?p ?o } }", 403),
    "SERVICE in a sub-select": ("SELECT * { { SELECT * { SERVICE SILENT ?x { ?s ?p ?o } } } }", 403),
    "update": ("INSERT DATA { <a:a> <a:b> 1 }", 400),
    "3,000 braces": ("SELECT * WHERE " + "{" * 3000 + "}" * 3000, 413),
    "10,000 negations": ("SELECT * WHERE { FILTER(" + "!" * 10_000 + "true) }", 413),
    "200 collections": ("SELECT * WHERE { ?s ?p " + "(" * 200 + "1" + ")" * 200 + " }", 413),
    "too long": ("SELECT * WHERE { ?s ?p '" + "x" * 1_100_000 + "' }", 413),
    "empty": ("", 400),
    "truncated": ("SELECT * WHERE {", 400),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_could_harm_is_refused_before_the_engine(http: httpx.Client, case: str) -> None:
    """Federation, updates, deep nesting and long texts get their status, and the service lives."""
    query, status = REFUSED[case]
    answer = http.post("/sparql", content=query.encode(), headers={"Content-Type": "application/sparql-query"})
    assert answer.status_code == status, answer.text
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert http.get("/livez").status_code == 200


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        ({"method": "PUT", "params": {"query": "ASK {}"}}, 405),
        ({"method": "GET", "params": [("query", "ASK {}"), ("query", "ASK {}")]}, 400),
        ({"method": "GET"}, 400),
        ({"method": "POST", "content": b"ASK {}", "headers": {"Content-Type": "text/plain"}}, 415),
        ({"method": "POST", "content": b"ASK {}"}, 415),
        (
            {
                "method": "POST",
                "content": b"ASK {}",
                "headers": {"Content-Type": "application/sparql-query; charset=utf-16"},
            },
            400,
        ),
        ({"method": "POST", "content": b"ASK {'\xff'}", "headers": {"Content-Type": "application/sparql-query"}}, 400),
        ({"method": "GET", "params": {"query": "ASK {}"}, "headers": {"Accept": "image/png"}}, 406),
        ({"method": "GET", "params": {"query": "ASK {}", "format": "png"}}, 406),
    ],
)
def test_bad_requests_of_the_protocol(http: httpx.Client, request_: dict[str, Any], status: int) -> None:
    """Each wrong way to send a query gets its status as a problem document."""
    answer = http.request(url="/sparql", **request_)
    assert answer.status_code == status, answer.text
    assert json.loads(answer.content)["status"] == status
