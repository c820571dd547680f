"""``drumlin audit`` and ``/admin/audit``: a store directory and a running service are held to the rules."""

from __future__ import annotations

import json
import re
from pathlib import Path

import httpx
import pytest
import rdflib

from drumlin.kg.store.embedded.store import EmbeddedStore
from drumlin.kg.store.protocol import GraphWrite
from tests.service.conftest import BASE, SAMPLE, drumlin_asks, serving

POD = f"{BASE}/id/prod/payments/pod/odd"
TYPE = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"
NS = "https://w3id.org/drumlin/ns#"


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store directory with the sample cluster."""
    path = tmp_path_factory.mktemp("audit") / "store"
    answer = drumlin_asks("load", str(SAMPLE), "--store", str(path), "--cluster", "prod", "--base", BASE)
    assert answer.returncode == 0, answer.stderr
    return path


def test_what_the_exporter_writes_conforms(loaded: Path) -> None:
    """Every graph of the sample cluster keeps every rule; links to domains that are not there are listed and break none."""
    table = drumlin_asks("audit", "--store", str(loaded), "--base", BASE)

    assert table.returncode == 0, table.stderr
    assert "dangling link" in table.stdout
    told = re.search(r"(\d+) graphs, [\d,]+ statements: every rule is kept", table.stderr)
    assert told
    assert int(told[1]) > 100


def test_a_running_service_audits_itself(loaded: Path) -> None:
    """The command asks the service; other tools get SHACL's report from it."""
    with serving("--store", str(loaded), "--base", BASE, "--cluster", "prod") as service:
        answer = drumlin_asks("audit", "--url", service.url, "-o", "json")
        lines = httpx.get(
            f"{service.url}/admin/audit", headers={"Accept": "application/x-ndjson"}, timeout=60
        ).text.splitlines()
        turtle = httpx.get(f"{service.url}/admin/audit", headers={"Accept": "text/turtle"}, timeout=60)
        odd = httpx.get(f"{service.url}/admin/audit", headers={"Accept": "image/png"}, timeout=60)

    assert (answer.returncode, json.loads(answer.stdout)["conforms"]) == (0, True), answer.stderr
    steps, last = [json.loads(line) for line in lines[:-1]], json.loads(lines[-1])
    assert [each["done"] for each in steps] == sorted(each["done"] for each in steps)
    assert steps[-1]["done"] == steps[-1]["total"] == last["graphs"] > 0
    assert last == json.loads(answer.stdout)
    assert (last["conforms"], last["rules"]) == (True, {})
    assert turtle.headers["Content-Type"].startswith("text/turtle")
    report = rdflib.Graph().parse(data=turtle.text, format="turtle")
    assert list(report.objects(None, rdflib.SH.conforms)) == [rdflib.Literal(True)]
    assert odd.status_code == 406


def test_a_broken_rule_is_told_with_exit_code_3(tmp_path: Path) -> None:
    """What was written past the API is found: rule, thing and what is wrong, also as SHACL."""
    path = tmp_path / "store"
    store = EmbeddedStore(path)
    store.apply(
        [GraphWrite.of(POD, frozenset({f"<{POD}> <{TYPE}> <{NS}Pod> .", f'<{POD}> <{NS}name> "odd" .'}), "user")]
    )
    store.close()

    table = drumlin_asks("audit", "--store", str(path), "--base", BASE)
    shacl = drumlin_asks("audit", "--store", str(path), "--base", BASE, "-o", "shacl")

    assert (table.returncode, shacl.returncode) == (3, 3)
    assert "namespace" in table.stdout
    assert POD in table.stdout
    assert "sourceShape" in shacl.stdout
    assert drumlin_asks("audit", "-o", "xml").returncode == 2
