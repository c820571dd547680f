"""/sparql/update over a listening server: what it writes, what it refuses, and what others do meanwhile."""

from __future__ import annotations

import gzip
import threading
from typing import Any

import httpx
import pytest

from tests.service.conftest import BASE, NS, OWN, OWN_DOCUMENT

DIRECT = {"Content-Type": "application/sparql-update"}


def _update(client: httpx.Client, text: str, **parameters: Any) -> httpx.Response:
    return client.post("/sparql/update", content=text.encode(), headers=DIRECT, params=parameters)


def _done(client: httpx.Client, text: str, **parameters: Any) -> int:
    answer = _update(client, text, **parameters)
    assert answer.status_code == 204, answer.text
    return int(answer.headers["X-Drumlin-Generation"])


def _values(client: httpx.Client, query: str) -> list[list[str]]:
    answer = client.get("/sparql", params={"query": query}, headers={"Accept": "text/csv"})
    assert answer.status_code == 200, answer.text
    return [line.split(",") for line in answer.text.splitlines()[1:]]


def test_an_update_comes_as_a_form_directly_and_compressed(client: httpx.Client) -> None:
    """The protocol's two bindings, and a gzip body, write the same way and tell their generation."""
    first = _done(client, "INSERT DATA { GRAPH <http://g> { <http://a> <http://p> 1 } }")
    form = client.post(
        "/sparql/update", data={"update": "INSERT DATA { GRAPH <http://g> { <http://a> <http://p> 2 } }"}
    )
    packed = gzip.compress(b"INSERT DATA { GRAPH <http://g> { <http://a> <http://p> 3 } }")
    sent = client.post("/sparql/update", content=packed, headers={**DIRECT, "Content-Encoding": "gzip"})

    assert (form.status_code, sent.status_code) == (204, 204)
    assert int(sent.headers["X-Drumlin-Generation"]) == first + 2
    assert _values(client, "SELECT ?o { GRAPH <http://g> { ?s ?p ?o } } ORDER BY ?o") == [["1"], ["2"], ["3"]]


def test_operations_see_one_another_and_none_is_done_when_one_fails(client: httpx.Client) -> None:
    """A request is one transaction: the last operation's failure takes the first one back."""
    _done(
        client,
        "INSERT DATA { <http://a> <http://p> 1 } ; DELETE { ?s ?p ?o } INSERT { ?s ?p ?n } WHERE { ?s ?p ?o FILTER(?s = <http://a>) BIND(?o + 1 AS ?n) }",
    )
    failed = _update(
        client,
        "INSERT DATA { <http://a> <http://p> 9 } ; INSERT { <http://b> <http://p> ?o } WHERE { <http://a> <http://p> ?o } ; DROP GRAPH <http://none>",
    )

    assert failed.status_code == 409
    assert _values(client, "SELECT ?s ?o { GRAPH ?g { ?s <http://p> ?o } }") == [["http://a", "2"]]


def test_a_runaway_is_stopped_and_changes_nothing(client: httpx.Client) -> None:
    """Past its deadline an update gets 504, its process is gone, and the generation is what it was."""
    before = client.get("/sparql", params={"query": "ASK {}"}).headers["X-Drumlin-Generation"]
    answer = _update(
        client,
        "INSERT DATA { <http://a> <http://p> 1 } ; INSERT { <http://a> <http://p> ?n } WHERE { { SELECT (COUNT(*) AS ?n) { ?a ?b ?c . ?d ?e ?f . ?g ?h ?i . ?j ?k ?l } } }",
        timeout="1",
    )

    assert answer.status_code == 504
    assert client.get("/sparql", params={"query": "ASK {}"}).headers["X-Drumlin-Generation"] == before


def test_no_increment_is_lost(client: httpx.Client) -> None:
    """Read-increment-write updates from several clients at once add up."""
    _done(client, "INSERT DATA { GRAPH <http://g> { <http://n> <http://v> 0 } }")
    text = "WITH <http://g> DELETE { ?s ?p ?o } INSERT { ?s ?p ?n } WHERE { ?s ?p ?o BIND(?o + 1 AS ?n) }"
    failed: list[str] = []

    def work() -> None:
        with httpx.Client(base_url=client.base_url, timeout=120) as own:
            for _ in range(5):
                answer = _update(own, text)
                if answer.status_code != 204:
                    failed.append(answer.text)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()

    assert not failed
    assert _values(client, "SELECT ?o { GRAPH <http://g> { ?s ?p ?o } }") == [["20"]]


def test_entities_keep_their_rules(client: httpx.Client) -> None:
    """An entity's graph is valid as a whole after the update, owned by who wrote it, and leaves a tombstone when dropped."""
    _done(client, f"INSERT DATA {{ GRAPH <{OWN}> {{ {OWN_DOCUMENT} }} }}")
    assert client.get("/subgraph/prod/payments/deployment/own").status_code == 200

    _done(client, f"WITH <{OWN}> INSERT {{ ?s <{NS}label> 'team=a' }} WHERE {{ ?s a <{NS}Deployment> }}")
    assert "team=a" in client.get("/subgraph/prod/payments/deployment/own").text
    invalid = _update(client, f"DELETE WHERE {{ GRAPH <{OWN}> {{ ?s a ?type }} }}")
    blank = _update(client, f"INSERT DATA {{ GRAPH <{OWN}> {{ <{OWN}> <http://p> [] }} }}")
    foreign = _update(
        client, f"INSERT DATA {{ GRAPH <{BASE}/id/cluster/prod> {{ <{BASE}/id/cluster/prod> <http://p> 1 }} }}"
    )
    assert (invalid.status_code, blank.status_code, foreign.status_code) == (422, 422, 409)
    assert foreign.json()["owner"] == "drumlin"

    _done(client, f"DROP GRAPH <{OWN}>")
    assert client.get("/subgraph/prod/payments/deployment/own").status_code == 410
    _done(client, f"INSERT DATA {{ GRAPH <{OWN}> {{ {OWN_DOCUMENT} }} }}")
    assert "team=a" not in client.get("/subgraph/prod/payments/deployment/own").text


def test_clear_all_spares_the_entities(client: httpx.Client) -> None:
    """ALL means the foreign graphs."""
    _done(client, "INSERT DATA { <http://a> <http://p> 1 . GRAPH <http://g> { <http://a> <http://p> 1 } }")
    _done(client, "CLEAR ALL")

    assert _values(client, "SELECT ?s { ?s <http://p> ?o }") == []
    assert client.get("/store", params={"graph": "http://g"}).status_code == 200
    assert client.get("/subgraph/cluster/prod").status_code == 200


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("LOAD <http://127.0.0.1:9/>", 403),
        ("INSERT { ?s ?p ?o } WHERE { SERVICE <http://127.0.0.1:9/> { ?s ?p ?o } }", 403),
        ("SELECT * { ?s ?p ?o }", 400),
        ("INSERT DATA { <http://a> <http://b> }", 400),
        ("INSERT { ?s <http://p> ?x } WHERE { BIND(<http://unknown>(1) AS ?x) }", 422),
        ("INSERT DATA { <http://a> <http://b> '" + "x" * 1_100_000 + "' }", 413),
        ("INSERT { ?s ?p ?o } WHERE " + "{" * 3000 + "}" * 3000, 413),
        ("CREATE GRAPH <http://g> ; CREATE GRAPH <http://g>", 409),
        ("", 204),
    ],
)
def test_what_is_refused_changes_nothing(client: httpx.Client, text: str, status: int) -> None:
    """Each bad update gets its status; the service lives."""
    answer = _update(client, text)

    assert answer.status_code == status, answer.text
    assert client.get("/livez").status_code == 200
    assert client.get("/store", params={"graph": "http://g"}).status_code == 404


def test_the_graphs_of_the_request_and_of_the_text_exclude_one_another(client: httpx.Client) -> None:
    """using-graph-uri beside USING or WITH is an error; alone it is what WHERE reads."""
    _done(
        client,
        "INSERT DATA { GRAPH <http://g> { <http://a> <http://p> 1 } GRAPH <http://h> { <http://b> <http://p> 1 } }",
    )
    text = "INSERT { GRAPH <http://i> { ?s ?p ?o } } WHERE { ?s ?p ?o }"

    both = _update(client, f"WITH <http://g> {text}", **{"using-graph-uri": "http://h"})
    _done(client, text, **{"using-graph-uri": "http://h"})

    assert both.status_code == 400
    assert _values(client, "SELECT ?s { GRAPH <http://i> { ?s ?p ?o } }") == [["http://b"]]


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "PATCH"])
def test_other_methods_are_told_what_is_allowed(client: httpx.Client, method: str) -> None:
    """405 with Allow; OPTIONS says the same."""
    answer = client.request(method, "/sparql/update")

    assert answer.status_code == 405
    assert answer.headers["Allow"] == client.options("/sparql/update").headers["Allow"] == "OPTIONS, POST"
