"""The whole service on an engine elsewhere: ``drumlin serve --store sparql+http://…`` before ``oxigraph serve``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

import drumlin
from drumlin.kg.client.rows import Rows
from drumlin.kg.errors import ResourceGone
from tests.integration.engines import RunningEngine, engine
from tests.service.conftest import SAMPLE, Service, drumlin_asks, run_drumlin, serving, until_ready
from tests.service.test_subgraph import JSONLD, forecast
from tests.waiting import until


@pytest.fixture(scope="module")
def oxigraph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningEngine]:
    """An engine of its own for this module."""
    with engine("oxigraph", tmp_path_factory.mktemp("oxigraph")) as running:
        yield running


@pytest.fixture(scope="module")
def elsewhere(oxigraph: RunningEngine) -> Iterator[Service]:
    """A service with the sample cluster loaded, its graph in that engine."""
    with serving("--store", oxigraph.url, "--source", f"dump:{SAMPLE}") as running:
        until_ready(running)
        yield running


def test_the_graph_is_the_same_wherever_it_is_kept(elsewhere: Service, service: Service) -> None:
    """One cluster loaded into an engine and into a directory gives the same export, byte for byte but for times of the load."""
    there, here = (
        httpx.get(each.url + "/export", params={"owner": "dump"}, timeout=60).text for each in (elsewhere, service)
    )

    def quads(text: str) -> set[str]:
        return {each for each in text.splitlines() if "dateTime" not in each}

    assert len(quads(here)) > 1000
    assert quads(there) == quads(here)


def test_the_client_works_as_on_a_directory(elsewhere: Service) -> None:
    """Read, write, conflict, delete, list and SPARQL go through the client as ever."""
    with drumlin.connect(elsewhere.url) as client:
        query = "PREFIX : <https://w3id.org/drumlin/ns#> SELECT ?w WHERE { GRAPH ?g { ?w a :Deployment } }"
        found = client.sparql(query)
        assert isinstance(found, Rows)
        assert len(found) == len(client.workloads(kind="Deployment")) > 0
        mine = client.subgraph("forecast/red")
        mine.put(forecast("red"))
        assert mine.get()["step"] == "PT5M"
        mine.put(forecast("red", model="arima"))
        assert mine.get()["model"] == "arima"
        mine.delete()
        with pytest.raises(ResourceGone):
            mine.get()


def test_two_services_stand_before_one_engine(elsewhere: Service, oxigraph: RunningEngine) -> None:
    """What one process writes the other reads at once, and an If-Match got from one holds at the other."""
    with serving("--store", oxigraph.url) as other, httpx.Client(timeout=30) as http:
        until_ready(other)
        here, there = (each.url + "/subgraph/forecast/blue" for each in (elsewhere, other))
        first = http.put(here, content=json.dumps(forecast("blue")), headers=JSONLD)
        seen = http.get(there)
        headers = {**JSONLD, "If-Match": seen.headers["ETag"]}
        second = http.put(there, content=json.dumps(forecast("blue", model="arima")), headers=headers)
        stale = http.put(here, content=json.dumps(forecast("blue", model="ets")), headers=headers)

        assert [each.status_code for each in (first, seen, second, stale)] == [201, 200, 204, 412]
        assert http.get(here).json()["model"] == "arima"


def test_whatever_is_asked_of_the_other_service_is_as_new(elsewhere: Service, oxigraph: RunningEngine) -> None:
    """SPARQL, search, listing, statistics and the feed of one process have what another has just acknowledged; event ids hold at both."""
    with serving("--store", oxigraph.url) as other, httpx.Client(timeout=30) as http:
        until_ready(other)
        before = http.get(f"{elsewhere.url}/readyz").json()["generation"]
        for number in range(3):
            name = f"green-{number}"
            http.put(f"{elsewhere.url}/subgraph/forecast/{name}", content=json.dumps(forecast(name)), headers=JSONLD)
            query = f"ASK {{ <https://kg.example/id/forecast/{name}> ?p ?o }}"
            asked = http.get(f"{other.url}/sparql", params={"query": query}, headers={"Accept": "text/csv"})
            found = http.get(f"{other.url}/search", params={"q": name}).json()
            listed = http.get(f"{other.url}/subgraphs", params={"prefix": f"forecast/{name}"}).json()
            assert asked.text.strip() == "true"
            assert [each["id"] for each in found["items"]] == [f"forecast/{name}"]
            assert [each["id"] for each in listed["items"]] == [f"forecast/{name}"]

        def ids_at(service: Service, since: str) -> list[str]:
            asked = {"since": since, "wait": 5}
            answer = http.get(f"{service.url}/events", params=asked, headers={"Accept": "application/json"})
            return [event["id"] for event in answer.json()]

        until(lambda: len(ids_at(elsewhere, before)) == 3)  # an answer is sent as soon as there is any event
        ids = ids_at(elsewhere, before)
        until(lambda: ids_at(other, before) == ids)
        rest = http.get(f"{other.url}/events", params={"since": ids[0]}, headers={"Accept": "application/json"})
        assert [event["id"] for event in rest.json()] == ids[1:]


def test_what_the_engine_cannot_do_is_said(elsewhere: Service) -> None:
    """Updates run, but for one that needs a copy of the quads: it is answered 501 with what is missing."""
    graph = "GRAPH <http://elsewhere/g>"
    plain = f"INSERT DATA {{ {graph} {{ <http://s> <http://p> 1 }} }}"
    where = f"INSERT {{ {graph} {{ ?s ?p 2 }} }} WHERE {{ {graph} {{ ?s ?p ?o }} }}"
    with httpx.Client(base_url=elsewhere.url, timeout=30) as http:
        done = [http.post("/sparql/update", data={"update": each}).status_code for each in (plain, where)]
        count = "SELECT (COUNT(*) AS ?n) { ?s <http://p> ?o }"
        counted = http.get("/sparql", params={"query": count}, headers={"Accept": "text/csv"}).text
        refused = http.post("/sparql/update", data={"update": f"{plain} ; {where}"})

    assert done == [204, 204]
    assert counted.split() == ["n", "2"]
    assert (refused.status_code, refused.json()["capability"]) == (501, "CHECKPOINT")


def test_another_base_is_refused(elsewhere: Service, oxigraph: RunningEngine) -> None:
    """An engine that holds names below one base is not opened under another."""
    del elsewhere
    refused = run_drumlin("serve", "--store", oxigraph.url, "--base", "https://other.example", "--port", "0")

    assert refused.returncode == 1
    assert "names everything below https://kg.example" in refused.stderr


def test_an_engine_that_goes_away_is_503_and_comes_back(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Without its engine the service answers 503 and lives."""
    with engine("oxigraph", tmp_path_factory.mktemp("gone")) as running, serving("--store", running.url) as service:
        until_ready(service)
        running.process.kill()
        running.process.wait()
        answer = httpx.get(service.url + "/subgraph/tag/none", timeout=30)

        assert (answer.status_code, answer.headers["content-type"]) == (503, "application/problem+json")
        assert httpx.get(service.url + "/livez", timeout=30).status_code == 200


def test_its_tokens_are_in_a_file_that_is_named(oxigraph: RunningEngine, tmp_path: Path) -> None:
    """There is no directory for them: without ``--tokens`` the service stays on loopback; the audit log is where the setting says."""
    beyond = ("--store", oxigraph.url, "--host", "0.0.0.0")
    assert "there are no tokens" in run_drumlin("serve", *beyond, "--port", "0").stderr
    file, log = tmp_path / "tokens.json", tmp_path / "audit.jsonl"
    token = drumlin_asks("token", "create", "a", "--role", "reader", "--tokens", str(file)).stdout.strip()
    with serving(*beyond, "--tokens", str(file), environment={"DRUMLIN_AUDIT_LOG": str(log)}) as service:
        url = service.url.replace("0.0.0.0", "127.0.0.1")
        assert httpx.get(f"{url}/search", headers={"Authorization": f"Bearer {token}"}, timeout=30).status_code == 200
        assert httpx.get(f"{url}/search", timeout=30).status_code == 401
    assert json.loads(log.read_text())["status"] == 401
