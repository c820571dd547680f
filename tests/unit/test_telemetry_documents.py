"""Datasources, templates and telemetry as documents: the contract's, exactly."""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumlin.kg.config.datasources import DatasourceSettings
from drumlin.kg.errors import InvalidInput, ResourceNotFound
from drumlin.kg.rdf.jsonld import lines
from drumlin.kg.rdf.syntax import NTRIPLES, parse
from drumlin.kg.telemetry.datasources import Datasource, DatasourceAccess, clean_url
from drumlin.kg.telemetry.describe import Subject, describe, pod_names
from drumlin.kg.telemetry.templates import TemplateCatalogue
from tests.unit.rendering import without_queries
from tests.unit.telemetry_store import IRIS

GRAPHS = Path(__file__).resolve().parents[2].parent / "shared" / "contract" / "graphs"
GNODE = IRIS.domain("glaciation-node1")
CATALOGUE = TemplateCatalogue.shipped()
SCOPES = ("Workload", "Node", "Domain", "Cluster")
DASHBOARD = "https://grafana.example/d/workload?var-cluster={cluster}&var-namespace={namespace}&var-type={kind}&var-workload={name}"


def _contract(name: str) -> dict[str, Any]:
    path = GRAPHS / f"{name}.jsonld"
    if not path.exists():
        if os.environ.get("CI") == "true":
            pytest.fail("the contract's graphs are not beside the repository (../shared)")
        pytest.skip("the contract's graphs are not beside the repository (../shared)")
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def _datasource(name: str, kind: str, url: str, **more: object) -> Datasource:
    settings = DatasourceSettings.model_validate({"name": name, "kind": kind, "url": url, **more})
    return Datasource.from_settings(settings, IRIS, GNODE)


PROMETHEUS = _datasource("prometheus-main", "prometheus", "http://prometheus.monitoring.svc:9090/")
LOKI = _datasource("loki-main", "loki", "http://loki.monitoring.svc:3100")
GRAFANA = _datasource("grafana-main", "grafana", "https://grafana.example", dashboards={"workload": DASHBOARD})
CHECKOUT = Subject(
    iri=IRIS.object("prod", "payments", "Deployment", "checkout"),
    scope="Workload",
    cluster="prod",
    namespace="payments",
    kind="Deployment",
    name="checkout",
    pods=pod_names("Deployment", "checkout"),
)


def _only(*names: str) -> TemplateCatalogue:
    return TemplateCatalogue(each for each in CATALOGUE.templates if each.name in names)


def _names(subject: Subject) -> set[str]:
    (metrics,) = describe(subject, CATALOGUE, [PROMETHEUS], IRIS)
    return {part["name"] for part in metrics["hasPart"]}


def test_a_datasource_is_the_contracts() -> None:
    """The document of a configured datasource is the contract's, without the way in."""
    assert PROMETHEUS.document(IRIS) == _contract("datasource")


def test_a_template_is_the_contracts() -> None:
    """The shipped template of a workload's CPU is the contract's, but for the text of its query."""
    assert without_queries(CATALOGUE.find("Workload", "cpu_usage").document(IRIS)) == without_queries(
        _contract("template")
    )


def test_a_workloads_telemetry_is_the_contracts() -> None:
    """Metrics with dashboard and logs of the deployment are the contract's."""
    catalogue = _only("workload.cpu_usage", "workload.mem_usage")

    found = describe(CHECKOUT, catalogue, [PROMETHEUS, LOKI, GRAFANA], IRIS)
    assert without_queries(found) == without_queries(_contract("deployment")["telemetry"])


@pytest.mark.parametrize(
    ("graph", "scope", "template"),
    [("node", "Node", "node.energy_joules"), ("glaciation-node", "Domain", "domain.cpu_usage")],
)
def test_telemetry_of_nodes_and_domains_is_the_contracts(graph: str, scope: str, template: str) -> None:
    """A node is asked for by its name, a domain without any."""
    document = _contract(graph)
    subject = Subject(document["id"], scope, "prod", None, document["type"], document["name"])

    found = describe(subject, _only(template), [PROMETHEUS], IRIS)
    assert without_queries(found) == without_queries(document["telemetry"])


def test_documents_are_canonical_as_they_are() -> None:
    """What is written equals what the engine would keep, literal by literal (durations too)."""
    slow = _datasource("slow", "prometheus", "http://p:1", scrape_interval="90s")
    documents = [
        *CATALOGUE.documents(IRIS),
        slow.document(IRIS),
        *describe(CHECKOUT, CATALOGUE, [slow, LOKI, GRAFANA], IRIS),
    ]

    for document in documents:
        written = lines(document)
        assert parse("\n".join(written).encode(), NTRIPLES) == {None: written}


def test_every_scope_has_every_quantity() -> None:
    """Seven metrics at each of four scopes, a pod's being its workload's, five of a container outside Kubernetes; units are UCUM and the same at each scope."""
    metrics = {
        scope: {each.metric: each.unit for each in CATALOGUE.for_scope(scope)}
        for scope in ("Workload", "Node", "Domain", "Cluster")
    }

    assert len(CATALOGUE.templates) == 4 * 7 + 5
    assert metrics["Workload"] == metrics["Node"] == metrics["Domain"] == metrics["Cluster"]
    assert metrics["Node"] == {
        "cpu_usage": "{cpu}",
        "cpu_utilisation": "%",
        "mem_usage": "By",
        "network_receive": "By/s",
        "network_transmit": "By/s",
        "disk_usage": "By",
        "energy_joules": "J",
    }
    assert CATALOGUE.for_scope("Pod") == CATALOGUE.for_scope("Workload")
    assert CATALOGUE.for_scope("Service") == ()


def test_a_metric_that_is_not_there_is_suggested() -> None:
    """A misspelt metric is an error that names the nearest one."""
    with pytest.raises(ResourceNotFound, match="'cpu_usge' is not a metric of a Node") as error:
        CATALOGUE.find("Node", "cpu_usge")
    assert error.value.hint == "did you mean cpu_usage?"


def test_a_workload_without_cpu_limit_has_no_utilisation() -> None:
    """A share of a limit needs a limit."""
    assert _names(CHECKOUT) - _names(replace(CHECKOUT, cpu_limited=False)) == {"cpu_utilisation"}


def test_a_workload_on_the_hosts_network_has_no_traffic_of_its_own() -> None:
    """The counters of such pods are the node's."""
    assert _names(CHECKOUT) - _names(replace(CHECKOUT, host_network=True)) == {"network_receive", "network_transmit"}


def test_a_sidecars_loki_holds_only_injected_pods() -> None:
    """A datasource of injected pods is offered only where the sidecar is injected."""
    sidecar = _datasource("sidecar", "loki", "http://loki:3100", logs="injected")

    assert describe(CHECKOUT, CATALOGUE, [sidecar], IRIS) == []
    (logs,) = describe(replace(CHECKOUT, logs_injected=True), CATALOGUE, [sidecar], IRIS)
    assert logs["distribution"][0]["accessService"] == sidecar.iri


def test_each_datasource_has_its_own_query() -> None:
    """A metric in two servers has two queries, each in that server's names and scrape interval."""
    other = _datasource(
        "other", "prometheus", "http://p:1", scrape_interval="2m", labels={"pod": "pod_name"}, jobs={"kubelet": ""}
    )

    (metrics,) = describe(CHECKOUT, _only("workload.cpu_usage"), [PROMETHEUS, other], IRIS)

    queries = [each["query"] for each in metrics["hasPart"][0]["distribution"]]
    assert "pod=~" in queries[0]
    assert "[329999ms]" in queries[0]
    assert '{metrics_path="/metrics/cadvisor",namespace="payments",pod_name=~' in queries[1]
    assert "[599999ms]" in queries[1]


def test_a_dashboards_url_is_filled_with_encoded_values() -> None:
    """Names cannot add parameters to the link; other braces stay."""
    odd = replace(CHECKOUT, name="a&b=c/d")
    grafana = _datasource("g", "grafana", "http://g", dashboards={"workload": "http://g/d?n={name}&x={other}"})

    metrics = describe(odd, _only("workload.cpu_usage"), [PROMETHEUS, grafana], IRIS)[0]
    assert metrics["dashboard"][0]["url"] == "http://g/d?n=a%26b%3Dc%2Fd&x={other}"
    assert (
        describe(odd, _only("workload.cpu_usage"), [grafana], IRIS) == []
    )  # a dashboard shows metrics, and nothing holds any


@pytest.mark.parametrize(
    ("kind", "name", "pod"),
    [
        ("Deployment", "checkout", "checkout-86b96c86dc-hgb2v"),
        ("Deployment", "inference", "inference-5f9576cb9-dx4wh"),
        ("StatefulSet", "orders-db", "orders-db-0"),
        ("DaemonSet", "kepler", "kepler-hbr7b"),
        ("ReplicaSet", "standalone", "standalone-x4mfv"),
        ("Job", "train-demand-2026-11", "train-demand-2026-11-6gkn2"),
        ("Job", "indexed", "indexed-12-6gkn2"),
        ("CronJob", "reindex", "reindex-29930271-wwg9b"),
        ("CronJob", "indexed", "indexed-29930271-3-wwg9b"),
        ("Deployment", "n" * 50, ("n" * 50 + "-86b96c86dc-")[:58] + "hgb2v"),
        ("Deployment", "n" * 63, "n" * 58 + "hgb2v"),
        ("DaemonSet", "n" * 57, "n" * 57 + "-hgb2v"),
        ("CronJob", "n" * 52, ("n" * 52 + "-29930271-")[:58] + "wwg9b"),
    ],
)
def test_pods_have_the_names_of_their_workloads_kind(kind: str, name: str, pod: str) -> None:
    """Names as recorded from Kubernetes match, also those that it cuts because they are long."""
    assert re.fullmatch(pod_names(kind, name), pod)


@given(st.text("ab.-+(", min_size=1, max_size=8), st.text("ab.-+(", min_size=1, max_size=8))
def test_a_pattern_takes_the_name_literally(name: str, other: str) -> None:
    """A name's dots and brackets match themselves, so pods of another workload do not match."""
    assert bool(re.fullmatch(pod_names("StatefulSet", name), f"{other}-0")) == (name == other)
    assert bool(re.fullmatch(pod_names("Deployment", name), f"{other}-86b96c86dc-hgb2v")) == (name == other)


@pytest.mark.parametrize(
    ("url", "clean"),
    [
        ("http://user:pass@p:9090/", "http://p:9090"),
        ("https://mimir.example/prometheus//", "https://mimir.example/prometheus"),
        ("http://[::1]:9090?x=1#y", "http://[::1]:9090"),
    ],
)
def test_urls_lose_credentials_and_trailing_slashes(url: str, clean: str) -> None:
    """What is stored and shown can be appended to and tells no password."""
    assert clean_url(url) == clean
    assert Datasource.discovered("d", "prometheus", url, IRIS, None, None).url == clean


@pytest.mark.parametrize(
    "url", ["", "ftp://x", "javascript:alert(1)", "http://", "http://h:99999", "http://h/a b", "http://[x"]
)
def test_what_is_no_http_url_is_refused_without_repeating_it(url: str) -> None:
    """The message does not show the URL, which may hold a password."""
    with pytest.raises(InvalidInput, match="url of a datasource") as error:
        clean_url(url)
    assert not url or url not in str(error.value)


def test_only_configured_datasources_have_access() -> None:
    """Discovery grants nothing; the configuration's tenant, credential, time and number of requests are taken over."""
    found = _datasource("p", "prometheus", "http://p", timeout=5, concurrency=2, credential={"secret": "env:TOKEN"})

    assert Datasource.discovered("p", "prometheus", "http://p", IRIS, GNODE, None).access is None
    assert found.access == DatasourceAccess(None, found.access.credential if found.access else None, 5.0, 2)
    assert "TOKEN" not in json.dumps(found.document(IRIS))
