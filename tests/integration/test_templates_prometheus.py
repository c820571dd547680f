"""Metric templates on a real Prometheus: the whole catalogue, and one that a user writes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta

import httpx
import pytest

import drumlin
from drumlin.kg.rdf.jsonld import lines
from drumlin.kg.store.protocol import GraphWrite
from drumlin.kg.telemetry import promql
from drumlin.kg.telemetry.fetch.prometheus import Prometheus
from drumlin.kg.telemetry.series import Grid, Window
from drumlin.kg.telemetry.templates import Template, shipped_templates
from tests.integration.conftest import RealPrometheus, at
from tests.integration.test_prometheus_history import LEDGER, documents
from tests.service.conftest import serving

VALUES = {
    "namespace": "pay.ments", "pods": "x-[0-9a-f]{6,10}-[0-9a-z]{5}", "node": 'a"b\\c', "remote": 'a"b\\c', "clusters": "a-to-b-http", "function": "resize", "qualified": "resize.shop", "machine": "redis-1",
}  # fmt: skip


@pytest.mark.parametrize(
    "template",
    [each for each in shipped_templates() if each.datasource_type == "prometheus"],
    ids=lambda each: each.name,
)
def test_a_real_server_evaluates_the_template(prometheus: RealPrometheus, template: Template) -> None:
    """Each template, also of exporters that are not enabled, is a query that the server runs without an error."""
    with Prometheus(prometheus.datasource()) as client:
        query = promql.render(
            template.query, VALUES, window=timedelta(minutes=5), datasource=client.datasource, matchers=()
        )

        client.series(query, Grid.over(Window(at(5), at(60)), timedelta(minutes=5)))


# -- a user's own ---------------------------------------------------------------------------------------------------------

WINDOW = {"start": at(5).isoformat(), "end": at(55).isoformat(), "step": "5m"}


@pytest.fixture(scope="module")
def http(prometheus: RealPrometheus, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A plain HTTP client of a service with the workloads of the sample and the real server."""
    directory = tmp_path_factory.mktemp("templates")
    source = f'name = "prometheus-main"\nkind = "prometheus"\nurl = "{prometheus.url}"\nscrape_interval = "60s"'
    (directory / "drumlin.toml").write_text(f"[[datasource]]\n{source}\n")
    with serving("--store", str(directory / "store"), "--config", str(directory / "drumlin.toml")) as service:
        with drumlin.connect(service.url) as client:
            client.apply([GraphWrite.of(str(each["id"]), lines(each), "test") for each in documents()], atomic=True)
        with httpx.Client(base_url=service.url, timeout=60) as opened:
            yield opened


def put(http: httpx.Client, query: str, name: str = "mem_double", **more: object) -> httpx.Response:
    """Write a template as a user does."""
    words = {"signal": "metrics", "quantity": "memory", "unit": "By", "metricType": "gauge", "exporter": "cadvisor"}
    document = {
        "id": f"https://kg.example/id/template/workload.{name}", "type": "MetricTemplate", "name": name, "scope": "Workload", "title": "Twice the memory",
        "datasourceType": "prometheus", "query": query, **words, **more,
    }  # fmt: skip
    return http.put(
        f"/subgraph/template/workload.{name}", json=document, headers={"Content-Type": "application/ld+json"}
    )


def values(http: httpx.Client) -> list[float]:
    """Fetch the user's metric of ledger."""
    asked = {"entities": [LEDGER], "metrics": ["mem_double"], **WINDOW}
    answer = http.post("/history", json=asked, params={"format": "ndjson"}).raise_for_status()
    return [each["y"] for each in map(json.loads, answer.text.splitlines()) if "y" in each]


def test_a_users_template_is_resolved_and_fetched_like_any_other(http: httpx.Client) -> None:
    """Written by PUT, it is in the graph, in /resolve for each workload and pod, and its series come from the server; a new version counts at once."""
    memory = "sum(container_memory_working_set_bytes{namespace={{namespace}},pod=~{{pods}}})"
    before = http.get("/resolve", params={"entity": LEDGER, "metric": "mem_double", **WINDOW})
    written = put(http, f"2 * {memory}")

    assert (before.status_code, written.status_code) == (404, 201), written.text
    found = http.get("/resolve", params={"entity": LEDGER, "metric": "mem_double", **WINDOW}).raise_for_status().json()
    assert (found["unit"], found["quantity"]) == ("By", "memory")
    assert found["query"].startswith("2 * sum(container_memory_working_set_bytes{")
    assert "{{" not in found["query"]
    assert values(http) == [2.0 * (1000 + minute) for minute in range(5, 60, 5)]

    assert put(http, f"3 * {memory}").status_code == 204
    assert values(http) == [3.0 * (1000 + minute) for minute in range(5, 60, 5)]


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("sum(rate(x[5m])", "PromQL"),
        ("sum(x{pod={{pods}}})", "pods"),
        ("sum(x{pod=~{{pod}}})", "pod"),
        ("sum(x) + {{namespace}}", "namespace"),
    ],
)
def test_a_template_that_could_never_be_asked_is_refused(http: httpx.Client, query: str, told: str) -> None:
    """What is no PromQL, or has a hole that nothing fills, is told to who writes it, not to everyone who resolves."""
    answer = put(http, query)

    assert answer.status_code == 422, answer.text
    assert told in json.dumps(answer.json())


def test_a_template_of_a_server_that_is_asked_otherwise_says_what_it_likes(http: httpx.Client) -> None:
    """Where an InfluxDB keeps a metric stands in its configuration, so the query of its template is a remark."""
    answer = put(http, "SELECT mean(rss) FROM mem", "mem_elsewhere", datasourceType="influxdb")

    assert answer.status_code in (201, 204), answer.text
