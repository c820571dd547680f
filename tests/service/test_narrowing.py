"""Values of closed lists over a listening server: one that is none is refused with what may have been meant, wherever it is taken."""

from __future__ import annotations

import json

import httpx
import pytest

from tests.service.conftest import BASE, Service, drumlin_asks

BATCH = {"Accept": "application/cloudevents-batch+json"}


@pytest.mark.parametrize("path", ["/subgraphs", "/search", "/export", "/events?since=0"])
@pytest.mark.parametrize(("value", "meant"), [("deployment", "Deployment"), ("Nod", "Node"), ("xyz", "StatefulSet")])
def test_a_class_that_is_none_is_refused(http: httpx.Client, path: str, value: str, meant: str) -> None:
    """Nothing is found under a class that does not exist, so it is 422 with a near one, or all."""
    answer = http.get(path, params={**httpx.URL(path).params, "type": value}, headers=BATCH if "events" in path else {})
    assert (answer.status_code, answer.headers["Content-Type"]) == (422, "application/problem+json"), answer.text
    assert answer.json()["detail"] == f"there is no type '{value}'"
    assert meant in answer.json()["hint"]


def test_so_is_a_phase_a_quantity_and_a_class_in_a_body(http: httpx.Client) -> None:
    """Each closed list is held to; the open ones (namespace, node, owner …) may hold anything."""
    assert http.get("/search?phase=Runing").json()["hint"] == "did you mean Running?"
    assert "energy" in http.get("/subgraphs?quantity=power").json()["hint"]
    for path in ("/resolve", "/history", "/values"):
        answer = http.post(path, json={"type": "Deploymnt", "metrics": ["cpu_usage"]})
        assert (answer.status_code, answer.json()["hint"]) == (422, "did you mean Deployment?")
    assert http.get("/search?namespace=none&node=none&owner=none&tag=none").json()["items"] == []
    assert http.get("/search?type=Workload&type=Tombstone&phase=Lost").status_code == 200


def test_a_class_of_another_vocabulary_is_found_where_it_occurs(http: httpx.Client) -> None:
    """An entity may have a class besides its own; what the graph holds can be asked for."""
    document = {"id": f"{BASE}/id/domain/narrow", "type": ["Domain", "http://example.org/v#Participant"], "name": "n"}
    path = "/subgraph/domain/narrow"
    assert http.get("/search?type=Participant").status_code == 422
    http.put(path, content=json.dumps(document), headers={"Content-Type": "application/ld+json"}).raise_for_status()
    assert [each["id"] for each in http.get("/search?type=Participant").json()["items"]] == ["domain/narrow"]
    http.delete(path).raise_for_status()
    assert http.get("/search?type=Participant").status_code == 422


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("/export?format=foo", "nquads, jsonld, trig, turtle"),
        ("/export?format=rdfxml", "nquads, jsonld, trig, turtle"),
        ("/subgraph/domain/local?format=foo", "jsonld, turtle, ntriples, nquads, trig, rdfxml, n3"),
        ("/.well-known/void?format=foo", "jsonld, turtle, ntriples, nquads, trig, rdfxml, n3"),
        ("/ns?format=foo", "html, jsonld, turtle"),
        ("/queries/units?format=foo", "json, csv, tsv, srj, rq"),
        ("/sparql?query=ASK%7B%7D&format=foo", "json, srj, xml, srx, csv, tsv"),
        ("/history?entity=domain/local&metric=x&format=foo", "json, csv, arrow, parquet, ndjson"),
    ],
)
def test_a_format_that_is_none_names_those_that_are(http: httpx.Client, path: str, names: str) -> None:
    """406 lists the names that ``format`` takes, and the media types."""
    answer = http.get(path)
    assert (answer.status_code, names in answer.json()["hint"]) == (406, True), answer.text
    assert answer.json()["offered"]


def test_the_command_tells_it_in_one_line(service: Service) -> None:
    """``drumlin dump --type`` of no class fails with the hint instead of writing nothing."""
    told = drumlin_asks("dump", "--type", "Nope", "-u", service.url)
    assert (told.returncode, told.stdout) == (1, "")
    assert told.stderr == "drumlin: there is no type 'Nope'\n  hint: did you mean Node?\n"
