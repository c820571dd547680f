"""Resolve: entity, metric and window become the exact query at the right datasource."""

from __future__ import annotations

import json
import shlex
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from drumlin.kg.config.datasources import DatasourceSettings
from drumlin.kg.errors import InvalidIdentifier, InvalidInput, ResourceNotFound
from drumlin.kg.telemetry.asking import MAX_PODS, PodRun, QueryTemplate
from drumlin.kg.telemetry.datasources import Datasource
from drumlin.kg.telemetry.describe import Subject, describe, pod_names
from drumlin.kg.telemetry.resolve import Resolution, Resolver
from drumlin.kg.telemetry.series import Grid, Window
from drumlin.kg.telemetry.templates import TemplateCatalogue
from tests.unit.telemetry_store import IRIS, GraphStore, pod, workload

DAY = datetime(2026, 11, 27, tzinfo=UTC)
CHECKOUT = IRIS.object("prod", "payments", "Deployment", "checkout")
REINDEX = IRIS.object("prod", "search", "CronJob", "reindex")
ORDERS = IRIS.object("prod", "payments", "StatefulSet", "orders-db")
POD = IRIS.object("prod", "payments", "Pod", "checkout-86b96c86dc-bbbbb")
NODE = IRIS.object("prod", None, "Node", "edge.a-1")
GNODE = IRIS.domain("glaciation-node1")


def _hour(hour: float) -> str:
    return (DAY + timedelta(hours=hour)).isoformat().replace("+00:00", "Z")


def _window(start: float, end: float) -> Window:
    return Window(DAY + timedelta(hours=start), DAY + timedelta(hours=end))


def _configured(
    name: str = "prometheus-main", kind: str = "prometheus", domain: str | None = GNODE, **more: Any
) -> Datasource:
    settings = DatasourceSettings.model_validate({"name": name, "kind": kind, "url": f"http://{name}:9090", **more})
    return Datasource.from_settings(settings, IRIS, domain)


def _store(**checkout: Any) -> GraphStore:
    job = IRIS.object("prod", "search", "Job", "reindex-29930271")
    return GraphStore(
        [
            workload("Deployment", "payments", "checkout", began=_hour(0), **checkout),
            pod("payments", "checkout-86b96c86dc-aaaaa", CHECKOUT, [(_hour(0), _hour(4))], gone=True),
            pod("payments", "checkout-86b96c86dc-bbbbb", CHECKOUT, [(_hour(2), _hour(6))]),
            pod("payments", "checkout-86dc45ccc-ccccc", CHECKOUT, [(_hour(6), None)]),
            workload("StatefulSet", "payments", "orders-db", began=_hour(0)),
            pod("payments", "orders-db-0", ORDERS, [(_hour(0), _hour(1)), (_hour(5), _hour(6))]),
            workload("CronJob", "search", "reindex", began=_hour(0)),
            workload("Job", "search", "reindex-29930271", began=_hour(3), managedBy=REINDEX),
            pod("search", "reindex-29930271-wwg9b", job, [(_hour(3), _hour(3.1))]),
            workload("Deployment", "payments", "idle", began=_hour(0)),
            {"id": NODE, "type": "Node", "name": "edge.a-1", "domain": GNODE},
            {"id": GNODE, "type": "GlaciationNode", "name": "glaciation-node1"},
            {"id": IRIS.cluster("prod"), "type": "Cluster", "name": "prod"},
            {"id": IRIS.object("prod", "payments", "Service", "checkout"), "type": "Service", "name": "checkout"},
        ]
    )


def _resolve(entity: str, metric: str, window: Window, *datasources: Datasource, **more: Any) -> Resolution:
    return Resolver(_store(), IRIS, datasources or (_configured(),)).resolve(entity, metric, window, **more)


UNGUARDED = (
    "not all of its pods are known, and no owner labels of prometheus-main (kube_pod_owner) guard the pattern"
    " of their names, which is asked for"
)


@pytest.mark.parametrize(
    ("hours", "suffixes"),
    [
        ((1, 1.9), ["aaaaa"]),
        ((3, 5), ["aaaaa", "bbbbb"]),
        ((5, 5.9), ["bbbbb"]),
        ((7, 8), ["ccccc"]),
        ((0, 9), ["aaaaa", "bbbbb", "ccccc"]),
    ],
)
def test_pods_whose_runs_overlap_the_window_are_asked_for(hours: tuple[float, float], suffixes: list[str]) -> None:
    """Deleted pods and pods of an earlier revision count in the time in which they ran."""
    found = _resolve(CHECKOUT, "cpu_usage", _window(*hours))

    assert [name[-5:] for name in found.pods] == suffixes
    assert found.selector == "exact"
    assert f'pod=~"{"|".join(found.pods)}"' in found.query
    assert found.warnings == ()


def test_a_pod_that_ended_within_the_first_rate_window_counts() -> None:
    """The first point of a rate looks back before the window, so the pod that ran there is asked for."""
    found = _resolve(CHECKOUT, "cpu_usage", _window(4.05, 5), step="5m")

    assert [name[-5:] for name in found.pods] == ["aaaaa", "bbbbb"]


def test_a_gauge_of_a_pod_that_is_known_to_have_ended_is_not_asked_for() -> None:
    """However long a server keeps the last sample: a pod that ended before the first point has no memory in it."""
    found = _resolve(CHECKOUT, "mem_usage", _window(4.05, 5), step="5m")

    assert [name[-5:] for name in found.pods] == ["bbbbb"]


def test_a_pod_that_has_ended_is_left_out_at_once() -> None:
    """Points just after a known end are asked for without the pod that a server would still show, and not at all where none lives."""
    runs = (PodRun("a", 0, 610), PodRun("b", 600, None), PodRun("c", 1200, 1210), PodRun("a", 1260, 1290))
    question = QueryTemplate(lambda pods: f"m{{{pods}}}", runs, lingers=150)

    def asked(first: int, last: int, step: int = 60) -> list[tuple[int, int, str]]:
        (part,) = question.parts(Grid(first, last, step))
        return [(each.grid.start, each.grid.end, each.query) for each in question.refined(part)]

    assert asked(540, 900) == [(540, 600, "m{a|b}"), (660, 720, "m{b}"), (780, 900, "m{a|b}")]
    # c ended at 1210, the second a at 1290
    assert asked(1200, 1500) == [
        (1200, 1200, "m{a|b|c}"),
        (1260, 1260, "m{a|b}"),
        (1320, 1440, "m{b}"),
        (1500, 1500, "m{a|b|c}"),
    ]
    assert asked(600, 1800, 600) == [(600, 1800, "m{a|b|c}")]  # no point of it is that near to an end
    gone = QueryTemplate(lambda pods: f"m{{{pods}}}", (PodRun("a", 0, 610),), lingers=150)
    (part,) = gone.parts(Grid(600, 900, 60))
    assert [each.grid for each in gone.refined(part)] == [Grid(600, 600, 60), Grid(780, 900, 60)]
    many = QueryTemplate(
        lambda pods: f"m{{{pods}}}", tuple(PodRun(f"p{n}", n * 60, n * 60 + 30) for n in range(40)), lingers=75
    )
    (part,) = many.parts(Grid(0, 3000, 60))
    assert many.refined(part) == [part]
    assert _resolve(CHECKOUT, "mem_usage", _window(0, 9), step="5m").question.lingers == 75  # type: ignore[union-attr]
    assert _resolve(CHECKOUT, "cpu_usage", _window(0, 9), step="5m").question.lingers == 0  # type: ignore[union-attr]


def test_edges_of_pods_are_asked_for_precisely() -> None:
    """Of many points those that look at the beginning or end of a pod; all where there are many edges, or few points; none for few edges."""
    asked = QueryTemplate("m{{{}}}".format, (PodRun("a", 0, 180_000), PodRun("b", 179_970, None)), reach=329)
    days, year = Grid(0, 600_000, 300), Grid(-86_400_000, 86_400_000, 300)
    question = asked.with_precise(days, 120, "e{{{}}}".format)
    (part,) = question.parts(days)
    assert [(each.grid.start, each.grid.end, each.query) for each in question.refined(part)] == [
        (0, 300, "e{a|b}"),
        (600, 179_700, "m{a|b}"),
        (180_000, 180_300, "e{a|b}"),
        (180_600, 600_000, "m{a|b}"),
    ]
    assert question.identity(days) != asked.identity(days)
    assert asked.with_precise(year, 60, "e{{{}}}".format) is asked
    jobs = tuple(PodRun(f"p{n}", n * 1200.0, n * 1200.0 + 300) for n in range(400))
    many = QueryTemplate(lambda _: "m", jobs, reach=329).with_precise(Grid(0, 480_000, 300), 30, lambda _: "e")
    (part,) = many.parts(Grid(0, 480_000, 300))
    assert [(each.grid, each.query) for each in many.refined(part)] == [(Grid(0, 480_000, 300), "e")]
    hours = Grid(0, 14_400, 300)
    for few in (QueryTemplate("m{}".format, pattern="p.+"), QueryTemplate("m{}".format)):
        short = few.with_precise(hours, 30, "e{}".format)
        assert [each.query for part in short.parts(hours) for each in short.refined(part)] == [f"e{few.pattern}"]
        assert short.identity(hours) != few.identity(hours)


def test_a_counter_has_an_automatic_step_of_four_scrapes() -> None:
    """A counter's automatic step grows with the scrape interval, so that no window is longer; a gauge's is one scrape."""
    server = _configured(scrape_interval="60s")

    assert _resolve(NODE, "energy_joules", _window(0, 1), server).step == timedelta(minutes=5)
    assert _resolve(NODE, "cpu_usage", _window(0, 1), server).step == timedelta(minutes=5)
    assert _resolve(NODE, "mem_usage", _window(0, 1), server).step == timedelta(minutes=1)
    assert _resolve(NODE, "energy_joules", _window(0, 1), server).warnings == ()


def test_lines_are_counted_over_the_step_alone() -> None:
    """Nothing scrapes a Loki: the window of a sum of lines is the step, however short, so that points add up."""
    loki = _configured("loki-main", "loki")
    resolver = Resolver(_store(), IRIS, [loki], TemplateCatalogue.shipped(frozenset({"loki"})))
    for step in ("10s", "1m", "5m"):
        found = resolver.resolve(CHECKOUT, "log_lines", _window(0, 1), step=step)
        assert f"}}[{step}]))" in found.query
        assert found.warnings == ()
    assert resolver.resolve(CHECKOUT, "log_lines", _window(0, 1)).step == timedelta(minutes=1)


def test_a_name_that_ran_twice_is_asked_for_once() -> None:
    """A StatefulSet's pod is one name however often it ran."""
    assert _resolve(ORDERS, "mem_usage", _window(0, 9)).pods == ("orders-db-0",)


def test_a_cron_job_is_the_pods_of_its_jobs() -> None:
    """The way from a CronJob to its pods leads over its jobs."""
    found = _resolve(REINDEX, "mem_usage", _window(0, 9))

    assert found.pods == ("reindex-29930271-wwg9b",)
    assert 'namespace="search"' in found.query


def test_without_a_known_pod_the_pattern_is_asked_for() -> None:
    """Nothing known of the window: the stable pattern of the graph, and a warning that says so."""
    found = _resolve("prod/payments/deployment/idle", "cpu_usage", _window(0, 9))

    assert found.selector == "pattern"
    assert found.pods == ()
    assert 'pod=~"idle-[0-9a-f]{6,10}-[0-9a-z]{5}"' in found.query
    assert found.warnings == (UNGUARDED,)


def test_a_workload_of_too_many_pods_is_asked_for_by_its_pattern() -> None:
    """Beyond the limit the names would not fit a query, so the pattern is asked for, with a warning."""
    store = _store()
    idle = IRIS.object("prod", "payments", "Deployment", "idle")
    store.add(pod("payments", f"idle-86b96c86dc-{n:05}", idle, [(_hour(1), None)]) for n in range(MAX_PODS + 1))

    found = Resolver(store, IRIS, [_configured()]).resolve(idle, "cpu_usage", _window(2, 3))

    assert found.selector == "pattern"
    assert any("more than 2,000 pods" in each for each in found.warnings)


def test_before_the_first_known_run_the_pattern_is_asked_for() -> None:
    """Pods that ended before the graph was filled are unknown: until then the pattern picks them, or a warning says so (exact)."""
    store = _store()
    store.add([workload("Deployment", "payments", "old", began=_hour(-100))])
    store.add(
        [
            pod(
                "payments",
                "old-86b96c86dc-aaaaa",
                IRIS.object("prod", "payments", "Deployment", "old"),
                [(_hour(0), None)],
            )
        ]
    )

    resolver = Resolver(store, IRIS, [_configured()])
    found = resolver.resolve("prod/payments/deployment/old", "cpu_usage", _window(-50, 3), step="5m")
    exact = resolver.resolve("prod/payments/deployment/old", "cpu_usage", _window(-50, 3), selector="exact")
    pattern = resolver.resolve("prod/payments/deployment/old", "cpu_usage", _window(-50, 3), selector="pattern")

    until = DAY + timedelta(minutes=5)  # the first points of the new pod look back at the old ones
    assert found.selector == "mixed"
    assert [tuple(each) for each in found.intervals] == [
        ("pattern", _window(-50, 3).start, until),
        ("exact", until + timedelta(minutes=5), _window(-50, 3).end),
    ]
    assert [part.pods for part in found.parts] == [(), ("old-86b96c86dc-aaaaa",)]
    assert 'pod=~"old-[0-9a-f]{6,10}-[0-9a-z]{5}"' in found.query
    assert Resolution.from_dict(found.to_dict()).intervals == found.intervals
    assert (exact.selector, pattern.selector) == ("exact", "pattern")
    assert exact.warnings == (
        f"none of its pods is known before {_hour(0)}: one that had ended by then is not asked for",
    )


def test_a_pod_is_a_workload_of_one() -> None:
    """A pod's metrics are resolved on demand, and a window in which it did not run is told."""
    entity = "prod/payments/pod/orders-db-0"

    assert 'pod=~"orders-db-0"' in _resolve(entity, "cpu_usage", _window(0, 1)).query
    assert "did not run in the window" in _resolve(entity, "cpu_usage", _window(2, 4)).warnings[0]


EXACT = "[329999ms]) * 300"
"""The range of five minutes at a scrape of 30 s: it begins with the sample before the window."""


@pytest.mark.parametrize(
    ("entity", "how", "query"),
    [
        (
            NODE,
            "node",
            f'sum(avg by (node_name,path) ((rate(kepler_node_cpu_joules_total{{node_name="edge.a-1",zone="package"}}{EXACT})))',
        ),
        (GNODE, "all", f'sum(avg by (node_name,path) ((rate(kepler_node_cpu_joules_total{{zone="package"}}{EXACT})))'),
        (
            IRIS.cluster("prod"),
            "all",
            f'sum(avg by (node_name,path) ((rate(kepler_node_cpu_joules_total{{zone="package"}}{EXACT})))',
        ),
    ],
)
def test_nodes_domains_and_clusters_are_resolved(entity: str, how: str, query: str) -> None:
    """A node by its name, a domain and a cluster as all nodes that the server sees."""
    found = _resolve(entity, "energy_joules", _window(0, 9), step="5m")

    assert (found.selector, found.query, found.unit, found.quantity) == (how, query, "J", "energy")


def test_everything_needed_to_run_the_query_is_told() -> None:
    """Endpoint, aligned times, step, unit and type; as JSON it has only plain values."""
    window = Window(DAY + timedelta(hours=3, seconds=17), DAY + timedelta(hours=5, seconds=50))

    found = _resolve("prod/payments/deployment/checkout", "mem_usage", window)

    told = json.loads(json.dumps(found.to_dict()))
    asked = told.pop("asked")  # after 4:00 without the pod that ended then
    assert [(each["start"][11:16], each["end"][11:16]) for each in asked] == [
        ("03:01", "04:00"),
        ("04:01", "04:01"),
        ("04:02", "05:00"),
    ]
    assert Resolution.from_dict({**told, "asked": asked}).asked_for(Grid(0, 60, 60))[1].query == asked[1]["query"]
    assert told == {
        "entity": CHECKOUT,
        "metric": "mem_usage",
        "unit": "By",
        "quantity": "memory",
        "metricType": "gauge",
        "datasource": "prometheus-main",
        "accessService": IRIS.datasource("prometheus-main"),
        "endpoint": "http://prometheus-main:9090/api/v1/query_range",
        "query": found.query,
        "start": "2026-11-27T03:01:00Z",
        "end": "2026-11-27T05:00:00Z",
        "step": "PT1M",
        "pods": ["checkout-86b96c86dc-aaaaa", "checkout-86b96c86dc-bbbbb"],
        "selector": "exact",
        "intervals": [{"selector": "exact", "start": "2026-11-27T03:01:00Z", "end": "2026-11-27T05:00:00Z"}],
        "curl": found.curl,
        "fetchable": True,
        "warnings": [],
    }


def test_the_curl_line_is_a_post_that_a_shell_reads_back() -> None:
    """Form-encoded, quoted, with the tenant and a placeholder for the credential, whose reference is not shown."""
    server = _configured(
        tenant_header={"value": "team a's".replace(" ", "-")}, credential={"secret": "file:/run/secrets/prometheus"}
    )

    found = _resolve(CHECKOUT, "cpu_usage", _window(3, 5), server)

    words = shlex.split(found.curl)
    assert words[0] == "curl"
    assert f"query={found.query}" in words
    assert "X-Scope-OrgID: team-a's" in words
    assert "Authorization: Bearer $DRUMLIN_PROMETHEUS_MAIN_TOKEN" in words
    assert words[-1] == found.endpoint
    assert "/run/secrets" not in found.curl


def test_a_long_curl_line_reads_the_query_from_standard_input() -> None:
    """One argument of a command has a limit, so a query of many pods goes another way."""
    store = _store()
    idle = IRIS.object("prod", "payments", "Deployment", "idle")
    store.add(pod("payments", f"idle-{'x' * 50}-{n:05}", idle, [(_hour(1), None)]) for n in range(MAX_PODS))

    found = Resolver(store, IRIS, [_configured()]).resolve(idle, "cpu_usage", _window(2, 3))

    first, query, last = found.curl.split("\n")
    assert "--data-urlencode query@-" in first
    assert query == found.query
    assert first.endswith(f"<<'{last}'")


def test_basic_authentication_is_a_placeholder_too() -> None:
    """Neither user name nor password is written out."""
    server = _configured(credential={"secret": "env:SECRET_NAME", "username": "drumlin-user"})

    curl = _resolve(CHECKOUT, "cpu_usage", _window(3, 5), server).curl

    assert '-u "$DRUMLIN_PROMETHEUS_MAIN_USER:$DRUMLIN_PROMETHEUS_MAIN_PASSWORD"' in curl
    assert "SECRET_NAME" not in curl
    assert "drumlin-user" not in curl


@pytest.mark.parametrize(
    ("entity", "metric", "message", "hint"),
    [
        (
            "prod/payments/deployment/chekout",
            "cpu_usage",
            "there is no prod/payments/deployment/chekout",
            "prod/payments/deployment/checkout",
        ),
        ("prod/paymnts/deployment/checkout", "cpu_usage", "there is no", "prod/payments/deployment/checkout"),
        ("prod/nowhere/job/x", "cpu_usage", "there is no prod/nowhere/job/x", "list what there is"),
        (CHECKOUT, "cpu_usge", "has no metric 'cpu_usge'", "did you mean cpu_usage?"),
        (CHECKOUT, "gpu", "has no metric 'gpu'", "cpu_usage"),
        ("prod/payments/service/checkout", "cpu_usage", "is a Service, which has no telemetry", "workloads, pods"),
    ],
)
def test_what_is_not_there_is_named_with_what_may_be_meant(entity: str, metric: str, message: str, hint: str) -> None:
    """An unknown entity or metric is an error about exactly that, with the nearest name."""
    with pytest.raises(ResourceNotFound, match=message) as error:
        _resolve(entity, metric, _window(0, 9))
    assert hint in (error.value.hint or "")


def test_an_id_that_names_nothing_is_refused() -> None:
    """A malformed id is an error of its own."""
    with pytest.raises(InvalidIdentifier):
        _resolve("checkout", "cpu_usage", _window(0, 9))


def _described(**more: Any) -> GraphStore:
    subject = Subject(
        CHECKOUT, "Workload", "prod", "payments", "Deployment", "checkout", pod_names("Deployment", "checkout"), **more
    )
    sidecar = _configured("sidecar", "loki", logs="injected")
    telemetry = describe(subject, TemplateCatalogue.shipped(), [_configured(), sidecar], IRIS)
    return _store(telemetry=telemetry)


@pytest.mark.parametrize("entity", [CHECKOUT, "prod/payments/pod/checkout-86b96c86dc-bbbbb"])
def test_a_metric_that_the_entity_cannot_have_is_explained(entity: str) -> None:
    """Without a CPU limit there is no utilisation, and on the host's network no traffic: of the workload and of its pods."""
    unlimited = Resolver(_described(cpu_limited=False), IRIS, [_configured()])
    on_host = Resolver(_described(host_network=True), IRIS, [_configured()])

    with pytest.raises(ResourceNotFound, match="has no cpu_utilisation: none of its containers has a CPU limit"):
        unlimited.resolve(entity, "cpu_utilisation", _window(0, 9))
    with pytest.raises(ResourceNotFound, match="has no network_receive: it uses the network of its node"):
        on_host.resolve(entity, "network_receive", _window(0, 9))
    assert unlimited.resolve(entity, "network_receive", _window(0, 9)).unit == "By/s"


def test_a_metric_described_by_hand_is_resolved_as_it_is() -> None:
    """A metric without a template is asked for by the query that its graph holds."""
    iri = IRIS.metric(CHECKOUT, "orders")
    query = {
        "id": IRIS.at(iri, "prometheus-main"),
        "type": "MetricQuery",
        "query": "sum(orders_total)",
        "accessService": _configured().iri,
    }
    metric = {
        "id": iri,
        "type": "Metric",
        "name": "orders",
        "unit": "{order}",
        "metricType": "counter",
        "distribution": [query],
    }
    store = _store(
        telemetry=[
            {"id": IRIS.telemetry(CHECKOUT, "metrics"), "type": "Telemetry", "signal": "metrics", "hasPart": [metric]}
        ]
    )

    found = Resolver(store, IRIS, [_configured()]).resolve(CHECKOUT, "orders", _window(0, 9))

    assert (found.query, found.unit, found.metric_type, found.selector) == (
        "sum(orders_total)",
        "{order}",
        "counter",
        "stored",
    )
    with pytest.raises(ResourceNotFound, match="in no datasource that is known"):
        Resolver(store, IRIS, [_configured("other")]).resolve(CHECKOUT, "orders", _window(0, 9))


def test_configured_datasources_come_first_then_those_of_the_domain() -> None:
    """What can be fetched from is preferred, then what belongs to the entity's domain; a name decides otherwise."""
    found = Datasource.discovered("found", "prometheus", "http://found:9090", IRIS, GNODE, None)
    store = _store()
    store.add([found.document(IRIS)])
    resolver = Resolver(store, IRIS, [_configured("far", domain=None), _configured("near")])

    assert resolver.resolve(NODE, "mem_usage", _window(0, 9)).datasource == "near"
    assert resolver.resolve(NODE, "mem_usage", _window(0, 9), datasource="far").datasource == "far"
    by_document = resolver.resolve(NODE, "mem_usage", _window(0, 9), datasource=found.iri)
    assert (by_document.datasource, by_document.fetchable) == ("found", False)
    assert by_document.endpoint == "http://found:9090/api/v1/query_range"
    with pytest.raises(ResourceNotFound, match="'nera' is not a prometheus datasource") as error:
        resolver.resolve(NODE, "mem_usage", _window(0, 9), datasource="nera")
    assert error.value.hint == "did you mean near?"


def test_a_document_cannot_take_the_place_of_a_configured_datasource() -> None:
    """The configuration's address stands, whatever a document of that name says; an unusable document is no datasource."""
    store = _store()
    bad = {"type": "Datasource", "datasourceType": "prometheus", "endpointURL": "ftp://evil"}
    store.add(
        [
            {**bad, "id": IRIS.datasource("prometheus-main"), "name": "prometheus-main"},
            {**bad, "id": IRIS.datasource("x"), "name": "x"},
        ]
    )

    found = Resolver(store, IRIS, [_configured()]).resolve(NODE, "mem_usage", _window(0, 9))

    assert found.endpoint.startswith("http://prometheus-main:9090/")
    with pytest.raises(ResourceNotFound, match="no prometheus datasource is known") as error:
        Resolver(store, IRIS).resolve(NODE, "mem_usage", _window(0, 9))
    assert "[[datasource]]" in (error.value.hint or "")


def test_steps_that_mislead_are_warned_about() -> None:
    """A step below the scrape interval repeats points; energy is a share of its window; too many points go in parts."""
    server = _configured(scrape_interval="60s")

    assert "points repeat" in _resolve(NODE, "mem_usage", _window(0, 1), server, step="15s").warnings[0]
    energy = _resolve(NODE, "energy_joules", _window(0, 1), server, step="1m")
    assert "a step's share of 240 s" in energy.warnings[0]
    assert "[299999ms]) * 60)" in energy.query
    assert "[299999ms]" in _resolve(NODE, "cpu_usage", _window(0, 1), server, step="1m").query
    assert (
        "more than one query may ask for"
        in _resolve(NODE, "mem_usage", _window(0, 24 * 10), server, step="1m").warnings[0]
    )


def test_logs_are_resolved_for_workloads_and_pods() -> None:
    """The streams of exactly the pods that ran, in nanoseconds of UTC, as a runnable line."""
    resolver = Resolver(_store(), IRIS, [_configured("loki-main", "loki")])
    zone = timezone(timedelta(hours=2))
    window = Window((DAY + timedelta(hours=5)).astimezone(zone), DAY + timedelta(hours=5, minutes=30))

    found = resolver.resolve_logs(CHECKOUT, window)

    assert found.query == '{namespace="payments",pod=~"checkout-86b96c86dc-bbbbb"}'
    assert found.endpoint == "http://loki-main:9090/loki/api/v1/query_range"
    assert "start=1795755600000000000" in shlex.split(found.curl)
    assert (found.metric, found.fetchable, found.to_dict()["start"]) == ("logs", True, "2026-11-27T05:00:00Z")
    with pytest.raises(ResourceNotFound, match="is a Node, which has no logs"):
        resolver.resolve_logs(NODE, window)


def test_logs_of_a_sidecars_loki_need_the_sidecar() -> None:
    """A Loki of injected pods is offered where the graph says that it holds them, else the error says how to get there."""
    sidecar = _configured("sidecar", "loki", logs="injected")

    injected = Resolver(_described(logs_injected=True), IRIS, [sidecar])
    assert injected.resolve_logs(CHECKOUT, _window(0, 9)).datasource == "sidecar"
    assert injected.resolve_logs("prod/payments/pod/checkout-86b96c86dc-bbbbb", _window(0, 9)).datasource == "sidecar"
    with pytest.raises(ResourceNotFound, match="no logging sidecar") as error:
        Resolver(_described(), IRIS, [sidecar]).resolve_logs(CHECKOUT, _window(0, 9))
    assert "injection" in (error.value.hint or "")


def test_a_datasource_of_other_namespaces_is_not_asked() -> None:
    """``namespaces`` of a datasource hold for workloads and for pods alike; nodes are nobody's, and a name decides otherwise."""
    mine, others = _configured("mine", namespaces=["pay*"]), _configured("others", namespaces=["search"])
    resolver = Resolver(_store(), IRIS, [others, mine])

    for entity in (CHECKOUT, POD):
        assert resolver.resolve(entity, "mem_usage", _window(2, 6)).datasource == "mine"
        assert resolver.resolve(entity, "mem_usage", _window(2, 6), datasource="others").datasource == "others"
        with pytest.raises(ResourceNotFound, match="no prometheus datasource holds telemetry of prod/payments"):
            Resolver(_store(), IRIS, [others]).resolve(entity, "mem_usage", _window(2, 6))
    assert resolver.resolve(NODE, "mem_usage", _window(2, 6)).datasource == "others"


def test_what_is_not_scraped_is_not_asked_for_where_only_that_is_held() -> None:
    """``metrics = "scraped"``: the graph of a pod's workload says whether this Prometheus scrapes it."""
    scraping = _configured("scraping", metrics="scraped")
    described = _store(
        telemetry=describe(
            Subject(CHECKOUT, "Workload", "prod", "payments", "Deployment", "checkout", pods="x"),
            TemplateCatalogue.shipped(),
            [scraping],
            IRIS,
        )
    )

    for entity in (CHECKOUT, POD):
        assert (
            Resolver(described, IRIS, [scraping]).resolve(entity, "mem_usage", _window(2, 6)).datasource == "scraping"
        )
        with pytest.raises(ResourceNotFound, match="holds telemetry of") as error:
            Resolver(_store(), IRIS, [scraping]).resolve(entity, "mem_usage", _window(2, 6))
        assert "`metrics`" in (error.value.hint or "")


def test_a_window_between_two_points_is_refused() -> None:
    """No multiple of the step in the window is an error, not an empty query."""
    with pytest.raises(InvalidInput, match="no multiple of the step"):
        _resolve(NODE, "mem_usage", Window(DAY + timedelta(seconds=1), DAY + timedelta(seconds=2)), step="1m")
