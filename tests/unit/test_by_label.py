"""A template's query for many entities: the labels in every aggregation, or no such query."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest

from drumlin.kg.telemetry import promql
from drumlin.kg.telemetry.by_label import by_label
from drumlin.kg.telemetry.datasources import Datasource
from drumlin.kg.telemetry.groups import GroupName, dimension
from drumlin.kg.telemetry.templates import TemplateCatalogue, shipped_templates
from tests.unit.telemetry_store import IRIS

HOLES = {"Node": ("node",), "Workload": ("namespace", "pods")}


@pytest.mark.parametrize(
    "name", [each.name for each in shipped_templates() if each.scope in HOLES and each.datasource_type == "prometheus"]
)
def test_shipped_templates_stay_promql(name: str) -> None:
    """What is written for many entities is a template again, with the same selectors; no aggregation lacks the labels."""
    (template,) = (each for each in shipped_templates() if each.name == name)
    found = by_label(template.query, HOLES[template.scope])
    if found is None:
        return
    assert promql.holes(found.query) == promql.holes(template.query)
    values = {"nodes": "a|b", "namespaces": "a|b", "pods": ".+"}
    limits = (promql.Matcher("cluster", "=", "prod"),)
    server = Datasource("p", "https://kg.example/id/datasource/p", "prometheus", "http://p", labels={"pod": "pod_name"})
    query = promql.render(found.query, values, window=timedelta(minutes=5), datasource=server, matchers=limits)
    assert not promql.lacking(query, limits)
    aggregations = ("sum", "avg", "max by", "min by", "count by", "{{once}}")
    grouped = [set(each.split(",")) for each in re.findall(r"by \(([^)]*)\)", found.query)]
    assert len(grouped) == sum(map(found.query.count, aggregations))
    assert all(set(found.labels) <= each for each in grouped)


@pytest.mark.parametrize(
    ("query", "written"),
    [
        ("sum(a{n={{node}}})", "sum by (n) (a{n={{node}}})"),
        ("sum by (x)(a{n={{node}}})", "sum by (n,x)(a{n={{node}}})"),
        ("sum(a{n={{node}}}) by (x)", "sum(a{n={{node}}}) by (n,x)"),
        ("sum by ()(a{n={{node}}})", "sum by (n)(a{n={{node}}})"),
        ("a{n={{node}}} * on (x) b{n={{node}}}", "a{n={{node}}} * on (n,x) b{n={{node}}}"),
        ("sum without (x)(a{n={{node}}})", "sum without (x)(a{n={{node}}})"),
        ("quantile(0.9, a{n={{node}}})", "quantile by (n) (0.9, a{n={{node}}})"),
    ],
)
def test_the_label_is_put_into_every_grouping(query: str, written: str) -> None:
    """Aggregations and ``on`` get the label; what keeps it anyway stays as it is."""
    found = by_label(query, ("node",))
    assert found is not None
    assert (found.query, found.labels) == (written, ("n",))


@pytest.mark.parametrize(
    "query",
    [
        "sum(a{n={{node}}}) / sum(b)",  # of all nodes
        "a{n={{node}}} + on () b{m={{node}}}",  # another label
        "a{n={{node}}} or vector(0)",
        "sum without (n)(a{n={{node}}})",
        "a{n={{node}}} * ignoring (n) b{n={{node}}}",
        "a{n={{node}},pod=~{{pods}}}",
        'label_replace(a{n={{node}}}, "n", "x", "", "")',
    ],
)
def test_others_are_asked_for_one_by_one(query: str) -> None:
    """Where the label does not reach, or is taken away, there is no query for many."""
    assert by_label(query, ("node",)) is None


@pytest.mark.parametrize("value", ["shop", "-", "a b", "a/b", "南京", "x%2Fy", "."])
@pytest.mark.parametrize("by", ["applicationGroup", "team", "label:example.org/cost-center"])
def test_a_groups_id_is_read_back(by: str, value: str) -> None:
    """Short id and IRI name the same group, whatever its value; ids of entities name none."""
    group = GroupName(by, value)
    iri = group.iri(IRIS)

    assert GroupName.read(IRIS, iri) == group
    assert GroupName.read(IRIS, IRIS.short(iri)) == group


def test_what_is_no_group_is_left_alone() -> None:
    """Entities, and groups with too many segments; a dimension has other spellings."""
    for id in ("prod/shop/deployment/web", "domain/x", "cluster/team", "team", "team/a/b", "node/a/b/c", "kind/"):
        assert GroupName.read(IRIS, id) is None, id
    assert GroupName.read(IRIS, "node/prod/edge.a-1") == ("node", "prod/edge.a-1")
    assert (dimension("application_group"), dimension("label:x")) == ("applicationGroup", "label:x")


def test_an_alias_is_the_sum_of_its_parts() -> None:
    """It follows templates that replace its parts, and a template of its name replaces it."""
    catalogue = TemplateCatalogue.shipped()
    receive = catalogue.find("Node", "network_receive")
    alias = catalogue.find("Node", "network_usage")

    assert alias.query == f"({receive.query}) + ({catalogue.find('Node', 'network_transmit').query})"
    assert (alias.name, alias.unit) == ("node.network_usage", "By/s")
    assert "network_usage" not in {each.metric for each in catalogue.for_scope("Node")}
