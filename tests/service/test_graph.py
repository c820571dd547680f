"""``/graph`` and ``drumlin dag`` over a listening server: formats, relations, errors."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import httpx
import pytest

import drumlin
from drumlin.api.cli.query_cli import dag
from drumlin.kg.errors import InvalidInput

CHECKOUT = "prod/payments/deployment/checkout"
FORMATS = {
    "json": "application/json",
    "mermaid": "text/vnd.mermaid",
    "dot": "text/vnd.graphviz",
    "svg": "image/svg+xml",
    "grafana": "application/vnd.grafana.node-graph+json",
}


@pytest.mark.parametrize(("name", "media_type"), FORMATS.items())
def test_what_reaches_a_thing_is_given_in_every_format(http: httpx.Client, name: str, media_type: str) -> None:
    """By name and by Accept alike; the pods that a workload manages are reached backwards."""
    asked = {"root": CHECKOUT, "edges": "^managedBy"}
    answer = http.get("/graph", params={**asked, "format": name})

    assert answer.status_code == 200, answer.text
    assert answer.headers["Content-Type"].startswith(media_type)
    assert answer.content == http.get("/graph", params=asked, headers={"Accept": media_type}).content
    assert "checkout" in answer.text
    if name == "svg":
        assert ET.fromstring(answer.text).tag.endswith("svg")
    if name == "json":
        pods = [each for each in answer.json()["nodes"] if each["type"] == "Pod"]
        assert pods
        assert {each["distance"] for each in pods} == {-1}
    if name == "grafana":
        nodes = {each["id"]: each for each in answer.json()["nodes"]}
        assert nodes[CHECKOUT]["title"] == "checkout"
        assert {each["subtitle"] for each in nodes.values()} == {"Deployment", "Pod"}
        assert all(each["arc__well"] + each["arc__failing"] + each["arc__unknown"] == 1 for each in nodes.values())
        edges = answer.json()["edges"]
        assert {each["target"] for each in edges} == {CHECKOUT}
        assert len({each["id"] for each in edges}) == len(edges) == len(nodes) - 1


@pytest.mark.parametrize(
    ("params", "status"),
    [
        ({"root": "prod/payments/deployment/none"}, 404),
        ({"root": "none"}, 400),
        ({"root": CHECKOUT, "edges": "^nothing"}, 422),
        ({"root": CHECKOUT, "depth": "11"}, 422),
        ({"root": CHECKOUT, "format": "png"}, 406),
        ({"root": CHECKOUT, "direction": "in"}, 422),
        ({}, 422),
    ],
)
def test_what_cannot_be_shown_is_an_error(http: httpx.Client, params: dict[str, str], status: int) -> None:
    """Each with a problem document."""
    answer = http.get("/graph", params=params)

    assert (answer.status_code, answer.headers["Content-Type"]) == (status, "application/problem+json"), answer.text


def test_the_client_and_the_command_give_the_same(http: httpx.Client, capsys: pytest.CaptureFixture[str]) -> None:
    """A dict, text of another format, a table; and the errors of the service."""
    url = str(http.base_url)
    with drumlin.connect(url) as client:
        found = client.reach(CHECKOUT, edges="^managedBy")
        assert client.reach(CHECKOUT, edges="^managedBy", format="mermaid").startswith("flowchart LR\n")
        with pytest.raises(InvalidInput):
            client.reach(CHECKOUT, edges="nothing")
    dag(CHECKOUT, edges="^managedBy", depth=3, url=url, output="dot")
    assert capsys.readouterr().out.startswith("digraph reach {")
    dag(CHECKOUT, edges="^managedBy", depth=3, url=url, output="table")
    assert len(capsys.readouterr().out.splitlines()) == len(found["edges"]) + 1
