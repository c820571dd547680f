"""The owner of a write: named by a header, by nothing else, and never one that the service itself writes as."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import httpx
import pytest

import drumlin
from drumlin.kg.errors import Conflict, InvalidInput
from drumlin.kg.graphs.owners import HEADER
from drumlin.kg.rdf.syntax import TURTLE, parse
from drumlin.kg.store.protocol import GraphWrite
from tests.service.conftest import BASE, SAMPLE, Service, drumlin_asks, serving, until_ready

JSONLD = {"Content-Type": "application/ld+json"}
MERGE = {"Content-Type": "application/merge-patch+json"}
OTHER = {HEADER: "other"}


def domain(name: str, **more: Any) -> dict[str, Any]:
    """A document of a domain."""
    return {"id": f"{BASE}/id/domain/{name}", "type": "Domain", "name": name, **more}


def line(name: str, op: str = "put", **more: Any) -> bytes:
    """A line of a bulk request."""
    document = {"document": domain(name)} if op == "put" else {}
    return json.dumps({"op": op, "id": f"domain/{name}", **document, **more}).encode()


@pytest.fixture
def name() -> str:
    """A name that no other test uses."""
    return uuid.uuid4().hex


def test_an_owner_in_a_body_or_a_query_is_refused(http: httpx.Client, name: str) -> None:
    """A line with one is 422, whatever it is and with every op, alone and in an atomic request; a query 422; the hint names the header."""
    sent = [
        line(name, op, owner=owner) for op in ("put", "delete", "remove") for owner in ("user", "other", None, {"a": 1})
    ]
    told = [json.loads(each) for each in http.post("/subgraphs", content=b"\n".join(sent)).text.splitlines()]
    assert [each["problem"]["status"] for each in told] == [422] * len(sent)
    refused = [told[0]["problem"]]
    refused.append(http.post("/subgraphs?atomic=true", content=line(name, owner="other")).json())
    for method, path in (("POST", "/subgraphs"), ("PUT", f"/subgraph/domain/{name}"), ("DELETE", "/forecasts")):
        answer = http.request(method, f"{path}?owner=other", content=line(name), headers=JSONLD)
        refused.append(answer.json())
    for each in refused:
        assert (each["status"], HEADER in each["hint"]) == (422, True), each
    assert http.get(f"/subgraph/domain/{name}").status_code == 404


def test_many_lines_with_an_owner_are_refused_by_processes_too(http: httpx.Client, name: str) -> None:
    """The processes that read large requests take no owner from a line either."""
    sent = b"\n".join(line(f"{name}-{number}", owner="other") for number in range(2_500))
    told = [json.loads(each) for each in http.post("/subgraphs", content=sent).text.splitlines()]
    assert [each["problem"]["status"] for each in told] == [422] * 2_500


def test_every_way_of_writing_an_entity_takes_the_header(http: httpx.Client, name: str) -> None:
    """Create, replace, patch, delete and lines write as the owner that is named, and nobody else writes these graphs."""
    path = f"/subgraph/domain/{name}"
    writes: list[tuple[str, str, dict[str, Any]]] = [
        ("POST", path, {"json": domain(name), "headers": JSONLD}),
        ("PUT", path, {"json": domain(name, url="https://a.example/"), "headers": JSONLD}),
        ("PATCH", path, {"json": {"url": None}, "headers": MERGE}),
        ("DELETE", path, {}),
    ]
    first = True
    for method, address, more in writes:
        if not first:
            for others in ({}, {HEADER: "user"}, {HEADER: "another"}):
                refused = http.request(method, address, **{**more, "headers": {**more.get("headers", {}), **others}})
                assert (refused.status_code, refused.json().get("owner")) == (409, "other"), (
                    method,
                    address,
                    refused.text,
                )
        done = http.request(method, address, **{**more, "headers": {**more.get("headers", {}), **OTHER}})
        assert done.status_code < 300, (method, address, done.text)
        first = False
        if method != "DELETE":
            assert http.get(path).headers[HEADER] == "other"
    assert http.post("/subgraphs", content=line(name)).json()["problem"]["owner"] == "other"
    assert http.post("/subgraphs", content=line(name), headers=OTHER).json()["outcome"] == "created"
    assert (
        http.post("/subgraphs?atomic=true", content=line(name, "delete"), headers=OTHER).json()["outcome"] == "deleted"
    )
    assert http.post("/subgraphs", content=line(name, "remove"), headers=OTHER).json()["outcome"] == "removed"


@pytest.mark.parametrize("owner", ["dump", "drumlin", "d%75mp", "%64rumlin"])
def test_what_the_service_writes_as_is_never_taken(http: httpx.Client, name: str, owner: str) -> None:
    """Its own sources and its hosting graphs' owner are 409, named, however they are spelt; nothing is written, new graphs neither."""
    headers = {HEADER: owner}
    sample = "/subgraph/prod/payments/deployment/checkout"
    asked: list[tuple[str, str, dict[str, Any]]] = [
        ("POST", "/subgraphs", {"content": line(name)}),
        ("POST", "/subgraphs?atomic=true", {"content": line(name)}),
        ("PUT", f"/subgraph/domain/{name}", {"json": domain(name), "headers": JSONLD}),
        ("POST", f"/subgraph/domain/{name}", {"json": domain(name), "headers": JSONLD}),
        ("PATCH", sample, {"json": {"phase": None}, "headers": MERGE}),
        ("DELETE", sample, {}),
        ("DELETE", f"{sample}?x=1", {}),
    ]
    before = http.get("/readyz").json()["generation"]
    for method, path, more in asked:
        refused = http.request(method, path, **{**more, "headers": {**more.get("headers", {}), **headers}})
        if "x=1" in path:
            assert refused.status_code in (409, 422)
            continue
        told = refused.json()
        assert (refused.status_code, told["owner"]) == (409, httpx.URL(f"/{owner}").path[1:]), (method, path)
        assert HEADER in told["hint"]
    assert http.get("/readyz").json()["generation"] == before


def test_an_owner_is_named_once(http: httpx.Client, name: str) -> None:
    """Two headers are 422, on the fast path too, even when they are equal."""
    twice = [(HEADER, "other"), (HEADER, "other"), ("Content-Type", "application/ld+json")]
    for method, path in (
        ("POST", "/subgraphs"),
        ("PUT", f"/subgraph/domain/{name}"),
        ("DELETE", f"/subgraph/domain/{name}"),
    ):
        refused = http.request(
            method,
            path,
            content=line(name),
            headers=[each for each in twice if path != "/subgraphs" or each[0] == HEADER],
        )
        assert (refused.status_code, "2 times" in refused.json()["detail"]) == (422, True)


def test_where_only_users_write_no_other_owner_is_passed_over(http: httpx.Client) -> None:
    """Updates, the graph store, forecasts and imports say so (422) instead of writing as the user."""
    update = "INSERT DATA { GRAPH <http://example.org/o> { <urn:a> <urn:b> 1 } }"
    asked: list[tuple[str, str, dict[str, Any]]] = [
        ("POST", "/sparql/update", {"data": {"update": update}}),
        ("PUT", "/store?graph=http://example.org/o", {"content": b"", "headers": {"Content-Type": "text/turtle"}}),
        ("POST", "/store", {"content": b"", "headers": {"Content-Type": "text/turtle"}}),
        ("DELETE", "/store?graph=http://example.org/o", {}),
        ("DELETE", "/forecasts?entity=a&metric=b&id=c", {}),
        ("POST", "/datasources/import?name=x", {}),
    ]
    for method, path, more in asked:
        refused = http.request(method, path, **{**more, "headers": {**more.get("headers", {}), **OTHER}})
        assert (refused.status_code, "belongs to user" in refused.json()["detail"]) == (422, True), (method, path)
    assert http.get("/store?graph=http://example.org/o").status_code == 404
    assert http.post("/sparql/update", data={"update": update}, headers={HEADER: "user"}).status_code == 204
    assert http.delete("/store?graph=http://example.org/o").status_code == 204
    assert http.post("/sparql", data={"query": "ASK {}"}, headers=OTHER).status_code == 200


def test_the_client_writes_for_one_owner(service: Service, name: str) -> None:
    """Its writes bear their owner; writes of two owners are refused before anything is sent, and the service's own names by it."""
    graph = f"{BASE}/id/domain/{name}"
    ns = "https://w3id.org/drumlin/ns#"
    lines = parse(f'<{graph}> a <{ns}Domain> ; <{ns}name> "{name}" .'.encode(), TURTLE)[None]
    with drumlin.connect(service.url) as client:
        assert client.apply([GraphWrite.of(graph, lines, "kubernetes:南京")])[0]["outcome"] == "created"
        assert next(iter(client.subgraphs(prefix=f"domain/{name}"))).owner == "kubernetes:南京"
        with pytest.raises(InvalidInput, match="2 owners"):
            client.apply([GraphWrite.of(graph, lines, "a"), GraphWrite.of(graph, lines, "b")])
        with pytest.raises(Conflict, match="itself writes as dump"):
            client.apply([GraphWrite.of(graph, lines, "dump")])
        assert client.apply([]) == []


def exported(service: Service) -> tuple[bytes, set[tuple[str, str]]]:
    """Return all graphs, and which owner each has."""
    listed = httpx.get(f"{service.url}/subgraphs", params={"limit": 10_000, "tombstones": True}).json()["items"]
    return httpx.get(f"{service.url}/export", timeout=60).content, {(each["iri"], each["owner"]) for each in listed}


def test_a_followed_cluster_is_as_one_that_the_service_reads(tmp_path: Path) -> None:
    """Graphs and owners are the same, what discovered datasources add to the service's own graphs included; once more writes nothing."""
    own = ("--store", str(tmp_path / "own"), "--source", f"dump:{SAMPLE}")
    with serving(*own) as direct, serving("--store", str(tmp_path / "other")) as followed:
        until_ready(direct)
        options = ("follow", f"dump:{SAMPLE}", "--to", followed.url, "--base", BASE, "--cluster", "prod")
        told = drumlin_asks(*options)
        assert told.returncode == 0, told.stderr
        assert "rejected" not in told.stderr.replace(" 0 rejected", "")
        expected, graphs = exported(direct), httpx.get(f"{followed.url}/readyz").json()["generation"]
        assert exported(followed) == expected
        assert {owner for _, owner in expected[1]} == {"drumlin", "dump"}
        assert any("/id/datasource/" in iri for iri, _ in expected[1])
        drumlin_asks(*options)
        assert httpx.get(f"{followed.url}/readyz").json()["generation"] == graphs


def test_a_follower_writes_the_hosting_graphs_that_the_service_lacks(tmp_path: Path) -> None:
    """Those of another cluster are the follower's, beside which the service's own stay; a second run writes nothing."""
    with serving("--store", str(tmp_path / "other"), cluster="here") as followed:
        options = ("follow", f"dump:{SAMPLE}", "--to", followed.url, "--base", BASE, "--cluster", "prod")
        assert drumlin_asks(*options).returncode == 0
        text, owners = exported(followed)
        by_name = dict(owners)
        assert by_name[f"{BASE}/id/cluster/here"] == by_name[f"{BASE}/id/domain/local"] == "drumlin"
        assert by_name[f"{BASE}/id/cluster/prod"] == "drumlin:prod"
        drumlin_asks(*options)
        assert exported(followed) == (text, owners)


def test_a_follower_of_a_source_that_the_service_runs_ends(service: Service) -> None:
    """It would write as the service does: one line says so, with what to do."""
    told = drumlin_asks("follow", f"dump:{SAMPLE}", "--to", service.url, "--base", BASE, "--cluster", "prod")
    assert told.returncode == 1
    assert "this service itself writes as dump" in told.stderr
