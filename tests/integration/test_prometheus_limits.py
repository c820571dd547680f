"""A caller's own PromQL, limited to an entity, on a real Prometheus: nothing of anybody else's ever comes back."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drumlin.kg.errors import InvalidInput
from drumlin.kg.telemetry import promql
from drumlin.kg.telemetry.history import History
from drumlin.kg.telemetry.promql import Matcher
from drumlin.kg.telemetry.resolve import Resolver
from tests.integration.conftest import RealPrometheus, at, available
from tests.integration.test_prometheus_history import CHECKOUT, NODE_A, documents
from tests.unit.telemetry_store import CLUSTER, IRIS, GraphStore

NOBODY = (Matcher("namespace", "=", "nobody"), Matcher("pod", "=~", "none|of|them"))
SPACE = st.sampled_from(["", " ", "\n", "  # a comment {x=1}\n"])
METRIC = st.sampled_from(
    ["container_memory_working_set_bytes", "node_memory_MemTotal_bytes", "container_cpu_usage_seconds_total"]
)
INSIDE = st.sampled_from(
    [
        "",
        "{}",
        '{job="kubelet"}',
        "{job=~'kube.*|node-exporter',}",
        '{namespace="payments"}',
        '{pod!="}{"}',
        "{job!~`x`}",
    ]
)
BARE = st.sampled_from(['{__name__=~"container_.+"}', '{__name__="node_memory_MemTotal_bytes"}', '{job=~".+"}'])
AFTER = st.sampled_from(["", " offset 1m", " offset -1m", " @ 1793494800", " @ end()", " offset 1m @ start()"])
LIST = st.sampled_from(["namespace", "pod, job", "le", ""])
OPERATOR = st.sampled_from(["+", "-", "*", "/", "%", "^", "==", "> bool", "and", "or", "unless", "atan2"])
MATCHING = st.sampled_from(["", "on(job)", "ignoring(pod)", "on() group_left()", "ON (namespace) GROUP_RIGHT (pod)"])
RANGED = st.sampled_from(
    ["rate", "increase", "max_over_time", "count_over_time", "last_over_time", "present_over_time"]
)
PLAIN = st.sampled_from(["abs", "-", "sort", "timestamp", "clamp_min", "label_replace", "histogram_quantile", ""])
AGGREGATE = st.sampled_from(["sum", "max", "count", "topk", "quantile", "count_values", "SUM", "group"])

CHANCE = ("topk", "%", "==", "bool")
"""What depends on which of equals comes first, or on the last digit of a sum, which the server adds up in any order."""

SELECTOR = st.builds(lambda metric, space, inside: metric + space + inside, METRIC, SPACE, INSIDE) | BARE


def _applied(function: str, inner: str) -> str:
    more = {
        "clamp_min": f"clamp_min({inner}, 0)",
        "label_replace": f'label_replace({inner}, "pod", "$1", "pod", "(.*)")',
        "histogram_quantile": f"histogram_quantile(0.9, {inner})",
        "-": f"-({inner})",
    }
    return more.get(function, f"{function}({inner})")


def _aggregated(function: str, inner: str, by: str, labels: str, before: bool) -> str:
    first = {"topk": "2, ", "quantile": "0.5, ", "count_values": '"v", '}.get(function, "")
    group = f" {by} ({labels})"
    return f"{function}{group} ({first}{inner})" if before else f"{function}({first}{inner}){group}"


def _grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    grouping = st.sampled_from(["by", "without", "BY"])
    return st.one_of(
        st.builds(_applied, PLAIN, inner),
        st.builds(_aggregated, AGGREGATE, inner, grouping, LIST, st.booleans()),
        st.builds(lambda a, op, on, b: f"({a}) {op} {on} ({b})", inner, OPERATOR, MATCHING, inner),
        st.builds(lambda f, q, after: f"{f}(({q})[10m:1m]{after})", RANGED, inner, AFTER),
    )


QUERY = st.recursive(
    st.builds(lambda s, after: s + after, SELECTOR, AFTER)
    | st.builds(lambda f, s, space, after: f"{f}({s}{space}[5m]{after})", RANGED, SELECTOR, SPACE, AFTER),
    _grown,
    max_leaves=4,
)


@pytest.fixture(scope="module")
def http(prometheus: RealPrometheus) -> Iterator[httpx.Client]:
    """A kept connection to the real server."""
    with httpx.Client(base_url=prometheus.url, timeout=60) as opened:
        yield opened


def _result(http: httpx.Client, query: str) -> httpx.Response:
    return http.post("/api/v1/query", data={"query": query, "time": str(at(100).timestamp())})


def _limited(http: httpx.Client, query: str, limits: tuple[Matcher, ...]) -> str | None:
    """Limit a query; None when it is refused, which only what the server does not read may be."""
    try:
        return promql.enforce(query, limits)
    except InvalidInput:
        assert _result(http, query).status_code == 400
        return None


def _values(answer: httpx.Response) -> dict[str, float]:
    """Return the value of each series; the server's order is any, and with it the last digit of a sum."""
    return {str(sorted(each["metric"].items())): float(each["value"][1]) for each in answer.json()["data"]["result"]}


@settings(max_examples=80, deadline=None)
@given(QUERY)
def test_no_query_sees_anybody_elses_series(http: httpx.Client, query: str) -> None:
    """Limited to pods that are not there, a query of any shape is empty on a server full of others' series, or refused by it."""
    limited = _limited(http, query, NOBODY)
    if limited is None:
        return
    answer = _result(http, limited)
    if answer.status_code == 200:
        assert answer.json()["data"]["result"] == []
    else:  # many-to-many and the like, which the query had before
        assert answer.status_code == 422 or _result(http, query).status_code == answer.status_code


@settings(max_examples=30, deadline=None)
@given(QUERY.filter(lambda query: not any(word in query for word in CHANCE)))
def test_a_limit_that_matches_all_changes_nothing(http: httpx.Client, query: str) -> None:
    """With matchers that everything has, the limited query gives what the query gave: the rest of it is untouched."""
    limited = _limited(http, query, (Matcher("job", "=~", ".*"),))
    if limited is None:
        return
    before, after = _result(http, query), _result(http, limited)
    assert before.status_code == after.status_code
    if before.status_code == 200:
        assert _values(after) == pytest.approx(_values(before), nan_ok=True)


@pytest.mark.parametrize(
    "query",
    ["by", "up{a='1' or b='2'}", "vector(42)", "scalar(1)", "up) or vector(1", "'up'", "1 + 1", ""],
)
def test_what_cannot_be_limited_is_refused(query: str) -> None:
    """A word as a name, another dialect, or no selector at all: refused with a hint, never sent."""
    with pytest.raises(InvalidInput) as error:
        promql.enforce(query, NOBODY)
    assert error.value.hint


BOTH_NODES = 4_000_000.0 - available(30) + 3  # edge-b-1 has 4 bytes, 1 of them free
SCOPES = {
    "prod/payments/pod/checkout-86b96c86dc-bbbbb": ("cpu_usage", 200, 0.25),
    CHECKOUT: ("cpu_usage", 30, 0.5),
    NODE_A: ("mem_usage", 30, 4_000_000.0 - available(30)),
    "cluster/prod": ("mem_usage", 30, BOTH_NODES),
    "domain/hospital": ("mem_usage", 30, 4_000_000.0 - available(30)),
    "domain/edge": ("mem_usage", 30, BOTH_NODES - (4_000_000.0 - available(30))),
}


@pytest.fixture(scope="module")
def everywhere() -> GraphStore:
    """A graph with an entity of each scope."""
    store = GraphStore(documents())
    store.add(
        [
            {"id": CLUSTER, "type": "Cluster", "name": "prod"},
            {"id": IRIS.domain("hospital"), "type": "Domain", "name": "hospital"},
            {"id": IRIS.domain("edge"), "type": "GlaciationNode", "name": "edge"},
            *(
                {
                    "id": IRIS.object("prod", None, "Node", node),
                    "type": "Node",
                    "name": node,
                    "domain": IRIS.domain(domain),
                }
                for node, domain in (("edge-a-1", "hospital"), ("edge-b-1", "edge"))
            ),
        ]
    )
    return store


@pytest.mark.parametrize("entity", SCOPES)
def test_each_scope_has_its_hand_computed_value(
    prometheus: RealPrometheus, everywhere: GraphStore, entity: str
) -> None:
    """Pod, workload, node, cluster, domain and GNode resolve to a query whose value is the one that was written."""
    metric, minute, expected = SCOPES[entity]
    with History(Resolver(everywhere, IRIS, [prometheus.datasource()])) as history:
        series = history.fetch(entity, metric, start=at(minute), end=at(minute + 0.5), step="1m")

    assert series.table["y"].to_pylist() == pytest.approx([expected])


@pytest.mark.parametrize("entity", [CHECKOUT, NODE_A])
def test_a_query_of_ones_own_has_the_entitys_value_alone(
    prometheus: RealPrometheus, everywhere: GraphStore, entity: str
) -> None:
    """On the real server the limited query counts this entity's series and no other."""
    query = "count(container_memory_working_set_bytes) or count(node_memory_MemTotal_bytes)"
    resolver = Resolver(everywhere, IRIS, [prometheus.datasource()])
    with History(resolver) as history:
        own = "count(container_cpu_usage_seconds_total)" if entity == CHECKOUT else query
        series = history.fetch(entity, "own", start=at(200), end=at(200.5), step="1m", query=own)

    assert series.table["y"].to_pylist() == [1.0]
