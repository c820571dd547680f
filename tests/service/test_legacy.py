"""The public peer's interface: requests, answers and errors as its clients know them, without its defects."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.service.conftest import ROOT, serving

PEER = ROOT.parent / "shared" / "data" / "glaciation-heu+kg_exporter"
STUB = (
    ROOT.parent
    / "shared"
    / "data"
    / "glaciation-heu+glaciation-metadata-service"
    / "server"
    / "app"
    / "tests"
    / "stub_message.jsonld"
)
SLICES = PEER / "app" / "core" / "__fixture__" / "snapshot"
recorded = pytest.mark.skipif(
    not PEER.is_dir() and os.environ.get("CI") != "true", reason="no fixtures of the peer at ../shared/data"
)
JSON = {"Content-Type": "application/json"}
SUCCESS = re.compile(r"Success - Inserted (\d+) triple\(s\) into graph <((?:.*/)?timestamp:\d{13})>\.")
TIMESTAMPS = 'SELECT ?graphURI WHERE { GRAPH ?graphURI {} FILTER regex(str(?graphURI), "^timestamp:") }'
"""What the peer's sidecar asks."""
STATUS = """PREFIX rdf: <http://www.w3.org/1999/02/22-rdf-syntax-ns#> PREFIX xsd: <http://www.w3.org/2001/XMLSchema#>
SELECT ?resource ?statusValue WHERE {
  { SELECT ?graphURI WHERE { GRAPH ?graphURI {} FILTER regex(str(?graphURI), "^timestamp:") }
    ORDER BY DESC(xsd:integer(replace(str(?graphURI), "^timestamp:", ""))) LIMIT 1 }
  GRAPH ?graphURI { SELECT ?pod ?resource ?statusValue WHERE {
    ?resource rdf:type <glc:WorkProducingResource> ; <glc:hasDescription> "Pod" ; <glc:hasStatus> ?status .
    ?status <glc:hasDescription> ?statusValue . FILTER NOT EXISTS { ?status <glc:hasDescription> 'Succeeded' } } } }"""
"""The shape of what the peer's exporter asks."""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A service that serves the peer's clients."""
    directory = tmp_path_factory.mktemp("legacy")
    (directory / "drumlin.toml").write_text("[legacy]\nenabled = true\n")
    with serving("--store", str(directory / "store"), "--config", str(directory / "drumlin.toml")) as running:
        yield running.url


@pytest.fixture
def peer(url: str) -> Iterator[httpx.Client]:
    """A client that begins without snapshots."""
    with httpx.Client(base_url=url, timeout=60) as client:
        for row in rows(client, "SELECT DISTINCT ?g WHERE { GRAPH ?g { ?s ?p ?o } }"):
            assert client.post("/api/v0/graph/update", json={"query": f"DROP GRAPH <{row['g']}>"}).json() == "Success"
        yield client


def rows(client: httpx.Client, query: str) -> list[dict[str, str]]:
    """Ask as the peer's clients do; return the texts of the solutions."""
    answer = client.get("/api/v0/graph", params={"query": query}, headers=JSON)
    assert answer.status_code == 200, answer.text
    return [{name: value["value"] for name, value in row.items()} for row in answer.json()["results"]["bindings"]]


def document(number: int, measurements: int = 8) -> dict[str, Any]:
    """Return a snapshot in the peer's words: a node with some measurements."""
    node = f"cluster:node-{number % 3}"
    items = [
        {"@id": f"{node}.CPU.{each}", "@type": "glc:Measurement", "glc:hasValue": each} for each in range(measurements)
    ]
    context = {
        "glc": "https://glaciation-heu.github.io/models/reference_model.turtle",
        "cluster": "https://kubernetes.local/#",
    }
    return {
        "@context": context,
        "@graph": [
            {
                "@id": node,
                "@type": "glc:WorkProducingResource",
                "glc:hasMeasurement": [{"@id": each["@id"]} for each in items],
            },
            *items,
        ],
    }


def test_a_snapshot_is_appended_under_its_time(peer: httpx.Client) -> None:
    """The sentence of the peer, the number of triples, and the graph in which they are found as they were written."""
    answer = peer.patch("/api/v0/graph", content=json.dumps(document(1)), headers=JSON)

    told = SUCCESS.fullmatch(answer.json())
    assert answer.status_code == 200
    assert told
    assert int(told[1]) == 1 + 8 + 2 * 8
    assert abs(int(told[2].removeprefix("timestamp:")) - time.time() * 1000) < 60_000
    assert rows(peer, TIMESTAMPS) == [{"graphURI": told[2]}]
    assert len(rows(peer, "SELECT ?v WHERE { GRAPH ?g { ?m <glc:hasValue> ?v } }")) == 8
    assert rows(peer, "SELECT ?s WHERE { ?s ?p ?o }") == []  # the default graph is not the union


def test_a_document_with_an_id_is_named_below_it_and_stays(peer: httpx.Client) -> None:
    """Its graph is `{id}/timestamp:{ms}`, which no expiry matches."""
    answer = peer.patch("/api/v0/graph", json={**document(1), "@id": "https://robots.example/r2"})
    told = SUCCESS.fullmatch(answer.json())
    assert told
    assert told[2].startswith("https://robots.example/r2/timestamp:")
    assert rows(peer, TIMESTAMPS) == []
    assert rows(peer, "SELECT DISTINCT ?g WHERE { GRAPH ?g { ?s ?p ?o } }") == [{"g": told[2]}]


ERRORS = [
    ("PATCH", "/api/v0/graph", "{}", 400, "No triples could be extracted from JSON-LD."),
    ("PATCH", "/api/v0/graph", "[1]", 422, "dict_type"),
    ("PATCH", "/api/v0/graph", "{", 422, "json_invalid"),
    ("PATCH", "/api/v0/graph", '{"@context": "http://127.0.0.1:9/c", "@graph": []}', 500, "context"),
    ("GET", "/api/v0/graph", None, 422, "missing"),
    ("GET", "/api/v0/graph?query=SELECT", None, 400, "Syntax error in query: "),
    ("GET", "/api/v0/graph?query=ASK{}", None, 500, "Expected a SELECT query, got QueryBoolean"),
    ("GET", "/api/v0/graph?query=SELECT*{SERVICE<http://127.0.0.1:9>{?s?p?o}}", None, 400, "SERVICE"),
    ("GET", "/api/v0/graph/update", None, 422, "missing"),
    ("GET", "/api/v0/graph/update?query=DROP", None, 400, "Syntax error in query: "),
    ("POST", "/api/v0/graph/update", '{"query": "x", "more": 1}', 400, "Request must contain only {'query': str}"),
    ("POST", "/api/v0/graph/update", '{"query": 1}', 400, "Request must contain only {'query': str}"),
    ("POST", "/api/v0/graph/update", '"x"', 422, "dict_type"),
    ("POST", "/api/v0/graph/update", '{"query": "LOAD <http://127.0.0.1:9>"}', 400, "LOAD"),
]


@pytest.mark.parametrize(("method", "path", "body", "status", "told"), ERRORS)
def test_errors_are_the_peers(
    peer: httpx.Client, method: str, path: str, body: str | None, status: int, told: str
) -> None:
    """Status and `{"detail": …}`; nothing is fetched, whatever a query or document says."""
    answer = peer.request(method, path, content=body, headers=JSON)

    assert (answer.status_code, answer.headers["Content-Type"]) == (status, "application/json"), answer.text
    assert answer.json().keys() == {"detail"}
    assert told in json.dumps(answer.json()["detail"])


def test_sub_selects_are_in_the_scope_of_their_graph(peer: httpx.Client) -> None:
    """Sixty snapshots of which thirty are in range: eight rows of each, 240, where the peer's engine has 14,400."""
    start = int(time.time() * 1000) - 3_600_000
    for number in range(60):
        triples = " ".join(f"<urn:m{each}> <glc:hasValue> {number * 8 + each} ." for each in range(8))
        update = {"query": f"INSERT DATA {{ GRAPH <timestamp:{start + number}> {{ {triples} }} }}"}
        assert peer.post("/api/v0/graph/update", json=update).json() == "Success"
    query = f"""SELECT ?m ?v WHERE {{
      {{ SELECT ?g WHERE {{ GRAPH ?g {{}} FILTER(regex(str(?g), "^timestamp:"))
         FILTER(<http://www.w3.org/2001/XMLSchema#integer>(replace(str(?g), "^timestamp:", "")) >= {start + 30}) }} }}
      GRAPH ?g {{ SELECT ?m ?v WHERE {{ ?m <glc:hasValue> ?v }} }} }}"""
    found = rows(peer, query)

    assert len(found) == 240
    assert {int(row["v"]) for row in found} == set(range(240, 480))


def test_an_update_is_run_whole(peer: httpx.Client) -> None:
    """What stands beside a DROP GRAPH happens too, by GET and by POST; a page of another origin can do neither."""
    insert = "INSERT DATA { GRAPH <timestamp:9999999999999> { <urn:a> <urn:b> <urn:c> } }"
    assert peer.get("/api/v0/graph/update", params={"query": insert}).json() == "Success"
    both = "DROP GRAPH <timestamp:9999999999999>;\nINSERT DATA { GRAPH <swarm-agent:pheromones> { <urn:a> <urn:b> 1 } }"
    assert peer.post("/api/v0/graph/update", json={"query": both}).json() == "Success"
    assert [row["g"] for row in rows(peer, "SELECT ?g WHERE { GRAPH ?g { ?s ?p ?o } }")] == ["swarm-agent:pheromones"]
    forged = peer.get("/api/v0/graph/update", params={"query": insert}, headers={"Sec-Fetch-Site": "cross-site"})
    assert forged.status_code == 403
    assert peer.post("/api/v0/graph/compact").json() == "Success"


def test_a_snapshot_is_gone_after_six_hours(peer: httpx.Client) -> None:
    """It is not read from then on, and a compaction removes it; one that is younger stays."""
    now = int(time.time() * 1000)
    for ago in (6 * 3600 + 60, 6 * 3600 - 600):
        update = f"INSERT DATA {{ GRAPH <timestamp:{now - ago * 1000}> {{ <urn:a> <urn:b> <urn:c> }} }}"
        assert peer.post("/api/v0/graph/update", json={"query": update}).json() == "Success"

    young = [{"graphURI": f"timestamp:{now - (6 * 3600 - 600) * 1000}"}]
    assert rows(peer, TIMESTAMPS) == young
    assert peer.post("/api/v0/graph/compact").json() == "Success"
    assert rows(peer, TIMESTAMPS) == young


def test_a_literal_has_a_datatype_or_a_language(peer: httpx.Client) -> None:
    """Also where SPARQL's JSON leaves it out, as the peer's answers have it."""
    update = 'INSERT DATA { GRAPH <g:g> { <urn:a> <urn:b> "x", "y"@en, 1 } }'
    peer.post("/api/v0/graph/update", json={"query": update})
    answer = peer.get(
        "/api/v0/graph", params={"query": "SELECT ?o WHERE { GRAPH <g:g> { ?s ?p ?o } } ORDER BY STR(?o)"}
    ).json()
    xsd = "http://www.w3.org/2001/XMLSchema#"
    assert answer == {
        "head": {"vars": ["o"]},
        "results": {
            "bindings": [
                {"o": {"type": "literal", "value": "1", "datatype": f"{xsd}integer"}},
                {"o": {"type": "literal", "value": "x", "datatype": f"{xsd}string"}},
                {"o": {"type": "literal", "value": "y", "xml:lang": "en"}},
            ]
        },
    }


def test_nothing_of_it_is_a_part_of_the_graph(peer: httpx.Client) -> None:
    """The service's own queries, exports and statistics know no snapshot."""
    peer.patch("/api/v0/graph", json=document(1))
    own = peer.get(
        "/sparql", params={"query": "ASK { { ?s <glc:hasValue> ?o } UNION { GRAPH ?g { ?s <glc:hasValue> ?o } } }"}
    )
    assert own.json()["boolean"] is False
    assert b"timestamp:" not in peer.get("/store", headers={"Accept": "application/n-quads"}).content


def test_the_current_graph_is_a_snapshot_while_nobody_appends_one(peer: httpx.Client) -> None:
    """Nodes, pods and workloads in the peer's terms; as soon as a client appends its own, that one is the newest again."""
    base = "https://kg.example/id/"
    node, pod, owner = f"{base}local/-/node/n1", f"{base}local/shop/pod/web-1", f"{base}local/shop/deployment/web"
    run = {"id": f"{pod}/run/u1", "type": "Run", "startedAt": "2026-11-27T21:49:43Z", "scheduledOn": node}
    container = {"id": f"{owner}/container/c", "type": "Container", "name": "c", "cpuRequest": "0.25"}
    place = {"namespace": "shop"}
    documents = {
        "local/-/node/n1": {
            "id": node,
            "type": "Node",
            "name": "n1",
            "partOf": f"{base}cluster/local",
            "phase": "Ready",
        },
        "local/shop/deployment/web": {
            "id": owner,
            "type": "Deployment",
            "name": "web",
            **place,
            "container": [container],
        },
        "local/shop/pod/web-1": {
            "id": pod,
            "type": "Pod",
            "name": "web-1",
            **place,
            "phase": "Running",
            "managedBy": owner,
            "runs": [run],
        },
    }
    for id, each in documents.items():
        written = peer.put(f"/subgraph/{id}", json=each, headers={"Content-Type": "application/ld+json"})
        assert written.status_code == 201, written.text
    try:
        (snapshot,) = rows(peer, TIMESTAMPS)
        assert rows(peer, STATUS) == [{"resource": "https://kubernetes.local/#shop.web-1", "statusValue": "Running"}]
        asked = "SELECT ?n WHERE { GRAPH ?g { ?p <glc:consumes> ?n } }"
        assert rows(peer, asked) == [{"n": "https://kubernetes.local/#n1"}]
        asked = "SELECT ?v WHERE { GRAPH ?g { ?w <glc:hasConstraint> ?c . ?c <glc:maxValue> ?v . ?w <glc:makes> ?p } }"
        assert rows(peer, asked) == [{"v": "0.25"}]
        assert rows(peer, TIMESTAMPS) == [snapshot]  # the same for a minute

        told = SUCCESS.fullmatch(peer.patch("/api/v0/graph", json=document(7)).json())
        assert told
        assert rows(peer, TIMESTAMPS) == [{"graphURI": told[2]}]
    finally:
        for id in documents:
            peer.delete(f"/subgraph/{id}")


@recorded
@pytest.mark.parametrize(
    "name",
    [
        "minimal/slice_glaciation-test-master01_80",
        "multinode/slice_glaciation-test-master01_80",
        "multinode/slice_glaciation-test-worker01_80",
    ],
)
def test_the_peers_own_slices_are_taken_whole(peer: httpx.Client, name: str) -> None:
    """As many triples as rdflib reads of them; the exporter's status query finds the pods that run."""
    text = (SLICES / f"{name}.jsonld").read_text()
    answer = peer.patch("/api/v0/graph", content=text, headers=JSON)
    told = SUCCESS.fullmatch(answer.json())
    assert told
    if "multinode/slice_glaciation-test-master" in name:
        assert int(told[1]) == 417
    pods = {row["resource"] for row in rows(peer, STATUS)}
    assert pods
    assert all("." in each for each in pods)


@recorded
def test_the_peers_stub_message_is_taken(peer: httpx.Client) -> None:
    """The document of its own tests."""
    assert SUCCESS.fullmatch(peer.patch("/api/v0/graph", content=STUB.read_text(), headers=JSON).json())


def test_it_is_off_unless_enabled(tmp_path: Path) -> None:
    """A service without the setting has no such interface."""
    from drumlin.kg.config.settings import Settings

    assert not Settings().legacy.enabled
