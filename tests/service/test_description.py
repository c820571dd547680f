"""The service description: ``GET /sparql`` without a query, asked for RDF."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from drumlin.kg import rdf
from tests.service.conftest import BASE, serving

SD = "http://www.w3.org/ns/sparql-service-description#"
VOID = "http://rdfs.org/ns/void#"
TURTLE = {"Content-Type": "text/turtle"}
INTEGER = "<http://www.w3.org/2001/XMLSchema#integer>"


@pytest.mark.parametrize("syntax", rdf.SYNTAXES, ids=lambda syntax: syntax.name)
def test_the_service_describes_itself(http: httpx.Client, syntax: rdf.Syntax) -> None:
    """In each RDF syntax it names both endpoints, what they speak, and how much there is."""
    answer = http.get("/sparql", headers={"Accept": syntax.media_type})
    assert answer.status_code == 200, answer.text
    (lines,) = rdf.parse(answer.content, syntax).values()

    assert f"<{BASE}/sparql> <{SD}endpoint> <{BASE}/sparql> ." in lines
    assert f"<{BASE}/sparql/update> <{SD}supportedLanguage> <{SD}SPARQL11Update> ." in lines
    count = http.get("/sparql", params={"query": "SELECT (COUNT(*) AS ?n) { ?s ?p ?o }", "format": "csv"}).text.split()[
        1
    ]
    assert f'<{BASE}/sparql#union> <{VOID}triples> "{count}"^^{INTEGER} .' in lines
    (deployments,) = [line for line in lines if "drumlin/ns#Deployment>" in line]
    part = deployments.split()[0]
    assert any(line.startswith(f'{part} <{VOID}entities> "10"') for line in lines)


def test_counts_are_kept_until_something_is_written(tmp_path: Path) -> None:
    """Asked again the engine is not; after a write the counts are those of now, in both descriptions and on the front page."""
    accept = {"Accept": "application/n-triples"}
    with serving("--store", str(tmp_path / "store")) as service, httpx.Client(base_url=service.url, timeout=60) as http:
        first = http.get("/sparql", headers=accept).text
        asked = _asked(http)
        assert http.get("/sparql", headers=accept).text == first
        assert "sparql#dataset" in first
        http.get("/.well-known/void", headers=accept)
        http.get("/")
        assert _asked(http) == asked
        http.put(
            "/store?graph=http://x/g", content="<http://x/g> a <http://x/Odd> .", headers=TURTLE
        ).raise_for_status()

        assert "<http://x/Odd>" in http.get("/sparql", headers=accept).text
        odd = 'Odd> <http://rdfs.org/ns/void#entities> "1"'
        assert odd in http.get("/.well-known/void", headers=accept).text
        assert "Odd" not in http.get("/").text  # it is no entity
        domain = {"id": "https://kg.example/id/domain/x", "type": "Domain", "name": "x"}
        http.put("/subgraph/domain/x", json=domain).raise_for_status()
        assert 'Domain</a></td><td class="number">2<' in http.get("/").text
        assert _asked(http) > asked


def _asked(http: httpx.Client) -> float:
    """Read how many queries readers have answered."""
    told = [line for line in http.get("/metrics").text.splitlines() if line.startswith("drumlin_queries_total{")]
    return sum(float(line.rpartition(" ")[2]) for line in told)


def test_a_browser_that_asks_for_anything_gets_no_description(http: httpx.Client) -> None:
    """Without a query and without RDF in Accept it is an error that says what is missing; a browser gets a form."""
    assert http.get("/sparql").status_code == 400
    form = http.get("/sparql", headers={"Accept": "text/html,*/*;q=0.8"})
    assert (form.status_code, "<textarea" in form.text) == (200, True)


def test_options_and_head(http: httpx.Client) -> None:
    """OPTIONS says what there is; HEAD is GET without its body."""
    allowed = http.options("/sparql").headers["Allow"]
    assert allowed == http.put("/sparql").headers["Allow"] == "GET, HEAD, OPTIONS, POST"
    got, head = (http.request(method, "/sparql", params={"query": "ASK {}"}) for method in ("GET", "HEAD"))
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["Content-Type"] == got.headers["Content-Type"]
