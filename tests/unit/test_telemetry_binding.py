"""A datasource that holds several clusters or domains: no query adds them together."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from drumlin.kg.config.datasources import DatasourceSettings
from drumlin.kg.errors import DrumlinError, InvalidInput, ResourceNotFound
from drumlin.kg.rdf.jsonld import NodeDocument
from drumlin.kg.telemetry import binding, dialects, promql
from drumlin.kg.telemetry.binding import Place
from drumlin.kg.telemetry.datasources import Datasource
from drumlin.kg.telemetry.promql import Matcher
from drumlin.kg.telemetry.resolve import Resolution, Resolver
from drumlin.kg.telemetry.series import Window
from drumlin.kg.telemetry.templates import Template, TemplateCatalogue
from tests.thoroughness import examples
from tests.unit.telemetry_store import IRIS, GraphStore

DAY = datetime(2026, 11, 27, tzinfo=UTC)
WINDOW = Window(DAY, DAY + timedelta(hours=1))
HOST, ALICE, BOB, CAROL = (IRIS.domain(each) for each in ("site", "alice", "bob", "carol"))
BY_CLUSTER = {"matchers": {"cluster": "{cluster}"}}
NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)


def _cluster(name: str, domain: str = HOST) -> NodeDocument:
    return {"id": IRIS.cluster(name), "type": "Cluster", "name": name, "domain": domain}


def _object(cluster: str, namespace: str | None, kind: str, name: str, domain: str = HOST) -> NodeDocument:
    iri = IRIS.object(cluster, namespace, kind, name)
    return {"id": iri, "type": kind, "name": name, "cluster": IRIS.cluster(cluster), "domain": domain}


def _domain(iri: str) -> NodeDocument:
    return {"id": iri, "type": "Domain", "name": iri.rpartition("/")[2]}


ONE = [
    _domain(HOST),
    _cluster("prod"),
    _object("prod", None, "Node", "a-1"),
    _object("prod", "shop", "StatefulSet", "db"),
    _object("prod", "shop", "Pod", "db-0"),
]
TWO = [
    *ONE,
    _cluster("edge"),
    _object("edge", None, "Node", "a-1"),
    _object("edge", "shop", "StatefulSet", "db"),
    _object("edge", "shop", "Pod", "db-0"),
]
FEDERATED = [
    *ONE,
    _domain(ALICE),
    _domain(BOB),
    _domain(CAROL),
    _object("prod", None, "Namespace", "shop"),
    _object("prod", None, "Namespace", "alice", ALICE),
    _object("prod", None, "Node", "b.1", BOB),
    _object("prod", None, "Node", "b-2", BOB),
]


def _datasource(name: str = "main", kind: str = "prometheus", **more: Any) -> Datasource:
    described = {"name": name, "kind": kind, "url": f"http://{name}:9090", **more}
    return Datasource.from_settings(DatasourceSettings.model_validate(described), IRIS, HOST)


def _resolver(documents: list[NodeDocument], *datasources: Datasource) -> Resolver:
    return Resolver(GraphStore(documents), IRIS, datasources)


def _resolve(
    documents: list[NodeDocument], entity: str, *datasources: Datasource, metric: str = "cpu_usage", **more: Any
) -> Resolution:
    return _resolver(documents, *datasources).resolve(entity, metric, WINDOW, **more)


def _limits(query: str) -> set[tuple[str, str, str]]:
    """What all selectors of a query have in common."""
    found = [set(selector.matchers) for selector in promql.selectors(query)]
    return {tuple(each) for each in set.intersection(*found)}


SCOPES = ["prod/shop/statefulset/db", "prod/shop/pod/db-0", "prod/-/node/a-1", "cluster/prod", "domain/site"]


@pytest.mark.parametrize("entity", SCOPES)
def test_a_server_that_cannot_tell_two_clusters_apart_is_not_asked(entity: str) -> None:
    """With two clusters known, an unbound datasource is refused for every scope, with lines that bind it."""
    with pytest.raises(InvalidInput, match="bound to no cluster, and 2 are known \\(edge, prod\\)") as error:
        _resolve(TWO, entity, _datasource())

    lines = error.value.detail["configuration"]
    assert 'name = "main"' in lines
    assert 'matchers = { cluster = "{cluster}" }' in lines
    assert lines in str(error.value.hint)


@pytest.mark.parametrize("more", [{"datasource": "main"}, {"query": "sum(up)"}])
def test_naming_the_datasource_or_the_query_does_not_get_round_it(more: dict[str, str]) -> None:
    """What cannot tell clusters apart is refused as well when the caller names it, or brings PromQL."""
    with pytest.raises(InvalidInput, match="bound to no cluster"):
        _resolve(TWO, SCOPES[0], _datasource(), **more)


@pytest.mark.parametrize("entity", SCOPES)
def test_one_cluster_needs_no_binding(entity: str) -> None:
    """With one cluster known the server's series are its series."""
    query = _resolve(ONE, entity, _datasource()).query

    assert not any(label == "cluster" for label, _, _ in _limits(query))


@pytest.mark.parametrize("entity", SCOPES[:4])
@pytest.mark.parametrize("cluster", ["prod", "edge"])
def test_a_matcher_picks_the_clusters_series(entity: str, cluster: str) -> None:
    """Entities of equal name in two clusters give different queries, each limited to its own cluster in every selector."""
    found = _resolve(TWO, entity.replace("prod", cluster), _datasource(**BY_CLUSTER))

    assert ("cluster", "=", cluster) in _limits(found.query)


def test_a_domain_with_two_clusters_is_asked_for_both() -> None:
    """The only domain spans both clusters: the matcher names them all."""
    assert ("cluster", "=~", "edge|prod") in _limits(_resolve(TWO, "domain/site", _datasource(**BY_CLUSTER)).query)


def test_each_cluster_has_the_datasource_that_holds_it() -> None:
    """Two servers, each bound to one cluster, are each asked for their own; a fixed matcher stands in every selector."""
    servers = [_datasource("one", clusters=["prod"]), _datasource("two", clusters=["edge"], matchers={"site": "e 1"})]

    prod, edge = (_resolve(TWO, f"{cluster}/shop/statefulset/db", *servers) for cluster in ("prod", "edge"))

    assert (prod.datasource, edge.datasource) == ("one", "two")
    assert ("site", "=", "e 1") in _limits(edge.query)


def test_a_bound_datasource_comes_before_one_that_is_not() -> None:
    """An unbound datasource does not stand in the way of one that can tell clusters apart."""
    found = _resolve(TWO, SCOPES[0], _datasource("loose"), _datasource("bound", **BY_CLUSTER))

    assert found.datasource == "bound"


def test_a_domain_that_no_one_server_holds_is_refused() -> None:
    """A domain whose clusters are in two servers has no single query; the answer names what can be asked."""
    servers = [_datasource("one", clusters=["prod"]), _datasource("two", clusters=["edge"])]

    with pytest.raises(InvalidInput, match="spans the clusters edge, prod") as error:
        _resolve(TWO, "domain/site", *servers)

    assert error.value.hint == "ask for each of them: cluster/edge, cluster/prod"


def test_what_no_datasource_holds_is_not_found() -> None:
    """A cluster that no datasource is bound to is told with what each one holds, also when one is named."""
    for named in (None, "one"):
        with pytest.raises(ResourceNotFound, match="one holds prod"):
            _resolve(TWO, "edge/shop/statefulset/db", _datasource("one", clusters=["prod"]), datasource=named)


def test_a_cluster_is_known_by_its_objects_alone() -> None:
    """Objects of a cluster without a graph of its own count: their series would be added too."""
    with pytest.raises(InvalidInput, match="edge, prod"):
        _resolve([*ONE, _object("edge", "shop", "StatefulSet", "db")], SCOPES[0], _datasource())


@pytest.mark.parametrize(
    ("names", "known"),
    [
        (["prod", "prod-2", "prod.a", "prodigy"], {"prod", "prod-2", "prod.a", "prodigy"}),
        (["Zürich", "zz"], {"Zürich", "zz", "prod"}),
    ],
)
def test_every_cluster_is_found_whatever_its_name(names: list[str], known: set[str]) -> None:
    """Names that begin alike, or have odd characters, are told apart in the list of clusters."""
    store = GraphStore([*ONE, *(_object(each, None, "Node", "n") for each in names)])

    assert Resolver(store, IRIS)._graph.inventory().clusters == known | {"prod"}


def test_a_callers_query_is_limited_to_cluster_and_entity() -> None:
    """Every selector of a caller's PromQL has the datasource's matchers and the entity's."""
    asked = "sum by (job) (rate(a[5m])) / on (job) group_left b{x='1'} offset 5m"

    found = _limits(_resolve(TWO, SCOPES[0], _datasource(**BY_CLUSTER), query=asked).query)

    assert {("cluster", "=", "prod"), ("namespace", "=", "shop")} <= found
    assert ("cluster", "=", "edge") in _limits(
        _resolve(TWO, "cluster/edge", _datasource(**BY_CLUSTER), query="sum(up)").query
    )


def test_a_query_described_by_hand_gets_the_matchers_too() -> None:
    """What somebody wrote into the graph is limited to the entity's cluster."""
    db = IRIS.object("prod", "shop", "StatefulSet", "db")
    metric = IRIS.metric(db, "orders")
    stored = {
        "id": metric, "type": "Metric", "name": "orders", "unit": "1", "quantity": "requests", "metricType": "gauge",
        "distribution": [
            {"id": IRIS.at(metric, "main"), "type": "MetricQuery", "query": "sum(orders_open)",
             "accessService": IRIS.datasource("main")}
        ],
    }  # fmt: skip
    telemetry = {"id": IRIS.telemetry(db, "metrics"), "type": "Telemetry", "signal": "metrics", "hasPart": [stored]}
    documents = [*TWO, {**_object("prod", "shop", "StatefulSet", "db"), "telemetry": [telemetry]}]

    found = _resolve(documents, SCOPES[0], _datasource(**BY_CLUSTER), metric="orders")

    assert found.query == 'sum(orders_open{cluster="prod"})'
    with pytest.raises(InvalidInput, match="bound to no cluster"):
        _resolve(documents, SCOPES[0], _datasource(), metric="orders")


@pytest.mark.parametrize("label", ["cluster", "k8s_cluster"])
def test_streams_of_logs_are_limited_too(label: str) -> None:
    """LogQL selects the streams of the entity's cluster, and an unbound Loki is refused when two are known."""
    loki = _datasource("loki", "loki", matchers={label: "{cluster}"})

    assert _resolver(TWO, loki).resolve_logs(SCOPES[0], WINDOW).query.startswith(f'{{{label}="prod",')
    with pytest.raises(InvalidInput, match="bound to no cluster"):
        _resolver(TWO, _datasource("loki", "loki")).resolve_logs(SCOPES[0], WINDOW)


def test_tags_of_an_influxdb_are_limited_too() -> None:
    """InfluxQL names the cluster's tag, one value or several."""
    place = {"measurement": "m", "field": "f"}
    series = {"workload.cpu_usage": place, "domain.cpu_usage": place}
    influx = _datasource("influx", "influxdb", database="t", series=series, **BY_CLUSTER)

    assert "\"cluster\" = 'prod'" in _resolve(TWO, SCOPES[0], influx).query
    assert '"cluster" =~ /^(?:edge|prod)$/' in _resolve(TWO, "domain/site", influx).query


# -- domains -------------------------------------------------------------------------------------------------------------
def test_a_domain_is_the_sum_over_its_nodes() -> None:
    """With several domains known, a domain that has nodes is asked for by their names."""
    found = _resolve(FEDERATED, "domain/bob", _datasource())

    assert ("instance", "=~", "b-2|b\\.1") in _limits(found.query)
    assert found.selector == "nodes"


def test_a_domain_without_nodes_is_the_sum_over_its_namespaces() -> None:
    """A domain that has namespaces only is asked for by the workloads in them."""
    found = _resolve(FEDERATED, "domain/alice", _datasource())

    assert ("namespace", "=~", "alice") in _limits(found.query)
    assert "container_cpu_usage_seconds_total" in found.query
    assert found.selector == "namespaces"


def test_traffic_of_namespaces_leaves_out_pods_on_their_nodes_network() -> None:
    """Each of them shows the whole node's traffic; of other metrics nothing is left out."""
    found = _resolve(FEDERATED, "domain/alice", _datasource(), metric="network_receive")
    assert "unless on (namespace,pod) max by (namespace,pod) (kube_pod_info{" in found.query
    assert 'host_network="true"' in found.query
    assert "unless" not in _resolve(FEDERATED, "domain/alice", _datasource()).query
    both = _resolve(FEDERATED, "domain/alice", _datasource(), metric="network_usage")  # in either direction
    assert both.query.count("unless on (namespace,pod)") == 2


def test_a_domain_of_which_nothing_is_known_is_refused() -> None:
    """Nothing tells the series of a domain without nodes and namespaces from others': 422, with lines that bind it."""
    with pytest.raises(InvalidInput, match="no node or namespace is known of the domain carol, 4 domains") as error:
        _resolve(FEDERATED, "domain/carol", _datasource())

    assert 'domains = ["carol"]' in error.value.detail["configuration"]


def test_two_domains_never_have_one_query() -> None:
    """Any two domains that resolve give different queries."""
    found = [_resolve(FEDERATED, f"domain/{each}", _datasource()).query for each in ("site", "alice", "bob")]

    assert len(set(found)) == 3


def test_other_scopes_do_not_mind_several_domains() -> None:
    """Workloads, pods, nodes and clusters are told apart by names alone."""
    for entity in SCOPES[:4]:
        assert _resolve(FEDERATED, entity, _datasource()).query == _resolve(ONE, entity, _datasource()).query


def test_the_hosting_domain_of_whole_clusters_is_all_that_they_have() -> None:
    """A domain that owns every node of its clusters is asked for without naming them, whatever domains are guests there."""
    documents = [*ONE, _domain(ALICE), _object("prod", None, "Namespace", "alice", ALICE)]

    assert _resolve(documents, "domain/site", _datasource()).query == _resolve(ONE, "domain/site", _datasource()).query


@pytest.mark.parametrize(
    ("more", "limit"),
    [({"domains": ["carol"]}, None), ({"matchers": {"site": "{domain}"}}, ("site", "=", "carol"))],
)
def test_a_datasource_bound_to_a_domain_is_asked_for_all_of_it(
    more: dict[str, Any], limit: tuple[str, str, str] | None
) -> None:
    """A server that holds one domain, or whose series name theirs, needs no nodes of it."""
    found = _limits(_resolve(FEDERATED, "domain/carol", _datasource(**more)).query)

    assert limit is None or limit in found


def test_a_server_of_one_domain_is_not_asked_for_another() -> None:
    """What belongs to another domain than those a datasource is bound to is not in it."""
    with pytest.raises(ResourceNotFound, match="holds the domain carol"):
        _resolve(FEDERATED, SCOPES[0], _datasource(domains=["carol"]))


def test_a_metric_that_no_node_has_cannot_be_split_by_nodes() -> None:
    """A domain's metric without a counterpart of nodes is refused, with the line that binds the datasource."""
    catalogue = TemplateCatalogue(
        [Template("domain.x", "x", "Domain", "", "metrics", "", "1", "gauge", "x", "prometheus", "x")]
    )
    resolver = Resolver(GraphStore(FEDERATED), IRIS, [_datasource()], catalogue)

    with pytest.raises(InvalidInput, match="x of one domain cannot be told") as error:
        resolver.resolve("domain/bob", "x", WINDOW)

    assert 'domains = ["bob"]' in error.value.detail["configuration"]


def test_nodes_of_equal_name_in_two_clusters_are_not_mixed_up() -> None:
    """A domain's nodes that share their names with another domain's in a second cluster of the server are refused."""
    documents = [
        _domain(HOST), _domain(ALICE), _cluster("prod"), _cluster("edge", ALICE),
        _object("prod", None, "Node", "n1", ALICE), _object("prod", None, "Node", "n2"),
        _object("edge", None, "Node", "n2", ALICE),
    ]  # fmt: skip

    with pytest.raises(InvalidInput, match="the node n2 belongs to the domain alice in one cluster"):
        _resolve(documents, "domain/alice", _datasource(**BY_CLUSTER))


def test_the_domain_fills_its_matcher_for_every_scope() -> None:
    """A matcher that names the domain has the id of the entity's; an entity without one is refused."""
    server = _datasource(matchers={"site": "{domain}"})

    assert ("site", "=", "site") in _limits(_resolve(FEDERATED, SCOPES[0], server).query)
    with pytest.raises(InvalidInput, match="names a domain, and none is known"):
        _resolve([{"id": IRIS.object("prod", None, "Node", "x"), "type": "Node", "name": "x"}], "prod/-/node/x", server)


# -- properties ----------------------------------------------------------------------------------------------------------
@settings(max_examples=examples(20), deadline=None)
@given(
    clusters=st.lists(NAMES, min_size=1, max_size=3, unique=True),
    domain=NAMES,
    fixed=NAMES,
    holes=st.sampled_from(["{cluster}", "x-{cluster}", "{domain}", "{domain}/{cluster}"]),
)
def test_no_rendered_selector_lacks_a_matcher(clusters: list[str], domain: str, fixed: str, holes: str) -> None:
    """Every selector of every shipped template has all matchers, whatever the names are."""
    server = _datasource(matchers={"own": holes, "fixed": fixed.replace("{", "(")})
    wanted = binding.matchers(server, Place(tuple(clusters), domain))
    values = {"namespace": "n", "node": "o", "pods": "p", "machine": "m"}
    for template in TemplateCatalogue.shipped().templates:
        query = dialects.write(
            template,
            values,
            "id",
            window=timedelta(minutes=5),
            step=timedelta(minutes=5),
            datasource=server,
            matchers=wanted,
        )
        assert all(set(wanted) <= set(each.matchers) for each in promql.selectors(query))


METRIC = st.sampled_from(["up", "a:b", "rate", "node_load1", "by_x", "Inf_x", "offset_x"])
SELECTOR = st.builds(
    "{}{}".format, METRIC, st.sampled_from(["", "{}", '{a="b"}', '{a=~"x|y",b!="{}"}', "{a='}'}", "{ a = 'b' , }"])
)
RANGE = st.builds("{}[{}]".format, SELECTOR, st.sampled_from(["5m", "5m:1m"]))
EXPRESSION = st.recursive(
    st.one_of(SELECTOR, st.builds("rate({})".format, RANGE), st.just('{__name__="x"}'), st.just("1e3 * up")),
    lambda inner: st.one_of(
        st.builds("sum by (up, a) ({})".format, inner),
        st.builds("SUM({}) BY (up)".format, inner),
        st.builds("topk(3, {})".format, inner),
        st.builds("({}) / on (up) group_left (a) ({})".format, inner, inner),
        st.builds("({}) and ignoring (up) ({})".format, inner, inner),
        st.builds("label_replace({}, 'up', '$1', 'up', '{{up}}')".format, inner),
        st.builds("({}) > bool 0".format, inner),
        st.builds("max_over_time(({})[1h:5m])".format, inner),
        st.builds("-({}) # {{up}}\n".format, inner),
    ),
    max_leaves=6,
)


@settings(max_examples=examples(100), deadline=None)
@given(EXPRESSION, NAMES)
def test_a_callers_query_never_keeps_a_selector_without_the_matchers(query: str, cluster: str) -> None:
    """Any PromQL comes back with the matchers in every selector, as the parser sees it, or is refused."""
    wanted = (Matcher("cluster", "=", cluster), Matcher("pod", "=~", "a|b"))
    try:
        limited = promql.enforce(query, wanted)
    except DrumlinError:
        return
    assert all(set(wanted) <= set(each.matchers) for each in promql.selectors(limited))


@settings(max_examples=examples(40), deadline=None)
@given(EXPRESSION)
def test_plain_queries_are_not_refused(query: str) -> None:
    """What the parser takes is limited, not refused."""
    try:
        promql.parse(query)
    except DrumlinError:
        return
    promql.enforce(query, (Matcher("cluster", "=", "prod"),))


# -- configuration -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"clusters": ["a", "b"]}, "a label has to tell them apart"),
        ({"matchers": {"clu-ster": "x"}}, "'clu-ster' is not a label name"),
        ({"matchers": {"cluster": "{clutser}"}}, r"nothing fills \{clutser\}"),
        ({"kind": "grafana", "matchers": {"cluster": "x"}}, "this is grafana"),
        ({"clusters": [""]}, "at least 1 character"),
    ],
)
def test_a_binding_that_cannot_work_is_refused(more: dict[str, Any], message: str) -> None:
    """The configuration says what is wrong with a binding, and where."""
    with pytest.raises(ValidationError, match=message):
        _datasource(**more)


def test_a_binding_stands_in_the_graph_and_is_read_back() -> None:
    """A datasource's document names what it holds and its matchers, and one that is only a document is bound by them."""
    server = _datasource("other", clusters=["prod", "edge"], domains=["site"], **BY_CLUSTER)
    store = GraphStore([*TWO, server.document(IRIS)])

    (read,) = Resolver(store, IRIS).datasources()

    assert (set(read.clusters), read.domains, read.matchers) == ({"prod", "edge"}, ("site",), {"cluster": "{cluster}"})
    assert ("cluster", "=", "edge") in _limits(
        Resolver(store, IRIS).resolve("edge/shop/statefulset/db", "cpu_usage", WINDOW).query
    )
