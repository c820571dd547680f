"""When a workload's telemetry exists: one test per rule."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from drumlin.api.exporting import Exporting
from drumlin.exporters.kubectl.dump import DumpSource
from drumlin.exporters.pipeline import reconciler
from drumlin.exporters.pipeline.hosting_domain import ensure
from drumlin.exporters.pipeline.pipeline import Pipeline
from drumlin.exporters.protocol import Change
from drumlin.kg.graphs.owners import HOSTING, USER
from drumlin.kg.model.iris import Iris
from drumlin.kg.rdf.jsonld import lines
from drumlin.kg.store.protocol import GraphWrite
from tests.memory_sink import MemorySink
from tests.unit.rendering import CONTRACT, KINDS, around, follow, gone, now, synced, upserted

LABELS = {"app": "checkout"}
CHECKOUT = "https://kg.example/id/prod/shop/deployment/checkout"
MONITORING = "monitoring.coreos.com/v1"


def source(name: str, kind: str = "prometheus", **rules: Any) -> dict[str, Any]:
    """A configured datasource."""
    return {"name": name, "kind": kind, "url": f"http://{name}.example", **rules}


def workload(*, namespace: str = "shop", **annotations: str) -> dict[str, Any]:
    """A Deployment whose pods have annotations."""
    metadata = {
        "labels": LABELS,
        "annotations": {key.replace("__", "/").replace("_", "."): value for key, value in annotations.items()},
    }
    template = {"metadata": metadata, "spec": {"containers": [{"name": "checkout"}]}}
    return {
        "kind": "Deployment",
        "metadata": {"name": "checkout", "namespace": namespace, "uid": "w"},
        "spec": {"template": template},
    }


def service(
    namespace: str = "shop", name: str = "checkout", selector: Any = LABELS, labels: Any = LABELS, **annotations: str
) -> dict[str, Any]:
    """A Service."""
    return {
        "kind": "Service",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"s-{name}",
            "labels": labels,
            "annotations": {"prometheus.io/scrape": "true"} if annotations else {},
        },
        "spec": {"selector": selector, "ports": [{"port": 80}]},
    }


def monitor(kind: str = "ServiceMonitor", namespace: str = "shop", labels: Any = None, **spec: Any) -> dict[str, Any]:
    """A monitor of whatever bears the workload's label."""
    metadata = {"name": "m", "namespace": namespace, "uid": "m", "labels": labels or {"release": "main"}}
    return {
        "kind": kind,
        "apiVersion": MONITORING,
        "metadata": metadata,
        "spec": {"selector": {"matchLabels": LABELS}, **spec},
    }


def prometheus(name: str = "main", **spec: Any) -> list[dict[str, Any]]:
    """A Prometheus object that takes monitors of its release in every namespace, with the Service that leads to it."""
    taken = {"matchLabels": {"release": name}}
    spec = {
        "serviceMonitorSelector": taken,
        "podMonitorSelector": taken,
        "serviceMonitorNamespaceSelector": {},
        "podMonitorNamespaceSelector": {},
        **spec,
    }
    selector = {"app.kubernetes.io/name": "prometheus", "operator.prometheus.io/name": name}
    return [
        {
            "kind": "Prometheus",
            "apiVersion": MONITORING,
            "metadata": {"name": name, "namespace": "monitoring", "uid": f"p-{name}"},
            "spec": spec,
        },
        service("monitoring", f"prom-{name}", selector, {}),
    ]


NAMESPACE = {"kind": "Namespace", "metadata": {"name": "shop", "uid": "n", "labels": {"scraped": "yes"}}}
SCRAPED = [
    source("main", metrics="scraped", service="monitoring/prom-main"),
    source("other", metrics="scraped", service="monitoring/prom-other"),
]


def holders(
    *documents: dict[str, Any], datasources: list[dict[str, Any]], backwards: bool = False, entity: str = CHECKOUT
) -> dict[str, set[str]]:
    """Which datasources hold telemetry of the workload, by signal."""
    changes: list[Change] = [upserted(each) for each in (reversed(documents) if backwards else documents)]
    sink, _ = follow(changes, None, around({**CONTRACT, "datasource": datasources}), one_by_one=backwards)
    found: dict[str, set[str]] = {"metrics": set(), "logs": set()}
    for line in sink.graphs[entity]:
        subject, predicate, value = line.split(" ", 2)
        if predicate.endswith("#accessService>"):
            found["logs" if "/telemetry/logs" in subject else "metrics"].add(
                value.rpartition("/")[2].removesuffix("> .")
            )
    return found


@pytest.mark.parametrize(("annotation", "expected"), [("enabled", {"loki"}), ("disabled", set()), (None, set())])
def test_a_loki_of_injected_logs_holds_those_that_ask_for_the_sidecar(
    annotation: str | None, expected: set[str]
) -> None:
    """Rule 1: the fluentd annotation decides where a datasource holds the logs of injected pods only."""
    asked = {"fluentd-sidecar-injector_h3poteto_dev__injection": annotation} if annotation else {}
    injected = [source("loki", "loki", logs="injected")]

    assert holders(workload(**asked), datasources=injected)["logs"] == expected
    assert holders(workload(**asked), datasources=[source("loki", "loki")])["logs"] == {"loki"}


def test_a_datasource_of_some_namespaces_holds_theirs() -> None:
    """Rule 2: a datasource with ``namespaces`` knows the workloads of these, metrics and logs alike."""
    rules = [
        source("team", namespaces=["shop-*", "shop"]),
        source("others", namespaces=["else"]),
        source("logs", "loki", namespaces=["else"]),
    ]

    assert holders(workload(), datasources=rules) == {"metrics": {"team"}, "logs": set()}
    elsewhere = "https://kg.example/id/prod/else/deployment/checkout"
    assert holders(workload(namespace="else"), datasources=rules, entity=elsewhere) == {
        "metrics": {"others"},
        "logs": {"logs"},
    }


@pytest.mark.parametrize(("annotation", "expected"), [("true", {"main", "other"}), ("false", set()), (None, set())])
def test_a_prometheus_of_what_is_scraped_holds_annotated_pods(annotation: str | None, expected: set[str]) -> None:
    """Rule 3: the scrape annotation of the pods is for every Prometheus; without it, one that holds what is scraped holds nothing."""
    asked = {"prometheus_io__scrape": annotation} if annotation else {}

    assert holders(workload(**asked), datasources=SCRAPED)["metrics"] == expected
    assert holders(workload(**asked), datasources=[source("all")])["metrics"] == {"all"}


@pytest.mark.parametrize("backwards", [False, True])
def test_the_annotation_of_a_service_is_for_the_workloads_that_it_selects(*, backwards: bool) -> None:
    """Rule 4: a Service may ask for its pods, whichever comes first."""
    assert holders(workload(), service(annotated="yes"), datasources=SCRAPED, backwards=backwards)["metrics"] == {
        "main",
        "other",
    }
    other = service(annotated="yes", selector={"app": "else"})
    assert holders(workload(), other, datasources=SCRAPED, backwards=backwards)["metrics"] == set()


@pytest.mark.parametrize("backwards", [False, True])
def test_a_service_monitor_is_for_the_prometheus_that_takes_it(*, backwards: bool) -> None:
    """Rule 5: monitor → Service → workload, and monitor → Prometheus → Service → datasource, whichever comes first."""
    cluster = (NAMESPACE, workload(), service(), monitor(), *prometheus(), *prometheus("other"))

    assert holders(*cluster, datasources=SCRAPED, backwards=backwards)["metrics"] == {"main"}


def test_a_pod_monitor_is_for_workloads_whose_pods_it_selects() -> None:
    """Rule 6: a PodMonitor needs no Service."""
    assert holders(NAMESPACE, workload(), monitor("PodMonitor"), *prometheus(), datasources=SCRAPED)["metrics"] == {
        "main"
    }
    other = monitor("PodMonitor", selector={"matchLabels": {"app": "else"}})
    assert holders(NAMESPACE, workload(), other, *prometheus(), datasources=SCRAPED)["metrics"] == set()


@pytest.mark.parametrize(
    ("where", "seen"),
    [({}, False), ({"any": True}, True), ({"matchNames": ["shop"]}, True), ({"matchNames": ["else"]}, False)],
)
def test_a_monitor_looks_into_its_own_namespace_unless_it_names_others(where: dict[str, Any], *, seen: bool) -> None:
    """Rule 7: the namespace selector of a monitor."""
    elsewhere = {"kind": "Namespace", "metadata": {"name": "ops", "uid": "o"}}
    cluster = (
        NAMESPACE,
        elsewhere,
        workload(),
        service(),
        monitor(namespace="ops", namespaceSelector=where),
        *prometheus(),
    )

    assert holders(*cluster, datasources=SCRAPED)["metrics"] == ({"main"} if seen else set())


@pytest.mark.parametrize(
    ("spec", "taken"),
    [
        ({"serviceMonitorSelector": {}}, True),
        ({"serviceMonitorSelector": None}, False),
        ({"serviceMonitorNamespaceSelector": None}, False),
        ({"serviceMonitorNamespaceSelector": {"matchLabels": {"scraped": "yes"}}}, True),
        ({"serviceMonitorNamespaceSelector": {"matchLabels": {"scraped": "no"}}}, False),
    ],
)
def test_a_prometheus_takes_monitors_by_their_labels_and_their_namespaces_labels(
    spec: dict[str, Any], *, taken: bool
) -> None:
    """Rule 8: an empty selector takes all, an absent one nothing; an absent one of namespaces means its own."""
    assert holders(NAMESPACE, workload(), service(), monitor(), *prometheus(**spec), datasources=SCRAPED)[
        "metrics"
    ] == ({"main"} if taken else set())


def test_without_a_prometheus_object_a_monitor_is_for_the_only_datasource() -> None:
    """Rule 9: where Prometheus objects cannot be read, one datasource is the one; of several nobody knows which."""
    assert holders(workload(), service(), monitor(), datasources=SCRAPED[:1])["metrics"] == {"main"}
    assert holders(workload(), service(), monitor(), datasources=SCRAPED)["metrics"] == set()


def test_a_monitor_that_is_gone_takes_the_telemetry_with_it() -> None:
    """The workload's graph follows what scrapes it."""
    surroundings = around({**CONTRACT, "datasource": SCRAPED[:1]})
    changes = [upserted(workload()), upserted(service()), upserted(monitor()), gone(monitor())]
    before, _ = follow(changes[:3], None, surroundings, one_by_one=True)
    after, _ = follow(changes, None, surroundings, one_by_one=True)

    assert any("Telemetry" in line for line in before.graphs[CHECKOUT])
    assert not any("Telemetry" in line for line in after.graphs[CHECKOUT])


def operated() -> dict[str, Any]:
    """The Service that prometheus-operator makes for its Prometheus objects: headless, with no label that names them."""
    made = service(
        "monitoring", "prometheus-operated", {"app.kubernetes.io/name": "prometheus"}, {"operated-prometheus": "true"}
    )
    made["spec"] |= {"clusterIP": "None", "ports": [{"name": "web", "port": 9090}]}
    return made


def _found(*documents: dict[str, Any], datasources: list[dict[str, Any]] | None = None) -> dict[str, str]:
    """Which datasources the cluster is found to hold, and where they are."""
    surroundings = around({**CONTRACT, "datasource": datasources or []})
    sink, _ = follow([upserted(each) for each in documents], None, surroundings)
    return {
        graph.rpartition("/")[2]: line.split(" ")[2].strip("<>")
        for graph, lines in sink.graphs.items()
        for line in lines
        if "/datasource/" in graph and "endpointURL" in line
    }


def test_a_prometheus_object_alone_is_a_datasource_and_takes_monitors() -> None:
    """The operator's own Service leads to it, where no other does."""
    custom, _ = prometheus()
    sink, _ = follow([upserted(each) for each in (NAMESPACE, service(), monitor(), custom, operated())])

    where = "https://kg.example/id/datasource/prometheus-operated.monitoring.prod"
    assert any("<http://prometheus-operated.monitoring.svc:9090>" in line for line in sink.graphs[where])
    watched = sink.graphs["https://kg.example/id/prod/shop/servicemonitor.monitoring.coreos.com/m"]
    assert [line for line in watched if "scrapedBy" in line and where in line]


def test_a_service_that_leads_to_a_prometheus_object_is_found_by_its_selector() -> None:
    """A chart's Service bears no name label; it is preferred to the operator's own, and so is a configured one."""
    custom, chart = prometheus()
    chart["spec"]["ports"] = [{"name": "http-web", "port": 9090}, {"name": "reloader-web", "port": 8080}]
    thanos = {**chart, "metadata": {**chart["metadata"], "name": "thanos", "uid": "t"}}
    thanos["spec"] = {**chart["spec"], "ports": [{"name": "grpc", "port": 10901}]}

    assert _found(custom, chart, thanos, operated()) == {
        "prom-main.monitoring.prod": "http://prom-main.monitoring.svc:9090"
    }
    assert _found(custom, chart, operated(), datasources=[SCRAPED[0]]).keys() <= {"main"}


@pytest.mark.parametrize(
    ("url", "known"),
    [
        ("http://prom-main.monitoring.svc:9090/", True),
        ("http://prom-main.monitoring.svc.cluster.local:9090", True),
        ("http://Prom-Main.monitoring.svc.cluster.local.:9090/prometheus", True),
        ("https://prom-main.monitoring:9090", True),
        ("http://prom-main:9090", True),
        ("http://10.96.0.7:9090", True),
        ("http://prom-main.monitoring.svc", False),
        ("http://prom-main.other.svc:9090", False),
        ("http://prom-main.monitoring.example:9090", False),
    ],
)
def test_a_prometheus_that_is_configured_is_not_discovered_again(url: str, known: bool) -> None:
    """However its address is spelt, a configured server is one datasource; another port or namespace is another server."""
    custom, chart = prometheus()
    chart["spec"] |= {"clusterIP": "10.96.0.7", "ports": [{"name": "http-web", "port": 9090}]}
    configured = {"name": "main", "kind": "prometheus", "url": url}

    found = _found(custom, chart, operated(), datasources=[configured])

    assert ("prom-main.monitoring.prod" not in found) is known
    assert "prometheus-operated.monitoring.prod" not in found


def test_monitors_are_scraped_by_the_datasource_whose_address_leads_to_their_prometheus() -> None:
    """A configured url is enough: the Service that it leads to needs no ``service`` beside it."""
    custom, chart = prometheus()
    chart["spec"]["ports"] = [{"name": "http-web", "port": 9090}]
    configured = {"name": "main", "kind": "prometheus", "url": "http://prom-main.monitoring.svc.cluster.local:9090"}
    cluster = [NAMESPACE, service(), monitor(), custom, chart]
    sink, _ = follow([upserted(each) for each in cluster], None, around({**CONTRACT, "datasource": [configured]}))

    watched = sink.graphs["https://kg.example/id/prod/shop/servicemonitor.monitoring.coreos.com/m"]
    assert any("scrapedBy" in line and "datasource/main>" in line for line in watched)


def test_a_discovered_prometheus_takes_monitors_too() -> None:
    """A Service that is found to be a Prometheus is the datasource of the Prometheus object that it leads to."""
    custom, found = prometheus()
    found["metadata"]["labels"] = {"app.kubernetes.io/name": "prometheus"}
    sink, _ = follow([upserted(each) for each in (NAMESPACE, service(), monitor(), custom, found)])

    (line,) = [
        each
        for each in sink.graphs["https://kg.example/id/prod/shop/servicemonitor.monitoring.coreos.com/m"]
        if "scrapedBy" in each
    ]
    assert line.endswith(f"<{Iris('https://kg.example').datasource('prom-main.monitoring.prod')}> .")


def queries(sink: Any, entity: str) -> list[str]:
    """The stored queries of an entity."""
    return [line for line in sink.graphs[entity] if "/ns#query>" in line]


@pytest.mark.parametrize("kind", ["prometheus", "loki"])
def test_what_adds_clusters_together_is_not_described(kind: str) -> None:
    """With a second cluster in the store, an unbound datasource holds nothing that the graph tells; a bound one its cluster's."""
    both = [
        source("loose", kind),
        source("bound", kind, matchers={"site": "{cluster}"}),
        source("edge", kind, clusters=["edge"]),
    ]
    alone = follow([upserted(workload())], None, around({**CONTRACT, "datasource": both[:1]}))[0]
    assert queries(alone, CHECKOUT)

    sink = MemorySink()
    other = Iris(CONTRACT["base"]).cluster("edge")
    sink.apply([GraphWrite.of(other, frozenset({f'<{other}> <https://w3id.org/drumlin/ns#name> "edge" .'}), "edge")])
    follow([upserted(workload())], sink, around({**CONTRACT, "datasource": both}))

    found = queries(sink, CHECKOUT)
    assert found
    assert all("/at/bound>" in each and 'site=\\"prod\\"' in each for each in found)


def test_the_cluster_and_the_domain_are_described_with_matchers() -> None:
    """The stored queries of a cluster name it, those of its domain all of the domain's clusters."""
    settings = {
        **CONTRACT,
        "datasource": [source("main", matchers={"site": "{cluster}"})],
        "context": [{"cluster": "prod"}, {"name": "edge"}],
    }
    base = around(settings)
    sink = MemorySink()
    ensure(sink, base.settings, base.iris, base.catalogue, base.datasources)

    cluster, domain = (queries(sink, iri) for iri in (base.cluster, base.hosting_domain))
    assert cluster
    assert all('site=\\"prod\\"' in each for each in cluster)
    assert domain
    assert all('site=~\\"edge|prod\\"' in each for each in domain)


def test_stored_queries_follow_a_template_that_a_user_overrides(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is overridden is rendered and written anew while the run goes on, at its start too, and again when it is restored."""
    monkeypatch.setattr(reconciler, "TEMPLATES_SECONDS", 0.0)
    surroundings = around({**CONTRACT, "datasource": [source("p")]})
    sink, run = follow([*synced(), upserted(workload())], surroundings=surroundings)
    iri = surroundings.iris.template("workload.mem_usage")
    shipped = surroundings.catalogue.find("Workload", "mem_usage")
    usual = sink.graphs[CHECKOUT]

    def put(query: str, owner: str) -> None:
        document = replace(shipped, query=query).document(surroundings.iris)
        sink.apply([GraphWrite(iri, None, sink.owners[iri])])
        sink.apply([GraphWrite.of(iri, lines(document), owner)])

    put("sum(mine{pod=~{{pods}},namespace={{namespace}}})", USER)
    run.flush()
    changed = sink.graphs[CHECKOUT]
    assert sum("sum(mine{" in line for line in changed) == 1
    assert len(changed) == len(usual)
    assert sink.owners[iri] == USER
    applies = sink.applies
    run.flush()
    assert sink.applies == applies
    later, _ = follow([*synced(), upserted(workload())], sink, surroundings)
    assert later.graphs[CHECKOUT] == changed
    put(shipped.query, HOSTING)
    run.flush()
    assert sink.graphs[CHECKOUT] == usual


def test_a_dump_is_read_again_for_a_template_that_changed(tmp_path: Path) -> None:
    """The graphs of a served dump, which ended long ago, follow too; standard input is not there a second time."""
    place, sink, found = tmp_path / "w.json", MemorySink(), around({**CONTRACT, "datasource": [source("p")]})
    place.write_text(json.dumps({"apiVersion": "apps/v1", **workload()}))
    flow = Pipeline(sink, KINDS, found.settings, found.iris, found.catalogue, found.datasources, clock=now)
    exporting = Exporting(flow, DumpSource([place], KINDS, clock=now))
    exporting.turn()
    shipped = found.catalogue.find("Workload", "mem_usage")
    document = replace(shipped, query="sum(mine{pod=~{{pods}}})").document(found.iris)
    sink.apply([GraphWrite(document["id"], None, HOSTING)])
    sink.apply([GraphWrite.of(document["id"], lines(document), USER)])
    exporting.turn()
    assert any("sum(mine{" in line for line in sink.graphs[CHECKOUT])
    assert not DumpSource(["-"], KINDS, clock=now).is_readable_again
