"""/search over a listening server."""

from __future__ import annotations

import json
import threading
import uuid
from typing import Any

import httpx
import pytest

from drumlin.kg.rdf.jsonld import CONTEXT_IRI
from tests.service.conftest import BASE, NS, Service, drumlin_asks
from tests.service.test_subgraph import JSONLD, forecast


def test_a_search_finds_counts_and_pages(http: httpx.Client) -> None:
    """Words find entities, the best first; counts say how they spread; next leads through all of them."""
    found = http.get("/search", params={"q": "checkout"}).json()
    assert found["items"][0]["name"] == "checkout"
    assert found["exact"] is True
    assert found["total"] == len({item["id"] for item in found["items"]}) > 3
    assert found["facets"]["type"]["Pod"] >= 1
    seen = []
    cursor = ""
    while cursor is not None:
        page = http.get("/search", params={"q": "checkout", "limit": 2, "cursor": cursor}).json()
        seen += [item["id"] for item in page["items"]]
        cursor = page.get("next")
    assert seen == [item["id"] for item in found["items"]]


def test_filters_combine(http: httpx.Client) -> None:
    """Values of one filter are alternatives, filters must all hold; the counts follow."""
    params = {"type": ["Deployment", "StatefulSet"], "namespace": "payments", "facet": "type"}
    found = http.get("/search", params=params).json()
    assert found["total"] == sum(found["facets"]["type"].values()) == 3
    assert list(found["facets"]) == ["type"]
    measured = http.get("/search", params={"quantity": "energy", "datasource": "nowhere"}).json()
    assert measured["total"] == 0
    assert http.get("/search", params={"facet": "none"}).json()["facets"] == {}


def test_the_counts_are_those_of_the_graph(http: httpx.Client) -> None:
    """How many there are of each class, domain, cluster, namespace and phase is what SPARQL counts of the same graphs."""
    names = ("type", "domain", "cluster", "namespace", "phase")
    found = http.get("/search", params={"facet": names, "limit": 1}).json()
    for name in names:
        predicate = "a" if name == "type" else f"<{NS}{name}>"
        query = (
            f"SELECT ?value (COUNT(DISTINCT ?s) AS ?count) WHERE {{ GRAPH ?s {{ ?s {predicate} ?value "
            f"FILTER NOT EXISTS {{ ?s a <{NS}Tombstone> }} }} FILTER STRSTARTS(STR(?s), '{BASE}/id/') }} GROUP BY ?value"
        )
        answer = http.post(
            "/sparql", data={"query": query}, headers={"Accept": "application/sparql-results+json"}, timeout=30
        )
        counted = {
            row["value"]["value"].rpartition("/" if name in ("domain", "cluster") else "#")[2]: int(
                row["count"]["value"]
            )
            for row in answer.json()["results"]["bindings"]
        }
        assert found["facets"][name] == counted, name
    graphs = (
        f"SELECT (COUNT(DISTINCT ?g) AS ?count) WHERE {{ GRAPH ?g {{ ?s ?p ?o }} FILTER STRSTARTS(STR(?g), '{BASE}/id/') "
        f"FILTER NOT EXISTS {{ GRAPH ?g {{ ?g a <{NS}Tombstone> }} }} }}"
    )
    told = http.post("/sparql", data={"query": graphs}, headers={"Accept": "text/csv"}, timeout=30).text
    assert found["total"] == int(told.split()[1])  # some are of no class


def test_text_in_any_script_is_found(http: httpx.Client) -> None:
    """Words of scripts without spaces, mixed with others, are found by any part of two characters, and by beginnings, in any case."""
    name = uuid.uuid4().hex
    document = {
        "@context": CONTEXT_IRI,
        "id": f"{BASE}/id/domain/{name}",
        "type": "Domain",
        "name": "训练数据集v2 Überwachung",
    }
    http.put(f"/subgraph/domain/{name}", content=json.dumps(document), headers=JSONLD).raise_for_status()
    texts = ("数据", "练数据", "集", "v2", "ÜBERW", "uber", "训练 uberwachung", "数据集v2")
    for text in texts:
        assert http.get("/search", params={"q": f"{name} {text}"}).json()["total"] == 1, text
    for text in ("据数", "berw", "练集"):
        assert http.get("/search", params={"q": f"{name} {text}"}).json()["total"] == 0, text


@pytest.mark.parametrize("sort", ["relevance", "id", "name", "-changed"])
def test_pages_hold_while_clients_write(http: httpx.Client, sort: str) -> None:
    """Whatever is written and deleted around the cursor, what stays comes once, in each order; a cursor is of its question."""
    word = f"w{uuid.uuid4().hex[:8]}"
    stays = [f"forecast/{word}-{number:02}" for number in range(0, 24, 2)]
    lines = [{"op": "put", "id": each, "document": forecast(each.partition("/")[2])} for each in stays]
    http.post("/subgraphs", content="\n".join(map(json.dumps, lines))).raise_for_status()
    params: dict[str, Any] = {"q": word, "sort": sort, "limit": 5, "type": "Forecast", "facet": "none"}
    stop = threading.Event()

    def write() -> None:
        with httpx.Client(base_url=http.base_url, timeout=30) as other:
            number = 1
            while not stop.is_set():
                name = f"{word}-{number:02}"
                other.put(f"/subgraph/forecast/{name}", content=json.dumps(forecast(name)), headers=JSONLD)
                number = (number + 4) % 24 | 1
                other.delete(f"/subgraph/forecast/{word}-{number:02}")

    writing = threading.Thread(target=write)
    writing.start()
    try:
        seen: list[str] = []
        page = http.get("/search", params=params).json()
        seen += [each["id"] for each in page["items"]]
        while cursor := page.get("next"):
            page = http.get("/search", params={**params, "cursor": cursor}).json()
            seen += [each["id"] for each in page["items"]]
            assert http.get("/search", params={**params, "q": "x", "cursor": cursor}).status_code == 422
    finally:
        stop.set()
        writing.join()
    assert [seen.count(each) for each in stays] == [1] * len(stays)


def test_a_write_is_found_at_once(http: httpx.Client) -> None:
    """What a PUT has acknowledged is in the next answer."""
    name = uuid.uuid4().hex
    http.put(f"/subgraph/forecast/{name}", content=json.dumps(forecast(name)), headers=JSONLD)
    found = http.get("/search", params={"q": name}).json()
    assert [item["id"] for item in found["items"]] == [f"forecast/{name}"]
    http.delete(f"/subgraph/forecast/{name}")
    assert http.get("/search", params={"q": name}).json()["items"] == []
    assert http.get("/search", params={"q": name, "tombstones": True}).json()["items"][0]["tombstone"] is True


@pytest.mark.parametrize(
    "params", [{"facet": "colour"}, {"cursor": "x"}, {"sort": "colour"}, {"limit": 0}, {"q": "-"}, {"q": "x" * 1001}]
)
def test_what_makes_no_sense_is_refused(http: httpx.Client, params: dict[str, str]) -> None:
    """Unknown facets and orders, made-up cursors and wordless texts give 422 as a problem document."""
    answer = http.get("/search", params=params)
    assert answer.status_code == 422
    assert answer.headers["Content-Type"] == "application/problem+json"


def test_the_command_line_searches_and_follows(service: Service) -> None:
    """``drumlin search`` and ``events`` print tables for people and JSON for programs, and refuse a form that they do not have."""
    table = drumlin_asks("search", "checkout", "--type", "Workload", "--url", service.url)
    assert "prod/payments/deployment/checkout" in table.stdout
    found = json.loads(drumlin_asks("search", "--type", "Pod", "-n", "2", "-o", "json", "--url", service.url).stdout)
    assert (len(found["items"]), found["total"] > 2) == (2, True)
    told = drumlin_asks(
        "events", "--since", "0", "--type", "Deployment", "-n", "2", "-o", "json", "--quads", "--url", service.url
    )
    events = [json.loads(line) for line in told.stdout.splitlines()]
    assert [each["data"]["type"] for each in events] == ["Deployment"] * 2
    lines = drumlin_asks("events", "--since", "0", "-n", "3", "--url", service.url).stdout.splitlines()
    assert lines[0].startswith("1.0 ")
    assert (drumlin_asks("events", "-o", "csv").returncode, drumlin_asks("search", "-o", "jsonld").returncode) == (2, 2)
