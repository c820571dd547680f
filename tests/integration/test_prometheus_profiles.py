"""Ten installations on one real Prometheus, told apart by a label: each gives the known truth under its profile, and is recognised."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from typing import Any

import pytest

from drumlin.api.cli.output import Output
from drumlin.api.cli.series import emit_datasources
from drumlin.kg.config.datasources import DatasourceSettings
from drumlin.kg.config.settings import DEFAULT_EXPORTERS
from drumlin.kg.errors import MetricMissing
from drumlin.kg.rdf.jsonld import NodeDocument
from drumlin.kg.telemetry import naming_report, probing
from drumlin.kg.telemetry.datasources import Datasource
from drumlin.kg.telemetry.history import History
from drumlin.kg.telemetry.resolve import Resolver
from drumlin.kg.telemetry.templates import TemplateCatalogue
from tests import installations
from tests.installations import EXPORTED, INSTALLATIONS, UNLIKE, Written
from tests.integration.conftest import OpenMetrics, RealPrometheus, at, serving
from tests.unit.telemetry_store import IRIS, GraphStore

MINUTES = range(240)
NOW = at(239)
PROFILES = {letter: each.profile for letter, each in INSTALLATIONS.items()} | {"I": "otel-collector"}
FACTORS = {letter: 1.0 + number for number, letter in enumerate([*sorted(PROFILES), "X", "P", "R"])}
"""By letter; X is unlike all, P is Google's with exported labels, R has recording rules alone."""
TRUTH = {
    ("prod/shop/statefulset/db", "cpu_usage"): installations.CPU,
    ("prod/shop/statefulset/db", "mem_usage"): installations.MEMORY,
    ("prod/shop/statefulset/db", "network_receive"): installations.RECEIVE,
    ("prod/-/node/n-1", "cpu_usage"): installations.NODE_CPU,
    ("prod/-/node/n-1", "mem_usage"): installations.NODE_MEMORY,
    ("prod/-/node/n-1", "network_receive"): installations.NODE_RECEIVE,
    ("cluster/prod", "cpu_usage"): 8 * installations.NODE_CPU,
    ("cluster/prod", "mem_usage"): 8 * installations.NODE_MEMORY,
}


STATES = {
    ("prod/shop/statefulset/db", "cpu_requested"): installations.REQUEST,
    ("prod/shop/statefulset/db", "restarts"): 300 * installations.RESTARTS,
    ("prod/-/node/n-1", "cpu_requested"): 4 * installations.REQUEST,
    ("prod/shop/statefulset/db", "storage_usage"): installations.USED,
    ("prod/-/node/n-1", "storage_usage"): 4 * installations.USED,
}
"""What kube-state-metrics and the kubelet tell, where their templates are enabled; the first two OpenTelemetry tells too."""
ENABLED = TemplateCatalogue.shipped(frozenset({*DEFAULT_EXPORTERS, "kube-state-metrics", "kubelet-volumes"}))


def _written(letter: str) -> Iterator[Written]:
    factor = FACTORS[letter]
    if letter == "I":
        yield from installations.otel(factor)
    elif letter == "R":
        yield from installations.rules(factor)
    elif letter == "P":
        yield from installations.series(EXPORTED, factor)
    else:
        yield from installations.series(INSTALLATIONS.get(letter, UNLIKE), factor)


@pytest.fixture(scope="module")
def everywhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealPrometheus]:
    """A Prometheus with the series of all installations, each with its letter in the label ``installation``."""
    samples = OpenMetrics()
    for letter in FACTORS:
        for each in _written(letter):
            labels = {**each.labels, "installation": letter}
            samples.add(each.metric, labels, {minute: each.at + each.rate * 60 * minute for minute in MINUTES})
    with serving(samples, tmp_path_factory.mktemp("profiles")) as server:
        yield server


def _document(iri: str, kind: str, domain: str = "site") -> NodeDocument:
    return {"id": iri, "type": kind, "name": iri.rpartition("/")[2], "domain": IRIS.domain(domain)}


GRAPH = GraphStore(
    [
        {"id": IRIS.domain("site"), "type": "Domain", "name": "site"},
        _document(IRIS.cluster("prod"), "Cluster"),
        _document(IRIS.object("prod", None, "Node", "n-1"), "Node"),
        _document(IRIS.object("prod", None, "Node", "n-2"), "Node"),
        _document(IRIS.object("prod", "shop", "StatefulSet", "db"), "StatefulSet"),
    ]
)


def _part(server: RealPrometheus, letter: str, **more: object) -> Datasource:
    """The part of the server that is one installation."""
    return server.datasource(matchers={"installation": letter}, **more)


def _mean(entity: str, metric: str, datasource: Datasource) -> float:
    with History(Resolver(GRAPH, IRIS, [datasource], ENABLED)) as history:
        series = history.fetch(entity, metric, start=at(60), end=at(180), step="5m")
    assert set(series.coverage.values()) == {1.0}
    values = series.table["y"].to_pylist()
    return float(sum(values) / len(values))


@pytest.mark.parametrize("letter", sorted(PROFILES))
def test_each_installation_gives_the_truth_under_its_profile(everywhere: RealPrometheus, letter: str) -> None:
    """CPU, memory and traffic of workload, node and cluster are what was written, to a tenth of a per cent, by the profile alone."""
    datasource = _part(everywhere, letter, profile=PROFILES[letter])

    for (entity, metric), truth in TRUTH.items():
        found = _mean(entity, metric, datasource)
        assert found == pytest.approx(FACTORS[letter] * truth, rel=1e-3), (entity, metric)
    share = _mean("prod/shop/statefulset/db", "cpu_utilisation", datasource)
    assert share == pytest.approx(100 * installations.CPU / installations.LIMIT, rel=1e-3)


@pytest.mark.parametrize("letter", [*sorted(PROFILES), "P", "X"])
def test_each_installation_has_its_states_and_volumes(everywhere: RealPrometheus, letter: str) -> None:
    """Requests, restarts and volumes are found by the names of their own exporters, which differ from cAdvisor's."""
    datasource = (
        _part(everywhere, letter, profile=PROFILES[letter]) if letter in PROFILES else _proposed(everywhere, letter)
    )

    for number, ((entity, metric), truth) in enumerate(STATES.items()):
        if letter != "I" or number < 2:
            found = _mean(entity, metric, datasource)
            assert found == pytest.approx(FACTORS[letter] * truth, rel=1e-3), (entity, metric)
    if letter != "I":
        assert _mean("prod/-/node/n-1", "pods_running", datasource) == 2


@pytest.mark.parametrize("letter", sorted(PROFILES))
def test_each_installation_is_recognised_by_its_series(everywhere: RealPrometheus, letter: str) -> None:
    """The guess is the right profile, certain, with its evidence; the probe uses it and finds what the installation has."""
    found = probing.probe(_part(everywhere, letter), TemplateCatalogue.shipped(), NOW, ["prod"])

    profile = found["profile"]
    assert (profile["guess"], profile["certain"], profile["against"]) == (PROFILES[letter], True, [])
    assert (profile["configured"], profile["used"]) == (None, PROFILES[letter])
    assert profile["evidence"]
    templates = {each["template"]: each for each in found["templates"]}
    assert templates["workload.cpu_usage"]["found"]
    assert templates["node.mem_usage"]["found"]
    dropped = letter in ("E", "F")  # by these installations' own rules
    assert ("does not keep this metric" in str(templates["workload.disk_usage"].get("hint"))) is dropped


@pytest.mark.parametrize("letter", [*sorted(PROFILES), "X", "P"])
def test_the_lines_that_are_proposed_are_right(everywhere: RealPrometheus, letter: str) -> None:
    """What ``drumlin datasources`` prints can be pasted as it is, and then gives the truth, also for an installation unlike all."""
    datasource = _proposed(everywhere, letter)

    share = _mean("prod/shop/statefulset/db", "cpu_utilisation", datasource)
    assert share == pytest.approx(100 * installations.CPU / installations.LIMIT, rel=1e-3)
    for (entity, metric), truth in TRUTH.items():
        found = _mean(entity, metric, datasource)
        assert found == pytest.approx(FACTORS[letter] * truth, rel=1e-3), (entity, metric)


def _proposed(server: RealPrometheus, letter: str) -> Datasource:
    """The datasource that the proposed lines make."""
    proposed = probing.probe(_part(server, letter), TemplateCatalogue.shipped(), NOW, ["prod"])["configuration"]
    (table,) = tomllib.loads(proposed)["datasource"]
    table["matchers"] = {"installation": letter} | table.get("matchers", {})
    settings = DatasourceSettings.model_validate({**table, "scrape_interval": "60s"})
    return Datasource.from_settings(settings, IRIS, None)


@pytest.mark.parametrize(
    "asked", [each for each in TRUTH if each[0] != "cluster/prod" or each[1] == "cpu_usage"], ids=" ".join
)
def test_recording_rules_stand_in_for_raw_series(everywhere: RealPrometheus, asked: tuple[str, str]) -> None:
    """A server that keeps only the mixins' rules is recognised, and answers what they have; memory of nodes is not in them."""
    datasource = _proposed(everywhere, "R")
    assert datasource.recorded
    looked = probing.probe(datasource, TemplateCatalogue.shipped(), NOW, ["prod"])["templates"]
    assert {"workload.cpu_usage", "node.cpu_usage"} <= {each["template"] for each in looked if each["found"]}

    if asked in (("prod/shop/statefulset/db", "network_receive"), ("prod/-/node/n-1", "mem_usage")):
        with pytest.raises(MetricMissing):
            _mean(*asked, datasource)
    else:
        assert _mean(*asked, datasource) == pytest.approx(FACTORS["R"] * TRUTH[asked], rel=1e-3)


def test_raw_series_come_before_recording_rules(everywhere: RealPrometheus) -> None:
    """With ``recorded``, an installation that has both gives its own numbers, each once."""
    datasource = _part(everywhere, "A", profile=PROFILES["A"], recorded=True)

    for (entity, metric), truth in TRUTH.items():
        assert _mean(entity, metric, datasource) == pytest.approx(FACTORS["A"] * truth, rel=1e-3)


@pytest.mark.parametrize(
    ("letter", "label", "lines"),
    [
        ("A", None, {"clusters": ["prod"]}),
        ("E", "cluster", {"matchers": {"cluster": "{cluster}"}}),
        ("I", "k8s_cluster_name", {"matchers": {"k8s_cluster_name": "{cluster}"}}),
        ("X", "clusterName", {"clusters": ["prod"], "matchers": {"clusterName": "site"}}),
    ],
)
def test_the_label_that_tells_clusters_apart_is_found(
    everywhere: RealPrometheus, letter: str, label: str | None, lines: dict[str, Any]
) -> None:
    """The binding is proposed by the label's values and by the clusters that are known."""
    found = probing.probe(_part(everywhere, letter), TemplateCatalogue.shipped(), NOW, ["prod"])

    assert found["clusterLabel"]["label"] == label
    (table,) = tomllib.loads(found["configuration"])["datasource"]
    if "matchers" in lines:
        lines["matchers"] = {"installation": letter, **lines["matchers"]}  # what is configured stays
    assert {name: table[name] for name in ("clusters", "matchers") if name in table} == lines


def test_an_installation_unlike_all_is_described_precisely(everywhere: RealPrometheus) -> None:
    """No profile is guessed; what differs and what no setting mends is said by name."""
    found = probing.probe(_part(everywhere, "X"), TemplateCatalogue.shipped(), NOW, ["prod"])

    profile = found["profile"]
    assert (profile["guess"], profile["certain"], profile["used"]) == (None, False, None)
    assert "the job of container_cpu_usage_seconds_total is advisor" in profile["against"]
    assert "cAdvisor's series have no label metrics_path" in profile["against"]
    assert profile["missing"] == []
    (table,) = tomllib.loads(found["configuration"])["datasource"]
    own = {"cadvisor": "advisor", "kubelet": "machines-kubelet"}
    assert table["jobs"] == {**own, "kube-state-metrics": "states-a", "node-exporter": "machines"}


def test_without_its_profile_an_installation_says_what_to_do(everywhere: RealPrometheus) -> None:
    """A node of kube-prometheus-stack is not found by name; the error leads to the command that guesses the profile."""
    with pytest.raises(MetricMissing, match="instance") as error:
        _mean("prod/-/node/n-1", "cpu_usage", _part(everywhere, "A"))
    assert "drumlin datasources prometheus-main" in str(error.value.hint)


def test_exported_labels_are_told_where_rows_are_missing(everywhere: RealPrometheus) -> None:
    """A workload's limits are below kube-state-metrics' own pod: the error says where they are, and the setting."""
    with pytest.raises(MetricMissing) as error:
        _mean("prod/shop/statefulset/db", "cpu_utilisation", _part(everywhere, "P", profile="gke"))

    assert 'set labels = {kube-state-metrics = {namespace = "exported_namespace"}}' in str(error.value.hint)


def test_a_domain_of_some_nodes_is_the_sum_over_them(everywhere: RealPrometheus) -> None:
    """Nodes are joined by address also where a domain's part of a cluster is asked for."""
    own = [("site", "n-1"), ("other", "n-2")]
    graph = GraphStore(
        [
            {"id": IRIS.cluster("prod"), "type": "Cluster", "name": "prod"},
            *({"id": IRIS.domain(each), "type": "Domain", "name": each} for each, _ in own),
            *(_document(IRIS.object("prod", None, "Node", name), "Node", domain) for domain, name in own),
        ]
    )
    for letter in ("A", "D", "X"):
        datasource = (
            _proposed(everywhere, "X") if letter == "X" else _part(everywhere, letter, profile=PROFILES[letter])
        )
        for (domain, _), times in zip(own, (1, 7), strict=True):
            with History(Resolver(graph, IRIS, [datasource])) as history:
                series = history.fetch(f"domain/{domain}", "cpu_usage", start=at(60), end=at(180), step="5m")
            values = series.table["y"].to_pylist()
            truth = FACTORS[letter] * times * installations.NODE_CPU
            assert sum(values) / len(values) == pytest.approx(truth, rel=1e-3), (letter, domain)


HUB = {"prod": "A", "edge": "F"}


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealPrometheus]:
    """A Prometheus that holds two clusters of different kinds, told apart by the label ``cluster``."""
    samples = OpenMetrics()
    for cluster, letter in HUB.items():
        for each in _written(letter):
            labels = {**each.labels, "cluster": cluster}
            samples.add(each.metric, labels, {minute: each.at + each.rate * 60 * minute for minute in MINUTES})
    with serving(samples, tmp_path_factory.mktemp("hub")) as server:
        yield server


def test_a_hub_of_several_kinds_gets_a_table_for_each(hub: RealPrometheus) -> None:
    """Clusters are recognised one by one where a server fits no profile as a whole; the tables give each its own truth."""
    found = probing.probe(hub.datasource(), TemplateCatalogue.shipped(), NOW, list(HUB))

    assert found["clusterLabel"]["profiles"] == {"edge": "aks", "prod": "kube-prometheus-stack"}
    tables = tomllib.loads(found["configuration"])["datasource"]
    given = [DatasourceSettings.model_validate({**table, "scrape_interval": "60s"}) for table in tables]
    datasources = [Datasource.from_settings(each, IRIS, None) for each in given]
    graph = GraphStore(
        [
            *({"id": IRIS.domain("site"), "type": "Domain", "name": "site"},),
            *(_document(IRIS.cluster(each), "Cluster") for each in HUB),
            *(_document(IRIS.object(each, "shop", "StatefulSet", "db"), "StatefulSet") for each in HUB),
        ]
    )
    for cluster, letter in HUB.items():
        for entity in (f"{cluster}/shop/statefulset/db", f"cluster/{cluster}"):
            truth = installations.CPU if "db" in entity else 8 * installations.NODE_CPU
            with History(Resolver(graph, IRIS, datasources)) as history:
                values = history.fetch(entity, "cpu_usage", start=at(60), end=at(180), step="5m").table["y"].to_pylist()
            assert sum(values) / len(values) == pytest.approx(FACTORS[letter] * truth, rel=1e-3), entity


def test_a_server_that_stopped_is_recognised_by_its_last_day(everywhere: RealPrometheus) -> None:
    """Where the last hour has nothing, the last day is looked at; a month later there is nothing at all."""
    datasource = _part(everywhere, "F")

    assert naming_report.report(datasource, at(239 + 300), ["prod"]).datasource.profile == "aks"
    later = naming_report.report(datasource, at(239 + 60 * 24 * 30), ["prod"]).told["profile"]
    assert later["guess"] is None
    assert "in the last day" in later["missing"][0]


@pytest.mark.parametrize(
    ("letter", "expected"),
    [
        (
            "J",
            [
                "profile: k3s (guessed): K3s with kube-prometheus-stack",
                "a kubelet is of K3s (v1.33.2+k3s1)",
                'profile = "k3s"\nclusters = ["prod"]\n',
            ],
        ),
        ("X", ["profile: unlike all", "differs", "clusterName is site", 'nodes = "kube_node_info"']),
    ],
)
def test_the_command_prints_evidence_and_lines(
    everywhere: RealPrometheus, letter: str, expected: list[str], capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """A person reads what the server looks like and why, and what to paste; a list has the profile in a column."""
    found = probing.probe(
        everywhere.datasource(matchers={"installation": letter}), TemplateCatalogue.shipped(), NOW, ["prod"]
    )
    emit_datasources([found], Output.table, named=True)

    shown = capfdbinary.readouterr().out.decode()
    assert all(each in shown for each in expected), shown
