"""Templates in the names of an installation: each selector gets its exporter's names, and what the user says goes first."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from drumlin.kg.config.datasources import DatasourceSettings, NodeJoin, ProfileName
from drumlin.kg.errors import DrumlinError
from drumlin.kg.telemetry import dialects, promql, renaming
from drumlin.kg.telemetry.datasources import Datasource
from drumlin.kg.telemetry.profiles import PROFILES, Naming
from drumlin.kg.telemetry.promql import Matcher
from drumlin.kg.telemetry.resolve import Resolver
from drumlin.kg.telemetry.series import Window
from drumlin.kg.telemetry.templates import Template, shipped_templates
from tests.thoroughness import examples
from tests.unit.telemetry_store import IRIS, GraphStore

TEMPLATES = {each.name: each for each in shipped_templates()}
BOUND = (Matcher("cluster", "=", "prod"),)
DB = IRIS.object("prod", "shop", "StatefulSet", "db")
NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)


def _datasource(**more: Any) -> Datasource:
    given = {"name": "main", "kind": "prometheus", "url": "http://main:9090", **more}
    return Datasource.from_settings(DatasourceSettings.model_validate(given), IRIS, None)


def _query(template: str, datasource: Datasource, matchers: tuple[Matcher, ...] = (), **values: str) -> str:
    return _written(TEMPLATES[template], datasource, matchers, **values)


def _written(template: Template, datasource: Datasource, matchers: tuple[Matcher, ...] = (), **values: str) -> str:
    filled = {
        "namespace": "shop",
        "pods": "db-0",
        "node": "n-1",
        "remote": "b",
        "clusters": "a-to-b-http",
        "machine": "m-1",
        "function": "resize",
        "qualified": "resize.shop",
        **values,
    }
    return dialects.write(
        template,
        {name: value for name, value in filled.items() if value},
        "id",
        window=timedelta(minutes=5),
        step=timedelta(minutes=5),
        datasource=datasource,
        matchers=matchers,
    )


@settings(deadline=None, max_examples=examples(3))  # each renders all templates
@given(namespace=NAMES, pod=NAMES, node=NAMES)
@pytest.mark.parametrize("profile", [*PROFILES])
def test_every_template_renders_for_every_profile(profile: str, namespace: str, pod: str, node: str) -> None:
    """Whatever the names are, the query is PromQL, every selector has the datasource's matchers, and no hole is left."""
    datasource = _datasource(profile=profile, recorded=True, nodes=None)
    for template in TEMPLATES.values():
        if template.datasource_type == "prometheus":
            query = _written(template, datasource, BOUND, namespace=namespace, pods=re.escape(pod), node=node)
            assert not promql.lacking(query, BOUND)
            named = {each.value for selector in promql.selectors(query) for each in selector.matchers}
            assert "{{node}}" not in template.query or node in named


@pytest.mark.parametrize("profile", [*PROFILES])
@pytest.mark.parametrize("nodes", get_args(NodeJoin))
def test_a_renamed_template_is_renamed_already(profile: str, nodes: str) -> None:
    """Whoever takes a template apart may write it in a datasource's names first: the second time changes nothing."""
    exported = {"kube-state-metrics": {"namespace": "exported_namespace", "pod": "exported_pod"}}
    names = renaming.names_of(_datasource(profile=profile, nodes=nodes, labels=exported))
    for template in TEMPLATES.values():
        once = renaming.renamed(template.query, names)
        assert renaming.renamed(once, names) == once


def test_a_profile_that_is_the_templates_own_changes_nothing() -> None:
    """kube-prometheus, as whose names the templates are written, and no profile at all are the same."""
    for template in TEMPLATES.values():
        assert renaming.written(template, _datasource(profile="kube-prometheus")) == template.query
        assert renaming.written(template, _datasource()) == template.query


@pytest.mark.parametrize(
    ("query", "names", "expected"),
    [
        # a node's address: the innermost instant vector is joined
        (
            'sum(max by (instance,mode) (rate(node_cpu_seconds_total{job="node-exporter",instance={{node}}}[{{window}}])))',
            {"nodes": "node_uname_info"},
            (
                'sum(max by (instance,mode) ((rate(node_cpu_seconds_total{job="node-exporter"}[{{window}}])'
                ' and on (instance) node_uname_info{job="node-exporter",nodename={{node}}})))'
            ),
        ),
        (
            "quantile_over_time(0.9, node_load1{instance={{node}}}[{{window}}])",
            {"nodes": "node_uname_info"},
            (
                "(quantile_over_time(0.9, node_load1{}[{{window}}])"
                ' and on (instance) node_uname_info{job="node-exporter",nodename={{node}}})'
            ),
        ),
        (
            "max_over_time(node_load1{instance={{node}}}[1h:5m])",
            {"nodes": "node_uname_info"},
            'max_over_time((node_load1{} and on (instance) node_uname_info{job="node-exporter",nodename={{node}}})[1h:5m])',
        ),
        (
            "node_load1{instance!={{node}}} - node_load5",
            {"nodes": "node_uname_info", "apart": ("cluster",)},
            '(node_load1{} and on (instance,cluster) node_uname_info{job="node-exporter",nodename!={{node}}}) - node_load5{}',
        ),
        # exported labels: the query groups by the name that it knows
        (
            "sum(max by (namespace,pod) (kube_pod_info{namespace={{namespace}},pod=~{{pods}}}))",
            {"kube-state-metrics": Naming(None, None, (("namespace", "exported_namespace"), ("pod", "exported_pod")))},
            (
                "sum(max by (namespace,pod) (label_replace(label_replace("
                "kube_pod_info{exported_namespace={{namespace}},exported_pod=~{{pods}}},"
                ' "namespace", "$1", "exported_namespace", "(.+)"), "pod", "$1", "exported_pod", "(.+)")))'
            ),
        ),
        (
            "sum(kube_pod_info{namespace={{namespace}}})",
            {"kube-state-metrics": Naming(None, None, (("namespace", "exported_namespace"),))},
            "sum(kube_pod_info{exported_namespace={{namespace}}})",
        ),
        # jobs: dropped, renamed, a regular expression; another job is left alone
        (
            'container_x{job="kubelet",metrics_path="/m"} / container_x{job="special"}',
            {"cadvisor": Naming("", None, (("metrics_path", ""),))},
            'container_x{} / container_x{job="special"}',
        ),
        ('kubelet_x{job="kubelet"}', {"kubelet": Naming("=~a|b")}, 'kubelet_x{job=~"a|b"}'),
        # a metric of nobody's, a rule over several exporters, and a string are left alone
        (
            'up{job="kubelet"} + node_namespace_pod:x{job="kubelet"} + label_replace(up, "a", "container_x{}", "b", "c")',
            {"cadvisor": Naming("x"), "node-exporter": Naming("y")},
            'up{job="kubelet"} + node_namespace_pod:x{job="kubelet"} + label_replace(up, "a", "container_x{}", "b", "c")',
        ),
    ],
)
def test_a_query_is_rewritten_selector_by_selector(query: str, names: dict[str, Any], expected: str) -> None:
    """Only the selectors of the exporters that a naming knows change, and only where they have to."""
    nodes, apart = names.pop("nodes", "label"), names.pop("apart", ())

    assert renaming.renamed(query, renaming.Names(tuple(names.items()), nodes, apart)) == expected


def test_what_the_user_says_comes_before_the_profile() -> None:
    """Jobs, labels and the way to a node of the datasource's own table replace those of the row."""
    stack = {"profile": "kube-prometheus-stack"}

    def by(query: str) -> set[tuple[str, str]]:
        (selector,) = promql.selectors(query)
        return {(each.label, each.value) for each in selector.matchers if each.label != "mode"}

    by_label = _query("node.cpu_usage", _datasource(**stack, nodes="label"))
    assert by(by_label) == {("job", "node-exporter"), ("instance", "n-1")}
    named = _datasource(**stack, labels={"instance": "host"}, jobs={"node-exporter": "machines"})
    assert by(_query("node.cpu_usage", named)) == {("job", "machines"), ("host", "n-1")}
    of_one = _datasource(**stack, labels={"node-exporter": {"instance": "node"}})
    assert by(_query("node.cpu_usage", of_one)) == {("job", "node-exporter"), ("node", "n-1")}
    chart = _datasource(profile="prometheus-chart", jobs={"kubelet": "mine"}, labels={"pod": "pod_name"})
    assert 'job="mine",namespace="shop",pod_name=~"db-0"' in _query("workload.cpu_usage", chart)
    apart = _datasource(profile="aks", jobs={"cadvisor": "a", "kubelet": "b"})
    assert 'job="a"' in _query("workload.cpu_usage", apart)
    assert 'job="b"' in _query("node.storage_usage", apart)


def test_a_matcher_is_dropped_for_all_exporters() -> None:
    """An empty name drops the matcher, not the rest of the selector."""
    query = _query("workload.mem_usage", _datasource(labels={"metrics_path": ""}, jobs={"kubelet": "=~kubelet|x"}))

    assert 'container_memory_working_set_bytes{job=~"kubelet|x",namespace="shop",pod=~"db-0",' in query


def test_a_template_that_somebody_replaced_is_not_replaced_by_a_profile() -> None:
    """OpenTelemetry's own query stands for the shipped one alone."""
    mine = Template.read(
        "https://kg.example/id/template/workload.cpu_usage",
        {
            "https://w3id.org/drumlin/ns#name": "cpu_usage",
            "https://w3id.org/drumlin/ns#scope": "Workload",
            "http://purl.org/dc/terms/title": "mine",
            "https://w3id.org/drumlin/ns#signal": "metrics",
            "https://w3id.org/drumlin/ns#quantity": "cpu",
            "https://w3id.org/drumlin/ns#unit": "{cpu}",
            "https://w3id.org/drumlin/ns#metricType": "counter",
            "https://w3id.org/drumlin/ns#exporter": "cadvisor",
            "https://w3id.org/drumlin/ns#datasourceType": "prometheus",
            "https://w3id.org/drumlin/ns#query": "sum(mine{namespace={{namespace}}})",
        },
    )

    otel = _datasource(profile="otel-collector")
    assert _written(mine, otel) == 'sum(mine{namespace="shop"})'
    assert "k8s_pod_cpu_time_seconds_total" in _query("workload.cpu_usage", otel)


def test_a_document_names_a_profile_that_there_is() -> None:
    """The shapes list the same profiles as the table, and a datasource of the graph is asked in its names."""
    shapes = (Path(__file__).parents[2] / "ontology" / "shapes.ttl").read_text(encoding="utf-8")
    rule = shapes.partition("shape:profile sh:path")[2].partition(" ) ;")[0]
    assert re.findall(r'"([a-z0-9-]+)"', rule) == list(PROFILES)

    documents = [{"id": DB, "type": "StatefulSet", "name": "db"}, _datasource(profile="aks").document(IRIS)]
    window = Window(datetime(2026, 11, 27, tzinfo=UTC), datetime(2026, 11, 28, tzinfo=UTC))
    query = Resolver(GraphStore(documents), IRIS).resolve(DB, "cpu_usage", window).query
    assert 'container_cpu_usage_seconds_total{job="cadvisor",namespace="shop"' in query


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"labels": {"pod": "pod-name"}}, "labels\n  Value error, 'pod-name' is not a label name"),
        ({"labels": {"pod name": "pod"}}, "'pod name' is not a label name"),
        ({"labels": {"": "pod"}}, "'' is not a label name"),
        ({"labels": {"dcgm": {"pod": "1pod"}}}, "dcgm: '1pod' is not a label name"),
        ({"labels": {"gpu": {"pod": "p"}}}, "there is no exporter 'gpu'; there are cadvisor"),
        ({"labels": {"dcgm": {"pod": 3}}}, "dcgm: 3 is not a label name"),
        ({"labels": {"pod": 3}}, "3 is not a label name"),
        ({"jobs": {"kubelet": "=~("}}, "jobs"),
        ({"profile": "openshfit"}, "profile"),
        ({"nodes": "dns"}, "nodes"),
        ({"kind": "loki", "profile": "aks"}, "profile is for prometheus"),
        ({"kind": "loki", "labels": {"pod": "a b"}}, "'a b' is not a label name"),
        ({"kind": "loki", "recorded": True}, "recorded is for prometheus"),
        ({"kind": "influxdb", "database": "d", "labels": {"dcgm": {"pod": "p"}}}, "labels of one exporter (dcgm)"),
    ],
)
def test_a_bad_name_is_an_error_of_the_configuration(more: dict[str, Any], said: str) -> None:
    """It names the setting when the configuration is read, instead of failing with every query."""
    with pytest.raises(ValidationError) as error:
        DatasourceSettings.model_validate({"name": "m", "kind": "prometheus", "url": "http://m", **more})

    assert said in str(error.value)


def test_tags_and_columns_are_named_freely() -> None:
    """An InfluxDB's tags and a Parquet file's columns are no labels."""
    tags = {"name": "m", "kind": "influxdb", "url": "http://m", "database": "d", "labels": {"pod": "pod name"}}

    assert DatasourceSettings.model_validate(tags).labels == {"pod": "pod name"}


def test_ones_own_query_is_limited_in_the_names_of_the_installation() -> None:
    """The label of a node is the profile's; where only a join leads to it, that is an error with a way out."""
    assert renaming.label_of_node(_datasource()) == "instance"
    assert renaming.label_of_node(_datasource(profile="prometheus-chart")) == "node"
    assert renaming.label_of_node(_datasource(profile="otel-collector")) == "k8s_node_name"
    assert renaming.label_of_node(_datasource(profile="k3s")) is None
    assert renaming.label(_datasource(profile="otel-collector"), "pod") == "k8s_pod_name"
    assert renaming.label(_datasource(labels={"pod": "pod_name"}), "pod") == "pod_name"


def test_the_documentation_lists_every_profile_as_it_is() -> None:
    """The table of docs/installations.md has a row for each profile, with its jobs and its way to a node."""
    page = (Path(__file__).parents[2] / "docs" / "installations.md").read_text(encoding="utf-8")
    rows = [
        line.split(" | ")
        for line in page.replace("\\|", "¦").splitlines()
        if line.startswith("| `") and "`profile`" not in line
    ]
    table = {row[0].strip("| `"): row[1:] for row in rows}

    assert list(table) == list(PROFILES) == list(get_args(ProfileName))
    for name, profile in PROFILES.items():
        if name == "otel-collector":
            continue
        title, jobs, path, node = (cell.strip(" |") for cell in table[name])
        assert title == profile.title
        for exporter, said in zip(("cadvisor", "kube-state-metrics", "node-exporter"), jobs.split(" / "), strict=True):
            own = profile.namings.get(exporter, Naming()).job
            usual = "kubelet" if exporter == "cadvisor" else exporter
            assert said.strip("`").replace("¦", "|") == (usual if own is None else own or "any")
        dropped = ("metrics_path", "") in profile.namings.get("cadvisor", Naming()).labels
        assert path == ("no" if dropped else "yes")
        label = profile.namings.get("node-exporter", Naming()).node or "instance"
        joined = "joined through `node_uname_info`"
        assert node == (f"label `{label}`" if profile.nodes == "label" else joined)


def _own(query: str, **more: Any) -> str:
    """What is asked for a node with a query of one's own."""
    node = IRIS.object("prod", None, "Node", "n-1")
    graph = GraphStore([{"id": node, "type": "Node", "name": "n-1"}])
    window = Window(datetime(2026, 11, 27, tzinfo=UTC), datetime(2026, 11, 28, tzinfo=UTC))
    return Resolver(graph, IRIS, [_datasource(**more)]).resolve(node, "promql", window, query=query).query


def test_ones_own_query_for_a_node_is_kept_to_it() -> None:
    """By the label of the installation, or by a join of each selector; matchers are in what is joined as well."""
    assert _own("node_load1", profile="prometheus-chart") == 'node_load1{node="n-1"}'
    uname = 'node_uname_info{cluster="c",job="machines",nodename="n-1"}'
    own = {"profile": "k3s", "jobs": {"node-exporter": "machines"}, "matchers": {"cluster": "c"}}
    assert _own("rate(node_load1[5m]) / node_load5{job='node-exporter'}", **own) == (
        f'(rate(node_load1{{cluster="c"}}[5m]) and on (instance) {uname})'
        f""" / (node_load5{{cluster="c",job='node-exporter'}} and on (instance) {uname})"""
    )


@given(st.text("abn_o(){}[]\"'=~,+* 5m:", max_size=30))
def test_no_query_of_ones_own_escapes_its_node(query: str) -> None:
    """Whatever a caller writes: each of its selectors is joined with the node, or the query is refused."""
    try:
        limited = _own(query, profile="k3s", matchers={"cluster": "c"})
    except DrumlinError:
        return
    found = promql.parts_of(limited)
    joined = [each for each in found if each.metric == "node_uname_info"]
    assert 2 * len(joined) == len(found)
    assert len(joined) == len(promql.parts_of(query))
    assert all(Matcher("cluster", "=", "c") in each.matchers for each in found)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("sum(a) / b", [["a", "b"]]),
        ("avg(a or b) * rate(c[5m])", [["a", "c"], ["b", "c"]]),
        ("a unless on (x) b", [["a"]]),
        ("topk(scalar(a), max_over_time(rate(b[1m])[5m:])) + (-a)", [["a", "b"]]),
        ("vector(1)", [[]]),
    ],
)
def test_a_query_says_which_series_it_needs(query: str, expected: list[list[str]]) -> None:
    """Either side of ``or`` is enough, and nothing has to be on the right of ``unless``."""
    assert [[each.metric for each in way] for way in promql.ways(query)] in (
        expected,
        [each[::-1] for each in expected],
    )
