"""/search over a listening server."""

from __future__ import annotations

import json
import uuid

import httpx
import pytest

from tests.service.conftest import Service, drumlin
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
    table = drumlin("search", "checkout", "--type", "Workload", "--url", service.url)
    assert "prod/payments/deployment/checkout" in table.stdout
    found = json.loads(drumlin("search", "--type", "Pod", "-n", "2", "-o", "json", "--url", service.url).stdout)
    assert (len(found["items"]), found["total"] > 2) == (2, True)
    told = drumlin(
        "events", "--since", "0", "--type", "Deployment", "-n", "2", "-o", "json", "--quads", "--url", service.url
    )
    events = [json.loads(line) for line in told.stdout.splitlines()]
    assert [each["data"]["type"] for each in events] == ["Deployment"] * 2
    lines = drumlin("events", "--since", "0", "-n", "3", "--url", service.url).stdout.splitlines()
    assert lines[0].startswith("1.0 ")
    assert (drumlin("events", "-o", "csv").returncode, drumlin("search", "-o", "jsonld").returncode) == (2, 2)
