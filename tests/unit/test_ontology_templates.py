"""The catalogue of metric templates: complete, runnable for every scope, and enabled by exporter."""

from __future__ import annotations

import importlib.util
import re
import sys
from datetime import UTC, datetime, timedelta
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any

import pytest

from drumlin.kg.config.datasources import DatasourceSettings
from drumlin.kg.config.settings import DEFAULT_EXPORTERS, Settings
from drumlin.kg.errors import InvalidSettings
from drumlin.kg.model.iris import Iris
from drumlin.kg.rdf.jsonld import lines
from drumlin.kg.telemetry import promql
from drumlin.kg.telemetry.datasources import Datasource, label_names
from drumlin.kg.telemetry.resolve import Resolver
from drumlin.kg.telemetry.series import Window
from drumlin.kg.telemetry.templates import Template, TemplateCatalogue, shipped_templates
from drumlin.kg.validation.validate import validate
from tests.unit.telemetry_store import GraphStore

ROOT = Path(__file__).parents[2]
TEMPLATES = shipped_templates()
IRIS = Iris("https://kg.example")
HOLES = {
    "Workload": {"namespace": "payments", "pods": "checkout-.*"},
    "Node": {"node": "edge-a-1"},
    "Domain": {},
    "DomainRoute": {"remote": "bob_gw__example", "clusters": "alice-to-bob-http"},
    "Cluster": {},
    "VirtualMachine": {"machine": "vm-3"},
    "ContainerInstance": {"machine": "redis-1"},
    "Invocation": {},
    "Function": {"namespace": "shop", "function": "resize", "qualified": "resize.shop"},
}
EXPORTERS = {
    "cadvisor", "node-exporter", "kepler", "kepler-0.9", "kube-state-metrics", "dcgm", "kubelet-volumes", "envoy", "ss", "kuscia", "loki",
    "service-graph", "istio", "linkerd", "hubble", "knative", "openfaas", "libvirt",
}  # fmt: skip


def render(template: Template) -> str:
    """Fill the holes of a template with what an entity of its scope has."""
    datasource = Datasource("main", IRIS.datasource("main"), "prometheus", "http://prometheus")
    return promql.render(
        template.query, HOLES[template.scope], window=timedelta(minutes=5), datasource=datasource, matchers=()
    )


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda each: each.name)
def test_a_template_is_well_shaped_and_renders_for_its_scope(template: Template) -> None:
    """It passes the shapes, fills with what its scope has, leaves no hole, and is PromQL."""
    document = template.document(IRIS)
    validate(lines(document), document["id"], IRIS)

    query = render(template)

    assert "{{" not in query
    assert promql.parse(query)  # LogQL for a Loki, of the same shape
    assert template.name.startswith(f"{template.scope.lower()}.{template.metric}")


LOG_RANGE = re.compile(
    r'sum\((rate|count_over_time|bytes_rate|bytes_over_time)\(\{namespace="payments",pod=~"checkout-\.\*"\}\[5m\]\)\)'
)
"""An aggregation over ranges of a log stream: https://grafana.com/docs/loki/latest/query/metric_queries/#log-range-aggregations."""


@pytest.mark.parametrize(
    "template", [each for each in TEMPLATES if each.datasource_type == "loki"], ids=lambda each: each.name
)
def test_a_template_for_loki_is_a_log_range_aggregation(template: Template) -> None:
    """No Loki can be installed here, so the form that its documentation gives is held to."""
    assert LOG_RANGE.fullmatch(render(template)), render(template)


def test_every_template_is_for_a_server_whose_language_is_tested() -> None:
    """Prometheus evaluates the others (tests/integration/test_templates_prometheus.py)."""
    assert {each.datasource_type for each in TEMPLATES} == {"prometheus", "loki"}


def test_the_catalogue_covers_every_exporter_of_the_facts() -> None:
    """Kubernetes' own, node, energy, GPU, volumes, gateway, sockets, Kuscia's controllers and logs."""
    assert {each.exporter for each in TEMPLATES} == EXPORTERS


def test_a_metric_has_one_unit_quantity_and_type_at_every_scope() -> None:
    """Whoever compares nodes with clusters compares the same thing."""
    for metric in {each.metric for each in TEMPLATES}:
        same = {(each.unit, each.quantity) for each in TEMPLATES if each.metric == metric}
        assert len(same) == 1, metric


def test_counters_are_only_read_through_rate_or_increase() -> None:
    """The raw value of a counter means nothing after a restart."""
    for template in TEMPLATES:
        counted = re.search(r"\b(rate|increase|count_over_time|bytes_over_time)\(", template.query)
        if template.metric_type == "counter":
            assert counted, template.name
        totals = [each.metric for each in promql.selectors(render(template)) if each.metric.endswith("_total")]
        assert counted or not totals, template.name


def test_by_default_entities_get_what_every_cluster_has() -> None:
    """Seven metrics for each scope: no workload has a query for series that nobody writes."""
    assert {each.exporter for each in TemplateCatalogue.shipped().templates} == set(DEFAULT_EXPORTERS)
    assert Settings().exporters == DEFAULT_EXPORTERS


def test_an_enabled_exporter_adds_its_metrics() -> None:
    """What is named is there, for pods too; what is not is not."""
    catalogue = TemplateCatalogue.shipped(frozenset({*DEFAULT_EXPORTERS, "dcgm", "loki"}))

    assert catalogue.find("Pod", "gpu_usage").exporter == "dcgm"
    assert catalogue.find("Workload", "log_lines").datasource_type == "loki"
    assert "storage_usage" not in {each.metric for each in catalogue.for_scope("Workload")}


def test_the_old_kepler_takes_the_place_of_the_new_one() -> None:
    """A cluster with Kepler 0.9 has energy_joules under the same name."""
    catalogue = TemplateCatalogue.shipped(frozenset({"cadvisor", "kepler-0.9"}))

    assert "kepler_container_joules_total" in catalogue.find("Workload", "energy_joules").query


def test_a_misspelt_or_doubled_exporter_is_refused_by_name() -> None:
    """The message says which, the hint what may have been meant."""
    with pytest.raises(InvalidSettings, match="'keppler'") as told:
        TemplateCatalogue.shipped(frozenset({"keppler"}))
    assert told.value.hint == "did you mean kepler?"
    with pytest.raises(InvalidSettings, match="both give energy_joules"):
        TemplateCatalogue.shipped(frozenset({"kepler", "kepler-0.9"}))


def test_the_reference_of_metrics_is_what_the_templates_say() -> None:
    """The page cannot fall behind: it is made from the templates."""
    loader = SourceFileLoader("metric_reference", str(ROOT / "scripts" / "metric-reference"))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec
    module = importlib.util.module_from_spec(spec)
    sys.modules[loader.name] = module
    loader.exec_module(module)

    assert module.page() == (ROOT / "docs" / "reference" / "metrics.md").read_text(), (
        "run scripts/metric-reference > docs/reference/metrics.md"
    )


# -- other names in other servers -----------------------------------------------------------------------------------------

NODE = {"id": IRIS.object("prod", None, "Node", "edge-a-1"), "type": "Node", "name": "edge-a-1"}
HOUR = Window(datetime(2026, 11, 27, tzinfo=UTC), datetime(2026, 11, 27, 1, tzinfo=UTC))


def described(name: str, **labels: object) -> dict[str, Any]:
    """Describe a Prometheus as a user's document does."""
    kind = {"type": "Datasource", "datasourceType": "prometheus", "endpointURL": f"http://{name}:9090"}
    return {"id": IRIS.datasource(name), "name": name, **kind, **labels}


def test_a_datasource_in_the_graph_says_its_own_label_names() -> None:
    """Templates are filled in the words of the server that is asked, also when nothing but its document is known."""
    store = GraphStore([NODE, described("odd", labelName=["instance=host", "mode=state"]), described("usual")])
    resolver = Resolver(store, IRIS)

    odd, usual = (resolver.resolve(NODE["id"], "cpu_usage", HOUR, datasource=each).query for each in ("odd", "usual"))

    assert odd != usual
    assert "mode" in usual
    assert "mode" not in odd
    assert "state" in odd


def test_what_the_configuration_renames_stands_in_the_graph() -> None:
    """Another reader of the graph, or another instance, asks that server in its own words too."""
    labels = {"namespace": "exported_namespace", "pod": "pod_name"}
    settings = DatasourceSettings.model_validate(
        {"name": "m", "kind": "prometheus", "url": "http://m", "labels": labels}
    )
    document = Datasource.from_settings(settings, IRIS, None).document(IRIS)

    validate(lines(document), document["id"], IRIS)
    assert document["labelName"] == ["namespace=exported_namespace", "pod=pod_name"]
    assert label_names(document["labelName"]) == {"namespace": "exported_namespace", "pod": "pod_name"}


@pytest.mark.parametrize("text", ['mode=x"} or vector(1) #', "mode", "=x", "mode=", "mode=a=b", "mode=x\n", "mode=é"])
def test_a_label_name_that_is_none_never_reaches_a_query(text: str) -> None:
    """A document that came past validation cannot write PromQL."""
    store = GraphStore([NODE, described("odd", labelName=[text]), described("usual")])
    resolver = Resolver(store, IRIS)

    odd, usual = (resolver.resolve(NODE["id"], "cpu_usage", HOUR, datasource=each).query for each in ("odd", "usual"))

    assert odd == usual


@pytest.mark.parametrize(
    "more",
    [
        {"kind": "prometheus", "url": "https://p:9090/prometheus", "labels": {"pod": "pod_name"}},
        {"kind": "loki", "url": "http://loki:3100"},
        {"kind": "influxdb", "url": "http://influxdb:8086", "database": "telegraf"},
        {"kind": "parquet", "url": "file:///var/lib/drumlin/forecasts"},
        {"kind": "grafana", "url": "https://grafana.example"},
    ],
    ids=lambda each: each["kind"],
)
def test_the_document_of_every_kind_of_datasource_keeps_the_rules(more: dict[str, Any]) -> None:
    """What the service itself writes of its configuration is never found by its own audit."""
    settings = DatasourceSettings.model_validate({"name": "main", **more})
    document = Datasource.from_settings(settings, IRIS, None).document(IRIS)

    validate(lines(document), document["id"], IRIS)
