"""/queries over a listening server, the command and the client."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import httpx

import drumlin
from tests.service.conftest import Service, drumlin_asks, serving

NODE = "prod/-/node/edge-a-1"

INJECTED = {
    "string": ("x", 200),
    "integer": ("1", 422),
    "decimal": ("1.5", 422),
    "boolean": ("true", 422),
    "dateTime": ("2026-11-28T00:00:00Z", 422),
    "id": ("domain/x", 400),
    "concept": ("Deployment", 422),
}
"""Types of parameters: a value, and what becomes of one that would be more than a value."""
ATTACKS = (
    '" } ?s ?p ?o } #',
    "> } ?s ?p ?o #",
    "\\u0022 } ?s ?p ?o #",
    '" } UNION { ?s ?p ?o } VALUES ?v { "',
    "\n} ?s ?p ?o #",
    " ",
)


def test_queries_are_listed_and_documented(http: httpx.Client) -> None:
    """Each query is listed with its parameters and columns, and is a path of the OpenAPI document with typed parameters."""
    listed = {each["name"]: each for each in http.get("/queries").json()["items"]}
    assert listed["runs-on-node"]["parameters"][0]["type"] == "id"
    paths = http.get("/openapi.json").json()["paths"]
    assert {f"/queries/{name}" for name in listed} <= set(paths)
    (node,) = [each for each in paths["/queries/runs-on-node"]["get"]["parameters"] if each["name"] == "node"]
    assert node["required"] is True


def test_a_query_answers_in_every_form(http: httpx.Client) -> None:
    """Plain JSON, CSV, TSV, SPARQL results and the bound text, by format or Accept, say the same."""
    path = "/queries/runs-on-node"
    plain = http.get(path, params={"node": NODE}).json()
    assert plain["columns"] == ["pod", "start", "end", "outcome"]
    assert plain["rows"]
    rows = list(csv.DictReader(io.StringIO(http.get(path, params={"node": NODE, "format": "csv"}).text)))
    assert [row["pod"] for row in rows] == [row["pod"] for row in plain["rows"]]
    results = http.get(path, params={"node": NODE}, headers={"Accept": "application/sparql-results+json"}).json()
    assert len(results["results"]["bindings"]) == len(rows)
    text = http.get(path, params={"node": NODE, "format": "rq"}).text
    assert (
        http.get("/sparql", params={"query": text, "format": "csv"}).text
        == http.get(path, params={"node": NODE, "format": "csv"}).text
    )
    numbers = http.get("/queries/classes").json()["rows"]
    assert isinstance(numbers[0]["entities"], int)


def test_what_a_query_does_not_take_is_refused(http: httpx.Client) -> None:
    """Missing, unknown and ill-typed parameters, unknown queries and forms are problem documents that say what there is."""
    for path, params, status in (
        ("/queries/runs-on-node", {}, 422),
        ("/queries/runs-on-node", {"node": NODE, "nod": "x"}, 422),
        ("/queries/runs-on-node", {"node": "x"}, 400),
        ("/queries/runs-on-nod", {}, 404),
        ("/queries/units", {"format": "png"}, 406),
        ("/queries/metrics-of-quantity", {"quantity": "enrgy"}, 422),
        ("/queries/runs-on-node", {"node": [NODE, NODE]}, 422),
        ("/queries", {"name": "units"}, 422),
    ):
        answer = http.get(path, params=params)
        assert answer.status_code == status, path
        assert answer.headers["Content-Type"] == "application/problem+json"
    misspelt = http.get("/queries/runs-on-node", params={"nod": NODE}).json()
    assert (misspelt["detail"], misspelt["hint"]) == ("there is no parameter 'nod' here", "did you mean node?")
    assert "runs-on-node" in http.get("/queries/runs-on-nod").json()["hint"]


def test_the_command_and_the_client_ask_too(service: Service) -> None:
    """Drumlin query lists and asks; the client gives rows."""
    assert "runs-on-node" in drumlin_asks("query", "-u", service.url).stdout
    asked = drumlin_asks("query", "pods-on-node", "-p", f"node={NODE}", "-u", service.url, "-o", "csv")
    assert (asked.returncode, asked.stdout.splitlines()[0].split(",")[0]) == (0, "pod"), asked.stderr
    assert drumlin_asks("query", "nothing", "-u", service.url).returncode == 4
    assert drumlin_asks("query", "units", "-p", "x", "-u", service.url).returncode == 2
    assert drumlin_asks("query", "units", "-p", "x=1", "-p", "x=2", "-u", service.url).returncode == 2
    misspelt = drumlin_asks("query", "runs-on-node", "-p", "wrong=x", "-u", service.url)
    assert (misspelt.returncode, "'wrong'" in misspelt.stderr, "node" in misspelt.stderr) == (1, True, True)
    with drumlin.connect(service.url) as client:
        assert client.query("pods-on-node", node=NODE)
        assert {each["name"] for each in client.queries()} >= {"units", "classes"}


def test_why_is_asked_by_name(service: Service) -> None:
    """Drumlin why says what befell an entity and its pods; what is not there is an error, what is well is said to be."""
    well = drumlin_asks("why", "prod/payments/deployment/checkout", "-u", service.url)
    assert (well.returncode, "nothing is known to have befallen it" in well.stderr) == (0, True), well.stderr
    failed = drumlin_asks("why", "prod/-/namespace/search", "-u", service.url, "-o", "json")
    rows = drumlin_asks("query", "why-failing", "-p", "entity=prod/-/namespace/search", "-u", service.url, "-o", "json")
    assert (failed.returncode, failed.stdout) == (0, rows.stdout)
    assert drumlin_asks("why", "prod/payments/deployment/nothing", "-u", service.url).returncode == 4


def test_a_directory_adds_queries_and_a_bad_file_is_told(tmp_path: Path) -> None:
    """A user's file becomes an end point whose values stay values; one that is no query is named in the log and the service starts."""
    (tmp_path / "mine.rq").write_text(
        "# title: Mine\n# param n integer 7: a number\n# column n: it\nSELECT ?n WHERE { FILTER(?n > 0) }"
    )
    (tmp_path / "bad.rq").write_text("SELECT")
    (tmp_path / "units.rq").write_text("# title: Ours\n# param t string: a text\nSELECT ?t WHERE { }")
    for kind in INJECTED:
        text = f"# title: T\n# param v {kind}: x\n# column n: n\nSELECT (COUNT(*) AS ?n) WHERE {{ GRAPH ?g {{ ?s ?p ?v }} }}"
        (tmp_path / f"{kind.lower()}.rq").write_text(text)
    with serving("--store", str(tmp_path / "store"), environment={"DRUMLIN_QUERIES": str(tmp_path)}) as service:
        assert httpx.get(f"{service.url}/queries/mine", params={"n": "8"}).json()["rows"] == [{"n": 8}]
        assert httpx.get(f"{service.url}/queries/bad").status_code == 404
        assert httpx.get(f"{service.url}/queries/units", params={"t": '"} '}).json()["rows"] == [{"t": '"} '}]
        for kind, (good, status) in INJECTED.items():
            address = f"{service.url}/queries/{kind.lower()}"
            assert httpx.get(address, params={"v": good}).status_code == 200, kind
            for attack in ATTACKS:
                answer = httpx.get(address, params={"v": good + attack})
                rows = answer.json().get("rows")
                assert (answer.status_code, rows) == (status, [{"n": 0}] if status == 200 else None), (kind, attack)
        assert any("saved_query_skipped" in line and "bad.rq" in line for line in service.log)
