"""Two clusters and three domains on one real Prometheus: each entity's numbers are its own, and what cannot be told apart is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from drumlin.kg.errors import InvalidInput, MetricMissing
from drumlin.kg.rdf.jsonld import NodeDocument
from drumlin.kg.telemetry import probing
from drumlin.kg.telemetry.datasources import Datasource
from drumlin.kg.telemetry.gathering import DatasourceClients
from drumlin.kg.telemetry.history import History
from drumlin.kg.telemetry.resolve import Resolver
from drumlin.kg.telemetry.templates import TemplateCatalogue
from drumlin.kg.telemetry.values import CurrentValues, Values
from tests.integration.conftest import CADVISOR, OpenMetrics, RealPrometheus, at, minutes, serving
from tests.unit.telemetry_store import IRIS, GraphStore

HOURS = minutes(0, 240)
CORES = {"prod": 0.5, "edge": 0.25}
"""CPU that the pod db-0 uses in each cluster, and ten times that the node n-1."""
ALICE = 0.125
"""CPU of the domain alice's pod in prod."""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealPrometheus]:
    """A Prometheus that holds both clusters, told apart by the label ``k8s_cluster``."""
    samples = OpenMetrics()
    for cluster, cores in CORES.items():
        own = {"k8s_cluster": cluster}
        pod = {**CADVISOR, **own, "namespace": "shop", "container": "db", "pod": "db-0"}
        samples.add("container_cpu_usage_seconds_total", pod, {m: 60 * cores * m for m in HOURS})
        node = {"job": "node-exporter", **own, "instance": "n-1", "mode": "user", "cpu": "0"}
        samples.add("node_cpu_seconds_total", node, {m: 600 * cores * m for m in HOURS})
    guest = {**CADVISOR, "k8s_cluster": "prod", "namespace": "alice", "container": "psi", "pod": "psi-0"}
    samples.add("container_cpu_usage_seconds_total", guest, {m: 60 * ALICE * m for m in HOURS})
    with serving(samples, tmp_path_factory.mktemp("shared")) as server:
        yield server


def _document(iri: str, kind: str, domain: str | None = None) -> NodeDocument:
    described = {"id": iri, "type": kind, "name": iri.rpartition("/")[2]}
    return described | ({"domain": IRIS.domain(domain)} if domain else {})


def _graph() -> GraphStore:
    documents = [_document(IRIS.domain(each), "Domain") for each in ("site", "branch", "alice", "bob")]
    for cluster, domain in (("prod", "site"), ("edge", "branch")):
        documents.append(_document(IRIS.cluster(cluster), "Cluster", domain))
        documents.append(_document(IRIS.object(cluster, None, "Node", "n-1"), "Node", domain))
        documents.append(_document(IRIS.object(cluster, "shop", "StatefulSet", "db"), "StatefulSet", domain))
    documents.append(_document(IRIS.object("prod", None, "Namespace", "alice"), "Namespace", "alice"))
    return GraphStore(documents)


def _mean(entity: str, *datasources: Datasource) -> float:
    with History(Resolver(_graph(), IRIS, datasources)) as history:
        table = history.fetch(entity, "cpu_usage", start=at(60), end=at(180), step="5m").table
    values = table["y"].to_pylist()
    return sum(values) / len(values)


@pytest.mark.parametrize(
    ("entity", "truth"),
    [
        ("prod/shop/statefulset/db", 0.5),
        ("edge/shop/statefulset/db", 0.25),
        ("prod/-/node/n-1", 5.0),
        ("edge/-/node/n-1", 2.5),
        ("cluster/prod", 5.0),
        ("cluster/edge", 2.5),
        ("domain/site", 5.0),
        ("domain/branch", 2.5),
        ("domain/alice", ALICE),
    ],
)
def test_every_entity_has_its_own_numbers(shared: RealPrometheus, entity: str, truth: float) -> None:
    """What is fetched of an entity is what was written for it, to a tenth of a per cent."""
    datasource = shared.datasource(matchers={"k8s_cluster": "{cluster}"})

    assert _mean(entity, datasource) == pytest.approx(truth, rel=1e-3)


@pytest.mark.parametrize("entity", ["prod/shop/statefulset/db", "edge/-/node/n-1", "cluster/prod", "domain/site"])
def test_no_number_is_given_where_it_would_be_a_sum(shared: RealPrometheus, entity: str) -> None:
    """Without a binding nothing is fetched, for every scope."""
    with pytest.raises(InvalidInput, match="bound to no cluster"):
        _mean(entity, shared.datasource())


def test_a_domain_of_which_nothing_is_known_has_no_number(shared: RealPrometheus) -> None:
    """A domain without nodes and namespaces is refused, where today it had everybody's."""
    with pytest.raises(InvalidInput, match="domains are known"):
        _mean("domain/bob", shared.datasource(matchers={"k8s_cluster": "{cluster}"}))


def test_a_wrong_matcher_is_named(shared: RealPrometheus) -> None:
    """A label that the server does not have is told as a matcher to correct, by history and by a probe."""
    datasource = shared.datasource(matchers={"cluster": "{cluster}"})

    with pytest.raises(MetricMissing, match="has no label cluster") as error:
        _mean("prod/shop/statefulset/db", datasource)
    assert "k8s_cluster, metrics_path, namespace, pod; correct matchers" in str(error.value.hint)

    now = at(200)
    wrong, right = (
        {each["template"]: each for each in probing.probe(server, TemplateCatalogue.shipped(), now)["templates"]}
        for server in (datasource, shared.datasource(matchers={"k8s_cluster": "{cluster}"}))
    )
    assert wrong["workload.cpu_usage"]["found"] is False
    assert right["workload.cpu_usage"]["found"] is True


def _values(entities: list[str], *datasources: Datasource, **more: Any) -> CurrentValues:
    clients = DatasourceClients(lambda _: None)
    try:
        return Values(Resolver(_graph(), IRIS, datasources), clients, clock=lambda: at(180)).fetch(
            entities, ["cpu_usage"], **more
        )
    finally:
        clients.close()


def test_current_values_of_two_clusters_are_their_own(shared: RealPrometheus) -> None:
    """Equal names in two clusters are asked for with each cluster's matchers, and have each its own value."""
    entities = ["prod/-/node/n-1", "edge/-/node/n-1", "cluster/prod", "prod/-/namespace/alice", "domain/alice"]
    found = _values(entities, shared.datasource(matchers={"k8s_cluster": "{cluster}"}))

    assert [each.value for each in found.values] == pytest.approx([5.0, 2.5, 5.0, ALICE, ALICE])
    assert found.missing == ()


def test_no_current_value_is_a_sum_over_clusters(shared: RealPrometheus) -> None:
    """Without a binding nothing is asked, and each entity says so."""
    found = _values(["prod/-/node/n-1", "cluster/edge"], shared.datasource())

    assert found.values == ()
    assert {str(error).partition(",")[0] for _, error in found.missing} == {
        "datasource prometheus-main is bound to no cluster"
    }


def test_a_group_spans_clusters_that_are_told_apart(shared: RealPrometheus) -> None:
    """The pods of both clusters, which have the same names, are added up, each asked for in its own cluster."""
    graph = _graph()
    for cluster in CORES:
        own = IRIS.object(cluster, "shop", "StatefulSet", "db")
        run = {"type": "Run", "startedAt": at(0).isoformat().replace("+00:00", "Z")}
        iri = IRIS.object(cluster, "shop", "Pod", "db-0")
        graph.add(
            [{"id": iri, "type": "Pod", "name": "db-0", "managedBy": own, "runs": [run | {"id": IRIS.run(iri, "r")}]}]
        )
    window = {"start": at(60), "end": at(180), "step": "5m"}
    with History(Resolver(graph, IRIS, [shared.datasource(matchers={"k8s_cluster": "{cluster}"})])) as history:
        values = history.fetch("kind/StatefulSet", "cpu_usage", **window).table["y"].to_pylist()
    with (
        History(Resolver(graph, IRIS, [shared.datasource(clusters=["prod"])])) as bound,
        pytest.raises(InvalidInput, match=r"spans the clusters edge, prod"),
    ):
        bound.fetch("kind/StatefulSet", "cpu_usage", **window)

    assert values == pytest.approx([0.75] * len(values))
