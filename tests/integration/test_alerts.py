"""Alerts of a real Prometheus and a real Alertmanager, matched to the entities that they are about."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

import drumlin
from drumlin.api.demo import prometheus as servers
from drumlin.kg.config.datasources import DatasourceSettings
from drumlin.kg.errors import InvalidInput, ResourceNotFound
from drumlin.kg.rdf.jsonld import NodeDocument, lines
from drumlin.kg.store.protocol import GraphWrite
from drumlin.kg.telemetry import probing
from drumlin.kg.telemetry.alerts import Alerts
from drumlin.kg.telemetry.datasources import Datasource
from drumlin.kg.telemetry.templates import TemplateCatalogue
from tests.integration.conftest import need
from tests.service.conftest import Service, drumlin_asks
from tests.service.conftest import serving as service_of
from tests.unit.telemetry_store import IRIS, GraphStore, pod, workload

RULES: list[tuple[str, dict[str, str]]] = [
    ("PodCrashes", {"namespace": "shop", "pod": "web-86b96c86dc-aaaaa", "severity": "critical", "container": "c"}),
    ("PodRenamed", {"namespace": "monitoring", "pod": "ksm-0", "exported_namespace": "shop", "exported_pod": "db-0"}),
    ("Replicas", {"namespace": "shop", "deployment": "web", "severity": "warning", "instance": "10.0.0.7:8080"}),
    ("JobFailed", {"namespace": "shop", "job_name": "batch-1", "job": "kube-state-metrics"}),
    ("MixinWorkload", {"namespace": "shop", "workload": "web", "workload_type": "deployment"}),
    ("NodeNotReady", {"node": "n1", "severity": "critical"}),
    ("NodeDisk", {"instance": "n1:9100", "severity": "info"}),
    ("Quota", {"namespace": "shop"}),
    ("Watchdog", {"severity": "none"}),
    ("Strange", {"namespace": "x'} or vector(1)", "pod": "<script>", "node": "../../etc"}),
]
"""Each fires at once; ``Slow`` beside them is pending for an hour."""


@pytest.fixture(scope="module")
def urls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A Prometheus with rules that fire, which sends them to an Alertmanager that silences one; their addresses."""
    need("prometheus", "prometheus")
    need("prometheus-alertmanager", "prometheus-alertmanager")
    directory = tmp_path_factory.mktemp("alerts")
    manager = directory / "alertmanager.yml"
    manager.write_text(json.dumps({"route": {"receiver": "nobody"}, "receivers": [{"name": "nobody"}]}))
    command = [
        "prometheus-alertmanager",
        f"--config.file={manager}",
        f"--storage.path={directory / 'am'}",
        "--cluster.listen-address=",
    ]
    with ExitStack() as stack:
        alertmanager = stack.enter_context(
            servers.start(command, "--web.listen-address=127.0.0.1:{port}", "/-/ready", directory / "am.log")
        )
        rules = [
            {"alert": name, "expr": "vector(3)", "labels": labels, "annotations": {"summary": name}}
            for name, labels in RULES
        ]
        rules.append(
            {"alert": "Slow", "expr": "vector(1)", "for": "1h", "labels": {"namespace": "shop", "statefulset": "db"}}
        )
        (directory / "rules.yml").write_text(json.dumps({"groups": [{"name": "g", "interval": "1s", "rules": rules}]}))
        prometheus = stack.enter_context(_prometheus(directory, alertmanager.url))
        _silence(alertmanager.url, "NodeDisk")
        _until(lambda: len(httpx.get(f"{prometheus.url}/api/v1/alerts").json()["data"]["alerts"]) == len(rules))
        _until(lambda: len(httpx.get(f"{alertmanager.url}/api/v2/alerts").json()) == len(RULES))
        yield {"prometheus": prometheus.url, "alertmanager": alertmanager.url}


def _prometheus(directory: Path, alertmanager: str) -> servers.Server:
    config = {
        "global": {"evaluation_interval": "1s", "external_labels": {"site": "prod"}},
        "rule_files": [str(directory / "rules.yml")],
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": [alertmanager.removeprefix("http://")]}]}]},
    }
    (directory / "prometheus.yml").write_text(json.dumps(config))
    command = [
        "prometheus",
        f"--config.file={directory / 'prometheus.yml'}",
        f"--storage.tsdb.path={directory / 'data'}",
        "--rules.alert.resend-delay=1s",  # the Alertmanager is found some seconds after they fire
    ]
    return servers.start(command, "--web.listen-address=127.0.0.1:{port}", "/-/ready", directory / "prometheus.log")


def _silence(url: str, name: str) -> None:
    now = datetime.now(UTC)
    matchers = [{"name": "alertname", "value": name, "isRegex": False, "isEqual": True}]
    times = {"startsAt": now.isoformat(), "endsAt": (now + timedelta(hours=1)).isoformat()}
    said = {"matchers": matchers, **times, "createdBy": "test", "comment": "test"}
    httpx.post(f"{url}/api/v2/silences", json=said).raise_for_status()


def _until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        if time.monotonic() > deadline:
            pytest.fail("the servers did not come to what was waited for")
        time.sleep(0.1)


def _iri(kind: str, name: str, namespace: str | None = "shop", cluster: str = "prod") -> str:
    return IRIS.object(cluster, namespace, kind, name)


def _documents(*clusters: str) -> list[NodeDocument]:
    web, database = _iri("Deployment", "web"), _iri("StatefulSet", "db")
    began = "2026-11-01T00:00:00Z"
    site = IRIS.domain("site")
    return [
        workload("Deployment", "shop", "web", began=began, applicationGroup="shop", domain=site),
        pod("shop", "web-86b96c86dc-aaaaa", web, [(began, began)], gone=True),
        workload("StatefulSet", "shop", "db", began=began, domain=site),
        pod("shop", "db-0", database, [(began, None)]),
        workload("Job", "shop", "batch-1", began=began),
        {"id": _iri("Node", "n1", None), "type": "Node", "name": "n1", "domain": site, "partOf": IRIS.cluster("prod")},
        {"id": _iri("Namespace", "shop", None), "type": "Namespace", "name": "shop"},
        *({"id": IRIS.cluster(each), "type": "Cluster", "name": each} for each in clusters),
    ]


def _datasource(kind: str, url: str, **more: Any) -> Datasource:
    given = {"name": f"{kind}-main", "kind": kind, "url": url, **more}
    return Datasource.from_settings(DatasourceSettings.model_validate(given), IRIS, None)


def _about(alerts: Alerts, *entities: str) -> dict[str, str]:
    return {each.name: each.state for each in alerts.fetch([*entities] or None).alerts}


ABOUT = {
    "prod/shop/deployment/web": {"PodCrashes", "Replicas", "MixinWorkload"},
    "prod/shop/pod/web-86b96c86dc-aaaaa": {"PodCrashes"},
    "prod/shop/statefulset/db": {"PodRenamed", "Slow"},
    "prod/shop/pod/db-0": {"PodRenamed"},
    "prod/shop/job/batch-1": {"JobFailed"},
    "prod/-/node/n1": {"NodeNotReady", "NodeDisk"},
    "prod/-/namespace/shop": {"PodCrashes", "PodRenamed", "Replicas", "MixinWorkload", "JobFailed", "Quota", "Slow"},
    "cluster/prod": {*(name for name, _ in RULES), "Slow"},
}


@pytest.mark.parametrize("entity", ABOUT)
@pytest.mark.parametrize("kind", ["prometheus", "alertmanager"])
def test_alerts_are_matched_by_their_labels(urls: dict[str, str], kind: str, entity: str) -> None:
    """By pod, workload, node and namespace, renamed labels first; a pod's alert is its workload's; odd values match nothing else."""
    alerts = Alerts(GraphStore(_documents("prod")), IRIS, [_datasource(kind, urls[kind])])

    assert set(_about(alerts, entity)) == ABOUT[entity] - (set() if kind == "prometheus" else {"Slow"})


def test_both_servers_tell_of_an_alert_once(urls: dict[str, str]) -> None:
    """An alert that both have is one, suppressed when the Alertmanager says so, with the rule's value; the worst come first."""
    both = [_datasource(kind, urls[kind]) for kind in ("prometheus", "alertmanager")]
    alerts = Alerts(GraphStore(_documents("prod")), IRIS, both)
    found = alerts.fetch().alerts

    assert len(found) == len(RULES) + 1
    assert {each.name: each.state for each in found if each.state != "firing"} == {
        "Slow": "pending",
        "NodeDisk": "suppressed",
    }
    first = found[0]
    assert (first.name, first.severity, first.value) == ("NodeNotReady", "critical", 3.0)
    assert first.datasources == ("prometheus-main", "alertmanager-main")
    assert first.labels["site"] == "prod"
    assert [each.name for each in alerts.fetch(states=["firing"], severities=["warning"]).alerts] == ["Replicas"]
    with pytest.raises(InvalidInput, match="no state"):
        alerts.fetch(states=["fireing"])
    with pytest.raises(ResourceNotFound, match="there is no prod/shop/deployment/wob"):
        alerts.fetch(["prod/shop/deployment/wob"])


def test_the_cluster_is_told_or_nothing_is_matched(urls: dict[str, str]) -> None:
    """With two clusters an alert is matched only where the binding of its datasource, or its labels, say which one it is of."""
    graph = GraphStore(_documents("prod", "edge"))

    def about(kind: str, **more: Any) -> dict[str, str]:
        return _about(Alerts(graph, IRIS, [_datasource(kind, urls[kind], **more)]), "prod/-/node/n1")

    assert about("prometheus") == {}
    assert set(about("prometheus", clusters=["prod"])) == ABOUT["prod/-/node/n1"]
    assert about("prometheus", clusters=["edge"]) == {}
    assert about("prometheus", matchers={"site": "{cluster}"}) == {}  # its own alerts lack its external labels
    assert set(about("alertmanager", matchers={"site": "{cluster}"})) == ABOUT["prod/-/node/n1"]
    unmatched = Alerts(graph, IRIS, [_datasource("prometheus", urls["prometheus"])]).fetch().alerts
    assert {each.unmatched for each in unmatched} == {
        "its labels and the binding of prometheus-main do not tell its cluster"
    }


def test_a_server_that_is_away_is_named(urls: dict[str, str]) -> None:
    """The others' alerts come all the same, and a probe shows the Alertmanager's version."""
    away = _datasource("alertmanager", "http://127.0.0.1:9")
    found = Alerts(GraphStore(_documents("prod")), IRIS, [_datasource("prometheus", urls["prometheus"]), away]).fetch()

    assert [name for name, _ in found.failures] == ["alertmanager-main"]
    assert len(found.alerts) == len(RULES) + 1
    looked = probing.probe(
        _datasource("alertmanager", urls["alertmanager"]), TemplateCatalogue.shipped(), datetime.now(UTC)
    )
    assert looked["reachable"]
    assert looked["alerts"] == len(RULES)


@pytest.fixture(scope="module")
def service(urls: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service with both datasources."""
    directory = tmp_path_factory.mktemp("service")
    config = directory / "drumlin.toml"
    config.write_text(
        "".join(f'[[datasource]]\nname = "{kind}-main"\nkind = "{kind}"\nurl = "{url}"\n' for kind, url in urls.items())
    )
    with (
        service_of("--store", str(directory / "store"), "--config", str(config)) as running,
        drumlin.connect(running.url) as client,
    ):
        client.apply([GraphWrite.of(str(each["id"]), lines(each), "test") for each in _documents()], atomic=True)
        yield running


def test_client_command_and_saved_query_tell_the_same(service: Service) -> None:
    """``/alerts``, ``drumlin alerts`` and the saved query, which joins them with the graph; no triple is left of it."""
    with drumlin.connect(service.url) as client:
        found = client.alerts("prod/shop/deployment/web", state="firing")
        before = client.sparql("SELECT (COUNT(*) AS ?n) { ?s ?p ?o }")[0]["n"]
        rows = client.query("alerts")
        after = client.sparql("SELECT (COUNT(*) AS ?n) { ?s ?p ?o }")[0]["n"]

    assert found["failures"] == []
    assert [each["alert"] for each in found["items"]] == ["PodCrashes", "Replicas", "MixinWorkload"]
    assert found["items"][0]["entities"][:2] == ["prod/shop/pod/web-86b96c86dc-aaaaa", "prod/shop/deployment/web"]
    mine = {(row["alert"], row["severity"]) for row in rows if row["applicationGroup"] == "shop"}
    assert mine == {("PodCrashes", "critical"), ("Replicas", "warning"), ("MixinWorkload", None)}
    assert before == after
    printed = drumlin_asks("alerts", "prod/-/node/n1", "-u", service.url, "-o", "csv")
    assert "NodeDisk,suppressed,info,prod/-/node/n1" in printed.stdout
    assert httpx.get(f"{service.url}/queries/alerts", params={"format": "rq"}).text.count("VALUES") == 1
