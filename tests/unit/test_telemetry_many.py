"""Resolving many at once, with a caller's own PromQL, with templates of the graph, and for more pods than one query can name."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumlin.kg.config.datasources import DatasourceSettings
from drumlin.kg.errors import InvalidInput, ResourceNotFound
from drumlin.kg.telemetry import asking, promql
from drumlin.kg.telemetry.asking import PodRun, QueryTemplate
from drumlin.kg.telemetry.datasources import Datasource
from drumlin.kg.telemetry.promql import Matcher
from drumlin.kg.telemetry.resolution import Resolution, Unresolved
from drumlin.kg.telemetry.resolve import Resolver
from drumlin.kg.telemetry.series import Grid, Window
from drumlin.kg.telemetry.templates import TemplateCatalogue
from tests.unit.telemetry_store import IRIS, GraphStore, pod, workload

DAY = datetime(2026, 11, 27, tzinfo=UTC)
WEB = IRIS.object("prod", "shop", "Deployment", "web")
BATCH = IRIS.object("prod", "shop", "Deployment", "batch")
NODE = IRIS.object("prod", None, "Node", "edge-1")
WINDOW = Window(DAY, DAY + timedelta(hours=8))


def _at(hour: float) -> str:
    return (DAY + timedelta(hours=hour)).isoformat().replace("+00:00", "Z")


def _store() -> GraphStore:
    return GraphStore(
        [
            workload("Deployment", "shop", "web", began=_at(0)),
            pod("shop", "web-86b96c86dc-aaaaa", WEB, [(_at(0), _at(4))], gone=True),
            pod("shop", "web-86b96c86dc-bbbbb", WEB, [(_at(4), None)]),
            workload("Deployment", "shop", "batch", began=_at(0)),
            {"id": NODE, "type": "Node", "name": "edge-1"},
            {"id": IRIS.cluster("prod"), "type": "Cluster", "name": "prod"},
        ]
    )


def _server(**more: Any) -> Datasource:
    given = {"name": "main", "kind": "prometheus", "url": "http://main:9090", **more}
    return Datasource.from_settings(DatasourceSettings.model_validate(given), IRIS, None)


def _resolver(store: GraphStore | None = None, **more: Any) -> Resolver:
    return Resolver(store or _store(), IRIS, [_server(**more)])


def test_many_are_resolved_in_order_and_one_that_fails_stops_no_other() -> None:
    """Each pair has its answer at its place: the same as alone, or why there is none."""
    pairs = [(WEB, "cpu_usage"), ("prod/shop/deployment/nope", "cpu_usage"), (NODE, "mem_usage"), (WEB, "cpu_usge")]

    found = list(_resolver().resolve_many(pairs, WINDOW))

    assert [type(each) for each in found] == [Resolution, Unresolved, Resolution, Unresolved]
    assert found[0] == _resolver().resolve(WEB, "cpu_usage", WINDOW)
    assert isinstance(found[1], Unresolved)
    assert isinstance(found[1].error, ResourceNotFound)
    assert (found[3].entity, found[3].metric) == (WEB, "cpu_usge")


def test_a_request_reads_each_entity_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seven metrics of one workload cost as many look-ups of the graph as one."""
    store, asked = _store(), 0
    look_up = store.look_up

    def counted(*arguments: Any) -> Any:
        nonlocal asked
        asked += 1
        return look_up(*arguments)

    monkeypatch.setattr(store, "look_up", counted)
    metrics = [each.metric for each in TemplateCatalogue.shipped().for_scope("Workload")]
    found = list(_resolver(store).resolve_many([(WEB, metric) for metric in metrics], WINDOW))

    assert len(found) == 7
    assert asked == 3


@pytest.mark.parametrize(
    ("entity", "labels", "limits"),
    [
        (WEB, {}, 'namespace="shop",pod=~"web-86b96c86dc-aaaaa|web-86b96c86dc-bbbbb"'),
        (WEB, {"pod": "exported_pod"}, 'namespace="shop",exported_pod=~"web-86b96c86dc-aaaaa|web-86b96c86dc-bbbbb"'),
        (NODE, {}, 'instance="edge-1"'),
    ],
)
def test_a_query_of_ones_own_is_limited_to_the_entity(entity: str, labels: dict[str, str], limits: str) -> None:
    """Every selector gets the entity's matchers, in the server's label names; the rest of the text stays."""
    query = "sum(rate(http_requests_total[5m])) / max(up{job='a'})"

    found = _resolver(labels=labels).resolve(entity, "ratio", WINDOW, query=query)

    assert found.query == f"sum(rate(http_requests_total{{{limits}}}[5m])) / max(up{{{limits},job='a'}})"
    assert (found.metric, found.unit) == ("ratio", "1")


@pytest.mark.parametrize(
    "query", ["vector(1)", 'up{a="1" or b="2"}', "up{", "x'} or vector(42) or up{job='x", "time()"]
)
def test_a_query_that_cannot_be_limited_is_refused(query: str) -> None:
    """What sees no series, or would see others', is an error and never sent."""
    with pytest.raises(InvalidInput):
        _resolver().resolve(WEB, "own", WINDOW, query=query)


def test_a_query_of_ones_own_needs_something_to_be_limited_to() -> None:
    """A cluster has no matcher that would limit a query."""
    with pytest.raises(InvalidInput, match="a Cluster cannot limit"):
        _resolver().resolve(IRIS.cluster("prod"), "own", WINDOW, query="up")


_METRICS = st.sampled_from(["up", "a:b", "by_x", "rate_total", "offset_x"])
_VALUES = st.sampled_from(["", '{x="}{"}', "{x=~'a|b',}", '{ pod = "other" }'])
_SHAPES = st.sampled_from(
    [
        "sum by (le) (rate(S[5m]))",
        "S offset 1h",
        "S + on(a) group_left(b) S",
        "max_over_time(S[1h:5m])",
        "count(S) BY (x)",
        "-S",
    ]
)


@given(_METRICS, _VALUES, _SHAPES, st.text(st.characters(exclude_categories=["Cs"]), max_size=20))
def test_no_selector_escapes_its_limits(metric: str, values: str, shape: str, namespace: str) -> None:
    """Whatever the shape of the query and the value of the limit, each selector has exactly this matcher."""
    limit = Matcher("namespace", "=", namespace)

    for selector in promql.selectors(promql.enforce(shape.replace("S", metric + values), (limit,))):
        assert limit in selector.matchers


def test_templates_of_the_graph_add_to_and_replace_the_shipped_ones() -> None:
    """What users PUT as templates is resolved at once; one that lacks something is left out."""
    store = _store()
    own = {
        "id": IRIS.template("workload.mem_usage"),
        "type": "MetricTemplate",
        "name": "mem_usage",
        "scope": "Workload",
        "title": "RSS",
        "signal": "metrics",
        "quantity": "memory",
        "unit": "By",
        "metricType": "gauge",
        "exporter": "cadvisor",
        "datasourceType": "prometheus",
        "query": "sum(container_memory_rss{namespace={{namespace}},pod=~{{pods}}})",
    }
    resolver = _resolver(store)
    assert "working_set" in resolver.resolve(WEB, "mem_usage", WINDOW).query
    store.add(
        [own, own | {"id": IRIS.template("workload.queue"), "name": "queue", "query": "max(queue{pod=~{{pods}}})"}]
    )
    store.add([{"id": IRIS.template("workload.broken"), "type": "MetricTemplate", "name": "broken"}])

    assert resolver.resolve(WEB, "mem_usage", WINDOW).query.startswith("sum(container_memory_rss{")
    assert resolver.resolve(WEB, "queue", WINDOW).query.startswith("max(queue{pod=~")
    with pytest.raises(ResourceNotFound):
        resolver.resolve(WEB, "broken", WINDOW)


def test_more_pods_than_one_query_can_name_are_asked_for_in_parts() -> None:
    """A month of short jobs: the queries cover the grid without overlap, and each names exactly the pods of its span."""
    runs = tuple(PodRun(f"job-{n:05}", n * 60.0, n * 60.0 + 90) for n in range(10_000))
    question = QueryTemplate(lambda pods: f"sum(x{{pod=~{pods!r}}})", runs, "job-.*", 300)
    grid = Grid(0, 599_700, 300)

    parts = question.parts(grid)

    assert len(parts) > 4
    assert [second for part in parts for second in range(part.grid.start, part.grid.end + 1, 300)] == list(
        range(0, 600_000, 300)
    )
    assert all(len(part.pods) <= asking.MAX_PODS for part in parts)
    assert {name for part in parts for name in part.pods} == set(question.pods(grid))


def test_more_pods_at_one_time_than_a_query_can_name_leave_the_pattern() -> None:
    """When time cannot tell them apart, one query with the pattern of names is asked."""
    runs = tuple(PodRun(f"job-{n:05}", 0.0, None) for n in range(asking.MAX_PODS + 1))

    (part,) = QueryTemplate(str, runs, "job-.*", 300).parts(Grid(0, 86_400, 300))

    assert (part.query, part.pods) == ("job-.*", ())
