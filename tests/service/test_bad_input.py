"""Input that is meant to harm, over HTTP, at every place that takes SPARQL or RDF: each is refused and costs nothing."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import socket
from pathlib import Path

import httpx
import pytest

from tests.service.conftest import Service

SIZE = 128 << 20
PLACES = {
    "query": ("POST", "/sparql", "application/sparql-query"),
    "query form": ("POST", "/sparql", "application/x-www-form-urlencoded"),
    "update": ("POST", "/sparql/update", "application/sparql-update"),
    "update form": ("POST", "/sparql/update", "application/x-www-form-urlencoded"),
    "graph": ("PUT", "/store?graph=http://x/g", "text/turtle"),
    "quads": ("POST", "/store", "application/n-quads"),
    "entity": ("PUT", "/subgraph/domain/x", "application/ld+json"),
}
WHOLE = {
    "query": b"ASK {}",
    "query form": b"query=ASK+%7B%7D",
    "update": b"INSERT DATA { GRAPH <http://x/cut> { <a:a> <a:b> 1 } }",
    "update form": b"update=CREATE+GRAPH+%3Chttp://x/cut%3E",
    "graph": b"<a:a> <a:b> 1 .",
    "quads": b"<a:a> <a:b> <a:c> <http://x/cut> .",
    "entity": b'{"id": "https://kg.example/id/domain/x", "type": "Domain"}',
}
BEGINS = {
    "query": b"SELECT * { ?s ?p '",
    "query form": b"query=ASK+",
    "update": b"INSERT DATA { <a:a> <a:b> '",
    "update form": b"update=CLEAR+",
    "graph": b"<a:a> <a:b> '",
    "quads": b'<a:a> <a:b> "',
    "entity": b'{"id": "',
}


def resident(service: Service) -> int:
    """Return the service's memory, in bytes."""
    for line in Path(f"/proc/{service.process.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) << 10
    raise AssertionError("no VmRSS")


@pytest.mark.parametrize("place", PLACES)
def test_a_body_of_128_mb_is_413_and_not_kept(service: Service, http: httpx.Client, place: str) -> None:
    """A client that sends all of it gets its answer, and the service holds a small part of the body at most."""
    method, path, media_type = PLACES[place]
    http.get("/livez")
    before = resident(service)
    body = itertools.chain([BEGINS[place]], itertools.repeat(b"x" * (1 << 20), SIZE >> 20))
    answer = http.request(method, path, content=body, headers={"Content-Type": media_type})

    assert answer.status_code == 413, answer.text
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert resident(service) - before < SIZE // 4
    assert http.get("/livez").status_code == 200


@pytest.mark.parametrize("place", PLACES)
def test_what_is_not_utf_8_is_a_clients_mistake(http: httpx.Client, place: str) -> None:
    """A byte that no text has is refused with a problem document wherever it stands."""
    method, path, media_type = PLACES[place]
    for wrong in (b"\xff", b"\xc3", b"\xed\xa0\x80"):
        answer = http.request(
            method, path, content=BEGINS[place] + wrong + b"' }", headers={"Content-Type": media_type}
        )
        assert answer.status_code in (400, 422), answer.text
        assert answer.headers["Content-Type"] == "application/problem+json"


@pytest.mark.parametrize("depth", [200, 3000])
@pytest.mark.parametrize("place", ["query", "update"])
@pytest.mark.parametrize("shape", ["{}", "()"])
def test_deep_nesting_is_refused_with_its_place(http: httpx.Client, place: str, depth: int, shape: str) -> None:
    """Braces and collections inside one another do not reach the engine; the answer says where it went too deep."""
    method, path, media_type = PLACES[place]
    nested = shape[0] * depth + " 1 " * (shape == "()") + shape[1] * depth
    pattern = nested if shape == "{}" else f"{{ ?s ?p {nested} }}"
    begins = "SELECT * WHERE" if place == "query" else "INSERT { ?s ?p ?o } WHERE"
    answer = http.request(method, path, content=f"{begins} {pattern}", headers={"Content-Type": media_type})

    assert answer.status_code == 413, answer.text
    assert answer.json()["line"] == 1
    assert len(begins) < answer.json()["column"] < len(begins) + 120


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("/export?typ=Pod", "did you mean type?"),
        ("/search?q=a&namespce=b", "did you mean namespace?"),
        ("/subgraphs?ownr=user", "did you mean owner?"),
        ("/events?since=0&sinc=1", "did you mean since?"),
        ("/subgraph/cluster/prod?dept=1", "did you mean depth?"),
    ],
)
def test_a_misspelt_parameter_is_refused(http: httpx.Client, path: str, hint: str) -> None:
    """A filter that is not known is 422 with the one that is meant, and never an answer about everything."""
    answer = http.get(path, headers={"Accept": "*/*"})
    assert (answer.status_code, answer.json()["hint"]) == (422, hint)
    assert "there is no parameter" in answer.json()["detail"]


LEGACY = {f"/api/v0/graph{each}" for each in ("", "/update", "/compact")}


def test_every_route_refuses_what_it_does_not_know(http: httpx.Client) -> None:
    """But for probes, whoever sends them, and the protocols of SPARQL, OpenTelemetry and the public peer, whose clients have theirs."""
    taking = set()
    for path, operations in http.get("/openapi.json").json()["paths"].items():
        for method in operations:
            named = path.replace("/sd/{name}", "/sd/hosts")  # its parameters are those of a query
            answer = http.request(method, re.sub(r"\{\w+\}", "x", named), params={"unread": "1"}, content=b"{}")
            if "parameter 'unread'" not in answer.text:
                taking.add(path)
    assert taking == {"/livez", "/readyz", "/metrics", "/sparql", "/sparql/update", "/v1/logs", *LEGACY}


@pytest.mark.parametrize("method", ["PUT", "POST", "PATCH", "DELETE"])
def test_a_parameter_of_a_write_is_refused_too(http: httpx.Client, method: str) -> None:
    """What it was to do would not be done, and nobody would be told: none of them takes any."""
    path = "/subgraph/prod/payments/deployment/checkout"
    tag = http.get(path).headers["ETag"]
    answer = http.request(method, f"{path}?dry_run=1", content=b"{}", headers={"Content-Type": "application/ld+json"})
    assert (answer.status_code, answer.json()["detail"]) == (422, "there is no parameter 'dry_run' here")
    assert http.get(path).headers["ETag"] == tag


@pytest.mark.parametrize(
    ("place", "text", "misspelt", "hint"),
    [
        ("query", "ASK {}", "default-graph-url", "graphs are named by default-graph-uri and named-graph-uri"),
        ("query", "ASK {}", "namedGraph", "graphs are named by default-graph-uri and named-graph-uri"),
        (
            "update",
            "CLEAR DEFAULT",
            "default-graph-uri",
            "graphs are named by using-graph-uri and using-named-graph-uri",
        ),
        (
            "update",
            "CLEAR DEFAULT",
            "insert-graph-uri",
            "graphs are named by using-graph-uri and using-named-graph-uri",
        ),
    ],
)
def test_a_misspelt_dataset_is_refused(http: httpx.Client, place: str, text: str, misspelt: str, hint: str) -> None:
    """It would be passed over, and all graphs read instead; what clients add of their own is."""
    _, path, media_type = PLACES[place]
    headers = {"Content-Type": media_type}
    answer = http.post(path, params={misspelt: "https://elsewhere.example/"}, content=text, headers=headers)
    assert (answer.status_code, answer.json()["hint"]) == (400, hint)
    others = {"output": "json", "results": "json", "infer": "true", "queryLn": "SPARQL"}  # SPARQLWrapper, RDF4J
    assert http.post(path, params=others, content=text, headers=headers).is_success


@pytest.mark.parametrize("framing", ["Content-Length: 10000", "Transfer-Encoding: chunked"])
@pytest.mark.parametrize("place", sorted(PLACES))
def test_a_cut_body_is_none(service: Service, http: httpx.Client, place: str, framing: str) -> None:
    """A connection that ends before its body does nothing, however whole that looks; who listens still is told, and it is no fault of ours."""
    generation, logged = http.get("/readyz").json()["generation"], len(service.log)
    method, path, media_type = PLACES[place]
    body = WHOLE[place]
    sent = b"%x\r\n%b\r\n" % (len(body), body) if "chunked" in framing else body
    with socket.create_connection((http.base_url.host, http.base_url.port or 80), timeout=30) as connection:
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {media_type}\r\n{framing}\r\n\r\n"
        connection.sendall(head.encode() + sent)
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(12) == b"HTTP/1.1 400"
    assert http.get("/readyz").json()["generation"] == generation
    assert not [each for each in service.log[logged:] if "crashed" in each]


def test_lines_before_a_cut_are_written(http: httpx.Client) -> None:
    """In bulk each line stands for itself: those that were done are reported, then that the rest did not come.

    A client that sends no more looks like one that has left, whose lines are done as far as they were read.
    """
    lines = b"".join(b'{"op": "remove", "id": "tag/cut-%d"}\n' % number for number in range(3))
    with socket.create_connection((http.base_url.host, http.base_url.port or 80), timeout=30) as connection:
        connection.sendall(b"POST /subgraphs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10000\r\n\r\n" + lines[:-1])
        connection.shutdown(socket.SHUT_WR)
        answer = b"".join(iter(lambda: connection.recv(1 << 16), b""))
    head, _, body = answer.partition(b"\r\n\r\n")
    told = [json.loads(each) for each in body.splitlines()]
    if head.startswith(b"HTTP/1.1 499"):  # the end was seen before the first line was
        assert [each["status"] for each in told] == [499]
        return
    assert [each.get("outcome") for each in told] in (["unchanged", "unchanged", None], [None])
    assert (told[-1]["problem"]["status"], told[-1]["problem"]["title"]) == (400, "Incomplete body")


@pytest.mark.parametrize("place", ["query", "update", "graph", "quads", "entity"])
def test_who_asks_first_is_told_before_sending(http: httpx.Client, place: str) -> None:
    """A body that is too large by its own account is refused in place of ``100 Continue`` (curl asks from 1 MB on)."""
    method, path, media_type = PLACES[place]
    with socket.create_connection((http.base_url.host, http.base_url.port or 80), timeout=30) as connection:
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {media_type}\r\nContent-Length: {SIZE}"
        connection.sendall(head.encode() + b"\r\nExpect: 100-continue\r\n\r\n")
        assert connection.recv(12) == b"HTTP/1.1 413"


@pytest.mark.parametrize(
    "sent", ["POST /subgraphs", "POST /subgraphs?atomc=true", "POST /store?grph=http://x/g", "PUT /subgraph/domain/x"]
)
def test_an_early_refusal_reaches_who_is_still_sending(http: httpx.Client, sent: str) -> None:
    """A client that reads only when it is done sending gets the answer, not a broken connection."""
    method, path = sent.split()

    async def ask() -> httpx.Response:
        async with httpx.AsyncClient(base_url=http.base_url) as client:
            return await client.request(method, path, content=bytes(16 << 20), headers={"Content-Type": "image/png"})

    assert asyncio.run(ask()).status_code in (400, 415, 422)
