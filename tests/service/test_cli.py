"""The command line as people use it: results on stdout, the rest on stderr, exit codes that mean something."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
from pathlib import Path

import httpx
import pytest

from tests.service.conftest import ROOT, SAMPLE, Service, drumlin_asks, run_drumlin, serving

CHECKOUT = "prod/payments/deployment/checkout"


def test_load_reports_and_loads_only_once(tmp_path: Path) -> None:
    """Loading counts by kind; loading the same again writes nothing."""
    arguments = ("load", str(SAMPLE), "--store", str(tmp_path / "s"), "--cluster", "prod", "-o", "json")
    first, second = run_drumlin(*arguments), run_drumlin(*arguments)
    assert (first.returncode, second.returncode) == (0, 0), first.stderr
    assert json.loads(first.stdout)["objects"]["Pod"] == 38
    assert json.loads(second.stdout)["written"] == 0
    assert json.loads(second.stdout)["generation"] == json.loads(first.stdout)["generation"]


def test_a_broken_dump_loads_what_is_good(tmp_path: Path) -> None:
    """Good objects load, broken ones are listed with file, position and reason, and the exit code is 3."""
    dump = tmp_path / "dump"
    dump.mkdir()
    items = json.loads((SAMPLE / "deployments.json").read_text())["items"]
    broken = {
        "kind": "Deployment",
        "apiVersion": "apps/v1",
        "metadata": {"name": "bad", "namespace": "payments"},
        "spec": {"replicas": "many"},
    }
    listed = [{"kind": "Deployment", "apiVersion": "apps/v1", **item} for item in items]
    (dump / "a.json").write_text(
        json.dumps({"kind": "List", "apiVersion": "v1", "items": [*listed[:3], broken, *listed[3:]]})
    )
    (dump / "b.yaml").write_text(
        "kind: Namespace\napiVersion: v1\nmetadata: {name: extra}\n---\nnot: kubernetes\n---\nkind: [\n"
    )
    (dump / "c.json").write_text((SAMPLE / "nodes.json").read_text()[:5000])
    answer = run_drumlin("load", str(dump), "--store", str(tmp_path / "s"), "-o", "json")
    assert answer.returncode == 3, answer.stderr
    told = json.loads(answer.stdout)
    assert told["objects"]["Deployment"] == 10
    assert told["objects"]["Namespace"] == 1
    wheres = " ".join(each["where"] for each in told["rejected"])
    assert "a.json" in wheres
    assert "item 4 (Deployment payments/bad)" in wheres
    assert "b.yaml: document 2" in wheres
    assert "c.json" in wheres
    assert "many" not in answer.stdout + answer.stderr


def test_load_reads_standard_input(tmp_path: Path) -> None:
    """``-`` takes what kubectl prints into the pipe."""
    answer = run_drumlin("load", "-", "--store", str(tmp_path / "s"), input=(SAMPLE / "nodes.json").read_text())
    assert answer.returncode == 0, answer.stderr
    assert "Node" in answer.stdout


def test_get_in_every_form(service: Service) -> None:
    """Get prints a table, the JSON-LD document or CSV rows; an unknown id exits 4 with one line."""
    table = drumlin_asks("get", CHECKOUT, "-u", service.url)
    assert "registry.example/checkout:2.3.1" in table.stdout
    assert " \n" not in table.stdout
    assert json.loads(drumlin_asks("get", CHECKOUT, "-u", service.url, "-o", "jsonld").stdout)["name"] == "checkout"
    rows = list(csv.DictReader(io.StringIO(drumlin_asks("get", CHECKOUT, "-u", service.url, "-o", "csv").stdout)))
    assert {"property": "name", "value": "checkout"} in rows
    missing = drumlin_asks("get", "prod/payments/deployment/nope", "-u", service.url)
    assert (missing.returncode, missing.stdout) == (4, "")
    assert missing.stderr.startswith("drumlin: there is no prod/payments/deployment/nope")
    assert "Traceback" not in missing.stderr


def test_sparql_in_every_form(service: Service, tmp_path: Path) -> None:
    """Sparql takes text, a file or stdin, and prints a table, CSV, result JSON or JSON-LD; update a file or stdin, and its generation."""
    query = (
        "PREFIX : <https://w3id.org/drumlin/ns#> SELECT ?name WHERE { ?w a :Node ; :name ?name } ORDER BY ?name LIMIT 1"
    )
    file = tmp_path / "q.rq"
    file.write_text(query)
    assert "edge-a-1" in drumlin_asks("sparql", query, "-u", service.url).stdout
    assert drumlin_asks("sparql", f"@{file}", "-u", service.url, "-o", "csv").stdout.splitlines() == [
        "name",
        "edge-a-1",
    ]
    assert json.loads(drumlin_asks("sparql", "-", "-u", service.url, "-o", "json", input=query).stdout)["results"][
        "bindings"
    ]
    construct = "CONSTRUCT { ?s a ?o } WHERE { ?s a ?o } LIMIT 1"
    assert json.loads(drumlin_asks("sparql", construct, "-u", service.url, "-o", "jsonld").stdout)
    update = tmp_path / "u.ru"
    update.write_text("INSERT DATA { GRAPH <http://cli.example/g> { <http://a> <http://b> 'é' } }")
    generation = int(drumlin_asks("update", str(update), "-u", service.url).stdout)
    again = drumlin_asks("update", "-", "-u", service.url, input="DROP GRAPH <http://cli.example/g>")
    assert int(again.stdout) == generation + 1
    refused = drumlin_asks("update", "-", "-u", service.url, input="\nDELETE DATA { oops }")
    assert (refused.returncode, "line 2, column" in refused.stderr) == (1, True), refused.stderr
    assert drumlin_asks("update", "/does/not/exist", "-u", service.url).returncode == 1
    wrong = drumlin_asks("sparql", "SELECT", "-u", service.url)
    assert wrong.returncode == 1
    assert wrong.stderr.startswith("drumlin: ")
    assert drumlin_asks("sparql", "@/does/not/exist", "-u", service.url).returncode == 2
    assert drumlin_asks("sparql", query, "-u", service.url, "-o", "png").returncode == 2


def test_resolve_prints_a_runnable_query(service: Service) -> None:
    """Resolve prints endpoint, query and curl line; a misspelt metric exits 4 and names the right one."""
    answer = drumlin_asks(
        "resolve",
        CHECKOUT,
        "cpu_usage",
        "-u",
        service.url,
        "-o",
        "json",
        "--start",
        "2026-11-27T21:00:00Z",
        "--end",
        "2026-11-28T00:00:00Z",
        "--selector",
        "exact",
    )
    resolution = json.loads(answer.stdout)
    assert resolution["endpoint"].startswith("http://prometheus.monitoring.svc:9090/")
    assert 'pod=~"checkout-86b96c86dc-hgb2v|' in resolution["query"]
    wrong = drumlin_asks("resolve", CHECKOUT, "cpu_usag", "-u", service.url)
    assert wrong.returncode == 4
    assert "cpu_usage" in wrong.stderr


def test_history_of_an_unconfigured_datasource_says_what_to_add(service: Service) -> None:
    """A discovered datasource only resolves; asking it for data exits 5 and shows what to write into drumlin.toml."""
    answer = drumlin_asks("history", CHECKOUT, "cpu_usage", "-u", service.url)
    assert answer.returncode == 5, answer.stderr
    assert "[[datasource]]" in answer.stderr


def test_dump_streams_the_whole_graph(service: Service) -> None:
    """Dump writes N-Quads or JSON-LD to stdout and nothing else."""
    nquads = drumlin_asks("dump", "-u", service.url)
    assert nquads.stdout.count("\n") > 1000
    assert nquads.stderr == ""
    assert json.loads(drumlin_asks("dump", "--format", "jsonld", "-u", service.url).stdout)["@graph"]
    assert drumlin_asks("dump", "--format", "rdfxml", "-u", service.url).returncode == 1


def test_no_service_exits_5() -> None:
    """Commands that need a service say that none answers, and how to start one."""
    answer = drumlin_asks("get", CHECKOUT, "-u", "http://127.0.0.1:9")
    assert answer.returncode == 5
    assert "drumlin serve" in answer.stderr


def test_serving_beyond_loopback_needs_a_word(tmp_path: Path) -> None:
    """Without authentication, listening on all addresses is refused unless --insecure is said."""
    answer = drumlin_asks("serve", "--host", "0.0.0.0", "--port", "0", "--store", str(tmp_path / "s"))
    assert answer.returncode == 1
    assert "--insecure" in answer.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--source", "ftp:x"), "ftp:x"),
        (("--cluster", "domain"), "reserved"),
        (("--base", "kg"), "base"),
        (("--config", "/does/not/exist.toml"), "exist.toml"),
    ],
)
def test_wrong_options_are_one_clear_line(arguments: tuple[str, ...], said: str) -> None:
    """A setting that cannot be used ends serve at once, naming it."""
    answer = drumlin_asks("serve", "--port", "0", *arguments)
    assert answer.returncode == 1
    assert said in answer.stderr.splitlines()[-1] + answer.stderr.splitlines()[0]
    assert "Traceback" not in answer.stderr


def test_a_second_process_on_a_store_names_the_first(tmp_path: Path) -> None:
    """The store belongs to one process; the error gives its pid."""
    store = str(tmp_path / "s")
    with serving("--store", store) as first:
        answer = run_drumlin("load", str(SAMPLE), "--store", store)
        assert answer.returncode == 1
        assert str(first.process.pid) in answer.stderr


def test_a_store_keeps_its_base(tmp_path: Path) -> None:
    """Opening a store under another base is refused with the base it was made under."""
    store = str(tmp_path / "s")
    assert run_drumlin("load", str(SAMPLE), "--store", store, "--base", "https://a.example").returncode == 0
    other = run_drumlin("load", str(SAMPLE), "--store", store, "--base", "https://b.example")
    assert other.returncode == 1
    assert "--base https://a.example" in other.stderr


def test_what_was_acknowledged_survives_kill(tmp_path: Path) -> None:
    """Kill -9 right after an acknowledged PUT loses nothing."""
    from tests.service.test_subgraph import forecast

    store = str(tmp_path / "s")
    with serving("--store", store) as first:
        for number in range(20):
            content = json.dumps(forecast(f"k{number}")).encode()
            httpx.put(
                f"{first.url}/subgraph/forecast/k{number}",
                content=content,
                headers={"Content-Type": "application/ld+json"},
            ).raise_for_status()
        os.kill(first.process.pid, signal.SIGKILL)
        first.process.wait()
    with serving("--store", store) as second:
        found = httpx.get(f"{second.url}/subgraphs", params={"prefix": "forecast/"}).json()["items"]
        assert len(found) == 20
        assert httpx.get(f"{second.url}/readyz").json()["generation"] == 21


def test_follow_names_the_base_of_the_service(service: Service) -> None:
    """A follower that would write other names than the service has is refused, with the option to give."""
    options = ("--to", service.url, "--base", "https://other.example", "--cluster", "prod")
    other = drumlin_asks("follow", f"dump:{SAMPLE}", *options)
    assert other.returncode == 1
    assert "--base https://kg.example" in other.stderr


def test_the_makefile_names_every_target() -> None:
    """``make help`` lists the targets that the README uses."""
    text = (ROOT / "Makefile").read_text()
    for target in ("demo", "test", "check", "bench"):
        assert f"\n{target}:" in text
