"""Names of things: every row of the contract's golden table, and the round trip of any legal name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumlin.kg.errors import InvalidIdentifier
from drumlin.kg.model.iris import RESERVED, ClassName, Iris, ObjectName, Parsed

B = "https://kg.example"
IRIS = Iris(B)
CHECKOUT = f"{B}/id/prod/payments/deployment/checkout"
KUSCIA = "kuscia.secretflow"

OBJECTS = [
    (("prod", None, "Node", "edge-a-1", ""), "prod/-/node/edge-a-1"),
    (("prod", None, "Node", "node.with.dots.example.org", ""), "prod/-/node/node.with.dots.example.org"),
    (("prod", None, "Namespace", "payments", ""), "prod/-/namespace/payments"),
    (("prod", "payments", "Deployment", "checkout", "apps"), "prod/payments/deployment/checkout"),
    (("prod", "search", "Deployment", "web", "apps"), "prod/search/deployment/web"),
    (("prod", "edge", "Deployment", "web", "apps"), "prod/edge/deployment/web"),
    (("prod", "payments", "StatefulSet", "orders-db", "apps"), "prod/payments/statefulset/orders-db"),
    (("prod", "monitoring", "DaemonSet", "kepler", "apps"), "prod/monitoring/daemonset/kepler"),
    (("prod", "ml", "Job", "train-demand-2026-11", "batch"), "prod/ml/job/train-demand-2026-11"),
    (("prod", "search", "CronJob", "reindex", "batch"), "prod/search/cronjob/reindex"),
    (("prod", "legacy", "ReplicaSet", "standalone", "apps"), "prod/legacy/replicaset/standalone"),
    (("prod", "payments", "Pod", "orders-db-0", ""), "prod/payments/pod/orders-db-0"),
    (("prod", "payments", "Service", "checkout", ""), "prod/payments/service/checkout"),
    (("prod", "payments", "Ingress", "shop", "networking.k8s.io"), "prod/payments/ingress/shop"),
    (
        ("prod", "payments", "HorizontalPodAutoscaler", "checkout", "autoscaling"),
        "prod/payments/horizontalpodautoscaler/checkout",
    ),
    (("prod", "ml", "PersistentVolumeClaim", "training-data", ""), "prod/ml/persistentvolumeclaim/training-data"),
    (("prod", None, "PersistentVolume", "pv-1", ""), "prod/-/persistentvolume/pv-1"),
    (("prod", None, "StorageClass", "standard", "storage.k8s.io"), "prod/-/storageclass/standard"),
    (
        ("prod", "cross-domain", "KusciaJob", "job-psi-train", KUSCIA),
        "prod/cross-domain/kusciajob.kuscia.secretflow/job-psi-train",
    ),
    (
        ("prod", None, "ClusterDomainRoute", "alice-bob", KUSCIA),
        "prod/-/clusterdomainroute.kuscia.secretflow/alice-bob",
    ),
    (("prod", "shop", "Function", "resize-image", ""), "function/prod/shop/resize-image"),
    (("prod", "alice", "DomainData", "alice-table", KUSCIA), "prod/alice/domaindata.kuscia.secretflow/alice-table"),
]
CLASSES = [
    (IRIS.cluster("prod"), "cluster", "prod", "cluster/prod"),
    (IRIS.domain("alice"), "domain", "alice", "domain/alice"),
    (IRIS.domain("glaciation-node1"), "domain", "glaciation-node1", "domain/glaciation-node1"),
    (IRIS.domain("南京"), "domain", "南京", "domain/%E5%8D%97%E4%BA%AC"),
    (IRIS.datasource("prometheus-main"), "datasource", "prometheus-main", "datasource/prometheus-main"),
    (IRIS.template("workload.cpu_usage"), "template", "workload.cpu_usage", "template/workload.cpu_usage"),
    (
        IRIS.of_class("forecast", "01932f6e-8b1c-7c3a-9a50-2f1d6c0c7a11"),
        "forecast",
        "01932f6e-8b1c-7c3a-9a50-2f1d6c0c7a11",
        "forecast/01932f6e-8b1c-7c3a-9a50-2f1d6c0c7a11",
    ),
    (IRIS.external("api.example.org"), "external", "api.example.org", "external/api.example.org"),
    (
        IRIS.invocation(CHECKOUT, f"{B}/id/prod/payments/statefulset/orders-db"),
        "invocation",
        "5956a816a1710f35aa520fb3eedc2fe9",
        "invocation/5956a816a1710f35aa520fb3eedc2fe9",
    ),
    (
        IRIS.of_class("agent", "fdfec62eb21cf0ef0a22c690f40774de"),
        "agent",
        "fdfec62eb21cf0ef0a22c690f40774de",
        "agent/fdfec62eb21cf0ef0a22c690f40774de",
    ),
]
UID = "3433d13e-51ed-4540-8f7c-6688dcabb375"
PARTS = [
    (IRIS.container(CHECKOUT, "checkout"), "container/checkout"),
    (IRIS.container(CHECKOUT, "a b"), "container/a%20b"),
    (IRIS.run(CHECKOUT, UID), f"run/{UID}"),
    (IRIS.telemetry(CHECKOUT, "metrics"), "telemetry/metrics"),
    (IRIS.telemetry(CHECKOUT, "logs"), "telemetry/logs"),
    (IRIS.metric(CHECKOUT, "cpu_usage"), "metric/cpu_usage"),
    (IRIS.at(IRIS.metric(CHECKOUT, "cpu_usage"), "prometheus-main"), "metric/cpu_usage/at/prometheus-main"),
    (IRIS.at(IRIS.telemetry(CHECKOUT, "logs"), "loki-main"), "telemetry/logs/at/loki-main"),
    (IRIS.dashboard(CHECKOUT, "grafana-main"), "dashboard/grafana-main"),
]


@pytest.mark.parametrize(("name", "short"), OBJECTS, ids=[short for _, short in OBJECTS])
def test_objects_have_the_contracts_iris(name: tuple[str, str | None, str, str, str], short: str) -> None:
    """Each object of the golden table is minted and parsed as written there; Kubernetes' own groups are left out."""
    iri = IRIS.object(*name)
    cluster, namespace, kind, plain, group = name
    parsed = IRIS.parse(iri)

    assert iri == f"{B}/id/{short}"
    assert (IRIS.expand(short), IRIS.short(iri), IRIS.entity(iri)) == (iri, short, iri)
    assert parsed == Parsed(
        ObjectName(cluster, namespace, kind.lower(), plain, group if group == KUSCIA else ""), (), notes=False
    )


@pytest.mark.parametrize(("iri", "kind", "name", "short"), CLASSES, ids=[row[3] for row in CLASSES])
def test_things_of_a_class_have_the_contracts_iris(iri: str, kind: str, name: str, short: str) -> None:
    """The same for clusters, domains, datasources, templates, forecasts and agents."""
    assert iri == f"{B}/id/{short}"
    assert IRIS.parse(iri) == Parsed(ClassName(kind, name))
    assert IRIS.entity(iri) == iri


@pytest.mark.parametrize(("iri", "below"), PARTS, ids=[below for _, below in PARTS])
def test_parts_live_below_their_entity(iri: str, below: str) -> None:
    """Containers, runs, telemetry, metrics and dashboards are named below their entity, whose graph they are in."""
    assert iri == f"{CHECKOUT}/{below}"
    assert IRIS.entity(iri) == CHECKOUT
    assert "/".join(IRIS.parse(iri).below) == below.replace("%20", " ")


def test_notes_have_a_graph_of_their_own() -> None:
    """Remarks on an entity are in a graph beside it, and have no notes themselves."""
    notes = IRIS.notes(CHECKOUT)

    assert notes == f"{B}/id/notes/prod/payments/deployment/checkout"
    assert IRIS.parse(notes) == Parsed(ObjectName("prod", "payments", "deployment", "checkout"), (), notes=True)
    assert IRIS.noted(notes) == CHECKOUT
    assert IRIS.noted(CHECKOUT) is None
    assert IRIS.noted(IRIS.scraped(CHECKOUT)) is None
    assert IRIS.entity(notes) == notes
    assert IRIS.entity(IRIS.notes(IRIS.domain("alice"))) == f"{B}/id/notes/domain/alice"
    scraped = IRIS.scraped(CHECKOUT)
    assert scraped == f"{B}/id/scraped/prod/payments/deployment/checkout"
    assert IRIS.entity(IRIS.metric(scraped, "orders_total")) == scraped
    for bad in (notes, scraped, IRIS.run(CHECKOUT, UID)):
        with pytest.raises(InvalidIdentifier):
            IRIS.notes(bad)


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "prod",
        "prod/payments/deployment",
        "prod/payments/Deployment/checkout",
        "prod/payments/deployment.apps/checkout",
        "prod/payments/deployment/checkout/",
        "prod/payments/deployment/checkout/unknown/x",
        "prod/payments/deployment/checkout/run",
        "prod//deployment/checkout",
        "prod/shop/function/resize",
        "function/prod/shop",
        "x/prod/shop/y",
        "external",
        "prod/payments/deployment/a b",
        "prod/payments/deployment/a%2fb",
        "prod/payments/deployment/%61",
        "prod/payments/deployment/%FF",
        "prod/payments/deployment/..",
        "prod/payments/deployment/a%",
        "domain",
        "notes/notes/domain/alice",
        "https://other.example/id/domain/alice",
        f"{B}/doc/domain/alice",
    ],
)
def test_what_names_nothing_is_refused(bad: str) -> None:
    """An id that is not what minting gives is an error, never a second name for a thing."""
    with pytest.raises(InvalidIdentifier):
        IRIS.expand(bad)


@pytest.mark.parametrize("name", sorted(RESERVED))
def test_no_cluster_bears_a_reserved_name(name: str) -> None:
    """A cluster named like a class would make ids ambiguous."""
    with pytest.raises(InvalidIdentifier, match="reserved"):
        IRIS.cluster(name)
    with pytest.raises(InvalidIdentifier, match="reserved"):
        IRIS.object(name, None, "Node", "n")


@pytest.mark.parametrize(
    "base", ["kg.example", "ftp://x", "https://user@x", "https://x?y", "https://x#y", "https://x y"]
)
def test_the_base_is_a_plain_http_address(base: str) -> None:
    """A base that could not carry ids is refused when it is configured."""
    with pytest.raises(InvalidIdentifier):
        Iris(base)


NAMES = st.text(st.characters(codec="utf-8"), min_size=1).filter(lambda name: name not in {".", ".."})
CLUSTERS = NAMES.filter(lambda name: name not in RESERVED)
NAMESPACES = st.none() | NAMES.filter(lambda name: name != "-")
KINDS = st.from_regex(r"[a-z][a-z0-9]*", fullmatch=True)
GROUPS = st.sampled_from(["", "kuscia.secretflow", "example.org", "南.example"])


@given(CLUSTERS, NAMESPACES, KINDS, NAMES, GROUPS)
def test_parsing_is_the_inverse_of_minting_objects(
    cluster: str, namespace: str | None, kind: str, name: str, group: str
) -> None:
    """Whatever the names, an object's IRI gives them back, and no other object has it."""
    iri = IRIS.object(cluster, namespace, kind, name, group)

    assert IRIS.parse(iri) == Parsed(ObjectName(cluster, namespace, kind, name, group))
    assert IRIS.expand(IRIS.short(iri)) == IRIS.entity(iri) == iri
    assert iri.isascii()


@given(st.sampled_from(sorted(RESERVED - {"notes", "scraped", "function", "x"})), NAMES, NAMES, NAMES)
def test_parsing_is_the_inverse_of_minting_parts(kind: str, name: str, part: str, datasource: str) -> None:
    """The same for things of a class and what lives below them."""
    entity = IRIS.of_class(kind, name)
    iri = IRIS.at(IRIS.metric(entity, part), datasource)

    assert IRIS.parse(iri) == Parsed(ClassName(kind, name), ("metric", part, "at", datasource))
    assert IRIS.entity(iri) == entity
    assert IRIS.parse(IRIS.notes(entity)) == Parsed(ClassName(kind, name), notes=True)


@given(st.text())
def test_any_text_is_an_id_or_an_error(text: str) -> None:
    """Parsing never fails in another way, and what it accepts is spelled in the one legal way."""
    try:
        iri = IRIS.expand(text)
    except InvalidIdentifier:
        return
    assert text in (iri, IRIS.short(iri))


SEGMENTS = st.sampled_from(
    [
        "prod",
        "notes",
        "domain",
        "-",
        "a",
        "pod",
        "pod.apps",
        "Pod",
        "x",
        "run",
        "metric",
        "",
        ".",
        "..",
        "%41",
        "%2F",
        "ä",
        "a b",
    ]
)


@given(st.lists(SEGMENTS, max_size=7).map("/".join))
def test_an_id_is_expanded_exactly_when_its_iri_can_be_taken_apart(id: str) -> None:
    """Names that are plainly an entity's are not taken apart: all of those, and no others, would be."""
    try:
        IRIS.read(f"{IRIS.root}{id}")
    except InvalidIdentifier:
        with pytest.raises(InvalidIdentifier):
            IRIS.expand(id)
    else:
        assert IRIS.expand(id) == f"{IRIS.root}{id}"
