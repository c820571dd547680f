"""IRIs that are none, over HTTP, on every way in: each is refused as the caller's mistake, and nothing of it is stored."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable

import httpx
import pytest

from drumlin.kg.rdf import jsonld
from tests.service.test_subgraph import BASE, forecast

GOOD = "http://[2001:db8::1]:9090/x?y#z"
BAD = ("http://[bad", "http://[::1", "http://host:port/", "http://x#a#b", "http://x/%zz", "http://x/a|b", "1a:b")
Way = Callable[[httpx.Client, str, str], httpx.Response]
"""Sends a statement about an entity (its id) whose object is an IRI."""


def ntriples(id: str, iri: str) -> str:
    """Write the entity with the statement, as lines."""
    lines = jsonld.lines(forecast(id.partition("/")[2]))
    return "\n".join([*sorted(lines), f"<{BASE}{id}> <http://p/v> <{iri}> .", ""])


def document(id: str, iri: str) -> dict[str, object]:
    """Write the entity with the statement, as JSON-LD."""
    return forecast(id.partition("/")[2], **{"http://p/v": {"id": iri}})


def put(media_type: str) -> Way:
    """PUT it as an entity's graph; N-Triples are Turtle and TriG, too, and quads of the default graph."""
    return lambda http, name, iri: http.put(
        f"/subgraph/{name}",
        content=json.dumps(document(name, iri)) if "json" in media_type else ntriples(name, iri),
        headers={"Content-Type": media_type},
    )


def patch(media_type: str) -> Way:
    """PUT the entity without the statement, then add that."""

    def send(http: httpx.Client, id: str, iri: str) -> httpx.Response:
        http.put(
            f"/subgraph/{id}", json=forecast(id.partition("/")[2]), headers={"Content-Type": "application/ld+json"}
        )
        added = f"INSERT DATA {{ <{BASE}{id}> <http://p/v> <{iri}> }}"
        body = json.dumps({"http://p/v": {"id": iri}}) if "json" in media_type else added
        return http.patch(f"/subgraph/{id}", content=body, headers={"Content-Type": media_type})

    return send


def bulk(http: httpx.Client, id: str, iri: str) -> httpx.Response:
    """Send it as a line of many; answers with what the line got."""
    line = json.dumps({"op": "put", "id": id, "document": document(id, iri)})
    answer = http.post("/subgraphs", content=line, headers={"Content-Type": "application/x-ndjson"})
    (result,) = map(json.loads, answer.text.splitlines())
    return httpx.Response(result["problem"]["status"] if "problem" in result else 200, json=result)


def store(media_type: str) -> Way:
    """POST it to the Graph Store Protocol, as a graph of its own."""
    return lambda http, name, iri: http.post(
        "/store",
        params={"graph": f"http://foreign/{name}"},
        content=json.dumps(document(name, iri)) if "json" in media_type else ntriples(name, iri),
        headers={"Content-Type": media_type},
    )


def update(http: httpx.Client, id: str, iri: str) -> httpx.Response:
    """Insert it into a foreign graph by a SPARQL Update."""
    text = f"INSERT DATA {{ GRAPH <http://foreign/{id}> {{ <{BASE}{id}> <http://p/v> <{iri}> }} }}"
    return http.post("/sparql/update", content=text, headers={"Content-Type": "application/sparql-update"})


WAYS: dict[str, Way] = {
    "N-Triples": put("application/n-triples"),
    "Turtle": put("text/turtle"),
    "N-Quads": put("application/n-quads"),
    "TriG": put("application/trig"),
    "JSON-LD": put("application/ld+json"),
    "merge-patch": patch("application/merge-patch+json"),
    "ground patch": patch("application/sparql-update"),
    "bulk": bulk,
    "store, Turtle": store("text/turtle"),
    "store, JSON-LD": store("application/ld+json"),
    "update": update,
}


def stored(http: httpx.Client, id: str) -> bool:
    """Return whether any graph holds the statement."""
    answer = http.get("/sparql", params={"query": f"ASK {{ GRAPH ?g {{ <{BASE}{id}> <http://p/v> ?v }} }}"})
    return bool(answer.json()["boolean"])


@pytest.mark.parametrize("way", WAYS)
def test_an_iri_that_is_none_is_refused_and_not_left_out(http: httpx.Client, way: str) -> None:
    """A good one is stored; of a bad one the whole request is refused with 4xx, though JSON-LD would drop it without a word."""
    id = f"forecast/{uuid.uuid4().hex}"
    assert WAYS[way](http, id, GOOD).is_success
    assert stored(http, id)
    for bad in BAD:
        id = f"forecast/{uuid.uuid4().hex}"
        answer = WAYS[way](http, id, bad)
        assert answer.status_code in (400, 422), (bad, answer.text)
        assert not stored(http, id), bad


@pytest.mark.parametrize("bad", BAD)
def test_an_address_that_is_none_is_refused(http: httpx.Client, bad: str) -> None:
    """A name of an entity, of a graph, or of a data set is no way in either."""
    content = {"content": "<a:a> <a:b> <a:c> .", "headers": {"Content-Type": "text/turtle"}}
    answers = [
        http.put("/store", params={"graph": bad}, **content),
        http.get("/store", params={"graph": bad}),
        http.get("/resolve", params={"entity": bad, "metric": "cpu_usage", "last": "1h"}),
        http.get("/sparql", params={"query": "ASK {}", "default-graph-uri": bad}),
        http.get(f"/subgraph/{bad}"),
    ]
    for answer in answers:
        assert 400 <= answer.status_code < 500, (str(answer.url), answer.text)
