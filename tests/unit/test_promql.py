"""PromQL and LogQL are rendered so that no value can become part of the query."""

from __future__ import annotations

import re
from datetime import timedelta

import promql_parser
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drumlin.kg.errors import InvalidDocument, InvalidInput, InvalidSettings
from drumlin.kg.telemetry import logql, promql
from drumlin.kg.telemetry.datasources import Datasource
from drumlin.kg.telemetry.promql import Matcher, Selector
from drumlin.kg.telemetry.quoting import any_of, literally, quote
from drumlin.kg.telemetry.templates import TemplateCatalogue
from tests.thoroughness import examples

WINDOW = timedelta(minutes=5)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


def _datasource(**more: object) -> Datasource:
    return Datasource("main", "https://kg.example/id/datasource/main", "prometheus", "http://p", **more)


def _render(query: str, values: dict[str, str] | None = None, **more: object) -> str:
    return promql.render(query, values or {}, window=WINDOW, datasource=_datasource(**more), matchers=())


@settings(deadline=None, max_examples=examples(15))  # each renders all templates
@given(namespace=TEXT, node=TEXT, pods=st.lists(TEXT, max_size=4))
def test_every_template_renders_to_promql_whatever_the_values(namespace: str, node: str, pods: list[str]) -> None:
    """Each shipped template parses with any text as name, and its matchers hold exactly that text."""
    values = {"namespace": namespace, "node": node, "machine": node, "pods": any_of(pods)}
    for template in TemplateCatalogue.shipped().templates:
        query = promql.render(template.query, values, window=WINDOW, datasource=_datasource(), matchers=())
        found = {(each.operator, each.value) for selector in promql.selectors(query) for each in selector.matchers}
        for hole, operator in (("namespace", "="), ("node", "="), ("machine", "="), ("pods", "=~")):
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

    assert logql.selector('n"s', "a|b", loki, ()) == '{k8s_namespace_name="n\\"s",pod=~"a|b"}'
    with pytest.raises(InvalidSettings, match="not a label name"):
        logql.selector("n", "a", _datasource(labels={"pod": 'x"} or {y="'}), ())


METRICSQL = "(increase({}[5m]) and last_over_time({}[10m] offset 5m) or increase_prometheus({}[5m]))"
COUNTS = [
    (
        "sum(rate(m[{{window}}]))",
        "sum(rate(m[329999ms]))",
        "sum(((increase(m[5m]) and last_over_time(m[10m] offset 5m) or increase_prometheus(m[5m])) / 300))",
    ),
    (
        'increase(m{a="("}[{{window}}])',
        '(rate(m{a="("}[329999ms]) * 300)',
        '((increase(m{a="("}[5m]) and last_over_time(m{a="("}[10m] offset 5m) or increase_prometheus(m{a="("}[5m])))',
    ),
    (
        "rate( m [{{window}}] )",
        "rate( m [329999ms] )",
        "((increase( m [5m] ) and last_over_time( m [10m]  offset 5m) or increase_prometheus( m [5m] )) / 300)",
    ),
    ("rate( m [{{window}}] offset 1h )", "rate( m [329999ms] offset 1h )", "(increase_prometheus( m [329999ms] offset 1h ) / 300)"),
    (
        "rate(a[{{window}}]) / increase(b[{{window}}])",
        "rate(a[329999ms]) / (rate(b[329999ms]) * 300)",
        f"({METRICSQL.format('a', 'a', 'a')} / 300) / ({METRICSQL.format('b', 'b', 'b')})",
    ),
    ("max_over_time(rate(m[5m])[{{window}}:1m])", "max_over_time(rate(m[5m])[5m:1m])", "max_over_time(rate(m[5m])[5m:1m])"),
    ("rate(sum(m)[{{window}}:])", "rate(sum(m)[5m:])", "rate(sum(m)[5m:])"),
    ("sum by (rate) (m)", "sum by (rate) (m)", "sum by (rate) (m)"),
    ("delta(m[{{window}}])", "delta(m[5m])", "delta(m[5m])"),
    ("last_over_time(m[{{lookback}}])", "last_over_time(m[75s])", "last_over_time(m[75s])"),
]  # fmt: skip


@pytest.mark.parametrize(("query", "prometheus", "victoria"), COUNTS, ids=[each[0] for each in COUNTS])
def test_counters_are_asked_for_in_the_servers_language(query: str, prometheus: str, victoria: str) -> None:
    """A rate over the window begins with the sample before it, an increase is one times the step; any other range is left alone."""
    assert _render(query) == prometheus
    assert _render(query, language="metricsql") == victoria
    assert promql.selectors(victoria) == promql.selectors(prometheus)


def test_a_step_shorter_than_the_window_has_its_share() -> None:
    """What is counted over four scrapes is scaled to the step, so that points add up to what was counted."""

    def ask(query: str, **more: object) -> str:
        server = _datasource(scrape_interval=timedelta(seconds=60), **more)
        step, window = timedelta(seconds=90), timedelta(minutes=4)
        return promql.render(query, {}, window=window, step=step, datasource=server, matchers=())

    query = "increase(m[{{window}}])"
    assert ask(query) == "(rate(m[299999ms]) * 90)"
    counted = "(increase(m[4m]) and last_over_time(m[10m] offset 4m) or increase_prometheus(m[4m]))"
    assert ask(query, language="metricsql") == f"({counted} * 0.375)"
    assert ask("last_over_time(m[{{lookback}}])") == "last_over_time(m[150s])"


@pytest.mark.parametrize(
    ("query", "doubled", "single"),
    [
        ("sum({{once}} by (pod,id) (rate(m[5m])))", "sum(avg by (pod,id) (rate(m[5m])))", "sum(rate(m[5m]))"),
        ("2 * {{once}} by (a) (m - n)", "2 * avg by (a) (m - n)", "2 * (m - n)"),
        (
            'sum(min by (a) ({{once}} by (a,id) (m))) / sum({{once}} by (instance) (n{x=")"}))',
            'sum(min by (a) (avg by (a,id) (m))) / sum(avg by (node) (n{x=")"}))',
            'sum(min by (a) (m)) / sum(n{x=")"})',
        ),
    ],
)
def test_what_is_scraped_twice_counts_once(query: str, doubled: str, single: str) -> None:
    """One value is made of what has the labels of one thing, in this server's names, but where nothing is scraped twice."""
    labels = {"instance": "node"}
    assert _render(query, labels=labels) == doubled
    assert _render(query, labels=labels, doubled=False) == single
    promql.parse(single)


def test_of_what_is_doubled_for_sure_the_fullest_counts() -> None:
    """A counter's series with most samples is taken, in either language; a gauge's mean; and so is what has no range of its own."""
    query = 'sum({{once}} by (pod,id) (increase(m{a="("}[{{window}}])))'
    most = 'and topk by (pod,id) (1, count_over_time(m{a="("}[329999ms]))'
    assert _render(query, doubled=True) == f'sum(((rate(m{{a="("}}[329999ms]) * 300) {most}))'
    victoria = _render(query, doubled=True, language="metricsql")
    assert victoria.endswith('and topk by (pod,id) (1, count_over_time(m{a="("}[5m]))))')
    promql.parse(victoria)
    gauge = "sum({{once}} by (pod) (last_over_time(m[{{lookback}}])))"
    assert _render(gauge, doubled=True) == "sum(avg by (pod) (last_over_time(m[75s])))"
    promql.parse(_render(query, doubled=True))


def test_precisely_counts_what_the_samples_show() -> None:
    """Last - first, the first being the sample before the window; of a counter that begins again its rate; MetricsQL counts so anyway."""

    def ask(query: str, **about: object) -> str:
        found = _datasource(**about)
        return promql.render(query, {}, window=timedelta(minutes=5), datasource=found, matchers=(), precise=True)

    series = 'm{a="("}'
    shown = (
        f"(last_over_time({series}[5m]) - (last_over_time({series}[10m] offset 5m) or min_over_time({series}[5m])) >= 0"
        f" unless resets({series}[329999ms]) > 0 or rate({series}[329999ms]) * 300)"
    )
    assert ask('sum(increase(m{a="("}[{{window}}]))') == f"sum(({shown}))"
    query = '{{once}} by (pod) (rate(m{a="("}[{{window}}]))'
    assert ask(query) == f"avg by (pod) (({shown} / 300))"
    assert ask(query, doubled=True) == f"(({shown} / 300) and topk by (pod) (1, count_over_time({series}[5m])))"
    assert ask(query, language="metricsql") == _render(query, language="metricsql")
    promql.parse(ask(query, doubled=True))
    assert ask("last_over_time(m[{{lookback}}])") == "last_over_time(m[75s])"
    assert ask("rate(m[{{window}}] offset 1h)") == "rate(m[329999ms] offset 1h)"


@pytest.mark.parametrize("query", ["{{once}}(m)", "sum({{once}} (m))", "{{once}} by (a)"])
def test_a_template_must_say_by_what_a_thing_is_one(query: str) -> None:
    """Without the labels of what is measured, or without it, the template is refused."""
    with pytest.raises(InvalidDocument):
        _render(query)
    with pytest.raises(InvalidDocument):
        _render(query, doubled=False)


def test_things_are_counted_without_the_entity() -> None:
    """Whether anything is doubled is asked for all entities at once, in this server's names, with the cluster's matchers."""
    query = 'sum({{once}} by (pod,id) (rate(m{job="j",pod=~{{pods}}}[{{window}}]))) / sum({{once}} by (instance) (n{instance={{node}}}))'
    asked = promql.counts_of_things(query, (("pod", "pod_name"),), (("j", "k"),), (Matcher("cluster", "=", "a"),))
    assert asked == (
        'max(count by (pod_name,id) (m{cluster="a",job="k"}))',
        'max(count by (instance) (n{cluster="a"}))',
    )
    assert promql.counts_of_things("{{once}} by (pod) (m)", (), (), ()) == ("vector(2)",)
    assert promql.counts_of_things("sum(m)", (), (), ()) == ()
