"""PromQL and LogQL are rendered so that no value can become part of the query."""

from __future__ import annotations

import re
from datetime import timedelta

import promql_parser
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kg.errors import InvalidDocument, InvalidInput, InvalidSettings
from kg.telemetry import logql, promql
from kg.telemetry.datasources import Datasource
from kg.telemetry.promql import Matcher, Selector
from kg.telemetry.quoting import any_of, literally, quote
from kg.telemetry.templates import Catalogue

WINDOW = timedelta(minutes=5)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


def _datasource(**more: object) -> Datasource:
    return Datasource("main", "https://kg.example/id/datasource/main", "prometheus", "http://p", **more)


def _render(query: str, values: dict[str, str] | None = None, **more: object) -> str:
    return promql.render(query, values or {}, window=WINDOW, datasource=_datasource(**more))


@settings(deadline=None, max_examples=40)  # each renders all templates
@given(namespace=TEXT, node=TEXT, pods=st.lists(TEXT, max_size=4))
def test_every_template_renders_to_promql_whatever_the_values(namespace: str, node: str, pods: list[str]) -> None:
    """Each shipped template parses with any text as name, and its matchers hold exactly that text."""
    values = {"namespace": namespace, "node": node, "pods": any_of(pods)}
    for template in Catalogue.shipped().templates:
        query = promql.render(template.query, values, window=WINDOW, datasource=_datasource())
        found = {(each.operator, each.value) for selector in promql.selectors(query) for each in selector.matchers}
        for hole, operator in (("namespace", "="), ("node", "="), ("pods", "=~")):
            if f"{{{{{hole}}}}}" in template.query:
                assert (operator, values[hole]) in found


@given(TEXT)
def test_a_literal_pattern_matches_its_text_alone(text: str) -> None:
    """Escaping leaves nothing that a regular expression would read as a meta character."""
    assert re.fullmatch(literally(text), text, re.DOTALL)
    assert not re.fullmatch(literally(text), text + "x", re.DOTALL)


@given(TEXT)
def test_a_quoted_value_is_read_back_as_it_was(text: str) -> None:
    """The parser reads from the literal exactly the value that went in."""
    expression = promql_parser.parse(f"up{{a={quote(text)}}}")

    assert isinstance(expression, promql_parser.VectorSelector)
    assert expression.matchers.matchers[0].value == text


def test_a_lone_surrogate_is_refused() -> None:
    """What no server can be sent is an error before it gets into a query."""
    with pytest.raises(InvalidInput, match="not valid Unicode"):
        quote("\ud800")


@pytest.mark.parametrize(
    ("query", "labels", "jobs", "expected"),
    [
        ('a{job="k",pod=~{{pods}}}', {"pod": "pod_name"}, {}, 'a{job="k",pod_name=~"p"}'),
        ('a{job="k",pod=~{{pods}}}', {}, {"k": "kubelet-2"}, 'a{job="kubelet-2",pod=~"p"}'),
        ('a{job="k",pod=~{{pods}}}', {}, {"k": ""}, 'a{pod=~"p"}'),
        ('sum(a{job="k"})', {}, {"k": ""}, "sum(a{})"),
        ('a{job="k"}', {"job": "service"}, {"k": 'q"'}, 'a{service="q\\""}'),
        ('sum by (pod, b) (a{pod="pod"})', {"pod": "name"}, {}, 'sum by (name, b) (a{name="pod"})'),
        ("a * on (pod) group_left (node) pod", {"pod": "x", "node": "y"}, {}, "a * on (x) group_left (y) pod"),
        ("pod{ a = 'pod' , } # pod\n", {"pod": "x"}, {}, "pod{a='pod'} \n"),
        ("rate(a[{{window}}]) + pod(pod)", {"pod": "x"}, {}, None),
        (
            'label_replace(a, "pod", "$1", "pod", `{pod="k"}`)',
            {"pod": "x"},
            {},
            'label_replace(a, "pod", "$1", "pod", `{pod="k"}`)',
        ),
    ],
)
def test_label_and_job_names_are_replaced_where_they_are_names(
    query: str, labels: dict[str, str], jobs: dict[str, str], expected: str | None
) -> None:
    """Matchers and groupings take this server's names; strings, metrics and functions of that name do not."""
    if expected is None:
        with pytest.raises(InvalidDocument):
            _render(query, {"pods": "p"}, labels=labels, jobs=jobs)
    else:
        assert _render(query, {"pods": "p"}, labels=labels, jobs=jobs) == expected


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("a{b=~{{namespace}}}", "cannot stand after b=~"),
        ("a{b={{pods}}}", "cannot stand after b="),
        ("a + {{namespace}}", "outside a label matcher"),
        ("a{b={{window}}}", "cannot stand after"),
        ("sum(a", "not PromQL"),
        ('a{b="c}', "cannot be read at position"),
        ("(" * 60 + "a" + ")" * 60, "levels deep"),
        ("a" + " or b" * 5000, "tokens"),
    ],
)
def test_a_template_that_is_no_promql_is_refused(query: str, reason: str) -> None:
    """A hole in the wrong place, broken syntax and what could crash the parser are errors that say why."""
    with pytest.raises(InvalidDocument, match=re.escape(reason)):
        _render(query, {"namespace": "n", "pods": "p"})


def test_a_value_that_the_entity_lacks_is_named() -> None:
    """A node template for something that is no node is an error, not an empty matcher."""
    with pytest.raises(InvalidInput, match="needs a node"):
        _render("a{b={{node}}}")


def test_selectors_are_found_with_their_matchers() -> None:
    """Every vector selector is listed once, whatever encloses it."""
    query = 'sum(rate(a{x="1",b=~"c\\\\.d"}[5m])) / on (q) max(b{y!~"z"} offset 1h) + {__name__="a",x="1",b=~"c\\\\.d"}'

    assert promql.selectors(query) == [
        Selector("a", (Matcher("b", "=~", "c\\.d"), Matcher("x", "=", "1"))),
        Selector("b", (Matcher("y", "!~", "z"),)),
    ]


def test_log_selectors_use_the_servers_labels() -> None:
    """LogQL takes the same quoting, and label names from the datasource; one that is no label name is refused."""
    loki = _datasource(labels={"namespace": "k8s_namespace_name"})

    assert logql.selector('n"s', "a|b", loki) == '{k8s_namespace_name="n\\"s",pod=~"a|b"}'
    with pytest.raises(InvalidSettings, match="not a label name"):
        logql.selector("n", "a", _datasource(labels={"pod": 'x"} or {y="'}))
